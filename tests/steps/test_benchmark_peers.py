"""Peers that kill their process, hang or raise lose their case and stop nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from commands import Result

from kbtool.cli.main import run as in_this_process
from kbtool.gpu.benchmark import timing
from kbtool.gpu.probe import probe_machine
from kbtool.model.kinds.benchmark import BenchmarkCase, BenchmarkResult
from kbtool.model.run import Run, StepRecord
from kbtool.runner import history
from kbtool.steps.base import Context, Outcome
from kbtool.steps.benchmark import run as benchmark
from kbtool.steps.benchmark.run import PEER_LOSSES
from kbtool.store.tree import KnowledgeBase

CASES = "      - {name: million, n: 1000000}\n"
MORE = "      - {name: two, n: 1000002}\n      - {name: three, n: 1000003}\n"

# A peer "rogue" beside "torch". WHO does ACT from its call number AT on, on inputs of SIZES.
PEERS_OF_A_KIND = """

import os, signal, time

_sound, PEERS = arms, ("torch", "rogue")
_calls = {name: 0 for name in (SUBJECT, *PEERS)}


def _die():
    os.kill(os.getpid(), signal.SIGFPE)


def arms(inputs, variants=(), peers=()):
    timed = _sound(inputs, variants, peers)
    if "rogue" in peers:
        timed["rogue"] = _sound(inputs, (), ["torch"])["torch"]
    if WHO in timed and inputs["x"].numel() in SIZES:
        body = timed[WHO]

        def wild():
            _calls[WHO] += 1
            if _calls[WHO] >= AT:
                ACT()
            return body()

        timed[WHO] = wild
    return timed
