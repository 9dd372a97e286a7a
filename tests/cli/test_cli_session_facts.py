"""Evidence, decisions, hypotheses, plans, steps, lessons and measurements by command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from knowledge import LOOK, RUN, Knowledge, sealed, validated

from kbtool.model.session import Session
from kbtool.store.tree import KnowledgeBase

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def going(base: Knowledge) -> Knowledge:
    base.pattern(more=LOOK)
    base.running()
    return base


def record(base: Knowledge) -> Session:
    return KnowledgeBase(base.root).session("now").record


def session(kbtool, base: Knowledge, *arguments: str, code: int = 0) -> str:
    done = kbtool("session", *arguments, root=base.root)
    assert done.code == code, done.err
    assert base.findings() == []
    return done.out if code == 0 else done.err


def test_evidence_names_its_pattern_by_id_or_words_of_its_title(kbtool, going):
    said = session(kbtool, going, "evidence", "P01", "applied", "at once", "--saved", "20 min")
    assert said == "2025-01-05-now: evidence: P01 applied\n"
    session(kbtool, going, "evidence", "p01", "contradicted", "it was slower", "--lost", "1 h")
    session(kbtool, going, "evidence", "lesson", "applied", "again", "--money", "2 USD",
            "--expected")  # fmt: skip
    first, second, third = record(going).evidence
    assert (first.pattern, first.verdict, first.note, str(first.saved)) == (
        "P01", "applied", "at once", "20 min",
    )  # fmt: skip
    assert str(second.lost) == "1 h"
    assert third.expected and str(third.money) == "2 USD"


@pytest.mark.slow
def test_evidence_is_shown_by_a_step_of_the_last_run(kbtool, going):
    going.session()
    run = going.run(validated(0))
    session(kbtool, going, "evidence", "P01", "proved", "found", "--shown-by", "last#steps.check")
    assert record(going).evidence[0].shown_by == [f"{run}#steps.check"]
    for shown_by, said in (
        ("last#steps.none", "--shown-by: "),
        ("nothing#steps.check", "there is no run and no session 'nothing'"),
        ("#fixes.none", "--shown-by: "),
    ):
        err = session(
            kbtool, going, "evidence", "P01", "proved", "x", "--shown-by", shown_by, code=2
        )
        assert said in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["P09", "applied", "x"], "there is no pattern 'P09'; `kbtool patterns` lists them: P01"),
        (["P01", "helped", "x"], "'helped' is not one of"),
        (["P01", "proved", "x"], "proved, and nothing shows it"),
        (["P01", "applied", " "], "note: is empty"),
        (["P01", "applied", "x", "--saved", "soon"], "'soon' is not a"),
        (["P01", "applied", "one\ntwo"], "more than one line"),
        (["P01", "applied", "at 10.0.0.1"], "address"),
    ],
)
def test_evidence_that_check_would_refuse_is_refused(kbtool, going, arguments, said):
    before = (going.root / "sessions/2025-01-05-now/session.yaml").read_bytes()
    assert said in session(kbtool, going, "evidence", *arguments, code=2)
    assert (going.root / "sessions/2025-01-05-now/session.yaml").read_bytes() == before


def test_words_that_two_patterns_have_are_refused(kbtool, going):
    going.pattern("P02")
    err = session(kbtool, going, "evidence", "a lesson", "applied", "x", code=2)
    assert "matches several patterns: P01 A lesson, P02 A lesson; write the id" in err


@pytest.mark.slow
def test_a_decision_has_its_options_and_may_be_made_later(kbtool, going):
    session(kbtool, going, "decision", "Keep the card?", "Stop it", "--or", "Keep it",
            "--because", "nobody waits")  # fmt: skip
    session(kbtool, going, "decision", "Which tile?", "--or", "64x64", "--or", "128 x 64")
    [card, tile] = record(going).decisions
    assert (card.id, card.question, card.chosen) == ("keep-the-card", "Keep the card?", "stop-it")
    assert card.reason == "nobody waits"
    assert [(one.id, one.title) for one in card.options] == [
        ("stop-it", "Stop it"), ("keep-it", "Keep it"),
    ]  # fmt: skip
    assert tile.chosen is None
    err = session(kbtool, going, "decision", "which-tile", "32x32", code=2)
    assert "choose one of its options, 64x64, 128-x-64" in err
    said = session(kbtool, going, "decision", "which-tile", "128 x 64", "--because", "fewer waves")
    assert said == "2025-01-05-now: decision which-tile: 128-x-64\n"
    assert record(going).decisions[1].chosen == "128-x-64"
    assert "is made: 128-x-64" in session(kbtool, going, "decision", "which-tile", "64x64", code=2)
    assert "already has 'keep-the-card'" in session(
        kbtool, going, "decision", "Keep the card?", code=2
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        "",
        "bugs: [{id: nan, title: NaN, status: open}]\n",
        "bugs:\n  - id: nan\n    title: NaN\n    status: open\n",
        "bugs:\n  - {id: nan, title: NaN, status: open, hypotheses: []}\n",
        "bugs:\n  - id: nan\n    title: NaN\n    status: open\n    hypotheses: []\n",
    ],
)
def test_a_hypothesis_is_added_to_a_bug_and_judged(kbtool, going, more):
    path = going.root / "sessions/2025-01-05-now/session.yaml"
    path.write_text(path.read_text() + more)
    if not more:
        session(kbtool, going, "bug", "NaN")
    session(kbtool, going, "hypothesis", "last", "The tail is read", "--likelihood", "80 %")
    session(kbtool, going, "hypothesis", "nan", "It's the merge, or: not", "--id", "merge")
    said = session(kbtool, going, "hypothesis", "na", "the-tail-is-read", "--verdict", "confirmed")
    assert said == "2025-01-05-now: hypothesis the-tail-is-read of nan: confirmed\n"
    [bug] = record(going).bugs
    tail, merge = bug.hypotheses
    assert (tail.verdict, str(tail.likelihood), tail.statement) == (
        "confirmed", "80 %", "The tail is read",
    )  # fmt: skip
    assert (merge.id, merge.verdict, merge.statement) == (
        "merge",
        "open",
        "It's the merge, or: not",
    )
    for arguments, said in (
        (["none", "x"], "there is no bug 'none' in 2025-01-05-now; it has nan"),
        (["nan", "merge"], "say what became of merge"),
        (["nan", "The tail is read"], "under hypotheses; for a new one"),
        (["nan", "merge", "--verdict", "likely"], "'likely' is not one of"),
    ):
        assert said in session(kbtool, going, "hypothesis", *arguments, code=2)


def test_a_plan_has_steps_with_their_times(kbtool, going):
    session(
        kbtool, going, "plan", "Merge on the card", "--target", "2 h", "--for", "N+8", "--budget",
        "5 USD", "--step", "Write it=30 min", "--step", "Hold a=b apart", "--expect", "one launch",
    )  # fmt: skip
    [plan] = record(going).plans
    assert (plan.id, plan.for_session, str(plan.target), str(plan.budget)) == (
        "merge-on-the-card", "N+8", "2 h", "5 USD",
    )  # fmt: skip
    assert [(one.title, one.target and str(one.target)) for one in plan.steps] == [
        ("Write it", "30 min"), ("Hold a=b apart", None),
    ]  # fmt: skip
    assert plan.expected == ["one launch"]


def test_steps_and_lessons(kbtool, going):
    session(kbtool, going, "step", "Build it", "--target", "5 min", "--actual", "12 min",
            "--pattern", "p01")  # fmt: skip
    session(kbtool, going, "step", "Port it", "--status", "skipped")
    session(kbtool, going, "lesson", "Reset first: it's cheaper.")
    session(kbtool, going, "lesson", "true")
    now = record(going)
    assert [(one.id, one.status, one.pattern) for one in now.steps] == [
        ("build-it", "done", "P01"), ("port-it", "skipped", None),
    ]  # fmt: skip
    assert now.lessons == ["Reset first: it's cheaper.", "true"]


def test_a_measurement_gets_a_row_a_call(kbtool, going):
    session(kbtool, going, "measurement", "Latency of a call", "ours=12.50us", "theirs=14 us",
            "--case", "S=4096", "--case", "D=64", "--not-validated")  # fmt: skip
    session(kbtool, going, "measurement", "latency-of-a-call", "ours=25us", "--case", "S=8192",
            "--verdict", "pass", "--note", "once")  # fmt: skip
    session(kbtool, going, "measurement", "Errors", "max_error=1.8e-2", "--kind", "correctness")
    latency, errors = record(going).measurements
    assert (latency.title, latency.kind, latency.validated) == (
        "Latency of a call", "benchmark", False,
    )  # fmt: skip
    assert {key: column.unit for key, column in latency.columns.items()} == {
        "ours": "us", "theirs": "us",
    }  # fmt: skip
    first, second = latency.rows
    assert (first.id, first.case) == ("s4096-d64", {"S": "4096", "D": "64"})
    assert str(first.values["ours"]) == "12.50"  # digits as they were given
    assert (second.verdict, second.note, list(second.values)) == ("pass", "once", ["ours"])
    assert errors.columns["max_error"].unit == "" and errors.rows[0].id == "row-1"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["Latency", "ours"], "write NAME=VALUE"),
        (["Latency", "ours=fast"], "ours: 'fast' is not a quantity"),
        (["Latency", "ours=nan"], "ours: 'nan' is not a quantity"),
        (["Latency", "ours=inf us"], "is not a quantity"),
        (["Latency", "ours=5..10 us"], "is no single figure"),
        (["Latency", "ours=<5 us"], "is no single figure"),
        (["Latency", "ours=1us", "ours=2us"], "ours is given twice"),
        (["Latency", "ours=1us", "--case", "S"], "write NAME=VALUE"),
        (["known", "ours=1ms", "--case", "S=1"], "is in us, not in ms"),
        (["known", "theirs=1us", "--case", "S=1"], "has no column 'theirs'; it has ours"),
        (["known", "ours=1us", "--case", "S=4"], "already has 's4' under rows"),
        (["known", "ours=1us", "--case", "S=1", "--kind", "memory"], "leave out --kind"),
        (["Latency", "ours=1us", "--subject", "theirs"], "subject"),
    ],
)
def test_a_figure_that_does_not_fit_is_refused(kbtool, going, arguments, said):
    session(kbtool, going, "measurement", "Known", "ours=2us", "--case", "S=4")
    before = (going.root / "sessions/2025-01-05-now/session.yaml").read_bytes()
    assert said in session(kbtool, going, "measurement", *arguments, code=2)
    assert (going.root / "sessions/2025-01-05-now/session.yaml").read_bytes() == before


FACTS = """\
# seen today
note it's S=4 that differs by 0.08
bug "NaN in the last tile" --lost '40 min'

