"""The page of regressions in a browser: an earlier commit is chosen by opening it."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("width", [1440, 390])
def test_an_earlier_commit_is_opened_and_compared_case_by_case(own, visit, width):
    seen = visit(own.http, viewport={"width": width, "height": 900})
    seen.goto(f"{own.http}/regressions.html")
    overview = seen.page.locator("article table").first
    assert overview.locator("tbody tr").count() >= 2
    overview.locator("tbody a[href^='#']").first.click()
    assert seen.page.evaluate("location.hash").startswith("#split_k")
    said = seen.page.locator("article h1 + p").inner_text()
    assert "slower at the newest commits" in said
    assert "Over all kernels and machines: the newest is " in said
    unchanged = seen.page.locator("article details", has_text="cases unchanged").first
    assert not unchanged.locator("table").is_visible()
    folded = seen.page.locator("details:has(> summary:has-text('All cases compared with'))").first
    table = folded.locator("table").first
    assert not table.is_visible()
    folded.locator("summary").first.click()
    table.wait_for(state="visible")
    heads = table.locator("th").all_text_contents()
    assert [head.strip() for head in heads][:4] == [
        "Case", "Verdict", "Newest ÷ earlier", "Spread",
    ]  # fmt: skip
    verdicts = {text.strip() for text in table.locator("td:nth-child(2)").all_text_contents()}
    assert verdicts <= {"same", "slower", "faster", "too noisy", "missing"}
    assert "kbtool compare" in folded.text_content()
    assert seen.page.evaluate("document.documentElement.scrollWidth") == width
