"""The page of regressions: verdicts of ``kbtool compare``, and the command that gives them."""

from __future__ import annotations

import html
import re
from pathlib import Path

import site_trees as trees

from kbtool.cli.compare import compared
from kbtool.ledger.timings.commits import has_case, lines
from kbtool.ledger.timings.verdict import answer
from kbtool.site import addresses as at
from kbtool.site.index import Index
from kbtool.site.pages import home, regressions
from kbtool.store.tree import KnowledgeBase

REPOSITORY = Path(__file__).parents[2]


def test_without_two_comparable_commits_the_page_says_why(tmp_path):
    made = regressions.page(Index(KnowledgeBase(trees.make(tmp_path / "base"))))
    assert "No data because no two commits were timed under the same conditions" in made
    assert at.REGRESSIONS in home.page(Index(KnowledgeBase(trees.empty(tmp_path / "e"))), None)


def test_the_page_says_what_the_command_says():
    index = Index(KnowledgeBase(REPOSITORY))
    made = html.unescape(regressions.page(index))
    found = lines(entry.record for entry in index.base.runs)
    assert found.found
    for line in found.found:
        for one in line.beside:
            told = answer(one.rows, "the newest")
            assert (told if has_case(one) else "No case in common with") in made
        if line.before is not None:
            earlier, newest = (side.newest.commit[:8] for side in (line.before.a, line.before.b))
            assert f"kbtool compare {earlier} {newest}" in made
            assert compared(index.base, (earlier, newest), None).answer == line.before.answer
    for (kernel, machine), timed in found.alone.items():
        assert all(one.commit[:8] in made for one in timed), (kernel, machine)
    anchors = re.findall(r'id="([^"]+)"|\{#([^}]+)\}', made)
    assert len(anchors) == len(set(anchors))
