"""The page of regressions: verdicts of ``kbtool compare``, and the command that gives them."""

from __future__ import annotations

import html
import re
from pathlib import Path

import site_trees as trees

from kbtool.cli.compare import compared
from kbtool.ledger.timings.commits import Lines, lines, shared
from kbtool.ledger.timings.verdict import answer
from kbtool.site import addresses as at
from kbtool.site.index import Index
from kbtool.site.pages import home, regressions
from kbtool.site.pages.compare import case_sets
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
            whole = any(len(last.rows) == len(shared(one)) for last in line.last if last.a is one.a)
            if shared(one) and not whole:
                assert told in made
            elif not shared(one):
                assert "No case in common with" in made
        first = line.beside[0].b.runs
        for one in case_sets(index, first):
            parts = [part.split("\n") for part in made.split("\n## ")[1:]]
            assert any(
                line.commits[0].commit[:8] in head and one in cases for head, _, cases, *_ in parts
            )
        for one in line.last:
            earlier, newest = (side.newest.commit[:8] for side in (one.a, one.b))
            assert f"kbtool compare {earlier} {newest}" in made
            said = {row.case: row for row in compared(index.base, (earlier, newest), None).rows}
            assert all(said[row.case] == row for row in one.rows)
            assert f"**{answer(one.rows, 'the newest')}**" in made
    for (kernel, machine), timed in found.alone.items():
        assert all(one.commit[:8] in made for one in timed), (kernel, machine)
    rows = [row for line in found.found for row in line.rows]
    slower = sum(row.verdict == "slower" for row in rows)
    assert f"**{slower} cases slower at the newest commits**" in made
    assert f"Over all kernels and machines: {answer(rows, 'the newest')}." in made
    anchors = re.findall(r'id="([^"]+)"|\{#([^}]+)\}', made)
    assert len(anchors) == len(set(anchors))


def test_the_first_sentence_says_what_became_slower_and_where(monkeypatch):
    index = Index(KnowledgeBase(REPOSITORY))
    line, before = next(
        (line, line.beside[0])
        for line in lines(entry.record for entry in index.base.runs).found
        if all(row.a and row.b for row in line.beside[0].rows)
    )

    def said(verdict, changed):
        rows = [row._replace(verdict=verdict) for row in before.rows[:changed]]
        one = before._replace(rows=[*rows, *before.rows[changed:]])
        made = line._replace(beside=[one, *line.beside[1:]])
        monkeypatch.setattr(regressions, "lines", lambda runs: Lines([made], {}))
        return html.unescape(regressions.page(index)).split("\n\n")

    page = said("slower", 2)
    kernel = index.kernels[line.kernel]
    assert page[1].startswith(f"**2 cases slower at the newest commits**, in [{kernel.title}, ")
    assert f"](#{kernel.id}-NVIDIA-H200-{line.commits[0].commit[:8]}). Over all" in page[1]
    shown = next(part for part in page if part.startswith("| Case |"))
    assert len(shown.split("\n")) == 2 + 2
    assert f"<summary>{len(before.rows) - 2} cases unchanged</summary>" in "\n".join(page)
    unknown = said("too_noisy", len(before.rows))[1]
    assert unknown.startswith("**Whether anything became slower is not known**. Over all")
