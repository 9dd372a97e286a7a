"""Lifecycle edits change the lines they must and no other, in tidy records and in odd ones."""

from __future__ import annotations

import difflib
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path

import pytest
from knowledge import SESSION_LINE

from kbtool.model.errors import RecordError, UsageError
from kbtool.model.session import Session
from kbtool.store.document import parse
from kbtool.store.edit import (
    add_fix,
    add_item,
    add_note,
    close_session,
    end_run_session,
    pause_session,
    resume_session,
    start_session,
)
from kbtool.store.load import validate
from kbtool.store.splice import Splice

REPOSITORY = Path(__file__).parents[2]
RECORDS = sorted((REPOSITORY / "sessions").glob("*/session.yaml"))
NOW = datetime(2026, 1, 2, 15, 4, 5, tzinfo=timezone(timedelta(hours=1)))
MOMENT = '"2026-01-02T15:04:05+01:00"'
ORDER = list(Session.model_fields)

PLAIN = """\
id: 2026-01-02-a
label: A
title: T
origin: person
status: running # it runs
started: 2026-01-02T09:00+01:00
"""

ODD = {
    "no newline at the end": PLAIN.rstrip("\n"),
    "carriage returns": PLAIN.replace("\n", "\r\n"),
    "a null with its reason": PLAIN + "ended: null\nunknown: {ended: it runs}\n",
    "a null and other reasons": PLAIN
    + "ended:\nobjective: ~\nunknown:\n  objective: w\n  ended: it runs  # still\n",
    "reasons in braces": PLAIN + "ended: null\noutcome: null\nunknown: {ended: w, outcome: w}\n",
    "reasons in braces, other order": PLAIN
    + "ended: null\noutcome: null\nunknown: {outcome: w, ended: w}\n",
    "folded text before and after": PLAIN.replace("title: T", "title: >-\n  a\n  b\n\n  c")
    + "objective: |\n  x\n   y\n\n\n# the end\n",
    "plain text over lines": PLAIN.replace("title: T", "title: a\n  b\n   c"),
    "quoted text over lines": PLAIN.replace("title: T", "title: 'a\n  b''\n\n   c'"),
    "costs that are empty": PLAIN + "costs: []  # none yet\ntags: [a]\n",
    "costs in brackets": PLAIN + "costs: [{kind: ai, amount: 1.00, basis: billed}]\ntags: [a]\n",
    "costs in brackets over lines": PLAIN
    + "costs: [\n  {kind: ai, amount: 1.00, basis: billed},  # the first\n]\n",
    "costs at the margin": PLAIN
    + "costs:\n- kind: ai\n  amount: 1.00\n  basis: billed\n\n# tags\ntags: [a]\n",
    "costs far to the right": PLAIN
    + "costs:\n      -   kind: ai\n          amount: 1.00\n          basis: billed\n",
    "a note of several lines last": PLAIN
    + "costs:\n  - kind: ai\n    amount: 1\n    basis: billed\n    note: |\n      a\n\n      b\n",
    "odd spacing": PLAIN.replace("status: running", "status:    'running'"),
    "letters of other scripts": PLAIN.replace("title: T", "title: 日本 × 𝔘 é"),
    "a status over lines": PLAIN.replace("status: running # it runs", "status:\n  running"),
}


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "sessions/2026-01-02-a/session.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes((SESSION_LINE + text).encode())
    return path


def changed(before: str, after: str) -> tuple[list[str], list[str]]:
    """The lines taken away and the lines added."""
    lines = list(difflib.ndiff(before.splitlines(), after.splitlines()))
    return [l[2:] for l in lines if l[:2] == "- "], [l[2:] for l in lines if l[:2] == "+ "]  # noqa: E741


@pytest.mark.parametrize("name", ODD)
def test_closing_changes_status_and_end_only(tmp_path, name):
    path = write(tmp_path, ODD[name])
    before = path.read_bytes().decode()
    record = close_session(path, NOW)
    after = path.read_bytes().decode()
    assert record.status == "complete"
    assert record.ended is not None
    assert record.ended.at == NOW
    removed, added = changed(before, after)
    old = ("status", "ended", "unknown", "  ended", "  running", "started")
    assert all(line.startswith(old) for line in removed), removed
    assert all(line.startswith((*old, "  complete")) for line in added), added
    assert ("\r\n" in after) == ("\r\n" in before)
    assert "\r" not in after.replace("\r\n", "")
    comments = [line.partition("#")[2] for line in before.splitlines() if "#" in line]
    gone = {" still"}  # it stood behind what was taken away
    assert all(comment in after for comment in comments if comment not in gone)