hypothesis last "the tail is read past its end" --likelihood '80 %'
fix nan-in-the-last-tile "bound the loop" --commit none
cost gpu 0.40 --basis billed
measurement Latency ours=12.5us --case S=4096
measurement latency ours=25us --case S=8192
decision "Keep the card?" no --or yes
evidence P01 applied "at once"
plan "Go on" --step "Write it=1 h"
step Build --actual '5 min'
lesson Don't reset after the call.
"""


def add(base: Knowledge, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    here = {**os.environ, "KBTOOL_ROOT": str(base.root), "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-m", "kbtool", "session", "add", *arguments]
    return subprocess.run(command, input=text, env=here, capture_output=True, text=True)


def test_several_facts_are_added_in_one_call(going):
    done = add(going, FACTS, "-")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 12, done.stdout
    now = record(going)
    assert (now.bugs[0].status, now.bugs[0].hypotheses[0].id) == (
        "fixed", "the-tail-is-read-past-its-end",
    )  # fmt: skip
    assert len(now.measurements[0].rows) == 2
    assert now.lessons == ["Don't reset after the call."]
    assert (len(now.costs), len(now.decisions), len(now.evidence), len(now.plans)) == (1, 1, 1, 1)
    notes = (going.root / "sessions/2025-01-05-now/notes.md").read_text()
    assert "it's S=4 that differs by 0.08" in notes
    assert going.findings() == []


def test_facts_as_arguments_and_as_json(kbtool, going):
    said = session(
        kbtool, going, "add", "note seen", 'bug "It hangs"', "lesson Wait less.", "--json"
    )
    told = json.loads(said)
    assert [next(iter(set(one) & {"note", "bug", "lesson"})) for one in told["facts"]] == [
        "note", "bug", "lesson",
    ]  # fmt: skip


def test_options_before_the_words_of_a_note_are_options(kbtool, going):
    session(kbtool, going, "add", 'lesson --json "Wait less."', "note -5 % at S=4", "note - a")
    assert record(going).lessons == ["Wait less."]
    notes = (going.root / "sessions/2025-01-05-now/notes.md").read_text()
    assert " -5 % at S=4\n" in notes and " - a\n" in notes, notes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("evidence P09 applied x", "fact 13 (evidence): there is no pattern 'P09'"),
        ("evidence P01", "fact 13 (evidence): Missing argument 'VERDICT'"),
        ("close", "fact 13: 'close' is none; a fact begins with note, cost, bug"),
        ('bug "never ends', "fact 13: No closing quotation"),
        ("bug x --session other", "fact 13 (bug): give --session once"),
        ("bug --help", "fact 13 (bug) asks for help"),
        ("note at 10.0.0.1", "fact 13 (note): the text"),
        ('note "-"', "fact 13 (note): - has no stdin of its own"),
        ("note --at 10:00 'hung'", "fact 13 (note): No such option '--at'"),
        ("lesson --session other x", "fact 13 (lesson): give --session once"),
        ("cost gpu", "fact 13 (cost): give AMOUNT, or --rate"),
    ],
)
def test_if_one_fact_is_refused_nothing_is_written(going, line, said):
    folder = going.root / "sessions/2025-01-05-now"
    before = {path: path.read_bytes() for path in folder.iterdir()}
    done = add(going, f"{FACTS}{line}\n", "-")
    assert done.returncode in (1, 2) and said in done.stderr, done.stderr
    assert "nothing was written" in done.stderr
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    assert done.stdout == ""


@pytest.mark.slow
def test_an_add_without_a_fact_is_refused(going):
    for text, arguments in (("", ["-"]), ("# x\n\n", ["-"]), ("", [])):
        done = add(going, text, *arguments)
        assert done.returncode == 2 and "fact" in done.stderr.lower()


@pytest.mark.slow
def test_facts_go_into_the_paused_session_if_none_runs(kbtool, going):
    session(kbtool, going, "pause", "--at", "now")
    for arguments in (
        ["lesson", "Look first."], ["bug", "It hangs"], ["cost", "gpu", "1", "--basis", "claimed"],
        ["add", "note x", "step Look"], ["measurement", "M", "a=1"], ["decision", "Keep?", "no"],
    ):  # fmt: skip
        session(kbtool, going, *arguments)
    now = record(going)
    assert (now.status, len(now.lessons), len(now.bugs), len(now.costs)) == ("paused", 1, 1, 1)


@pytest.mark.slow
def test_a_session_is_named_by_a_part_of_its_id_everywhere(kbtool, going):
    going.session("2025-01-02-fix-the-nan-at-four")
    going.session("2025-01-03-two-passes")
    for name in ("2025-01-02", "at-four", "the-nan", "nan-a"):
        assert "fix-the-nan" in session(kbtool, going, "show", name).lower()
        session(kbtool, going, "lesson", f"by {name}", "--session", name)
    assert len(KnowledgeBase(going.root).session("the-nan").record.lessons) == 4
    assert "there is no session 'an'" in session(kbtool, going, "show", "an", code=2)
    err = session(kbtool, going, "show", "2025-01", code=2)
    assert "'2025-01' matches several sessions" in err
    done = kbtool("costs", "--session", "two-pass", "--json", root=going.root)
    assert done.code == 0 and "2025-01-03-two-passes" in done.out


def test_a_fix_is_shown_by_the_last_run(kbtool, going):
    going.session()
    run = going.run(validated(0))
    going.run(sealed({**RUN, "id": "20241231T090000Z-look", "attempt": 1}))
    session(kbtool, going, "bug", "NaN")
    session(kbtool, going, "fix", "nan", "bound it", "--shown-by", "last#steps.check")
    assert record(going).fixes[0].shown_by == [f"{run}#steps.check"]
