"""The page that compares runs gives no verdict on a noisy run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import site_trees as trees
from test_site_noisy import LOUD, WHY, put_noisy

from kbtool.site import addresses as at
from kbtool.site.html.build import build


@pytest.fixture(scope="module")
def opened(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Any]]:
    """The address of the built page that compares, and a page of the browser."""
    root = tmp_path_factory.mktemp("noisy")
    build(put_noisy(trees.make(root / "kb")), root / "site")
    page = browser.new_page()
    yield (root / "site" / at.published(at.COMPARE)).as_uri(), page
    page.close()


@pytest.mark.parametrize(
    ("a", "b", "sides"),
    [("QUIET/ours", "QUIET/theirs", ""), ("LOUD/ours", "LOUD/theirs", "AB"),
     ("LOUD/ours", "QUIET/ours", "A"), ("QUIET/ours", "LOUD/theirs", "B"), ("", "", "")],
)  # fmt: skip
def test_compare_gives_no_verdict_where_a_side_is_noisy(
    opened: tuple[str, Any], a: str, b: str, sides: str
) -> None:
    address, page = opened
    names = {"QUIET": "20251121T101010Z-copy", "LOUD": LOUD}

    def side(text: str) -> str:
        run_, _, arm = text.partition("/")
        return f"{names[run_]}/words%20about%20{arm}"

    page.goto("about:blank")
    page.goto(address + (f"#a={side(a)}&b={side(b)}" if a else ""))
    page.locator("#kb-compare table").first.wait_for()
    text = page.locator("#kb-compare").inner_text()
    cells = page.locator("#kb-compare table").first.locator("tbody td").all_inner_texts()
    for letter in "AB":
        told = f"The run of {letter} is {WHY}, so no ratio and no verdict is given" in text
        assert told == (letter in sides)
    if sides:
        assert cells[3:] == ["–", "too noisy"] and "no verdict; 1 too noisy to tell" in text
        for word in ("Largest gain", "Geometric mean", "faster\n", "slower\n", "7.59", "1.00"):
            assert word not in text, word
        assert page.locator(".kb-chip--good, .kb-chip--bad").count() == 0
    else:  # what is chosen by itself is the quiet run, though it is older
        # One run on a processor: nobody knows how far runs lie apart there.
        assert cells[3:] == ["1.00", "too noisy"] and "Largest gain" in text
    copied = page.evaluate(
        """() => new Promise(done => {
            Object.defineProperty(navigator, "clipboard", {configurable: true, value: {
                writeText: text => { done(text); return Promise.resolve(); }}});
            [...document.querySelectorAll("button")].find(b => /Markdown/.test(b.textContent))
                .click();
        })"""
    )
    assert ("| – | too noisy |" in copied) == ("no verdict is given" in copied) == bool(sides)
    assert ("Largest gain" in copied) == (not sides)