"""


def benchmark_step(
    base: Path, kbtool: Any, act: str, *, who: str = "rogue", at: int = 1, sizes: str = "(1000002,)"
) -> StepRecord:
    """The benchmark step of a run in which arm ``who`` does ``act`` from its call ``at`` on."""
    folder = base / "kernels" / "scaled_add"
    manifest = folder / "kernel.yaml"
    manifest.write_text(manifest.read_text().replace(CASES, CASES + MORE))
    settings = f"\n\nWHO, ACT, AT, SIZES = {who!r}, {act}, {at}, {sizes}\n"
    with (folder / "harness.py").open("a") as file:
        file.write(PEERS_OF_A_KIND + settings)
    kbtool("run-recipe", "add", root=base)
    (path,) = base.glob("sessions/*/runs/*.json")
    assert kbtool("check", root=base).code == 0
    return Run.model_validate_json(path.read_bytes()).steps[3]


def cases_of(step: StepRecord) -> list[BenchmarkCase]:
    assert isinstance(step.result, BenchmarkResult)
    assert [case.name for case in step.result.cases] == ["million", "two", "three"]
    assert all(case.arms.keys() >= {"scaled_add", "torch"} for case in step.result.cases)
    return step.result.cases


@pytest.mark.parametrize("at", [1, 4])
def test_a_peer_that_kills_its_process_is_left_out_of_that_case(second_kernel_base, kbtool, at):
    """At its first call, and amid the timing."""
    step = benchmark_step(second_kernel_base, kbtool, "_die", at=at)
    assert step.result is not None
    assert step.status == step.result.step_status != "failed", step.message
    first, second, third = cases_of(step)
    assert "rogue" in first.arms and "rogue" in third.arms
    assert "rogue" not in second.arms
    assert second.absent["rogue"].startswith("the process was killed by SIGFPE")
    assert "of all that follow" in step.result.protocol


def test_a_peer_that_kills_its_process_again_is_left_out_of_the_rest(second_kernel_base, kbtool):
    sizes = "(1000000, 1000002, 1000003)"
    step = benchmark_step(second_kernel_base, kbtool, "_die", sizes=sizes)
    assert step.result is not None
    assert step.status == step.result.step_status != "failed", step.message
    reasons = [case.absent["rogue"] for case in cases_of(step)]
    assert PEER_LOSSES == 2
    assert [reason.startswith("the process was killed by SIGFPE") for reason in reasons] == [
        True, True, False,
    ]  # fmt: skip
    assert reasons[2].startswith("left out after 2 cases: the process was killed by SIGFPE")


def test_a_peer_that_hangs_is_left_out_of_that_case(second_kernel_base, monkeypatch):
    def kbtool(*arguments: str, root: Path) -> Result:
        return Result(in_this_process(["--root", str(root), *arguments]), "", "")

    monkeypatch.setattr(benchmark, "PEER_SECONDS", 3.0)
    step = benchmark_step(second_kernel_base, kbtool, "lambda: time.sleep(100)", at=4)
    assert cases_of(step)[1].absent == {"rogue": "not back after 0.05 min"}
    assert step.seconds < 60


@pytest.mark.parametrize(
    ("least", "before"), [(0.1, []), (7000.0, []), (0.1, [600.0]), (0.1, [9.0])]
)
def test_busy_cores_stop_a_benchmark_by_the_time_that_it_is_expected_to_take(
    second_kernel_base, monkeypatch, least, before
):
    asked = []
    monkeypatch.setattr(history, "seconds_taken", lambda step, runs: before)

    def measure(request: dict[str, Any], *args: Any, **named: Any) -> tuple[Any, Outcome | None]:
        asked.append(request["expected_s"])
        return None, Outcome("noisy", "not timed")

    monkeypatch.setattr(benchmark, "measure", measure)
    monkeypatch.setattr(benchmark, "SHORT_SECONDS", least)
    assert in_this_process(["--root", str(second_kernel_base), "run-recipe", "add"]) == 75
    recipe = KnowledgeBase(second_kernel_base).recipes()["add"][1]
    expected = before[0] if before else float(recipe.steps[3].expected.minutes * 60)
    assert asked == [max(expected, least)]
    assert 0.1 < recipe.steps[3].expected.minutes * 60 < 7000


def test_the_kernels_own_death_fails_the_step_at_once(second_kernel_base, kbtool):
    step = benchmark_step(second_kernel_base, kbtool, "_die", who="scaled_add", at=4)
    assert step.status == "failed"
    assert step.message == "the process was killed by SIGFPE while benchmarking"
    assert isinstance(step.result, BenchmarkResult)
    assert [case.name for case in step.result.cases] == ["million"]
    assert step.result.not_reached == 2


# What is timed of the library is something else.
ELSE = """

_sound = arms


def arms(inputs, variants=(), peers=()):
    def ours(**changed):
        return _sound({**inputs, **changed})[SUBJECT]()

    return {**_sound(inputs, variants, peers), SUBJECT: lambda: TIMED}
