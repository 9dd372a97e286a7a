"""A sweep on a cluster of Slurm: Debian's, as one node, without accounting."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_sweep_faults import LIMIT_S, driven, folder_of, until

from soak.slurm import Cluster, cluster, missing

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing()), reason="no Slurm (Debian: apt-get install slurm-wlm)"),
]


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    pytest.importorskip("submitit")
    with cluster(tmp_path / "slurm") as made:
        monkeypatch.setenv("SLURM_CONF", made.environment["SLURM_CONF"])
        yield made


def task_of(swept, cell: str) -> str:
    return (folder_of(swept).attempt(cell, 1).path / "job").read_text()


def test_an_array_with_a_cancelled_task_and_a_controller_that_is_away(swept, slurm):
    with driven(swept, "cheap", "--over", "n=1,2,3", "--set", "seconds=4", "--on", "slurm",
                "--jobs", "2") as sweep:  # fmt: skip
        until(lambda: (folder_of(swept).attempt("3", 1).path / "job").exists())
        until(lambda: folder_of(swept).attempt("1", 1).claim)
        slurm.ask("scancel", task_of(swept, "3"))  # it has not begun: two run at once
        slurm.stop("slurmctld")
        until(lambda: folder_of(swept).attempt("1", 1).end)
        slurm.start("slurmctld")
        assert sweep.wait(LIMIT_S) == 4, sweep.stderr.read()
    first, second, third = swept.last.cells
    assert (first.status, second.status) == ("passed", "passed")
    assert (third.status, third.run) == ("interrupted", None)
    assert "Slurm says CANCELLED" in third.message
    swept.sound()
    assert swept("resume", "last").code == 0
    assert [len(cell.attempts) for cell in swept.last.cells] == [1, 1, 2]
    swept.sound()


def test_a_running_task_that_is_cancelled_writes_its_record(swept, slurm):
    with driven(swept, "cheap", "--over", "n=1", "--set", "seconds=50", "--on", "slurm") as sweep:
        log = folder_of(swept).attempt("1", 1).path / "log"
        until(lambda: log.exists() and "work: Work on it" in log.read_text())
        slurm.ask("scancel", task_of(swept, "1"))
        assert sweep.wait(LIMIT_S) == 4
    (cell,) = swept.last.cells
    assert cell.status == "interrupted" and "Slurm says CANCELLED" in cell.message
    assert swept.runs[cell.run]["status"] == "interrupted"
    swept.sound()


def test_a_node_that_dies_loses_the_cell_which_is_tried_again(swept, slurm):
    with driven(swept, "cheap", "--over", "n=1", "--set", "seconds=6", "--on", "slurm") as sweep:
        until(lambda: folder_of(swept).attempt("1", 1).claim)
        slurm.kill("slurmd")
        subprocess.run(["pkill", "-9", "-f", str(folder_of(swept).path)], check=False)
        slurm.start("slurmd")
        code = sweep.wait(LIMIT_S)
    (cell,) = swept.last.cells
    assert cell.status == "passed" and code == 0, sweep.stderr.read()
    assert len(swept.runs) == 1
    swept.sound()


def test_the_time_limit_is_told_apart(swept, slurm):
    # Slurm kills no job before its first minute is over: the signal that comes before is enough.
    with driven(swept, "cheap", "--over", "n=1", "--set", "seconds=50", "--on", "slurm",
                "--engine-option", "time=1",
                "--engine-option", "signal_delay_s=40") as sweep:  # fmt: skip
        assert sweep.wait(LIMIT_S) == 4
    (cell,) = swept.last.cells
    assert swept.runs[cell.run]["status"] == "interrupted"
    assert cell.status == "timeout", cell.message
    swept.sound()


def test_cells_that_ask_for_all_cards_take_turns(swept, slurm):
    """The node has two simulated cards, which Slurm gives to one job at a time."""
    (swept.root / "work.py").write_text(
        "import os, time\ntime.sleep(3)\nprint('cards', os.environ['SLURM_GPUS_ON_NODE'])\n"
    )
    swept.commit("tells its cards")
    cards = ("--on", "slurm", "--engine-option")
    cells = swept.swept("cheap", "--over", "n=1,2", *cards, "gpus_per_node=2")["cells"]
    assert all("cards 2" in json.dumps(swept.runs[cell["run"]]) for cell in cells)
    first, second = sorted((cell["attempts"][0] for cell in cells), key=lambda one: one["started"])
    assert second["started"] >= first["ended"]
    refused = swept("cheap", "--over", "n=3", *cards, "gpus_per_node=3")
    assert refused.code == 3, refused.err
    assert "Slurm takes no job" in refused.err and "not available" in refused.err
    swept.sound()


def test_a_cell_that_slurm_puts_back_into_its_queue_runs_anew_and_counts_once(swept, slurm):
    with driven(swept, "cheap", "--over", "n=1", "--set", "seconds=10", "--on", "slurm") as sweep:
        attempt = folder_of(swept).attempt("1", 1)
        log = attempt.path / "log"
        until(lambda: log.exists() and "work: Work on it" in log.read_text())
        first = attempt.claim.started
        slurm.ask("scontrol", "requeue", task_of(swept, "1"))
        until(lambda: attempt.claim and attempt.claim.started > first)
        assert sweep.wait(LIMIT_S) == 0, sweep.stderr.read()
    (cell,) = swept.last.cells
    assert [one.status for one in cell.attempts] == ["passed"]
    assert len(swept.runs) == 1 and cell.attempts[0].started > first
    swept.sound()
