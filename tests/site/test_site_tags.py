"""The tags: a table of them, and pages of what has each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import site_trees as trees
from site_html import Site

from kbtool.site import addresses as at
from kbtool.site.index import Index
from kbtool.site.pages import pages
from kbtool.store.tree import KnowledgeBase


def test_the_table_counts_what_has_each_tag(tmp_path: Path) -> None:
    made = pages(Index(KnowledgeBase(trees.make(tmp_path / "kb", sessions=3))))
    assert '| <span id="tag:l4"></span>[l4](tags/l4/index.md) | 3 | 2 |' in made[at.TAGS]
    assert "[true](tags/true/index.md) | 3 | 0 |" in made[at.TAGS]
    shown = made[at.tag_page("l4")]
    newest, oldest = (f"../../sessions/{trees.session_id(number)}.md" for number in (2, 0))
    assert "| What | Kind | Date |" in shown
    assert "| What | Date |" in made[at.tag_page("true")]  # of sessions alone
    assert shown.index(newest) < shown.index(oldest) < shown.index("../../patterns/P01.md")


def test_the_tags_of_a_page_lead_there(plain_site: Site) -> None:
    session = plain_site.pages[f"sessions/{trees.session_id(0)}.html"]
    assert {"../tags/l4/index.html", "../tags/true/index.html"} <= set(session.links)


@pytest.mark.slow
def test_two_tags_that_differ_in_a_final_s_are_one(tmp_path: Path) -> None:
    root = trees.make(tmp_path / "kb", sessions=3)
    tags = {0: ["costs", "process"], 1: ["cost"], 2: ["cost"]}
    for number, own in tags.items():
        path = root / "sessions" / trees.session_id(number) / "session.yaml"
        path.write_text(json.dumps({**json.loads(path.read_text()), "tags": own}))
    made = pages(Index(KnowledgeBase(root)))
    assert "[cost](tags/cost/index.md) | 3 | 0 |" in made[at.TAGS]
    assert "tags/process/" in made[at.TAGS] and at.tag_page("costs") not in made
    assert '"cost": ' in made[at.session_page(trees.session_id(0))]


@pytest.mark.slow
def test_without_a_tag_the_page_says_so(tmp_path: Path) -> None:
    root = trees.make(tmp_path / "kb", sessions=1)
    for path in [*root.glob("sessions/*/session.yaml"), *root.glob("patterns/*.yaml")]:
        record = json.loads(path.read_text())
        path.write_text(json.dumps({**record, "tags": []}))
    assert "has a tag" in pages(Index(KnowledgeBase(root)))[at.TAGS]
