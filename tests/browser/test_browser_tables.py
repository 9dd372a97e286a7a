"""Tables sort and filter by mouse and keyboard, and the address keeps their state."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from browsing import SETTLED, Served, Visit

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


FRAMED = """([rows, columns, cell]) => {
  const row = (tag) => `<tr>${`<${tag}>${cell}</${tag}>`.repeat(columns)}</tr>`;
  document.querySelector("article").innerHTML =
    `<h2>Figures<a class="headerlink">¶</a></h2><div class="md-typeset__scrollwrap">
    <div class="md-typeset__table"><table><thead>${row("th")}</thead>
    <tbody>${row("td").repeat(rows)}</tbody></table></div></div><p style="height: 200vh">`;
}"""
"""A table in the theme's frame, in the place of what the page has."""


OPENED = "() => document.querySelectorAll('details').forEach(part => { part.open = true })"

SCROLL = """most => [...document.querySelectorAll(".md-typeset__scrollwrap")]
  .filter(frame => frame.scrollWidth > frame.clientWidth + 1)
  .map(frame => [...frame.querySelector("tr").cells].map(cell => cell.textContent.trim()))
  .filter(heads => heads.length <= most)"""
"""The heads of the tables of so many columns at most that scroll sideways."""


def framed(seen: Visit, base: str, rows: int, columns: int, cell: str) -> Any:
    seen.goto(f"{base}/tags.html")
    seen.page.evaluate(FRAMED, [rows, columns, cell])
    seen.page.evaluate(SETTLED)
    return seen.page.locator(".md-typeset__scrollwrap")


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


def test_a_fragment_of_a_run_s_id_filters_the_runs(own: Served, visit: Open) -> None:
    ids = [Path(page).stem for page in own.pages() if re.match(r"runs/.+/", page)]
    seen = visit(own.http)
    seen.goto(f"{own.http}/runs/index.html")
    assert len(column(seen, "Run")) == len(ids)
    end = ids[0][-7:]
    seen.page.get_by_label("Filter").fill(end.upper())
    assert len(column(seen, "Run")) == sum(end in one for one in ids)
    titles = seen.page.locator("article tbody tr:visible td:first-child a")
    assert ids[0] in titles.evaluate_all("links => links.map(link => link.title)")


def test_a_filter_counts_and_the_address_keeps_it(own: Served, visit: Open) -> None:
    seen = visit(own.http)
    seen.goto(f"{own.http}/sessions/index.html")
    many = len(column(seen, "Title"))
    assert many == sum(page.startswith("sessions/") for page in own.pages()) - 1
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


def test_the_row_of_totals_stays_last_when_sorted(own: Served, visit: Open) -> None:
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


def test_an_anchor_is_not_read_as_the_state_of_a_table(own: Served, visit: Open) -> None:
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
def test_cells_are_sorted_by_value_and_not_by_text(
    own: Served, visit: Open, ordered: list[Any]
) -> None:
    seen = visit(own.http)
    seen.goto(f"{own.http}/tags.html")
    shown = [cell[0] if isinstance(cell, list) else cell for cell in ordered]
    for number, given in enumerate((ordered[::-1], ordered[1:] + ordered[:1]), 8):
        assert seen.page.evaluate(MAKE, [given, number]) == shown


def test_a_keyboard_scrolls_a_frame_that_is_too_narrow(own: Served, visit: Open) -> None:
    seen = visit(own.http)
    frame = framed(seen, own.http, 3, 30, "figures")
    region = seen.page.get_by_role("region", name="Figures, table 1")
    region.focus()
    assert "kb-more" in frame.get_attribute("class")
    seen.page.keyboard.press("ArrowRight")
    seen.page.wait_for_function("document.activeElement.scrollLeft > 0")
    frame.evaluate("frame => { frame.scrollLeft = frame.scrollWidth }")
    seen.page.evaluate(SETTLED)
    assert "kb-more" not in frame.get_attribute("class")


def test_a_frame_that_fits_is_no_stop_of_the_keyboard(own: Served, visit: Open) -> None:
    seen = visit(own.http)
    frame = framed(seen, own.http, 3, 5, "figures")
    attributes = ("tabindex", "role", "aria-label")
    assert [frame.get_attribute(name) for name in attributes] == [None] * 3
    seen.page.set_viewport_size({"width": 200, "height": 600})
    seen.page.evaluate(SETTLED)
    assert [frame.get_attribute(name) for name in attributes] == ["0", "region", "Figures, table 1"]
    seen.page.set_viewport_size({"width": 1280, "height": 600})
    seen.page.evaluate(SETTLED)
    assert frame.get_attribute("tabindex") is None


def test_a_hidden_table_is_measured_when_it_is_shown(own: Served, visit: Open) -> None:
    seen = visit(own.http)
    frame = framed(seen, own.http, 3, 30, "figures")
    for hidden, tabindex in (("true", None), ("false", "0")):
        seen.page.evaluate(f"document.querySelector('.md-typeset__scrollwrap').hidden = {hidden}")
        seen.page.evaluate(SETTLED)
        seen.page.evaluate(SETTLED)
        assert frame.get_attribute("tabindex") == tabindex


