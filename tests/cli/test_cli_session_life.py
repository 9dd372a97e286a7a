"""Sessions recorded with other times than now, paused, left running, or closed too early."""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
from commands import REPOSITORY
from knowledge import LOOK

from kbtool.store.tree import KnowledgeBase

TODAY = datetime.now().astimezone()


def record(base, name):
    return KnowledgeBase(base.root).session(name).record


def test_a_session_of_yesterday_can_be_recorded(base, git, kbtool):
    day = f"{TODAY - timedelta(days=1):%Y-%m-%d}"

    def session(*arguments):
        done = kbtool("session", *arguments, root=base.root)
        assert done.code == 0, done.err
        return done

    done = session("new", "The sweep", "--at", f"{day}T14:00")
    assert done.out == f"sessions/{day}-the-sweep/session.yaml\n"
    assert "the machine and the commit of that time are for you to fill in" in done.err
    session("pause", "--at", f"{day}T14:30")
    session("resume", "--at", f"{day}T15:00")
    assert "is complete after 75 min" in session("close", "--at", f"{day}T15:45").out
    written = record(base, "the-sweep")
    assert (written.environment, written.repository) == (None, None)
    assert written.started.at.utcoffset() == TODAY.replace(hour=14).astimezone().utcoffset()
    assert base.findings() == []


def test_a_plan_is_started_when_it_began(base, kbtool):
    kbtool("session", "new", "Later", "--planned", root=base.root)
    assert kbtool("session", "start", "later", "--at", "20 min ago", root=base.root).code == 0
    started = record(base, "later").started.at
    assert timedelta(minutes=19) < datetime.now(UTC) - started < timedelta(minutes=25)
    both = kbtool("session", "new", "T", "--planned", "--at", "1 h ago", root=base.root)
    assert both.code == 2 and "give one" in both.err


def running(base, hours, name="a"):
    at = (datetime.now(UTC) - timedelta(hours=hours)).isoformat(timespec="seconds")
    path = base.session(f"{TODAY:%Y-%m-%d}-{name}", f'started: "{at}"\n')
    path.write_text(path.read_text().replace("status: complete", "status: running")
                    .replace("origin: person", "origin: tool"))  # fmt: skip
    return path


@pytest.mark.parametrize(
    ("at", "said"),
    [
        ("soon", "'soon' is not a time; write 14:30"),
        ("2026-11-21", "is not a time; write 14:30"),
        ("0001-01-01T00:00", "is not a time|is before"),
        ("two hours ago", "is not a time; write 14:30"),
        ("1..2 h ago", "is not a time; write 14:30"),
        ("25:00", "is not a time; write 14:30"),
        ("2999-01-01T10:00", "is in the future"),
        ("9999-01-01T10:00", "is not a time; write 14:30"),
        ("3 h ago", "is before .*, the latest time in the record of .*-a;"),
    ],
)
def test_an_impossible_time_exits_2(base, kbtool, at, said):
    path = running(base, 2)
    before = path.read_bytes()
    for verb in ("close", "pause"):
        done = kbtool("session", verb, "--at", at, root=base.root)
        assert (done.code, done.out) == (2, "")
        assert re.search(said, done.err), done.err
    assert path.read_bytes() == before


def test_a_time_of_today_is_not_one_of_tomorrow(base, kbtool):
    running(base, 24)
    later = datetime.now().astimezone() + timedelta(minutes=3)
    if later.date() == TODAY.date():
        done = kbtool("session", "close", "--at", f"{later:%H:%M}", root=base.root)
        assert done.code == 2 and "is in the future" in done.err
    done = kbtool("session", "close", "--at", f"{datetime.now():%H:%M}", root=base.root)
    assert done.code == 0, done.err


def test_a_session_left_running_for_days_needs_an_end_time(base, kbtool):
    path = running(base, 319)
    before = path.read_bytes()
    for verb in ("close", "pause"):
        done = kbtool("session", verb, root=base.root)
        assert done.code == 2
        assert "319 h without a pause: say when the work ended, --at TIME" in done.err
    assert path.read_bytes() == before
    assert kbtool("session", "close", "--at", "317 h ago", root=base.root).code == 0
    assert 119 < record(base, "A").minutes < 121
    running(base, 30, "b")
    assert kbtool("session", "close", "--at", "now", root=base.root).code == 0


def test_resume_reopens_a_closed_session(base, kbtool):
    running(base, 2)
    kbtool("session", "close", "--at", "1 h ago", root=base.root)
    again = kbtool("session", "close", "A", root=base.root)
    assert again.code == 2
    assert "-a is complete already; `kbtool session resume" in again.err
    assert "sessions/" in again.err
    start = kbtool("session", "start", "A", root=base.root)
    assert start.code == 2 and "kbtool session resume" in start.err
    assert kbtool("session", "resume", root=base.root).code == 2  # by its name only
    assert kbtool("session", "resume", "A", "--at", "20 min ago", root=base.root).code == 0
    kbtool("session", "close", root=base.root)
    assert 79 < record(base, "A").minutes < 82


def test_a_paused_session_ended_when_it_was_paused(base, kbtool):
    running(base, 2)
    kbtool("session", "pause", "--at", "1 h ago", root=base.root)
    done = kbtool("session", "close", "A", "--at", "30 min ago", root=base.root)
    assert done.code == 2 and "kbtool session resume" in done.err
    assert kbtool("session", "close", "A", root=base.root).code == 0