@pytest.mark.parametrize("name", ODD)
def test_a_cost_is_added_and_nothing_else(tmp_path, name):
    path = write(tmp_path, ODD[name])
    before = path.read_bytes().decode()
    many = len(parse(before.encode(), "x").data.get("costs") or [])
    line = {"kind": "gpu", "amount": "0.40", "basis": "billed", "note": "a, b: {c} # d"}
    record = add_item(path, "costs", line)
    assert len(record.costs) == many + 1
    assert str(record.costs[-1].amount) == "0.40"
    removed, added = changed(before, path.read_bytes().decode())
    assert len(removed) <= 1, removed
    assert len(added) <= 2, added
    add_item(path, "costs", {"kind": "ai", "amount": "1", "basis": "claimed"})


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.parent.name)
def test_a_real_record_keeps_every_other_line(path):
    text = path.read_text(encoding="utf-8")
    status, cost, end = (Splice(parse(text.encode(), "x")) for _ in range(3))
    status.set("status", "terminated", ORDER)
    removed, added = changed(text, status.text)
    assert (len(removed), added) in [(1, ["status: terminated"]), (0, [])]
    cost.append("costs", {"kind": "other", "amount": "1", "basis": "billed"}, ORDER)
    removed, added = changed(text, cost.text)
    assert len(removed) <= 1
    assert len(added) <= 2
    end.set("ended", "2030-01-01T00:00Z", ORDER)
    end.remove(["unknown", "ended"])
    removed, added = changed(text, end.text)
    assert len(removed) <= 2 + (end.text.count("unknown:") < text.count("unknown:")) * 2
    assert len(added) <= 2
    for edit in (status, cost, end):
        assert parse(edit.text.encode(), "x").data == edit.data


def test_a_session_is_started_paused_resumed_and_closed(tmp_path):
    path = write(tmp_path, PLAIN.replace("running", "planned").rsplit("started", 1)[0])

    def at(minutes: int) -> datetime:
        return NOW + timedelta(minutes=minutes)

    assert start_session(path, at(0)).status == "running"
    assert pause_session(path, at(10)).minutes == 10
    assert resume_session(path, at(60)).minutes is None
    assert pause_session(path, at(65)).minutes == 15
    assert resume_session(path, at(100)).status == "running"
    record = close_session(path, at(101), outcome="it works: mostly")
    assert record.status == "complete"
    assert record.minutes == 16
    assert len(record.stretches) == 3
    assert record.outcome == "it works: mostly"
    assert "status: complete # it runs" in path.read_text()


def test_a_resumed_session_continues_its_time(tmp_path):
    path = write(tmp_path, PLAIN)
    close_session(path, NOW, outcome="done")
    resume_session(path, NOW + timedelta(hours=5))
    record = close_session(path, NOW + timedelta(hours=6))
    assert record.minutes == 6 * 60 + 4 + Decimal(5) / 60 + 60
    assert [str(one.started.at.hour) for one in record.stretches] == ["9", "20"]
    with pytest.raises(UsageError, match="is before 2026-01-02T21:04:05"):
        resume_session(path, NOW)


@pytest.mark.parametrize(
    "more", ["duration: 2 h\nended: 2026-01-02T11:00+01:00\n", ""], ids=["stated", "no end"]
)
def test_a_session_without_usable_times_cannot_be_resumed(tmp_path, more):
    """Its time would count twice, or what came before would be lost."""
    path = write(tmp_path, PLAIN.replace("running", "complete") + more)
    before = path.read_bytes()
    with pytest.raises(UsageError, match="2026-01-02-a cannot be resumed"):
        resume_session(path, NOW)
    assert path.read_bytes() == before


BUG = {"id": "tail", "title": "The tail", "status": "open"}


@pytest.mark.parametrize("name", ODD)
def test_a_bug_and_its_fix_are_added_and_nothing_else(tmp_path, name):
    path = write(tmp_path, ODD[name])
    before = path.read_bytes().decode()
    long = "the last 16 rows, or so; are NaN {x} # when the length is no multiple of 64: always"
    add_item(path, "bugs", {**BUG, "symptom": long})
    add_item(path, "bugs", {**BUG, "id": "second"})
    record = add_fix(path, {"bug": "#bugs.tail", "change": "bound it"})
    assert [(bug.id, bug.status) for bug in record.bugs] == [("tail", "fixed"), ("second", "open")]
    assert record.bugs[0].symptom == long
    assert record.fixes[0].change == "bound it"
    after = path.read_bytes().decode()
    removed, added = changed(before, after)
    assert removed == []
    assert [line.strip() for line in added[:3]] == ["bugs:", "- id: tail", "title: The tail"]
    assert max(map(len, added)) <= 100
    with pytest.raises(UsageError, match="has 'tail' under bugs; for a new one"):
        add_item(path, "bugs", BUG)
    assert path.read_bytes().decode() == after