"""


@pytest.mark.parametrize(
    ("instead", "told"),
    [
        ("ours(x=inputs['x'][::2], y=inputs['y'][::2])", "has shape (500000,), not (1000000,)"),
        ("1.5 * ours()", "is over the bound"),
    ],
)
def test_a_kernel_that_is_timed_otherwise_than_it_is_validated_is_refused(
    second_kernel_base, kbtool, instead, told
):
    """The operator is right; what is timed reads half of the inputs, or makes more of them."""
    with (second_kernel_base / "kernels" / "scaled_add" / "harness.py").open("a") as file:
        file.write(ELSE.replace("TIMED", instead))
    assert kbtool("run-recipe", "add", root=second_kernel_base).code == 1
    (path,) = second_kernel_base.glob("sessions/*/runs/*.json")
    step = Run.model_validate_json(path.read_bytes()).steps[3]
    assert step.status == "failed"
    assert "1 of 1 figure refused" in step.message and told in step.message
    assert isinstance(step.result, BenchmarkResult)
    case = step.result.cases[0]
    assert str(case.refused).startswith("arm scaled_add was wrong after timing: ")
    assert not case.rechecked and case.peers["torch"].passed


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [("peers", "nope", "no peer 'nope'; it has torch"), ("threads", "1000", "1000 threads are")],
)
def test_a_dry_run_refuses_impossible_parameters(second_kernel_base, capsys, name, value, told):
    recipes = second_kernel_base / "patterns" / "P01.yaml"
    text = recipes.read_text().replace("threads: 1}", 'threads: "${threads}", peers: "${peers}"}')
    more = (
        "threads: {type: int, default: 1, help: t}\n      peers: {type: str, default: all, help: p}"
    )
    recipes.write_text(text.replace("samples: {type", f"{more}\n      samples: {{type", 1))
    argv = ["--root", str(second_kernel_base), "run-recipe", "add", "--dry-run"]
    assert in_this_process(argv) == 0
    assert in_this_process([*argv, "--set", f"{name}={value}"]) == 2
    assert told in capsys.readouterr().err


def part(name: str) -> dict[str, Any]:
    """What the worker tells of one timed case."""
    case = BenchmarkCase(
        name=name, case={}, arms={"ours": timing([1e-6] * 3)}, bytes=1, flops=1, rechecked=True
    )
    return BenchmarkResult(
        sha256="0" * 64, device="cpu", threads=1, subject="ours", baseline="torch", read_gb_s=1.0,
        protocol="p", cases=[case],
    ).model_dump(mode="json")  # fmt: skip


class Worker:
    """Stands in for the worker: tells the given events, and ends with the given outcome."""

    def __init__(self, *runs: tuple[list[str | None], Outcome | None]) -> None:
        self.runs, self.asked = list(runs), []

    def __call__(
        self, request: dict[str, Any], context: Context, doing: str, on_event: Any, on_tick: Any
    ) -> tuple[Any, Outcome | None]:
        self.asked.append(request)
        events, outcome = self.runs.pop(0)
        on_event({"event": "progress", "done": 1, "total": 3, "label": "a", "part": part("a")})
        for peer in events:
            on_event({"event": "peer", "peer": peer})
        return None if outcome else "measured", outcome


DIED = Outcome("failed", "the process was killed by SIGFPE while benchmarking", error="SIGFPE")


def time_with(
    worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Any, Outcome | None]:
    monkeypatch.setattr(benchmark, "measure", worker)
    context = Context(root=tmp_path, kernel=None, machine=probe_machine(), seed=1)
    cases = [("s", {"name": name}) for name in "abc"]
    return benchmark._Timing({"cases": cases}, context).run()


def test_a_new_worker_continues_after_the_finished_cases(tmp_path, monkeypatch):
    worker = Worker(([None, "quick"], DIED), ([None], None))
    assert time_with(worker, tmp_path, monkeypatch) == ("measured", None)
    first, second = worker.asked
    assert first["known"] is None and first["left_out"] == [{}, {}, {}]
    assert [case["name"] for case in second["known"]["cases"]] == ["a"]
    assert [list(peers) for peers in second["left_out"]] == [[], ["quick"], []]


@pytest.mark.parametrize(
    ("events", "outcome"),
    [
        ([None], DIED),
        (["quick", None], DIED),
        (["quick"], Outcome("timeout", "stopped after 60 s")),
    ],
)
def test_a_failure_that_no_peer_caused_ends_the_step(tmp_path, monkeypatch, events, outcome):
    assert time_with(Worker((events, outcome)), tmp_path, monkeypatch) == (None, outcome)


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (DIED, DIED.message),
        (Outcome("unavailable", "too little memory"), "too little memory"),
        (Outcome("crashed", "ended with status 1", error="a lost context"),
         "ended with status 1: a lost context"),
    ],
)  # fmt: skip
def test_the_reason_why_a_peer_ended_the_process_is_recorded(
    tmp_path, monkeypatch, outcome, reason
):
    worker = Worker((["quick"], outcome), ([None], None))
    assert time_with(worker, tmp_path, monkeypatch) == ("measured", None)
    assert worker.asked[1]["left_out"][1] == {"quick": reason}
