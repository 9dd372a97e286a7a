"""Long lists are cut into pages that together show every row once."""

from __future__ import annotations

import re

import pytest
import site_trees as trees
from site_html import Site

from kbtool.site import addresses as at
from kbtool.site.index import Index
from kbtool.site.pages import pages
from kbtool.site.paging import ROWS, parts
from kbtool.store.tree import KnowledgeBase


@pytest.mark.parametrize("count", [0, 1, ROWS, ROWS + 1, 7 * ROWS + 3])
def test_the_pages_of_a_list_show_every_row_once_and_as_many_each(count: int) -> None:
    rows = list(range(count))
    made = list(parts(at.RUNS, count))
    assert [row for part in made for row in part.rows(rows)] == rows
    sizes = {len(part.rows(rows)) for part in made}
    assert max(sizes) <= ROWS and max(sizes) - min(sizes) <= 1
    assert made[0].here == at.RUNS
    assert len({part.here for part in made}) == len(made) == made[0].of
    assert all(bool(part.turn()) == (len(made) > 1) for part in made)


def test_a_page_leads_to_the_first_the_last_and_those_around_it() -> None:
    middle = list(parts(at.BUGS, 20 * ROWS))[9]
    assert middle.here == "bugs/page/10.md"
    assert middle.turn() == (
        "Page [1](../index.md) … [8](8.md) [9](9.md) **10** [11](11.md) [12](12.md) … [20](20.md)"
        " of 20; the search finds what is on any of them."
    )


@pytest.mark.slow
def test_sessions_that_are_too_many_for_a_page_go_on_to_the_next(tmp_path) -> None:
    trees.make(tmp_path / "kb", sessions=ROWS + 2)
    made = pages(Index(KnowledgeBase(tmp_path / "kb")))
    first, second = made[at.SESSIONS], made["sessions/page/2.md"]
    assert "sessions/page/3.md" not in made
    assert "# Sessions, page 2 {" in second
    for number in range(ROWS + 2):
        page = at.session_page(trees.session_id(number)).removeprefix("sessions/")
        shown = (f"]({page})" in first, f"](../{page})" in second)
        assert shown == ((True, False) if number > ROWS // 2 else (False, True)), number


def test_no_page_of_a_list_is_cut_for_its_weight(real_site: Site) -> None:
    listed = re.compile(r"(bugs|sessions|runs|tags/[^/]+)/(index|page/\d+)~")
    assert not [page for page in real_site.pages if listed.match(page)]