def test_a_long_word_is_wrapped_within_its_table(own: Served, visit: Open) -> None:
    seen = visit(own.http)
    cell = f'<span class="kb-long"><code>long-{"x" * 300}</code> and more</span>'
    frame = framed(seen, own.http, 3, 1, cell)
    assert frame.evaluate("frame => frame.scrollWidth <= frame.clientWidth")


@pytest.mark.parametrize("columns", [5, 30])
def test_the_heads_of_a_long_table_stay(own: Served, visit: Open, columns: int) -> None:
    """Below the header of the site where the table fits, else at the top of its frame."""
    seen = visit(own.http)
    frame = framed(seen, own.http, 100, columns, "figures")
    wide = columns == 30
    if wide:
        frame.evaluate("frame => { frame.scrollTop = 500 }")
    else:
        seen.page.evaluate("scrollTo(0, 900)")
    seen.page.evaluate(SETTLED)
    above = frame if wide else seen.page.locator(".md-header")
    box = above.bounding_box()
    top = frame.locator("th").first.bounding_box()["y"]
    assert 0 <= top - (box["y"] if wide else box["y"] + box["height"]) < 3
    assert frame.locator("tbody tr").first.bounding_box()["y"] < top


@pytest.mark.parametrize("width", [1440, 390])
def test_the_first_column_stays_in_view_as_a_table_scrolls(
    own: Served, visit: Open, width: int
) -> None:
    seen = visit(own.http, viewport={"width": width, "height": 900})
    frame = framed(seen, own.http, 3, 40, "figures")
    names = [frame.locator(f"{tag}:first-child").first for tag in ("th", "td")]
    before = [name.bounding_box()["x"] for name in names]
    second = frame.locator("td:nth-child(2)").first
    assert second.bounding_box()["x"] > before[1]
    frame.evaluate("frame => { frame.scrollLeft = 300 }")
    seen.page.evaluate(SETTLED)
    assert second.bounding_box()["x"] < before[1]  # it passes behind
    left = frame.bounding_box()["x"]
    for name, was in zip(names, before, strict=True):
        assert left <= name.bounding_box()["x"] <= was
        ground = name.evaluate("cell => getComputedStyle(cell).backgroundColor")
        assert ground.startswith("rgb(")  # and nothing shows through


def peers(site: Served) -> str:
    """The largest page of a run of the recipe that times the peers."""
    pages = (page for page in site.pages() if re.search(r"Z-peers-[0-9a-f]{4}\.html$", page))
    return max(pages, key=lambda page: (site.out / page).stat().st_size)


def test_on_a_phone_the_verdict_or_the_ratio_is_seen_without_scrolling(
    own: Served, visit: Open
) -> None:
    seen = visit(own.http, viewport={"width": 390, "height": 900})
    for page, head in [
        ("compare.html", "B is"),
        ("regressions.html", "Newest ÷ earlier"),
        (peers(own), "Verdict"),
        (peers(own), "Against the fastest peer of this run"),
        ("kernels/split_k_attention.html", "Best peer"),
        ("kernels/split_k_attention/results.html", "Best peer ÷ ours"),
    ]:
        seen.goto(f"{own.http}/{page}")
        seen.page.evaluate(OPENED)
        found = seen.page.locator("article table:not([data-labelled]) th", has_text=head).first
        found.wait_for()
        box = found.bounding_box()
        assert box["x"] + box["width"] <= 390, (page, head, box)


def test_on_a_wide_screen_only_tables_of_many_columns_scroll(own: Served, visit: Open) -> None:
    seen = visit(own.http, viewport={"width": 1440, "height": 900})
    for page in [*own.one_of_each_kind(), peers(own), "guide/attach.html"]:
        seen.goto(f"{own.http}/{page}")
        seen.page.evaluate(OPENED)
        assert seen.page.evaluate(SCROLL, 10) == [], page


def test_no_table_is_cut_off_in_print(own: Served, visit: Open) -> None:
    paper = {"width": 718, "height": 1000}  # A4 less margins of 1 cm
    seen = visit(own.http, viewport=paper)
    seen.page.emulate_media(media="print")
    for page in own.one_of_each_kind():
        seen.goto(f"{own.http}/{page}")
        cut = "all => all.filter(e => e.scrollWidth > e.clientWidth + 1).length"
        assert seen.page.locator(".md-typeset__scrollwrap").evaluate_all(cut) == 0, page


PHONE = {"width": 390, "height": 900}