def test_a_fix_that_a_test_refutes_leaves_its_bug_open(tmp_path):
    path = write(tmp_path, PLAIN)
    add_item(path, "bugs", BUG)
    fix = {"bug": "#bugs.tail", "change": "c"}
    assert add_fix(path, {**fix, "confirmed": "false"}).bugs[0].status == "open"
    assert add_fix(path, {**fix, "confirmed": "true"}).bugs[0].status == "fixed"


def test_a_status_in_a_block_is_changed_in_its_place(tmp_path):
    bug = "bugs:\n  - id: tail\n    title: T\n    status: open  # still\n    cause: c\n"
    path = write(tmp_path, PLAIN + bug)
    add_fix(path, {"bug": "#bugs.tail", "change": "c"})
    assert "    status: fixed  # still\n    cause: c\n" in path.read_text()


def test_commits_are_recorded_when_it_closes(tmp_path):
    path = write(tmp_path, PLAIN)
    commits = [{"id": "7e12345", "sha": "7e12345" + "0" * 33, "title": "One: a, b"}]
    record = close_session(path, NOW, commits=commits)
    assert [(one.sha, one.title, one.role) for one in record.commits] == [
        ("7e12345" + "0" * 33, "One: a, b", "made")
    ]


def test_closing_a_paused_session_keeps_the_time_of_the_pause(tmp_path):
    path = write(tmp_path, PLAIN)
    pause_session(path, NOW)
    record = close_session(path, NOW + timedelta(hours=9), status="terminated")
    assert record.status == "terminated"
    assert record.ended is not None
    assert record.ended.at == NOW


@pytest.mark.parametrize(
    ("status", "command"),
    [
        ("planned", resume_session),
        ("complete", close_session),
        ("complete", pause_session),
        ("running", resume_session),
        ("running", start_session),
        ("planned", pause_session),
        ("unknown", close_session),
    ],
)
def test_a_step_that_does_not_fit_is_refused(tmp_path, status, command):
    path = write(tmp_path, PLAIN.replace("running", status))
    before = path.read_bytes()
    with pytest.raises(UsageError, match=f"is {status}; only a session that is"):
        command(path, NOW)
    assert path.read_bytes() == before


def test_an_unsound_record_is_refused_with_its_findings(tmp_path):
    path = write(tmp_path, PLAIN + "nonsense: 1\nalso: 1\n")
    before = path.read_bytes()
    with pytest.raises(RecordError, match=r"session.yaml:8: schema: nonsense(?s:.*):9: schema"):
        close_session(path, NOW)
    assert path.read_bytes() == before


def test_a_change_that_would_make_it_unsound_is_refused(tmp_path):
    path = write(tmp_path, PLAIN)
    before = path.read_bytes()
    with pytest.raises(UsageError, match=r"is before 2026-01-02T09:00\+01:00, the latest time"):
        close_session(path, NOW - timedelta(days=1))  # the end before the start
    with pytest.raises(RecordError, match="nothing was written"):
        add_item(path, "costs", {"kind": "gpu", "amount": "a lot", "basis": "billed"})
    assert path.read_bytes() == before


def test_what_cannot_be_changed_safely_is_left_alone(tmp_path):
    fields = [line.split(" #")[0] for line in PLAIN.splitlines()]
    path = write(tmp_path, "{" + ", ".join(fields).replace("+01:00", "Z") + "}\n")
    before = path.read_bytes()
    with pytest.raises(UsageError, match="in braces"):
        close_session(path, NOW)
    assert path.read_bytes() == before
    # A carriage return alone ends a line for YAML, and for few others.
    path = write(tmp_path, PLAIN.replace("title: T\n", "title: T\r"))
    before = path.read_bytes()
    try:
        close_session(path, NOW)
    except UsageError:
        assert path.read_bytes() == before
    else:
        assert not isinstance(validate(parse(path.read_bytes(), "x"), Session), list)


