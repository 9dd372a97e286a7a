"""From the home page to what helps: the table of symptoms, filtered in a browser."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("width", [1440, 390])
def test_a_symptom_leads_to_its_bugs_and_the_command_that_helps(own, visit, width):
    seen = visit(own.http, viewport={"width": width, "height": 900})
    seen.goto(f"{own.http}/index.html")
    seen.page.locator("article a[href^='what-went-wrong']").first.click()
    seen.page.wait_for_url("**/what-went-wrong.html")
    table = seen.page.locator("article table")
    every = table.locator("tbody tr").count()
    frame = "e => e.closest('.md-typeset__scrollwrap').scrollWidth <= innerWidth"
    assert table.evaluate(frame)  # no column is behind a scroll
    seen.page.get_by_label("Filter").fill("undefined symbol")
    shown = table.locator("tbody tr:visible")
    assert 0 < shown.count() < every
    assert all("ndefined symbol" in text for text in shown.all_text_contents())
    assert seen.page.locator(".kb-filter output").text_content() == f"{shown.count()} of {every}"
    assert seen.page.evaluate("location.hash") == "#q=undefined+symbol"
    row = shown.first
    assert "min" in row.text_content() and "USD" in row.text_content()
    assert "kbtool run-recipe" in row.locator("td").nth(1).text_content()
    assert seen.page.evaluate("document.documentElement.scrollWidth") == width
    row.locator("a[href^='bugs/']").first.click()
    seen.page.wait_for_url("**/bugs/**")
    assert seen.page.locator("h1").count() == 1