def test_on_a_phone_a_choice_sorts_a_stacked_table(own: Served, visit: Open) -> None:
    seen = visit(own.http, viewport=PHONE)
    seen.goto(f"{own.http}/patterns/index.html")
    before = column(seen, "Pattern")
    choice = seen.page.get_by_label("Sort by")
    assert not seen.page.locator("article thead").is_visible()
    assert choice.evaluate("e => e.selectedOptions[0].textContent") == "as listed"
    choice.select_option("Pattern, descending")
    falling = column(seen, "Pattern")
    assert falling == sorted(before, key=str.casefold, reverse=True) != before
    assert seen.page.url.endswith("#sort=-Pattern")
    seen.page.set_viewport_size({"width": 1280, "height": 900})
    assert not choice.is_visible()
    seen.page.get_by_role("button", name="Evidence").click()
    assert choice.input_value() == "Evidence"
    seen.page.set_viewport_size(PHONE)
    choice.select_option("as listed")
    assert column(seen, "Pattern") == before and "#" not in seen.page.url


def test_on_a_phone_a_short_stacked_table_has_neither_heads_nor_a_choice(
    own: Served, visit: Open
) -> None:
    seen = visit(own.http, viewport=PHONE)
    shown = []
    for page in (peers(own), "patterns/index.html"):
        seen.goto(f"{own.http}/{page}")
        shown += seen.page.locator(".kb-stack tbody").evaluate_all(
            """bodies => bodies.map(body => [body.rows.length, body.parentNode.tHead.offsetHeight,
              body.closest(".kb-stack").querySelectorAll(".kb-order").length])"""
        )
    assert {rows < 6 for rows, _, _ in shown} == {True, False}
    assert [row for row in shown if row[1] or row[2] != (row[0] >= 6)] == []


def test_on_a_phone_the_first_cell_of_a_block_is_its_title(own: Served, visit: Open) -> None:
    seen = visit(own.http, viewport=PHONE)
    seen.goto(f"{own.http}/patterns/index.html")
    style = """cells => cells.slice(0, 2).map(cell => {
      const { fontWeight, fontSize } = getComputedStyle(cell);
      return [Number(fontWeight), parseFloat(fontSize)];
    })"""
    title, other = seen.page.locator("article tbody td").evaluate_all(style)
    assert title[0] == 700 > other[0] and title[1] > other[1]


def test_the_fade_is_narrow_and_only_where_a_column_is_left(own: Served, visit: Open) -> None:
    seen = visit(own.http)
    frame = framed(seen, own.http, 3, 30, "figures")
    mask = frame.evaluate("frame => getComputedStyle(frame).maskImage")
    assert float(re.search(r"([\d.]+)px\)$", mask)[1]) <= 12
    # The table ends in view, and what is left to scroll is the room beside it.
    frame.evaluate("""frame => {
      const end = frame.querySelector("table").getBoundingClientRect().right;
      frame.style.width = `${end - frame.getBoundingClientRect().left + 5}px`;
      frame.scrollLeft = 1;
    }""")
    seen.page.evaluate(SETTLED)
    assert frame.evaluate("frame => frame.scrollWidth > frame.clientWidth + 5")
    assert "kb-more" not in frame.get_attribute("class")


def test_on_a_phone_a_long_name_stays_in_the_first_column(own: Served, visit: Open) -> None:
    seen = visit(own.http, viewport=PHONE)
    name = "H=2 Sq=100 Skv=100 dtype=bfloat16 <br><small>beside causal square bfloat16</small>"
    for columns in (5, 8, 13):
        frame = framed(seen, own.http, 3, columns, f'<span class="kb-long">{name}</span>')
        out = """cells => cells.filter(cell => [...cell.querySelectorAll("*")].some(part =>
          part.getBoundingClientRect().right > cell.getBoundingClientRect().right)).length"""
        assert frame.locator("td:first-child").evaluate_all(out) == 0, columns


def test_the_line_between_rows_is_below_their_heads_too(own: Served, visit: Open) -> None:
    seen = visit(own.http)
    seen.goto(f"{own.http}/tags.html")
    seen.page.evaluate("""() => {
      document.querySelector("article").innerHTML =
        "<table><tbody><tr><th scope=row>A</th><td>1</td></tr></tbody></table>";
    }""")
    lines = "cells => cells.map(cell => getComputedStyle(cell).borderTop)"
    head, cell = seen.page.locator("tbody tr > *").evaluate_all(lines)
    assert head == cell and not head.startswith("0px")


def test_figures_are_aligned_right(own: Served, visit: Open) -> None:
    seen = visit(own.http)
    seen.goto(f"{own.http}/tags.html")
    sides = "cells => cells.map(cell => getComputedStyle(cell).textAlign)"
    cells = seen.page.locator("article tbody tr").first.locator("td")
    assert cells.evaluate_all(sides) == ["left", "right", "right"]


def test_the_underscores_of_a_link_can_be_seen(own: Served, visit: Open) -> None:
    seen = visit(own.http)
    framed(seen, own.http, 1, 1, '<a href="#">num_splits</a>')
    style = "e => { const s = getComputedStyle(e); return [s.textUnderlineOffset, s.fontSize] }"
    offset, size = seen.page.locator("td a").evaluate(style)
    assert float(offset.removesuffix("px")) > 0.25 * float(size.removesuffix("px"))