def test_notes_are_added_line_by_line(tmp_path):
    path = write(tmp_path, PLAIN)
    notes = path.with_name("notes.md")
    notes.write_text("# Notes\n\nProse.")
    add_note(path, "one", NOW)
    add_note(path, "  two\nlines \n", NOW)
    assert notes.read_text() == (
        "# Notes\n\nProse.\n\n- 2026-01-02T15:04:05+01:00 one\n"
        "- 2026-01-02T15:04:05+01:00 two\n  lines\n"
    )
    notes.unlink()
    add_note(path, "three", NOW)
    assert notes.read_text().endswith("three\n")
    with pytest.raises(UsageError, match="empty"):
        add_note(path, " \n ", NOW)


ADD = """
import sys
from pathlib import Path
from kbtool.store.edit import add_item, add_note
path = Path(sys.argv[1])
for number in range(10):
    id_ = f"c{sys.argv[2]}-{number}"
    add_item(path, "costs", {"kind": "gpu", "id": id_, "amount": "1", "basis": "billed"})
    add_note(path, f"{sys.argv[2]} {number}")
"""


@pytest.mark.slow
def test_of_two_commands_at_once_neither_loses_its_change(tmp_path):
    path = write(tmp_path, PLAIN)
    adding = [subprocess.Popen([sys.executable, "-c", ADD, str(path), name]) for name in "ab"]
    assert [process.wait() for process in adding] == [0, 0]
    record = validate(parse(path.read_bytes(), "x"), Session)
    assert isinstance(record, Session)
    assert len({line.id for line in record.costs}) == 20
    assert path.with_name("notes.md").read_text().count("\n- ") == 20


def test_no_session_of_the_repository_is_running() -> None:
    # A newcomer's first run would go into it, or be refused where there are several.
    assert [path for path in RECORDS if "\nstatus: running\n" in path.read_text()] == []


def at(minute: int) -> datetime:
    return datetime(2025, 1, 1, 9, tzinfo=UTC) + timedelta(minutes=minute)


OVER = 'started: "2025-01-01T09:00:00Z"\nended: "2025-01-01T09:10:00Z"\n'


@pytest.mark.parametrize(
    ("began", "ended", "expected", "stretches"),
    [
        (1, 10, 10, 0),  # within it
        (10, 12, 12, 0),  # the next run follows at once
        (60, 65, 65, 2),  # the run was resumed an hour later
    ],
)
def test_a_session_that_is_over_lasts_until_the_end_of_a_run(
    base, began, ended, expected, stretches
):
    path = base.session(more=OVER)
    session = end_run_session(path, at(began), at(ended))
    assert session.ended is not None and session.ended.at == at(expected)
    assert len(session.stretches) == stretches
    assert session.minutes == (15 if stretches else expected)
    assert base.findings() == []


@pytest.mark.parametrize(
    ("runs", "stretches"),
    [
        ([(0, 3)], []),
        ([(0, 3), (3, 5)], []),  # at once
        ([(0, 3), (10, 12)], [(0, 3), (10, 12)]),
        ([(0, 3), (10, 12), (12, 14)], [(0, 3), (10, 14)]),
        ([(0, 3), (10, 12), (20, 21)], [(0, 3), (10, 12), (20, 21)]),
        ([(10, 12), (0, 30)], []),  # a short run during a long one, which ends later
        ([(0, 3), (20, 22), (10, 40)], [(0, 3), (10, 40)]),
        ([(0, 3), (20, 22), (2, 40)], []),
        ([(0, 3), (20, 22), (5, 10)], [(0, 3), (5, 10), (20, 22)]),
        ([(0, 30), (10, 12)], []),
    ],
)
def test_runs_of_one_session_count_once_and_the_time_between_them_does_not(base, runs, stretches):
    path = base.session(more='started: "2025-01-01T09:00:00Z"\nended: "2025-01-01T09:00:00Z"\n')
    for began, ended in runs:
        session = end_run_session(path, at(began), at(ended))
        assert base.findings() == []
    assert session.ended is not None and session.ended.at == at(max(end for _, end in runs))
    known = [(one.started.at, one.ended and one.ended.at) for one in session.stretches]
    assert [(a, b) for a, b in known if a != b] == [(at(a), at(b)) for a, b in stretches]


def test_a_session_that_goes_on_is_left_as_it_is(base):
    path = base.session(more='started: "2025-01-01T09:00:00Z"\n')
    path.write_text(path.read_text().replace("status: complete", "status: running"))
    before = path.read_bytes()
    end_run_session(path, at(60), at(65))
    assert path.read_bytes() == before
