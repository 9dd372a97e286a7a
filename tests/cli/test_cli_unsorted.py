"""Runs outside a session: one session a day, which lasts as long as they do."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from knowledge import LOOK, RUN, Knowledge

from kbtool.cli.main import run
from kbtool.model.run import MachineInfo, RepositoryState
from kbtool.model.session import Session
from kbtool.store.edit import end_run_session
from kbtool.store.sessions import unsorted_session
from kbtool.store.tree import KnowledgeBase


@pytest.fixture
def looking(base: Knowledge) -> Knowledge:
    base.pattern(more=LOOK)
    return base


def sessions(base: Knowledge) -> list[str]:
    return sorted(path.parent.name for path in base.root.glob("sessions/*/session.yaml"))


def ran(kbtool, base: Knowledge, *arguments: str) -> dict:
    done = kbtool("run-recipe", "look", "--json", *arguments, root=base.root)
    assert done.code == 0, done.err
    return json.loads(done.out)


def test_runs_of_a_day_outside_a_session_share_one(kbtool, looking):
    first, second = (ran(kbtool, looking) for _ in range(2))
    assert first["session"] == second["session"] == f"{datetime.now():%Y-%m-%d}-unsorted"
    entry = KnowledgeBase(looking.root).session("last")
    assert (entry.record.status, entry.record.label) == ("complete", "unsorted")
    assert entry.record.environment is not None and entry.record.repository is not None
    assert looking.findings() == []


@pytest.mark.slow
def test_a_run_with_session_new_has_its_own_and_a_running_session_takes_runs(kbtool, looking):
    unsorted = ran(kbtool, looking)["session"]
    own = ran(kbtool, looking, "--session", "new")["session"]
    assert own.endswith("-run-of-recipe-look")
    kbtool("session", "new", "A sitting", root=looking.root)
    assert ran(kbtool, looking)["session"].endswith("-a-sitting")
    assert len(sessions(looking)) == 3 and unsorted in sessions(looking)


@pytest.mark.slow
def test_the_time_between_the_runs_is_not_counted(kbtool, looking):
    unsorted = ran(kbtool, looking)["session"]
    path = looking.root / "sessions" / unsorted / "session.yaml"
    text = path.read_text()
    entry = KnowledgeBase(looking.root).session(unsorted).record
    assert entry.started is not None and entry.ended is not None
    began = entry.started.at - timedelta(hours=2)
    if began.date() != entry.started.at.date():
        pytest.skip("it is just after midnight")
    for stated, at in ((entry.started, began), (entry.ended, began + timedelta(minutes=10))):
        text = text.replace(stated.text, at.isoformat(), 1)
    path.write_text(text)
    for file in path.parent.glob("runs/*.json"):
        file.unlink()
    ran(kbtool, looking)
    after = KnowledgeBase(looking.root).session(unsorted).record
    assert len(after.stretches) == 2 and after.minutes is not None
    assert Decimal(10) <= after.minutes < Decimal(12)
    kbtool("session", "cost", "gpu", "--rate", "0.60 USD/h", "--session", unsorted,
           root=looking.root)  # fmt: skip
    [line] = KnowledgeBase(looking.root).session(unsorted).record.costs
    assert line.amount is not None and Decimal("0.10") <= line.amount < Decimal("0.12")
    assert looking.findings() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("cpu: ", "cpu: Another "),  # another machine of the same base
        ("status: complete", "status: planned"),  # somebody's own session of that name
        ("title:", "titel:"),  # it does not load
    ],
)
def test_an_unsorted_session_that_cannot_take_a_run_is_left_as_it_is(kbtool, looking, old, new):
    unsorted = ran(kbtool, looking)["session"]
    path = looking.root / "sessions" / unsorted / "session.yaml"
    path.write_text(path.read_text().replace(old, new, 1))
    before = path.read_bytes()
    for _ in range(2):
        assert ran(kbtool, looking)["session"] == f"{unsorted}-2"
    assert path.read_bytes() == before


def test_a_run_has_a_journal_until_its_session_lasts_as_long(looking, monkeypatch, capsys):
    # Killed between the two, a run would lie outside its session, and recover would not mend it.
    ran_before = run(["--root", str(looking.root), "run-recipe", "look"])
    seen = []

    def end(path: Path, began: datetime, ended: datetime) -> Session:
        runs = path.parent / "runs"
        seen.append((len(list(runs.glob("[!.]*.json"))), len(list(runs.glob(".*.journal")))))
        return end_run_session(path, began, ended)

    monkeypatch.setattr("kbtool.runner.journal.end_run_session", end)
    assert (ran_before, run(["--root", str(looking.root), "run-recipe", "look"])) == (0, 0)
    assert seen == [(2, 1)]  # the record of this run is there, and its journal still is


@pytest.mark.slow
def test_another_session_of_a_like_name_takes_no_run(kbtool, looking):
    kbtool("session", "new", "Unsorted things", root=looking.root)
    kbtool("session", "close", root=looking.root)
    assert ran(kbtool, looking)["session"].endswith("-unsorted")


def test_runs_that_ask_for_it_at_once_get_one_session(looking):
    machine, repository = MachineInfo.model_validate(RUN["machine"]), RepositoryState()

    def ask(_: int) -> str:
        return unsorted_session(KnowledgeBase(looking.root), machine, repository).record.id

    with ThreadPoolExecutor(8) as pool:
        made = set(pool.map(ask, range(8)))
    assert made == set(sessions(looking)) and len(made) == 1


@pytest.mark.slow
def test_runs_that_start_at_once_have_one_session_with_all_their_time(looking):
    command = [sys.executable, "-m", "kbtool", "run-recipe", "look"]
    folder = Path(__file__).parents[2]
    started = [
        subprocess.Popen(
            [*command[:3], "--root", str(looking.root), *command[3:]], cwd=folder,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )
        for _ in range(4)
    ]  # fmt: skip
    for process in started:
        assert process.wait() == 0, process.stderr and process.stderr.read()
    [session] = sessions(looking)
    assert len(list(looking.root.glob(f"sessions/{session}/runs/*.json"))) == 4
    assert looking.findings() == []
