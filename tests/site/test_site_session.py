"""The page of a session: its card, its steps drawn, what came before and after."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from xml.etree import ElementTree

import pytest
import site_trees as trees
from knowledge import Knowledge

from kbtool.model.session import Session
from kbtool.site import addresses as at
from kbtool.site.index import Index
from kbtool.site.pages import bug as bug_pages
from kbtool.site.pages import pattern as patterns
from kbtool.site.pages import session as pages
from kbtool.site.pages import timeline
from kbtool.store.tree import KnowledgeBase

BASE = {"id": "2025-01-01-a", "label": "A", "title": "T", "origin": "person", "status": "complete"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return trees.make(tmp_path / "kb", sessions=3)


def page(root: Path, number: int) -> str:
    index = Index(KnowledgeBase(root))
    return unescape(pages.page(index, index.sessions[trees.session_id(number)]))


def change(root: Path, number: int, **fields: object) -> None:
    path = root / "sessions" / trees.session_id(number) / "session.yaml"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def steps(root: Path, *times: tuple[str | None, str | None]) -> str:
    listed = [
        {"id": f"s{at}", "title": f"step {at}", "target": target, "actual": actual}
        for at, (target, actual) in enumerate(times)
    ]
    one = Session.model_validate({**BASE, "steps": listed})
    return timeline.steps(Index(KnowledgeBase(root)), one, at.session_page(one.id))


def bars(made: str) -> list[dict[str, float]]:
    """Of each drawing the lengths by class."""
    found = []
    for svg in re.findall(r"<svg.*?</svg>", made):
        root = ElementTree.fromstring(svg)
        assert root.get("aria-label") == root.findtext("title")
        width = float(root.get("width", 0))
        for rect in root.iter("rect"):
            assert 0 <= float(rect.get("x")) <= float(rect.get("x")) + float(rect.get("width"))
            assert float(rect.get("x")) + float(rect.get("width")) <= width
        found.append({rect.get("class"): float(rect.get("width")) for rect in root.iter("rect")})
    return found


def test_bars_are_on_one_scale_and_the_times_add_up(root):
    made = steps(root, ("25 min", "75 min"), ("1 h", "30 min"), (None, "15 min"))
    first, second, third = bars(made)
    assert first["kb-actual"] == pytest.approx(3 * first["kb-target"], abs=0.2)
    assert second["kb-target"] == pytest.approx(2 * second["kb-actual"], abs=0.2)
    assert third["kb-actual"] == pytest.approx(first["kb-actual"] / 5, abs=0.2)
    assert "kb-target" not in third
    assert "2 of 3 steps state both times: 85 min planned, 105 min taken, 20 min over." in made
    assert "| +50 min |" in made and "| −30 min |" in made


def test_what_a_range_or_a_bound_leaves_open_is_pale_and_is_not_added_up(root):
    made = steps(root, ("10 min", "5..10 min"), ("10 min", "<5 min"))
    first, second = bars(made)
    assert first["kb-perhaps"] == pytest.approx(first["kb-actual"], abs=0.2)
    assert second["kb-perhaps"] == pytest.approx(second["kb-target"] / 2, abs=0.2)
    assert second["kb-actual"] <= 1
    assert "both times" not in made and "Difference" not in made


def test_steps_without_times_are_not_drawn(root):
    assert "<svg" not in steps(root, (None, None))
    assert steps(root, (None, None)).count("step 0") == 1
    assert steps(root) == ""


def test_a_step_names_the_pattern_that_it_was_done_by(root):
    change(root, 0, steps=[{"id": "a", "title": "A", "pattern": "P01", "target": "1 min"}])
    assert "| A | [P01](../patterns/P01.md) |" in re.sub("<span[^>]*></span>", "", page(root, 0))


def test_the_card_counts_what_the_page_lists(root):
    card = page(root, 2).split("kb-facts")[1].split("</div>")[0]
    for label, value in (
        ("Runs", "[1 passed](#runs)"), ("Measured", "[1 pass](#measurements)"),
        ("Bugs met", "[2, 1 open](#bugs)"), ("Fixes", "[1](#fixes)"), ("Commits", "[1](#commits)"),
    ):  # fmt: skip
        assert f"<small>{label} </small><br>{value}" in card
    assert re.search(r"Claims </small><br>\[1 \w+\]\(#claims\)", card)


def test_before_and_after_by_what_follows_and_else_by_the_list(root):
    def around(number: int) -> str:
        line = next(
            row for row in page(root, number).splitlines() if re.match("Contin|Earlier|Later", row)
        )
        return re.sub(r"\[[^]]*\]\(([^)]*)\)", r"\1", line)

    first, second, third = (f"{trees.session_id(number)}.md" for number in range(3))
    assert around(0) == f"Continued in: {second}"
    assert around(1) == f"Continues: {first} · Continued in: {third}"
    assert around(2) == f"Continues: {second}"
    path = root / "sessions" / trees.session_id(2) / "session.yaml"
    alone = {key: value for key, value in json.loads(path.read_text()).items() if key != "follows"}
    path.write_text(json.dumps(alone))
    assert around(1) == f"Continues: {first} · Later in the list: {third}"
    assert around(2) == f"Earlier in the list: {second}"


def test_missing_parts_of_a_record_are_named(root):
    assert "The record has no" not in page(root, 0)
    change(root, 0, commits=[], lessons=[])
    assert "*The record has no commits, lessons.*" in page(root, 0)


def test_a_long_outcome_is_cut_between_words_and_its_figures_are_figures(root):
    link = "[0.35 USD](figure:#costs.gpu)"
    change(root, 0, outcome=f"It cost {link}. {'word ' * 100}")
    index = Index(KnowledgeBase(root))
    listed = unescape(pages.listing(index))
    assert "It cost 0.35 USD. word" in listed and "word …" in listed and "figure:" not in listed


def test_claims_that_hold_are_folded_up_below_those_that_do_not(root):
    change(root, 0, claims=[
        {"id": "right", "says": "it took an hour", "stated": "60 min", "how": "same",
         "of": ["#duration"]},
        {"id": "sum", "says": "two hours", "stated": "9 h", "how": "sum",
         "of": ["#duration", f"{trees.session_id(1)}#duration", "#steps.build.actual"]},
    ])  # fmt: skip
    made = page(root, 0).partition("{#claims}")[2].partition("\n## ")[0]
    wrong, _, right = made.partition("<details")
    assert "two hours" in wrong and "it took an hour" not in wrong
    assert "<summary>Claims that hold: 1</summary>" in right and "it took an hour" in right
    links = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", wrong)
    assert (
        "sum of <code>duration</code> of words about label 0, words about label 1,"
        " <code>build.actual</code>" in links
    )


def test_a_source_with_an_address_is_a_link_and_anything_else_is_text(root):
    sources = {
        "web": {"file": "2842", "about": "a", "url": "https://example.org/issues/2842?x=1"},
        "bad": {"file": "b", "about": "b", "url": "javascript:alert(1)"},
        "odd": {"file": "c", "about": "c", "url": 'https://example.org/"onclick=x'},
    }
    change(root, 0, sources={**sources, "log": {"file": "l", "about": "l"}})
    made = page(root, 0).partition("{#sources}")[2]
    assert '<a href="https://example.org/issues/2842?x=1" rel="noopener noreferrer">' in made
    assert made.count("<a ") == 1 and "javascript:alert(1)" in made


def test_a_run_that_a_text_names_is_a_link(root):
    known = "20251121T101010Z-copy"
    change(root, 0, outcome=f"Right ({known}), not 20990101T000000Z-copy.")
    made = page(root, 0).partition("{#outcome}")[2].partition("\n## ")[0]
    assert f"([{known}](../runs/{trees.session_id(2)}/{known}.md)), not 2099" in made


def test_a_proof_that_a_failed_step_is_to_show_stands_as_applied_on_both_pages(root: Path) -> None:
    step = {"id": "look", "title": "Look", "status": "failed"}
    proof = {"pattern": "P01", "verdict": "proved", "note": "N", "shown_by": ["#steps.look"]}
    for where, told in ({}, False), ({"status": "failed"}, True):
        change(root, 0, steps=[step], evidence=[{**proof, **({"where": where} if where else {})}])
        index = Index(KnowledgeBase(root))
        own = unescape(pages.page(index, index.sessions[trees.session_id(0)]))
        of_pattern = unescape(patterns.page(index, index.patterns["P01"]))
        for made in (own, of_pattern):
            assert ("stated as proved, but the audit finds it inconsistent" in made) != told
        source = f"{at.session_page(trees.session_id(0))}#evidence"
        (why,) = [m.why for m in index.mentions[at.pattern_page("P01")] if m.source == source]
        assert why == f"evidence: {'proved' if told else 'applied'}"


def test_the_lists_are_newest_first_as_people_mean_it(tmp_path: Path) -> None:
    """A session of yesterday stands before one of last week that follows a later line of work."""
    base = Knowledge(tmp_path / "base")
    bug = "bugs: [{{id: b, title: Of {name}, status: open}}]\n"

    def put(id_: str, name: str, more: str = "") -> None:
        base.session(id_, more + bug.format(name=name), label=name)

    put("2025-01-01-first", "FIRST")
    put("2025-01-20-yesterday", "YESTERDAY", "follows: 2025-01-01-first\n")
    put("2025-01-13-short", "SHORT", "started: '2025-01-13T09:00:00+00:00'\n"
        "ended: '2025-01-13T09:02:00+00:00'\n")  # fmt: skip
    put("2025-01-13-later", "LATER", "started: '2025-01-13T10:00:00+00:00'\n")
    put("undated-old", "OLD")
    index = Index(KnowledgeBase(base.root))
    order = ["YESTERDAY", "LATER", "SHORT", "FIRST", "OLD"]
    made = pages.listing(index)
    assert sorted(order, key=made.index) == order
    bugs = bug_pages.listing(index)
    assert sorted(order, key=lambda name: bugs.index(f"Of {name}")) == order


def test_figures_of_plans_and_options_are_named_in_words(root: Path) -> None:
    figures = {"target-s128": "0.054 ms", "max-diff": "<0.1", "fa1-s512": "2.133 ms"}
    plan = {"id": "p", "title": "P", "figures": figures, "source": "log:1"}
    option = {"id": "o", "title": "O", "figures": {"engineer-and-tool": "2 USD"}}
    decision = {"id": "d", "question": "Q", "options": [option], "chosen": "o", "reason": "R"}
    change(root, 1, plans=[plan], decisions=[decision | {"source": "log:1"}])
    made = page(root, 1)
    assert "target S=128: 0.054 ms · max diff: <0.1 · fa1 S=512: 2.133 ms" in made
    assert "engineer and tool: 2 USD" in made
