"""What a run says before and after its steps comes from no more of the other runs than it needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbtool.cli.recipe_output import headlines_of
from kbtool.model.kinds.benchmark import BenchmarkResult
from kbtool.model.run import Run
from kbtool.runner import history
from kbtool.runner.history import past_runs, place
from kbtool.store.tree import KnowledgeBase

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def base() -> KnowledgeBase:
    return KnowledgeBase(ROOT)


def alike(run: Run, other: Run) -> bool:
    same_work = (run.recipe, run.parameters) == (other.recipe, other.parameters)
    return same_work and place(run.machine) == place(other.machine)


@pytest.mark.slow
def test_the_past_runs_are_those_of_the_same_work_on_the_same_machine(base, monkeypatch):
    runs = [entry.record for entry in base.runs if entry.record.recipe == "split-k"]
    read: list[str] = []
    sound = history.parse_run
    monkeypatch.setattr(
        history, "parse_run", lambda raw, shown: read.append(shown) or sound(raw, shown)
    )
    newest = sorted(runs, key=lambda run: run.id)[-4:]
    for run in newest:
        found = past_runs(base, "split-k", run.parameters, run.machine)
        assert run.id in {other.id for other in found}
        assert all(alike(run, other) for other in found)
    elsewhere = newest[0].machine.model_copy(update={"cpu": "none of these"})
    read.clear()
    assert past_runs(base, "split-k", newest[0].parameters, elsewhere) == [] and read == []


def noisy_by(result: BenchmarkResult, share: float) -> BenchmarkResult:
    return result.model_copy(update={"others_busy": share})


@pytest.mark.slow
@pytest.mark.parametrize("others_busy", [0.0, 0.5])
def test_a_noisy_run_reads_no_other(base, others_busy):
    run = next(
        entry.record for entry in reversed(base.runs)
        if (result := entry.record.last(BenchmarkResult)) and not result.noise
    )  # fmt: skip
    steps = [
        step.model_copy(update={"result": noisy_by(step.result, others_busy)})
        if isinstance(step.result, BenchmarkResult)
        else step
        for step in run.steps
    ]
    found = headlines_of(fresh := KnowledgeBase(ROOT), run.model_copy(update={"steps": steps}))
    assert ("runs" in vars(fresh)) == (others_busy == 0.0)
    assert found and all((one.chain is None) == (others_busy > 0) for _, one in found)
