"""The list of bugs and the page of each: what other records say of the same fault."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import site_trees as trees

from kbtool.site import addresses as at
from kbtool.site.html.tree import source_files
from kbtool.site.index import Index
from kbtool.site.pages import bug, pattern, recipe, session
from kbtool.store.tree import KnowledgeBase

FIRST, SECOND, LAST = (trees.session_id(number) for number in range(3))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return trees.make(tmp_path / "kb", sessions=3)


def change(root: Path, name: str, **fields: Any) -> None:
    path = root / "sessions" / name / "session.yaml"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def named(name: str, **fields: Any) -> dict[str, Any]:
    return {"id": name, "title": name, "status": "open", "source": "log:1", **fields}


def index_of(root: Path) -> Index:
    return Index(KnowledgeBase(root))


def bug_page(index: Index, name: str, of: str = "nan") -> str:
    return unescape(bug.page(index, index.bugs[name, of]))


def listing(index: Index) -> str:
    return unescape(bug.listing(index))


def part(page: str, name: str) -> str:
    return page.split(f"{{#{name}}}")[1].split("\n## ")[0]


def card(page: str, label: str) -> str:
    return page.partition(f"<small>{label} </small><br>")[2].partition("\n")[0]


def test_a_bugs_page_links_its_recurrences_above_the_mutants(root):
    index = index_of(root)
    for own in (FIRST, SECOND, LAST):
        page = bug_page(index, own)
        told = part(page, "recurrences")
        for other in {FIRST, SECOND, LAST} - {own}:
            assert f"](../{other}/nan.md)" in told
        assert page.index("{#recurrences}") < page.index("{#mutants}")
    again = card(bug_page(index, FIRST), "Recurred in")
    assert again.endswith(
        f"[words about title](../{LAST}/nan.md) <small>words about label 2</small>"
    )
    assert f"(../{FIRST}/nan.md)" in card(bug_page(index, SECOND), "Recurrence of")
    assert not card(bug_page(index, LAST), "Recurred in")
    assert "{#recurrences}" not in bug_page(index, FIRST, "odd_.x")


def test_two_recurrences_of_one_bug_belong_to_one_fault(root):
    change(root, FIRST, bugs=[named("a")], fixes=[], unknown={})
    change(root, SECOND, bugs=[named("b", recurrence_of=f"{FIRST}#bugs.a")], fixes=[], unknown={})
    change(root, LAST, bugs=[named("c", recurrence_of=f"{FIRST}#bugs.a")], fixes=[], unknown={})
    index = index_of(root)
    assert [case.status for case in index.bugs.values()] == ["met again", "met again", "open"]
    assert [one.bug.id for one in index.bugs[SECOND, "b"].recurrences] == ["c"]
    page = bug_page(index, SECOND, "b")
    assert card(page, "Status") == (
        '<span class="kb-chip kb-chip--bad">open</span>, recurred in'
        f" [words about title](../{LAST}/c.md) <small>words about label 2</small>"
    )
    assert "Recurred in" not in page
    assert ">recurred</span> |" in listing(index) and "met again" not in listing(index)


def test_a_fix_in_a_record_that_comes_before_mends_what_was_not_met_again(root):
    change(root, LAST, bugs=[named("a")], fixes=[], unknown={})
    early = {"bug": f"{LAST}#bugs.a", "change": "x", "source": "log:1"}
    change(root, FIRST, bugs=[], fixes=[early], unknown={})
    assert index_of(root).bugs[LAST, "a"].status == "fixed"


def test_what_confirmed_a_fix_is_a_link_and_knows_of_it(root):
    run = index_of(root).base.runs[0].record
    shown = [f"{run.id}#steps.{run.steps[0].id}"]
    fix = {"id": "f", "bug": "#bugs.a", "change": "x", "confirmed": True, "shown_by": shown,
           "source": "log:1"}  # fmt: skip
    change(root, FIRST, bugs=[named("a")], fixes=[fix], unknown={})
    index = index_of(root)
    page = at.run_page(run.session, run.id)
    for made, up in (
        (bug_page(index, FIRST, "a"), "../../"),
        (unescape(session.page(index, index.sessions[FIRST])), "../"),
    ):
        assert f"| yes: [{run.id}]({up}{page}" in part(made, "fixes")
    assert 'id="fixes.f"' in session.page(index, index.sessions[FIRST])
    assert "confirmed a fix" in [mention.why for mention in index.mentions[page]]


def test_recurrences_in_a_circle_come_to_an_end(root):
    change(root, FIRST, bugs=[named("a", recurrence_of=f"{SECOND}#bugs.b")], unknown={})
    change(root, SECOND, bugs=[named("b", recurrence_of=f"{FIRST}#bugs.a")], unknown={})
    change(root, LAST, bugs=[named("c", recurrence_of="#bugs.c")], fixes=[], unknown={})
    assert [len(case.meetings) for case in index_of(root).bugs.values()] == [1, 1, 1]


def test_the_time_that_a_fault_cost_is_added_up_with_who_does_not_say(root):
    for name, lost in ((FIRST, "2 h"), (SECOND, "60 min"), (LAST, None)):
        before = {SECOND: FIRST, LAST: SECOND}.get(name)
        of = {"recurrence_of": f"{before}#bugs.a"} if before else {}
        time = {"minutes_lost": lost} if lost else {}
        change(root, name, bugs=[named("a", **of, **time)], fixes=[], unknown={})
    index = index_of(root)
    told = "180 min over 2 sessions; words about label 2 does not say"
    for name in (FIRST, SECOND, LAST):
        page = bug_page(index, name, "a")
        assert card(page, "Lost in all") == f"[{told}](#recurrences)"
        assert f"Time lost in all: **{told}**." in part(page, "recurrences")
    change(root, LAST, bugs=[named("a", minutes_lost="5..10 min")])
    alone = index_of(root).bugs[LAST, "a"]
    assert unescape(bug.lost_in_all(alone)) == "5–10 min over 1 session"
    assert "Lost in all" not in bug_page(index_of(root), LAST, "a")


def test_bugs_with_the_same_title_are_distinguished_by_their_sessions(root):
    index = index_of(root)
    for number, name in enumerate((FIRST, SECOND)):
        title = f"words about label {number}: words about bug"
        assert f"# {title} {{#title}}" in bug_page(index, name)
        assert unescape(index.titles[at.bug_page(name, "nan")]) == title
    change(root, FIRST, bugs=[named("a")], fixes=[], unknown={})
    assert index_of(root).titles[at.bug_page(FIRST, "a")] == "a"


def test_a_pattern_adds_up_what_bugs_cost_that_show_its_symptoms(root):
    before = index_of(root)
    made = unescape(pattern.page(before, before.patterns["P01"]))
    assert "Lost to bugs" not in made and "Seen in:" not in made
    change(root, FIRST, bugs=[named("a", minutes_lost="20 min")], fixes=[], unknown={})
    seen = named("b", recurrence_of=f"{FIRST}#bugs.a", error_text="x\nundefined symbol y")
    change(root, SECOND, bugs=[seen], fixes=[], unknown={})
    index = index_of(root)
    made = unescape(pattern.page(index, index.patterns["P01"]))
    there = f"../bugs/{SECOND}/b.md"
    told = f"[20 min over 1 session; words about label 1 does not say]({there})"
    assert card(made, "Lost to bugs with its symptoms") == told
    assert f"Seen in: [words about label 1: b]({there})" in part(made, "symptoms")
    assert "../../patterns/P01.md#symptoms" in card(bug_page(index, SECOND, "b"), "Error known to")
    mentions = [mention.source for mention in index.mentions[at.pattern_page("P01")]]
    assert at.bug_page(SECOND, "b") in mentions


def test_a_bug_a_decision_and_the_pattern_that_they_became_lead_to_each_other(root):
    (root / "docs/adr").mkdir(parents=True)
    (root / "docs/adr/0026-plan.md").write_text("# 0026: Plan <by> bandwidth\n\nText.\n")
    (root / "docs/adr/0027-other.md").write_text("# 0027: Another\n")
    change(root, FIRST, bugs=[named("a"), named("b")], fixes=[], unknown={})
    path = root / "patterns/p01.yaml"
    fields = {**json.loads(path.read_text()), "bugs": [f"{FIRST}#bugs.a"], "decisions": [26]}
    path.write_text(json.dumps(fields))
    index = index_of(root)
    made = unescape(pattern.page(index, index.patterns["P01"]))
    assert card(made, "Taught by bugs") == f"[a](../bugs/{FIRST}/a.md)"
    assert card(made, "Decisions") == "[0026: Plan <by> bandwidth](../adr/0026-plan.md)"
    assert "../../patterns/P01.md" in card(bug_page(index, FIRST, "a"), "Became pattern")
    assert "Became" not in bug_page(index, FIRST, "b")
    why = {mention.why for mention in index.mentions[at.bug_page(FIRST, "a")]}
    assert "pattern that it became" in why
    files = source_files(KnowledgeBase(root))
    decision = files["adr/0026-plan.md"].decode()
    assert decision.startswith("# 0026: Plan <by> bandwidth\n\nText.\n\n## Patterns")
    assert "](../patterns/P01.md)" in decision
    assert files["adr/0027-other.md"] == b"# 0027: Another\n"


def test_a_lesson_and_the_pattern_that_it_became_lead_to_each_other(root):
    change(root, FIRST, lessons=["Look <first>.", "Wait."])
    path = root / "patterns/p01.yaml"
    fields = json.loads(path.read_text())
    path.write_text(json.dumps({**fields, "lessons": [{"session": FIRST, "text": "first"}]}))
    index = index_of(root)
    made = unescape(pattern.page(index, index.patterns["P01"]))
    assert "Look <first>. ([words about label 0: " in part(made, "lessons")
    assert f"](../sessions/{FIRST}.md#lessons.1))" in part(made, "lessons")
    listed = part(unescape(session.page(index, index.sessions[FIRST])), "lessons").splitlines()
    assert [line for line in listed if "](../patterns/P01.md)" in line] == [
        line for line in listed if "lessons.1" in line and "Look <first>. Became [P01" in line
    ]
    assert any("Wait." in line for line in listed)
    sources = {mention.source for mention in index.mentions[at.pattern_page("P01")]}
    assert f"{at.session_page(FIRST)}#lessons.1" in sources
    mentioned = {mention.why for mention in index.mentions[at.session_page(FIRST)]}
    assert "pattern that a lesson became" in mentioned


def test_a_pattern_shows_the_line_of_each_place_or_why_there_is_none(root):
    (root / "bench.py").write_text("a\n\nwarm\n")
    source = root / "kernels/copy/README.md"
    source.write_text("x\ny\n")
    path = root / "patterns/p01.yaml"
    fields = {key: one for key, one in json.loads(path.read_text()).items() if key != "places"}
    places = [
        {"file": "bench.py", "text": "warm"}, {"kernel": "copy", "file": "README.md", "text": "y"}
    ]  # fmt: skip
    for more, told in (
        ({"places": places}, ("`bench.py`, line 3:", "`README.md`, line 2:")),
        (
            {"places": [{"commit": "0123abc", "file": "old.py", "text": "warm"}]},
            ("`old.py` of commit `0123abc`, taken out since:",),
        ),
        (
            {"places": [*places, {"commit": "0123abc", "file": "old.py", "text": "warm"}]},
            ("`bench.py`, line 3:", "`old.py` of commit `0123abc`, which brought it:"),
        ),
        ({"no_places": "It was <taken> out."}, ("In no source: It was <taken> out.",)),
    ):
        path.write_text(json.dumps({**fields, **more}))
        index = index_of(root)
        made = unescape(pattern.page(index, index.patterns["P01"]))
        text = re.sub("</?code>", "`", part(made, "code"))
        for words in told:
            assert words in text


def test_a_pattern_shows_whether_validation_finds_its_bugs_put_back(root):
    path = root / "patterns/p01.yaml"
    fields = json.loads(path.read_text())
    bugs = [f"{LAST}#bugs.nan", f"{LAST}#bugs.odd_.x", "2025-01-01-gone#bugs.nan"]
    path.write_text(json.dumps({**fields, "bugs": bugs}))
    index = index_of(root)
    run = index.judged["put-back"].run
    made = unescape(pattern.page(index, index.patterns["P01"]))
    (row,) = [line for line in part(made, "put-back").splitlines() if ".md)" in line]
    assert f"../bugs/{LAST}/nan.md)" in row and "1 of 1" in row
    assert run.machine.cpu in row and index.run_link(run, at.pattern_page("P01")) in row
    assert run.machine.cpu in card(made, "Seen on")
    path.write_text(json.dumps({**fields, "bugs": bugs[1:2]}))
    index = index_of(root)
    assert "{#put-back}" not in pattern.page(index, index.patterns["P01"])


def test_a_bug_and_what_judged_its_hypotheses_lead_to_each_other(root):
    run = next(iter(index_of(root).runs.values()))[-1]
    path = root / "sessions" / FIRST / "session.yaml"
    record = json.loads(path.read_text())
    record["sources"]["search"] = {"file": "two.json", "about": "a run"}
    record["bugs"][0]["hypotheses"][0]["source"] = "search"
    path.write_text(json.dumps(record))
    index = index_of(root)
    page, own = bug_page(index, FIRST), at.bug_page(FIRST, "nan")
    cited = f'[<small class="kb-cite">search</small>](../../runs/{LAST}/{run.id}.md)'
    assert cited in part(page, "hypotheses")
    for shown in (page, bug_page(index, SECOND)):
        sought = card(shown, "Cause sought in")
        assert f"../../sessions/{LAST}.md" in sought and "../../recipes/copy.md" in sought
    mentioned = part(page, "mentioned-by")
    assert f"sessions/{LAST}.md) (judged its hypotheses)" in mentioned
    assert "recipes/copy.md) (judged its hypotheses)" in mentioned
    owner, procedure = index.recipes["copy"]
    for other in (
        session.page(index, index.sessions[LAST]), recipe.page(index, owner, procedure)
    ):  # fmt: skip
        assert f"{own}) (hypotheses judged by it)" in part(unescape(other), "mentioned-by")


def test_open_bugs_come_first_and_have_a_place_to_lead_to(root):
    change(root, FIRST, fixes=[], bugs=[named("a"), named("b", status="unknown")], unknown={})
    made = listing(index_of(root))
    still = [line for line in part(made, "open").splitlines() if ".md)" in line]
    others = [line for line in part(made, "others").splitlines() if ".md)" in line]
    assert len(still) == 3 and len(others) == 3
    assert all(">open</span>" in line for line in still)
    assert not [line for line in others if ">open</span>" in line]
    assert [name for line in still for name in (FIRST, SECOND, LAST) if f"({name}/" in line] == [
        LAST, SECOND, FIRST,
    ]  # fmt: skip
    assert "open</span> </small><br>[3](#open)" in made
    for name in (FIRST, SECOND, LAST):
        change(root, name, bugs=[named("a", status="fixed")], fixes=[], unknown={})
    made = listing(index_of(root))
    assert part(made, "open").strip() == "*No bug is unresolved.*"
    made = listing(index_of(trees.empty(root / "empty")))
    assert "No session's record names a bug." in part(made, "open")


def test_bugs_known_only_as_edits_have_a_table_of_their_own(root):
    edit = {"id": "m", "kernel": "copy", "target": "cpu", "file": "a", "find": "b", "put": "c"}
    bugs = [
        named("seen", status="unknown", mutants=[{**edit, "id": "m1"}], symptom="rows of NaN"),
        named("edit", status="unknown", mutants=[edit], cause="the bound is off by one"),
    ]
    change(root, FIRST, fixes=[], bugs=bugs, unknown={})
    index = index_of(root)
    made = listing(index)
    assert f"({FIRST}/seen.md)" in part(made, "others")
    (row,) = (line for line in part(made, "edits").splitlines() if ".md)" in line)
    assert f"({FIRST}/edit.md)" in row and "the bound is off by one" in row
    assert "1 more bug of which records have a cause" in part(made, "edits")
    assert "[1](#edits)" in made and f"{len(index.bugs) - 1} bugs, " in made
    says = "No record says that the sources ever had it"
    assert says in bug_page(index, FIRST, "edit") and says not in bug_page(index, FIRST, "seen")


def test_open_bugs_and_the_others_have_the_same_columns_and_all_are_on_the_page(root):
    bugs = [named(f"b{number}") for number in range(300)]
    bugs += [named("last", status="fixed", minutes_lost="5 min")]
    change(root, FIRST, bugs=bugs, fixes=[], unknown={})
    for name in (SECOND, LAST):
        change(root, name, bugs=[], fixes=[], unknown={})
    made = listing(index_of(root))
    heads = re.findall(r"^\| Bug \|.*$", made, re.MULTILINE)
    assert len(heads) == 2 and len({*heads}) == 1 and "| Lost |" in heads[0]
    assert all(f"({FIRST}/{one['id']}.md)" in made for one in bugs)
    assert "open</span> </small><br>[300](#open)" in made
