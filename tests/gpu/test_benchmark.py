"""What a benchmark refuses, and how arms take turns; no test here looks at a clock."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kbtool.cli.recipe import _print_benchmark
from kbtool.gpu.benchmark import CEILING_MARGIN, benchmark, refusal, runnable, timing
from kbtool.gpu.calls import profiled_call
from kbtool.gpu.cpu_clock import interleave
from kbtool.gpu.harness import HarnessError
from kbtool.model.results import BenchmarkCase, BenchmarkResult, OutputError
from kbtool.steps.benchmark import remarks, report


def case(rate_gb_s: float, *, rechecked: bool = True) -> BenchmarkCase:
    microseconds = 1_000_000 / (rate_gb_s * 1e3)
    return BenchmarkCase(
        name="c", case={}, arms={"ours": timing([microseconds / 1e6] * 3)}, bytes=1_000_000,
        flops=1, rechecked=rechecked,
    )  # fmt: skip


def test_a_result_over_the_ceiling_is_refused():
    assert refusal(case(20.0), "ours", 20.0) is None
    assert refusal(case(20.0 * CEILING_MARGIN * 1.01), "ours", 20.0) is not None


def test_a_result_that_was_wrong_after_timing_is_refused():
    assert "wrong after timing" in str(refusal(case(1.0, rechecked=False), "ours", 20.0))


def test_arms_take_turns_and_the_order_is_reversed_every_other_round():
    calls: list[str] = []
    taken = interleave(
        {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 4,
        before=lambda arm: calls.append(arm.upper()),
    )  # fmt: skip
    text = "".join(calls)
    assert text.count("Aa") == text.count("Bb") == len(text) // 4
    assert "AaBb" in text
    assert "BbAa" in text
    assert {len(samples) for samples in taken.values()} == {4}


def test_samples_become_a_median_and_quartiles():
    result = timing([5e-6, 1e-6, 3e-6, 2e-6, 4e-6])
    assert (result.low_us, result.median_us, result.high_us) == (2.0, 3.0, 4.0)
    assert result.samples_us == [5.0, 1.0, 3.0, 2.0, 4.0]


def test_a_case_without_the_library_is_refused():
    lost = case(1.0).model_copy(update={"arms": {}, "absent": {"ours": "cannot be captured"}})
    assert refusal(lost, "ours", 20.0) == "the library was not timed: cannot be captured"


def measured(**medians: float) -> BenchmarkCase:
    return case(1.0).model_copy(
        update={"arms": {arm: timing([us / 1e6] * 3) for arm, us in medians.items()}}
    )


def result_of(*cases: BenchmarkCase) -> BenchmarkResult:
    return BenchmarkResult(
        sha256="0" * 64, device="cpu", threads=1, subject="ours", baseline="torch",
        variants=["other"], read_gb_s=1.0, protocol="p", cases=list(cases),
    )  # fmt: skip


def test_the_best_peer_is_the_fastest_that_is_right_and_none_of_the_librarys_own():
    wrong = OutputError(passed=False, error=1.0, bound=0.1, torch_error=0.1, message="m")
    one = measured(ours=4.0, other=1.0, torch=12.0, quick=6.0)
    assert result_of(one).best_peer(one) == "quick"
    assert result_of(one).ratio_to_best(one) == 1.5
    lying = one.model_copy(update={"peers": {"quick": wrong}})
    assert result_of(lying).best_peer(lying) == "torch"
    alone = measured(ours=4.0, other=1.0)
    assert result_of(alone).ratio_to_best(alone) is None


def test_ratios_to_the_best_are_told_by_case_set():
    first, second = measured(ours=2.0, torch=4.0), measured(ours=2.0, torch=1.0)
    cases = [c.model_copy(update={"case_set": name}) for c, name in ((first, "a"), (second, "b"))]
    result = result_of(*cases, cases[0].model_copy(update={"refused": "wrong"}))
    assert result.by_set() == {"a": [2.0], "b": [0.5]}
    assert report(result) == [
        "a: best peer ÷ ours: geometric mean 2.00×, 2.00× to 2.00× over 1 case",
        "b: best peer ÷ ours: geometric mean 0.50×, 0.50× to 0.50× over 1 case",
    ]


def test_what_was_not_timed_and_who_is_wrong_is_told_once_a_reason():
    wrong = OutputError(passed=False, error=1.0, bound=0.1, torch_error=0.1, message="off by 1")
    one = measured(ours=2.0, torch=4.0).model_copy(
        update={"absent": {"quick": "needs a card"}, "peers": {"torch": wrong}}
    )
    result = result_of(one, one, measured(ours=2.0, torch=4.0))
    assert remarks(result) == [
        "quick not timed in 2 of 3 cases: needs a card",
        "torch wrong, and so no peer, in 2 of 3 cases; in the first: off by 1",
    ]
    assert remarks(result.model_copy(update={"not_reached": 4}))[2:] == ["4 cases not reached"]


def test_each_group_has_a_table_of_its_own_arms_with_host_time_and_ceiling(capsys):
    first, second = measured(ours=2.0, torch=4.0), measured(ours=2.0, torch=3.0, quick=2.5)
    hosted = {arm: t.model_copy(update={"host_us": 9.5}) for arm, t in second.arms.items()}
    result = result_of(
        first.model_copy(update={"case_set": "few", "bytes": 1000}),
        second.model_copy(update={"case_set": "many", "arms": hosted, "bytes": 1500}),
    )
    _print_benchmark(result)
    told = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    ratios = "torch ÷ ours best peer ÷ ours host ours host best peer of ceiling"
    assert told[told.index("few") + 1] == f"case ours torch {ratios}"
    assert told[told.index("few") + 3] == "c 2.0 ± 0% 4.0 ± 0% 2.00× 2.00× torch — — 50%"
    assert told[told.index("many") + 1] == f"case ours torch quick {ratios}"
    assert told[told.index("many") + 3] == (
        "c 2.0 ± 0% 3.0 ± 0% 2.5 ± 0% 1.50× 1.25× quick 9.5 9.5 75%"
    )
    assert "many: best peer ÷ ours: geometric mean 1.25×, 1.25× to 1.25× over 1 case" in told
    _print_benchmark(result_of(first))
    assert "host" not in capsys.readouterr().out


class Clock:
    """Times nothing; memory is as fast as it was last said to be."""

    device = torch.device("cpu")
    protocol = "none"

    def __init__(self, read_gb_s: float, sm_clock_mhz: int) -> None:
        self.read_gb_s, self.clock = read_gb_s, sm_clock_mhz

    def time(self, arms: Any, least_bytes: int, on_arm: Any) -> Any:
        calls, absent = runnable(arms(0))
        for name in calls:
            on_arm(name)
        return {name: timing([1e-3] * 3) for name in calls}, absent

    def read_bandwidth(self) -> float:
        return self.read_gb_s

    def sm_clock_mhz(self) -> int:
        return self.clock


def doubling() -> Any:
    """A harness that doubles a tensor, with a peer that is right and one that raises."""

    def make_inputs(case: Any, *, device: Any, seed: int) -> Any:
        return {"x": torch.ones(4)}

    def twice(inputs: Any, **_: Any) -> Any:
        return {"out": inputs["x"] * 2}

    def raising() -> Any:
        raise ValueError("not these, /opt/its/folder/x.h:3\nat all")

    def arms(inputs: Any, variants: Any = (), peers: Any = ()) -> Any:
        calls = {"ours": list, "torch": lambda: inputs["x"] * 2, "quick": raising}
        return {name: calls[name] for name in ("ours", *peers)}

    return SimpleNamespace(
        SUBJECT="ours", BASELINE_ARM="torch", PEERS=("torch", "quick"), make_inputs=make_inputs,
        reference=lambda inputs: {"out": inputs["x"].double() * 2}, baseline=twice, call=twice,
        arms=arms, workspace_bytes=lambda inputs, variant: 0,
        work=lambda case: {"bytes": 1, "flops": 1},
    )  # fmt: skip


def timed(clock: Clock, **options: Any) -> BenchmarkResult:
    return benchmark(
        doubling(), [("s", {"name": "a"}), ("s", {"name": "b"})], clock, sha256="0" * 64,
        threads=1, seed=0, variants=[], peers=None, **{"on_case": lambda n, part: None, **options},
    )  # fmt: skip


def test_whose_code_runs_is_said_before_it_runs():
    said: list[str | None] = []
    timed(Clock(1.0, 1), on_peer=said.append)
    one = [None, "torch", "quick", None, "torch", None, "torch", "torch", None]
    assert said == one * 2


def test_a_peer_that_raises_is_absent_with_the_first_line_of_what_it_says():
    absent = {"quick": "not these, x.h:3"}  # where it lies on this machine is no part of it
    assert [case.absent for case in timed(Clock(1.0, 1)).cases] == [absent] * 2


def test_a_peer_that_raises_when_it_is_profiled_is_a_harness_error(monkeypatch):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: None)
    with pytest.raises(HarnessError, match=r"^a: arm 'quick': not these, x.h:3$"):
        profiled_call(doubling(), {"name": "a"}, "quick", 0)


def test_a_benchmark_goes_on_after_what_is_known():
    parts: list[BenchmarkResult] = []
    timed(Clock(3.0, 1980), on_case=lambda n, part: parts.append(part))
    reasons = [{}, {"torch": "it died"}]
    result = timed(Clock(2.0, 1700), known=parts[0], left_out=reasons)
    assert [case.name for case in result.cases] == ["a", "b"]
    assert result.cases[0] == parts[0].cases[0]
    assert result.cases[1].absent["torch"] == "it died"
    assert result.cases[1].arms.keys() == {"ours"}
    assert (result.read_gb_s, result.sm_clocks_mhz) == (3.0, [1980, 1700, 1700])


def test_an_arm_that_cannot_be_timed_gives_its_reason():
    calls, absent = runnable({"a": list, "b": "needs a card"})
    assert list(calls) == ["a"]
    assert absent == {"b": "needs a card"}
