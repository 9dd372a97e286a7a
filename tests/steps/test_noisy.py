"""``noisy`` is a verdict of its own: of a step, of its run, and as the exit status."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from commands import assert_passed_or_noisy
from knowledge import RUN
from pydantic import TypeAdapter, ValidationError

from kbtool.checks.ceiling import refusal
from kbtool.gpu.benchmark import timing
from kbtool.model.kinds import StepSpec
from kbtool.model.kinds.benchmark import BenchmarkCase, BenchmarkResult
from kbtool.model.kinds.validate import CaseResult, ValidationResult
from kbtool.model.run import MachineInfo, Run
from kbtool.steps import KINDS, worker
from kbtool.steps.base import Context
from kbtool.steps.benchmark import run as benchmark
from kbtool.store.turn import VARIABLE, turn

SHA = "0" * 64
READ_GB_S = 23.7
BYTES_US = 1e-3 * READ_GB_S
"""What the ceiling lets through, in 10⁶ bytes a microsecond."""


def measured(us: float = 2.0, *, right: bool = True, **more: Any) -> BenchmarkResult:
    """A benchmark of one case that takes 1 µs at the ceiling."""
    case = BenchmarkCase(
        name="c", case_set="s", case={}, bytes=round(BYTES_US * 1e6), flops=1, rechecked=right,
        arms={"ours": timing([us * 1e-6] * 3), "torch": timing([3e-6] * 3)},
    )  # fmt: skip
    case = case.model_copy(update={"refused": refusal(case, "ours", READ_GB_S)})
    return BenchmarkResult(
        sha256=SHA, device="cpu", threads=1, subject="ours", baseline="torch",
        read_gb_s=READ_GB_S, protocol="p", cases=[case], **more,
    )  # fmt: skip


@pytest.fixture
def context(tmp_path: Path) -> Context:
    """After a build and a validation; one case, that the target takes."""
    right = CaseResult(case_set="s", name="c", case={}, passed=True, outputs={})
    machine = MachineInfo(python="3", kbtool="0", os="L", cpu="C", cores=1)
    made = Context(root=tmp_path, kernel=None, machine=machine, seed=1)
    target = SimpleNamespace(takes=lambda *_: True, variants_for=lambda _: [], env={})
    kernel = SimpleNamespace(
        targets={"cpu": target},
        cases=lambda _: [{"name": "c"}],
        harness="harness.py",
        interface="",
        own_calls=[],
    )
    made.plan = SimpleNamespace(  # type: ignore[assignment]
        kernel=kernel,
        target="cpu",
        device="cpu",
        modules=[],
        architecture="",
        library="l.so",
        folder=tmp_path,
    )
    made.built = SimpleNamespace(sha256=SHA)  # type: ignore[assignment]
    made.validated = [ValidationResult(sha256=SHA, device="cpu", seed=1, rule="r", cases=[right])]
    return made


BUSY = {"others_busy": 0.35}


@pytest.mark.parametrize(
    ("result", "status", "said"),
    [
        (measured(), "passed", "geometric mean 1.50×"),
        (measured(**BUSY), "noisy", "noisy: other processes used 35% of the cores meanwhile"),
        (measured(others_on_card=1), "noisy", "noisy: other processes on the card meanwhile: 1"),
        (measured(0.6), "failed", "39.5 GB/s is over the measured read ceiling of 23.7 GB/s"),
        (measured(0.6, **BUSY), "noisy", "1 of 1 figure refused: c: 39.5 GB/s is over"),
        (measured(right=False), "failed", "the result was wrong after timing"),
        (measured(right=False, **BUSY), "failed", "the result was wrong after timing"),
        (measured(0.6, right=False, **BUSY), "failed", "the result was wrong after timing"),
    ],
)
def test_noise_makes_a_step_noisy_and_never_a_wrong_result_right(
    context, monkeypatch, result, status, said
):
    said_by_a_worker = result.model_dump(mode="json"), None
    monkeypatch.setattr(benchmark, "measure", lambda *_: said_by_a_worker)
    common = {"id": "s", "title": "S", "expected": "1 s", "timeout": "1 min"}
    spec = {**common, "kind": "benchmark", "case_sets": "s"}
    outcome = KINDS["benchmark"].run(TypeAdapter(StepSpec).validate_python(spec), context)
    assert outcome.status == status
    assert said in outcome.message
    assert ("×" in outcome.message) == (status == "passed")
    assert (outcome.error is None) == (status != "failed")


def record(step: dict[str, Any], result: BenchmarkResult | None, **more: Any) -> dict[str, Any]:
    """A run that validated a library and timed it."""
    case = {"case_set": "s", "name": "c", "case": {}, "passed": True, "outputs": {}}
    validation = {"type": "validation", "sha256": SHA, "device": "cpu", "seed": 1, "rule": "R"}
    steps = [
        {**RUN["steps"][0], "id": "validate", "kind": "validate",
         "result": {**validation, "cases": [case]}},
        {**RUN["steps"][0], "id": "time", "kind": "benchmark", **step,
         "result": result and result.model_dump(mode="json")},
    ]  # fmt: skip
    return {**RUN, "steps": steps, **more}


def test_a_noisy_step_makes_a_noisy_run_and_has_no_quiet_times():
    noisy = {"status": "noisy"}
    run = Run.model_validate(record(noisy, measured(**BUSY), **noisy))
    assert run.outcome == run.steps[-1].outcome == "noisy"
    unmeasured = Run.model_validate(record(noisy, None, **noisy))
    assert unmeasured.outcome == "noisy"
    with pytest.raises(ValidationError, match="noisy, although its times are not"):
        Run.model_validate(record(noisy, measured(), **noisy))
    with pytest.raises(ValidationError, match="its steps make it crashed or noisy"):
        Run.model_validate(record(noisy, measured(**BUSY)))


def test_an_older_passed_record_with_noisy_times_is_shown_as_noisy():
    run = Run.model_validate(record({}, measured(**BUSY)))
    assert (run.status, run.outcome, run.steps[-1].outcome) == ("passed", "noisy", "noisy")
    quiet = Run.model_validate(record({}, measured()))
    assert (quiet.outcome, quiet.steps[-1].outcome) == ("passed", "passed")
    failed = Run.model_validate(
        record({"status": "failed"}, measured(0.6, **BUSY), status="failed")
    )
    assert failed.outcome == "failed"


@pytest.fixture
def busy_machine() -> Iterator[None]:
    """Two processes that do nothing but work."""
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    yield
    for process in spinning:
        process.kill()
        process.wait()


def test_a_benchmark_on_a_busy_machine_is_noisy_and_can_be_measured_again(
    second_kernel_base, kbtool, busy_machine
):
    done = kbtool("run-recipe", "add", root=second_kernel_base)
    assert done.code == 75, done.err
    (path,) = second_kernel_base.glob("sessions/*/runs/*.json")
    run = Run.model_validate_json(path.read_bytes())
    assert [step.status for step in run.steps] == ["passed", "passed", "passed", "noisy"]
    assert (run.status, run.outcome) == ("noisy", "noisy")
    assert "noisy at step 4 of 4, benchmark; record: " in done.out
    again = f"to measure again when the machine is quiet: kbtool run-recipe --resume {run.id}"
    assert again in done.out
    assert kbtool("check", root=second_kernel_base).code == 0
    shown = kbtool("session", "show", run.session, root=second_kernel_base)
    assert "  add  noisy  3 of 3 cases passed; " in shown.out
    assert "; noisy: other processes used " in shown.out
    resumed = kbtool("run-recipe", "--resume", run.id, "--json", root=second_kernel_base)
    told = json.loads(resumed.out)
    assert "validate: passed in attempt 1, kept" in resumed.err
    assert_passed_or_noisy(Run.model_validate({k: told[k] for k in Run.model_fields}), resumed)


def test_a_benchmark_waits_for_another_run_or_says_which_it_did_not_wait_for(
    second_kernel_base, kbtool, monkeypatch, tmp_path
):
    env = {VARIABLE: str(tmp_path)}
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with turn(None, "theirs", wait=False, on_wait=print, on_tick=lambda: None):
        done = kbtool("run-recipe", "add", "--no-wait", root=second_kernel_base, env=env)
    assert done.code == 75, done.err
    (path,) = second_kernel_base.glob("sessions/*/runs/*.json")
    run = Run.model_validate_json(path.read_bytes())
    assert [step.status for step in run.steps] == ["passed", "passed", "passed", "noisy"]
    (said,) = (run.steps[3].message,)
    assert f"run theirs of {getpass.getuser()} (pid {os.getpid()}, since " in said
    assert "nothing was measured, as --no-wait says" in said
    assert kbtool("check", root=second_kernel_base).code == 0
    end = threading.Event()

    def hold() -> None:
        with turn(None, "theirs", wait=False, on_wait=print, on_tick=lambda: None):
            end.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    threading.Timer(10, end.set).start()
    resumed = kbtool(
        "run-recipe", "--resume", run.id, "--progress", "plain", root=second_kernel_base, env=env
    )
    holder.join()
    assert "benchmark: waiting for run theirs of " in resumed.err
    latest = Run.model_validate_json(path.with_suffix(".2.json").read_bytes())
    assert_passed_or_noisy(latest, resumed)


def test_waiting_for_another_run_does_not_count_as_time_of_the_step(context, monkeypatch, tmp_path):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    context.deadline = before = time.monotonic() + 60
    ticks: list[int] = []
    with contextlib.ExitStack() as theirs:
        theirs.enter_context(turn(None, "theirs", wait=False, on_wait=print, on_tick=lambda: None))

        def tick() -> None:
            ticks.append(1)
            if len(ticks) == 2:
                theirs.close()

        context.on_tick = tick
        with worker.alone({"device": "cpu"}, context):
            pass
    assert context.waited > 0.1
    assert context.deadline == pytest.approx(before + context.waited)