def test_commands_that_need_a_running_session_name_the_paused_one(base, kbtool):
    running(base, 2)
    kbtool("session", "pause", "--at", "90 min ago", root=base.root)
    for arguments in (["pause"], ["close"], ["show"]):
        done = kbtool("session", *arguments, root=base.root)
        assert done.code == 2
        assert (
            f"no session is running; paused: {TODAY:%Y-%m-%d}-a. `kbtool session resume`"
            in done.err
        )
    done = kbtool("status", root=base.root)
    assert done.code == 0
    assert re.search(r"^A is paused since .*\d\d:\d\d, after 30 min$", done.out, re.M), done.out
    assert f"kbtool session resume {TODAY:%Y-%m-%d}-a" in done.err
    assert "session new" not in done.err
    (paused,) = json.loads(kbtool("status", "--json", root=base.root).out)["paused"]
    assert (paused["label"], paused["minutes"]) == ("A", 30.0)
    assert kbtool("status", "--short", root=base.root).out == ""


def test_status_counts_sessions_paused_long_ago(base, kbtool):
    for name, more in (("b", "started: 2025-01-02T10:00Z\nended: 2025-01-02T11:00Z\n"), ("c", "")):
        path = base.session(f"2025-01-02-{name}", more)
        path.write_text(path.read_text().replace("status: complete", "status: paused"))
    done = kbtool("status", root=base.root)
    assert "paused 7 days ago or earlier, or at an unknown time: 2 sessions" in done.out
    assert "kbtool session new TITLE" in done.err


def test_a_paused_session_transcribed_from_a_log_is_not_offered(base, kbtool):
    path = base.session()
    text = path.read_text().replace("status: complete", "status: paused")
    path.write_text(text.replace("origin: person", "origin: log"))
    assert "paused" not in kbtool("session", "note", "x", root=base.root).err


def test_a_note_is_taken_while_a_session_is_paused(base, kbtool, git):
    kbtool("session", "new", "A", root=base.root)
    kbtool("session", "pause", root=base.root)
    done = kbtool("session", "note", "it was the clock", root=base.root)
    assert done.code == 0, done.err
    (notes,) = base.root.glob("sessions/*-a/notes.md")
    assert "it was the clock" in notes.read_text()
    assert kbtool("session", "show", "last", root=base.root).out.startswith("a: A\n")
    assert kbtool("check", root=base.root).code == 0


@pytest.mark.slow
def test_a_note_is_read_from_a_pipe(base, git):
    here = {**os.environ, "KBTOOL_ROOT": str(base.root), "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-m", "kbtool", "session"]
    subprocess.run([*command, "new", "A"], env=here, check=True, capture_output=True)
    for data, code in ((b"first\nsecond\n", 0), (b"caf\xe9\n", 0), (b" \n", 2)):
        done = subprocess.run([*command, "note", "-"], input=data, env=here, capture_output=True)
        assert done.returncode == code, done.stderr
    (notes,) = base.root.glob("sessions/*-a/notes.md")
    assert " first\n  second\n" in notes.read_text() and "caf\ufffd" in notes.read_text()


def look(base, kbtool, *arguments):
    return kbtool("run-recipe", "look", "--progress", "quiet", *arguments, root=base.root)


def runs(base, name):
    return len(list(base.root.glob(f"sessions/*-{name}/runs/*.json")))


@pytest.mark.slow
def test_a_run_without_session_is_refused_while_one_is_paused(base, git, kbtool):
    base.pattern(more=LOOK)
    kbtool("session", "new", "Mine", root=base.root)
    kbtool("session", "pause", root=base.root)
    for arguments in ([], ["--dry-run"]):
        done = look(base, kbtool, *arguments)
        assert done.code == 2
        for said in ("paused: ", "-mine", "kbtool session resume", "--session new"):
            assert said in done.err
    assert look(base, kbtool, "--session", "mine").code == 0
    assert look(base, kbtool, "--session", "new").code == 0
    assert (runs(base, "mine"), runs(base, "look")) == (1, 1)
    # Of somebody else, it is told and in nobody's way.
    git("config", "user.name", "Bob")
    done = look(base, kbtool)
    assert done.code == 0
    assert "the run goes into the unsorted session of the day" in done.err
    assert (runs(base, "mine"), runs(base, "look"), runs(base, "unsorted")) == (1, 1, 1)


@pytest.mark.parametrize(("status", "verb"), [("complete", "resume"), ("planned", "start")])
def test_a_run_is_added_to_a_closed_session_only_with_force(base, kbtool, status, verb):
    base.pattern(more=LOOK)
    path = base.session()
    path.write_text(path.read_text().replace("status: complete", f"status: {status}"))
    for arguments in (["--session", "A"], ["--session", "A", "--dry-run"]):
        done = look(base, kbtool, *arguments)
        assert done.code == 2
        assert f"2025-01-01-a is {status}: `kbtool session {verb} 2025-01-01-a`" in done.err
    assert runs(base, "a") == 0
    assert look(base, kbtool, "--session", "A", "--force").code == 0
    assert runs(base, "a") == 1


def test_a_session_is_not_closed_under_a_run(base, kbtool):
    path = running(base, 1)
    journal = path.parent / "runs" / ".20250101T090000Z-look.journal"
    journal.parent.mkdir()
    with journal.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        done = kbtool("session", "close", root=base.root)
        assert done.code == 2
        assert "under way, 20250101T090000Z-look: wait for it" in done.err
        done = kbtool("session", "close", "--force", root=base.root)
        assert done.code == 0
        assert "20250101T090000Z-look is under way" in done.err
    kbtool("session", "resume", "A", root=base.root)
    assert kbtool("session", "close", root=base.root).code == 0  # left behind, and not under way
