"""Every sum on the page of costs says of how many sessions the money is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbtool.ledger.estimated import costs_of
from kbtool.ledger.rollup import roll_up
from kbtool.store.tree import KnowledgeBase

REPOSITORY = Path(__file__).parents[2]

LAST_CELLS = """(by) => {
  let at = document.getElementById(`by-${by}`);
  while (!at.querySelector("table")) at = at.nextElementSibling;
  return [...at.querySelectorAll("tr")].map(row => row.lastElementChild.textContent.trim());
}"""


@pytest.mark.parametrize("width", [1440, 390])
def test_sums_have_their_coverage_beside_them(own, visit, width):
    sessions = [*costs_of(KnowledgeBase(REPOSITORY)).sessions.values()]
    seen = visit(own.http, viewport={"width": width, "height": 900})
    seen.goto(f"{own.http}/costs.html")
    for by in ("month", "card", "engineer"):
        table = roll_up(sessions, by)
        wanted = ["Sessions priced", *(row.coverage for row in [*table.rows, table.total])]
        assert seen.page.evaluate(LAST_CELLS, by) == wanted
    below = " ".join(
        seen.page.locator("#over-time ~ .kb-chart").first.locator("text").all_text_contents()
    )
    for row in roll_up(sessions, "month").rows:
        assert f"{row.label}: {row.coverage} priced" in below
    assert seen.page.evaluate("document.documentElement.scrollWidth") == width
