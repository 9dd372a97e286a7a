"""Tables sort and filter, by mouse and by key, and the address keeps how they stand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from browsing import Served, Visit

Open = Callable[..., Visit]

COLUMN = """([title, nth]) => {
  const table = document.querySelectorAll("article table")[nth || 0];
  const at = [...table.tHead.rows[0].cells].findIndex(cell => cell.textContent.trim() === title);
  return [...table.tBodies[0].rows].filter(row => !row.hidden)
    .map(row => row.cells[at].textContent.trim());
}"""

MAKE = """([cells, number]) => {
  const head = document.createElement("th"), body = document.createElement("tbody");
  head.textContent = "X";
  for (const cell of cells) {
    const row = body.insertRow(), at = row.insertCell();
    if (Array.isArray(cell)) at.dataset.sort = cell[1];
    at.textContent = Array.isArray(cell) ? cell[0] : cell;
  }
  const table = document.createElement("table");
  table.createTHead().insertRow().append(head);
  table.append(body);
  document.querySelector("article").append(table);
  kbTables.enhance(table, number, false);
  head.querySelector("button").click();
  return [...body.rows].map(row => row.cells[0].textContent);
}"""


def column(seen: Visit, title: str, nth: int = 0) -> list[str]:
    found: list[str] = seen.page.evaluate(COLUMN, [title, nth])
    return found


def minutes(cells: list[str]) -> list[float]:
    return [float(cell.split()[0]) for cell in cells if cell != "unknown"]


@pytest.mark.parametrize("way", ["http", "file"])
def test_a_listing_sorts_by_a_figure(own: Served, visit: Open, way: str) -> None:
    base = own.bases()[way]
    seen = visit(base)
    seen.goto(f"{base}/sessions/index.html")
    before = column(seen, "Time")
    head = seen.page.locator("th", has_text="Time")
    assert head.get_attribute("aria-sort") is None
    seen.page.get_by_role("button", name="Time").click()
    assert head.get_attribute("aria-sort") == "ascending"
    rising = column(seen, "Time")
    assert minutes(rising) == sorted(minutes(before)) and rising[-1] == "unknown"
    assert seen.page.url.endswith("#sort=Time")
    seen.page.get_by_role("button", name="Time").press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    falling = column(seen, "Time")
    # What nobody knows stays last.
    assert minutes(falling) == minutes(rising)[::-1] and falling[-1] == "unknown"
    seen.page.get_by_role("button", name="Time").press("Space")
    assert column(seen, "Time") == before
    assert "#" not in seen.page.url


def test_a_filter_counts_and_the_address_keeps_it(own: Served, visit: Open) -> None:
    seen = visit(own.http)
    seen.goto(f"{own.http}/sessions/index.html")
    many = len(column(seen, "Title"))
    box = seen.page.get_by_label("Filter")
    box.fill("PAUSED n+7")
    left = column(seen, "Status")
    assert 0 < len(left) < many and set(left) == {"paused"}
    assert seen.page.locator(".kb-filter output").inner_text() == f"{len(left)} of {many}"
    assert seen.page.locator(".kb-filter output").get_attribute("aria-live") == "polite"
    seen.page.get_by_role("button", name="Title").click()
    titles = column(seen, "Title")
    address = seen.page.url
    again = visit(own.http)
    again.goto(address)
    assert column(again, "Title") == titles
    assert again.page.get_by_label("Filter").input_value() == "PAUSED n+7"
    box.fill("no such words")
    assert column(seen, "Title") == []
    box.fill("")
    assert len(column(seen, "Title")) == many
    assert "q=" not in seen.page.url


def test_a_total_stays_last(own: Served, visit: Open) -> None:
    seen = visit(own.http)
    seen.goto(f"{own.http}/costs.html")
    nth = seen.page.evaluate(
        "[...document.querySelectorAll('article table')].findIndex(table =>"
        " table.rows[0].cells[0].textContent.trim() === 'Month')"
    )
    months = column(seen, "Month", nth)
    assert months[-1].startswith("all") and len(months) > 2
    table = seen.page.locator("article table").nth(nth)
    for _ in range(2):
        table.get_by_role("button", name="Month").click()
        assert column(seen, "Month", nth)[-1] == months[-1]
    dated = [month for month in months if month[:2] == "20"]
    assert column(seen, "Month", nth)[: len(dated)] == sorted(dated, reverse=True)


def test_an_anchor_is_no_state(own: Served, visit: Open) -> None:
    seen = visit(own.http)
    seen.goto(f"{own.http}/runs/index.html#title")
    assert seen.page.locator("[aria-sort]").count() == 0
    assert seen.page.url.endswith("#title")


def test_prose_and_pages_written_by_hand_are_left_alone(own: Served, visit: Open) -> None:
    seen = visit(own.http)
    tables = 0
    for page in ("guide/ledger.html", "guide/records.html", "adr/0005-stable-abi.html"):
        seen.goto(f"{own.http}/{page}")
        tables += seen.page.locator("article table").count()
        assert seen.page.locator(".kb-sort").count() == 0
    assert tables
    prose = others = 0
    for page in own.pages():
        if page.startswith("kernels/split_k_attention") and "/src/" not in page:
            seen.goto(f"{own.http}/{page}")
            prose += seen.page.locator(".kb-prose table").count()
            others += seen.page.locator(".kb-sort").count()
            assert seen.page.locator(".kb-prose table .kb-sort").count() == 0
    assert prose and others


def test_without_scripts_a_table_is_there(own: Served, visit: Open) -> None:
    seen = visit(own.http, java_script_enabled=False)
    seen.page.goto(f"{own.http}/sessions/index.html")
    assert seen.page.locator("article tbody tr").count() > 10
    assert seen.page.locator(".kb-filter").count() == 0


@pytest.mark.parametrize(
    "ordered",
    [
        ["0.9 s", "75 s", "2 min 5 s", "3 min", "2 h", "–"],
        ["-1.50 USD", "0.20 USD", "26.40 USD", "1,000.00 USD + 2 unknown", "unknown"],
        ["2025-02", "2025-10-12", "2025-10-13", "2026-01-01 10:19 UTC", "undated"],
        ["−3 %", "+5 %", "~12 %", "≥ 80 %"],
        ["1.00e-09", "0.5 ± 0.1", "2.50 2.25–2.75", "10 ± 9"],
        ["20–25 min", "1 h"],
        ["800 bytes", "1 kB", "1.1 KiB", "2 MB"],
        ["N+2", "N+7A", "N+10", "O"],
        ["2 of 9", "10 of 12", "none"],
        [["z", "1"], ["a", "2"], ["m", "10"]],
    ],
    ids=lambda cells: str(cells[0]),
)
def test_cells_sort_by_what_they_mean(own: Served, visit: Open, ordered: list[Any]) -> None:
    seen = visit(own.http)
    seen.goto(f"{own.http}/tags.html")
    shown = [cell[0] if isinstance(cell, list) else cell for cell in ordered]
    for number, given in enumerate((ordered[::-1], ordered[1:] + ordered[:1]), 8):
        assert seen.page.evaluate(MAKE, [given, number]) == shown
