"""Sweeps whose cells, engines or drivers are killed, paused, stopped or cut off."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest

from kbtool.model.sweep import Attempt
from kbtool.store.sweeps import write_sweep
from kbtool.sweeps import processes
from kbtool.sweeps.cell import run_attempt
from kbtool.sweeps.drive import is_driven
from kbtool.sweeps.folder import GIVEN_UP, Claim, End, SweepFolder

LIMIT_S = 120


def until(seen: Callable[[], object]) -> None:
    end = time.monotonic() + LIMIT_S
    while not seen():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.05)


@contextlib.contextmanager
def driven(swept, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A sweep that another process drives, from the moment that its record is there."""
    before = len(swept.records)
    process = subprocess.Popen(
        [sys.executable, "-m", "kbtool", "sweep", *arguments], cwd=swept.root,
        env={**os.environ, **swept.env}, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    try:
        if arguments[0] == "cheap":
            until(lambda: len(swept.records) > before)
        yield process
    finally:
        process.kill()
        process.communicate()


def folder_of(swept) -> SweepFolder:
    return SweepFolder.of(swept.root, swept.records[-1].stem)


def running(swept) -> list[int]:
    """The processes of cells that have begun, and have not ended."""
    found = []
    for claim in folder_of(swept).path.glob("cells/*/*/claim.json"):
        job = json.loads(claim.read_text())["job"]
        if job != GIVEN_UP and processes.lives(job):
            found.append(int(job.partition(".")[0]))
    return found


def test_a_cell_that_is_killed_is_lost_and_tried_again(swept):
    with driven(swept, "cheap", "--over", "n=1", "--set", "seconds=3") as sweep:
        until(lambda: running(swept))
        time.sleep(1)  # it runs the recipe by now
        os.kill(running(swept)[0], signal.SIGKILL)
        assert sweep.wait(LIMIT_S) == 0
        said = sweep.stderr.read()
    (cell,) = swept.last.cells
    lost, passed = cell.attempts
    assert (lost.status, lost.run, passed.status, passed.run) == ("lost", None, "passed", cell.run)
    assert lost.started and lost.ended and "it is tried again" in said
    swept.sound()


def test_a_run_that_is_killed_inside_its_cell_is_lost_too(swept):
    with driven(swept, "cheap", "--over", "n=1", "--set", "seconds=3") as sweep:
        until(lambda: running(swept))
        until(lambda: (folder_of(swept).attempt("1", 1).path / "log").read_text())
        subprocess.run(["pkill", "-9", "-P", str(running(swept)[0])], check=True)
        assert sweep.wait(LIMIT_S) == 0
    (cell,) = swept.last.cells
    lost, passed = cell.attempts
    assert (lost.status, lost.message) == ("lost", "its kbtool was killed by SIGKILL")
    assert passed.status == "passed"
    swept.sound()


def test_a_cell_is_not_tried_for_ever(swept):
    with driven(swept, "cheap", "--over", "n=1", "--set", "seconds=60", "--tries", "2") as sweep:
        killed: set[int] = set()
        while sweep.poll() is None:
            for process in set(running(swept)) - killed:
                os.kill(process, signal.SIGKILL)
                killed.add(process)
            time.sleep(0.05)
    assert sweep.returncode == 1 and len(killed) == 2
    (cell,) = swept.last.cells
    assert [one.status for one in cell.attempts] == ["lost", "lost"] and cell.status == "lost"
    assert not swept.runs
    swept.sound()


def test_who_drives_it_may_be_killed_and_another_goes_on(swept):
    with driven(swept, "cheap", "--over", "n=1,2,3", "--set", "seconds=2") as sweep:
        until(lambda: running(swept))
        os.killpg(sweep.pid, signal.SIGKILL)
        sweep.wait()
    assert running(swept) and swept.last.status == "running"
    assert "cut off" in swept("list").out
    done = swept("attach", "last")
    assert done.code == 0, done.err
    record = swept.last
    assert [len(cell.attempts) for cell in record.cells] == [1, 1, 1]
    assert record.status == "ended" and len(swept.runs) == 3
    swept.sound()


def test_a_second_process_watches_and_ends_with_it(swept):
    with driven(swept, "cheap", "--over", "n=1,2", "--set", "seconds=2") as first:
        until(lambda: is_driven(folder_of(swept)))
        with driven(swept, "attach", "last") as second:
            assert first.wait(LIMIT_S) == second.wait(LIMIT_S) == 0
            assert "2 passed" in second.stdout.read()
    swept.sound()


def test_paused_it_begins_no_more_and_resumed_it_goes_on(swept):
    with driven(swept, "cheap", "--over", "n=1,2", "--set", "seconds=2") as sweep:
        until(lambda: running(swept))
        assert swept("pause", "last").code == 0
        assert sweep.wait(LIMIT_S) == 4
    assert [cell.status for cell in swept.last.cells] == ["passed", "waiting"]
    assert swept.last.status == "paused"
    assert swept("pause", "last").code == 2
    assert swept("resume").code == 0
    assert [cell.status for cell in swept.last.cells] == ["passed", "passed"]
    assert [len(cell.attempts) for cell in swept.last.cells] == [1, 1]
    swept.sound()


def test_a_cell_that_is_told_to_end_again_and_again_keeps_its_record(swept):
    with driven(swept, "cheap", "--over", "n=1", "--set", "seconds=50") as sweep:
        until(lambda: "work: Work on it" in "".join(
            one.read_text() for one in folder_of(swept).path.glob("cells/1/1/log")))  # fmt: skip
        (cell,) = running(swept)
        assert swept("stop", "last").code == 0
        while sweep.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(cell, signal.SIGTERM)
            time.sleep(0.001)
    (stopped,) = swept.last.cells
    assert (stopped.status, stopped.message) == ("interrupted", "ended by SIGTERM")
    assert swept.runs[stopped.run]["status"] == "interrupted"
    swept.sound()


def test_stopped_it_ends_what_runs_and_keeps_its_record(swept):
    with driven(swept, "cheap", "--over", "n=1,2", "--set", "seconds=50") as sweep:
        until(lambda: "work: Work on it" in "".join(
            one.read_text() for one in folder_of(swept).path.glob("cells/1/1/log")))  # fmt: skip
        assert swept("stop", "last").code == 0
        assert sweep.wait(LIMIT_S) == 4
    first, second = swept.last.cells
    assert (first.status, second.status) == ("interrupted", "waiting")
    assert swept.last.status == "stopped"
    assert swept.runs[first.run]["status"] == "interrupted"
    swept.sound()
    # A cell by its number, however it ended; the others stay.
    (swept.root / "work.py").write_text("this is no Python: cells run what was packed")
    with driven(swept, "resume", "last", "--cell", "1") as sweep:
        until(lambda: running(swept))
        assert swept("stop", "last").code == 0
        sweep.wait(LIMIT_S)
    assert len(swept.last.cells[0].attempts) == 2
    swept.sound()


def test_ctrl_c_leaves_the_jobs_alone_and_says_how_to_go_on(swept):
    with driven(swept, "cheap", "--over", "n=1,2", "--set", "seconds=3") as sweep:
        until(lambda: running(swept))
        os.killpg(sweep.pid, signal.SIGINT)
        assert sweep.wait(LIMIT_S) == 4
        assert "kbtool sweep attach" in sweep.stderr.read()
    assert running(swept)
    assert swept("attach").code == 0
    assert [len(cell.attempts) for cell in swept.last.cells] == [1, 1]
    swept.sound()


def cut_off_before(swept, note: bool) -> SweepFolder:
    """A sweep whose kbtool was killed once it had asked the engine, before it knew the answer."""
    swept("cheap", "--over", "n=1")
    record, folder = swept.last, folder_of(swept)
    for path in swept.root.glob("sessions/*/runs/*"):
        path.unlink()
    request = folder.attempt("1", 1).request()
    for path in folder.attempt("1", 1).path.iterdir():
        path.unlink()
    attempts = [Attempt(job=None, queued=datetime.now(UTC), status="queued")] if note else []
    (cell,) = record.cells
    cell = cell.model_copy(
        update={"status": "queued" if note else "waiting", "run": None, "attempts": attempts}
    )
    write_sweep(swept.root, record.model_copy(
        update={"status": "running", "ended": None, "cells": [cell]}))  # fmt: skip
    folder.attempt("1", 1).create(request)
    return folder


@pytest.mark.parametrize("note", [False, True])
def test_a_job_that_nobody_noted_is_given_up_and_does_not_begin_later(swept, note, monkeypatch):
    folder = cut_off_before(swept, note)
    assert swept("attach").code == 0
    (cell,) = swept.last.cells
    assert [one.status for one in cell.attempts] == ["lost", "passed"]
    # The engine had it all the same, and starts it now.
    monkeypatch.setenv("TMPDIR", str(swept.node))
    run_attempt(str(folder.attempt("1", 1).path))
    assert sorted(one.name for one in folder.attempt("1", 1).path.iterdir()) == [
        "claim.json", "request.json",
    ]  # fmt: skip
    assert len(swept.runs) == 1
    swept.sound()


def test_a_job_that_nobody_noted_but_that_has_begun_counts(swept):
    folder = cut_off_before(swept, note=False)
    attempt = folder.attempt("1", 1)
    job = subprocess.Popen(
        [sys.executable, "-m", "kbtool.sweeps.cell", str(attempt.path)],
        env={**os.environ, **swept.env}, start_new_session=True,
    )  # fmt: skip
    until(lambda: attempt.claim)
    done = swept("attach")
    job.wait(LIMIT_S)
    assert done.code == 0, done.err
    (cell,) = swept.last.cells
    assert [one.status for one in cell.attempts] == ["passed"]
    swept.sound()


def test_a_run_that_changed_on_its_way_home_is_refused(swept):
    folder = cut_off_before(swept, note=False)
    attempt = folder.attempt("1", 1)
    subprocess.run(
        [sys.executable, "-m", "kbtool.sweeps.cell", str(attempt.path)], check=True,
        env={**os.environ, **swept.env}, start_new_session=True,
    )  # fmt: skip
    run = attempt.path / "run.json"
    run.write_text(run.read_text().replace('"n": "1"', '"n": "2"'))
    done = swept("attach")
    assert done.code == 1
    (cell,) = swept.last.cells
    assert cell.status == "refused" and "unsealed" in cell.message and cell.run is None
    swept.sound()


def test_only_one_of_two_has_an_attempt(tmp_path):
    attempt = SweepFolder(tmp_path).attempt("1", 1)
    attempt.create({})
    now = datetime.now(UTC)
    assert attempt.claimed_by(Claim("a job", now, "a card", 2))
    assert not attempt.claimed_by(Claim(GIVEN_UP, now, None, 0))
    assert attempt.claim == Claim("a job", now, "a card", 2) and attempt.job == "a job"
    assert attempt.end is None
    attempt.ended_by(End(now, None, "SIGTERM", None))
    assert attempt.end == End(now, None, "SIGTERM", None)


def test_a_process_is_known_by_more_than_its_number():
    child = subprocess.Popen(["sleep", "60"], start_new_session=True)
    name = processes.name_of(child.pid)
    assert processes.lives(name) and not processes.lives(f"{child.pid}.1")
    processes.end(f"{child.pid}.1")
    assert child.poll() is None
    processes.end(name)
    until(lambda: not processes.lives(name))  # it waits to be reaped, and lives no more
    child.wait()
    assert not processes.lives(processes.name_of(child.pid))


@pytest.mark.slow
def test_submitit_runs_cells_and_kbtool_finds_one_that_was_killed(swept):
    pytest.importorskip("submitit")
    with driven(swept, "cheap", "--over", "n=1,2", "--set", "seconds=20", "--on", "submitit",
                "--jobs", "2") as sweep:  # fmt: skip
        until(lambda: len(running(swept)) == 2)
        os.killpg(sweep.pid, signal.SIGINT)  # not meant for its jobs
        assert sweep.wait(LIMIT_S) == 4
        assert "kbtool sweep attach" in sweep.communicate()[1]  # jobs do not hold its output open
        assert len(running(swept)) == 2
        # What it shows is submitit's own process; the cell is the child.
        subprocess.run(["pkill", "-9", "-P", str(running(swept)[0])], check=True)
    assert swept("attach").code == 0
    record = swept.last
    assert sorted(len(cell.attempts) for cell in record.cells) == [1, 2]
    assert {cell.status for cell in record.cells} == {"passed"}
    swept.sound()
    done = swept("cheap", "--over", "n=3", "--on", "submitit", "--engine-option", "nonsense=1")
    assert done.code == 2 and "nonsense" in done.err


def test_without_slurm_it_says_so(swept, tmp_path):
    pytest.importorskip("submitit")
    nothing = tmp_path / "bin"
    nothing.mkdir()
    (nothing / "git").symlink_to("/usr/bin/git")
    done = swept("cheap", "--over", "n=1", "--on", "slurm", PATH=str(nothing))
    assert done.code == 3 and "there is no sbatch" in done.err
    assert not swept.records
