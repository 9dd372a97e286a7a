"""What a benchmark refuses, and how arms take turns; no test here looks at a clock."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from kbtool.checks.ceiling import CEILING_MARGIN, refusal
from kbtool.cli.recipe_output import print_report
from kbtool.gpu import benchmark as benchmarks
from kbtool.gpu.benchmark import (
    OtherProcesses,
    Timed,
    benchmark,
    first_output,
    runnable,
    timing,
)
from kbtool.gpu.calls import profiled_call
from kbtool.gpu.cpu_clock import WARMUP_ROUNDS as CPU_ROUNDS
from kbtool.gpu.cpu_clock import CpuClock, interleave
from kbtool.gpu.harness import HarnessError, metrics_declared
from kbtool.model.kernel import Kernel, without_name
from kbtool.model.kinds.benchmark import BenchmarkCase, BenchmarkResult
from kbtool.model.kinds.timing import Timing
from kbtool.model.kinds.validate import OutputError
from kbtool.steps.base import Table
from kbtool.steps.benchmark.report import headline, remarks, report, speed


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


def test_samples_behind_plain_kernels_become_figures_whose_order_is_held():
    result = timing([5e-6] * 3, between=[9e-6, 7e-6, 8e-6])
    assert (result.between_low_us, result.between_us, result.between_high_us) == (7.5, 8.0, 8.5)
    assert timing([5e-6] * 3).between_us is None
    with pytest.raises(ValueError, match="out of order"):
        Timing.model_validate(result.model_dump() | {"between_us": 9.5})


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


def test_ratios_are_summed_up_by_dtype():
    halves, bytes_ = measured(ours=2.0, torch=4.0), measured(ours=2.0, torch=1.0)
    cases = [
        c.model_copy(update={"case": {"dtype": name}})
        for c, name in ((halves, "f16"), (bytes_, "f8"))
    ]
    result = result_of(*cases, cases[0].model_copy(update={"refused": "wrong"}))
    assert result.ratios() == {"f16": [2.0], "f8": [0.5]}
    assert speed(result) == "f16: 2.00; f8: 0.500 × the speed of torch"
    assert headline(result) == (
        "torch ÷ ours: f16: geometric mean 2.00×, 2.00× to 2.00× over 1 case;"
        " f8: geometric mean 0.50×, 0.50× to 0.50× over 1 case"
    )


def test_the_speed_is_told_beside_the_best_peer_of_each_case():
    one = measured(ours=4.0, torch=12.0, quick=6.0)
    assert speed(result_of(one)) == "1.50 × the speed of quick"
    slow = measured(ours=4.0, torch=5.0, quick=6.0)
    several = "1.25–1.50 (geometric mean 1.37) × the speed of the fastest of quick and torch"
    assert speed(result_of(one, slow)) == several
    apart = behind_plain(one, ours=3.0, torch=3.6, quick=6.0)
    assert speed(result_of(apart, slow)) == "1.20 × the speed of torch between plain kernels"
    assert speed(result_of(measured(ours=4.0, other=1.0))).startswith("no ratio to torch")


def behind_plain(one: BenchmarkCase, **pairs: float) -> BenchmarkCase:
    arms = {arm: t.model_copy(update={"between_us": pairs.get(arm)}) for arm, t in one.arms.items()}
    return one.model_copy(update={"arms": arms, "plain_us": 1.0})


def test_the_best_peer_between_plain_kernels_may_differ_from_that_in_a_chain(capsys):
    first = behind_plain(measured(ours=2.0, torch=4.0, quick=3.0), ours=5.0, torch=4.5, quick=6.0)
    second = measured(ours=2.0, torch=4.0)
    cases = [c.model_copy(update={"case_set": name}) for c, name in ((first, "a"), (second, "b"))]
    result = result_of(*cases)
    assert result.best_peer(first) == "quick"
    assert result.best_peer(first, between=True) == "torch"
    assert result.ratio_to_best(first, between=True) == 0.9
    assert result.ratio_to_best(second, between=True) is None
    untimed = behind_plain(first, torch=4.5)
    assert result.ratio_to_best(untimed, between=True) is None
    print_report(report(result))
    told = " ".join(capsys.readouterr().out.split())
    assert "together with a plain kernel before it; that kernel alone takes 1.00" in told
    assert "1.50× quick 0.90× torch" in told


def test_untimed_and_wrong_peers_are_listed_once_for_each_reason():
    wrong = OutputError(passed=False, error=1.0, bound=0.1, torch_error=0.1, message="off by 1")
    one = measured(ours=2.0, torch=4.0).model_copy(
        update={"absent": {"quick": "needs a card"}, "peers": {"torch": wrong}}
    )
    result = result_of(one, one, measured(ours=2.0, torch=4.0))
    assert remarks(result) == [
        "quick not timed in 2 of 3 cases: needs a card",
        "torch wrong, so not compared, in 2 of 3 cases; in the first: off by 1",
    ]
    assert remarks(result.model_copy(update={"not_reached": 4}))[2:] == ["4 cases not reached"]


def test_the_length_of_samples_of_several_calls_is_reported():
    one = measured(ours=2.0, torch=4.0)
    counts = {"ours": 200, "torch": 256}
    arms = {n: t.model_copy(update={"calls_per_sample": counts[n]}) for n, t in one.arms.items()}
    result = result_of(one.model_copy(update={"arms": arms}))
    assert remarks(result) == ["a sample: 200 to 256 calls, 0.40 to 1.02 ms"]


def test_processes_on_the_card_make_a_benchmark_noisy():
    result = result_of(measured(ours=2.0, torch=4.0))
    quiet = result.model_copy(update={"others_busy": 0.0, "others_on_card": 0})
    assert quiet.noise is None
    shared = quiet.model_copy(update={"others_on_card": 2})
    assert shared.noise == "noisy: other processes on the card meanwhile: 2"
    assert shared.ratio(shared.cases[0]) is None


def test_each_group_has_a_table_of_its_own_arms_with_host_time_and_ceiling(capsys):
    first, second = measured(ours=2.0, torch=4.0), measured(ours=2.0, torch=3.0, quick=2.5)
    hosted = {arm: t.model_copy(update={"host_us": 9.5}) for arm, t in second.arms.items()}
    result = result_of(
        first.model_copy(update={"case_set": "few", "bytes": 1000}),
        second.model_copy(update={"case_set": "many", "arms": hosted, "bytes": 1500}),
    )
    print_report(report(result))
    told = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    ratios = "torch ÷ ours fastest peer here ÷ ours host ours host fastest peer of read bandwidth"
    assert told[told.index("few") + 1] == f"case ours torch {ratios}"
    assert told[told.index("few") + 3] == "c 2.0 ± 0% 4.0 ± 0% 2.00× 2.00× torch — — 50%"
    assert told[told.index("many") + 1] == f"case ours torch quick {ratios}"
    assert told[told.index("many") + 3] == (
        "c 2.0 ± 0% 3.0 ± 0% 2.5 ± 0% 1.50× 1.25× quick 9.5 9.5 75%"
    )
    print_report(report(result_of(first)))
    assert "host" not in capsys.readouterr().out


def lines_of(capsys: pytest.CaptureFixture[str], *arguments: Any) -> list[str]:
    print_report(report(*arguments))
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


def test_the_table_says_which_way_a_ratio_is_good_and_of_what_shares_are(capsys):
    result = result_of(measured(ours=2.0, torch=4.0)).model_copy(update={"read_gb_s": 81.34})
    told = lines_of(capsys, result)
    assert "÷ ours: above 1 ours is faster" in told
    share = "of read bandwidth: the least bytes of the case ÷ the time of ours, as a share"
    assert f"{share} of 81.3 GB/s, which this run measured for reading memory" in told
    noisy = lines_of(capsys, result.model_copy(update={"others_busy": 0.5}))
    assert not any("above 1" in line for line in noisy)


def test_the_peers_in_the_table_and_its_named_cases_are_explained(capsys):
    kernel = Kernel.model_validate({
        "id": "k", "title": "K", "summary": "S", "namespace": "k", "harness": "harness.py",
        "targets": {"cpu": {"sources": ["k.cpp"]}},
        "implementations": {"torch": "Torch itself.", "quick": "A peer that was not timed."},
        "case_fields": {
            "n": {"type": "int", "help": "how many", "default": "1"},
            "dtype": {"type": "str", "help": "element type"},
        },
        "case_sets": {"s": {
            "title": "S", "cases": [{"name": "long", "n": "9"}, {"n": "8"}],
            "for_each": {"dtype": ["f16", "f32"]},
        }},
    })  # fmt: skip
    cases = [
        measured(ours=2.0, torch=4.0).model_copy(
            update={"name": case["name"], "case": without_name(case)}
        )
        for case in kernel.cases("s")
    ]
    told = lines_of(capsys, result_of(*cases), kernel)
    assert "torch: Torch itself." in told
    assert [line for line in told if line.startswith("long:")] == ["long: n=9"]
    assert not any("quick:" in line or line.startswith("n=8:") for line in told)


def test_rows_whose_samples_lie_far_apart_are_marked(capsys):
    cases = []
    for name, arm in (("ours far", "ours"), ("peer far", "quick"), ("other far", "slow")):
        one = measured(ours=2.0, torch=4.0, quick=3.0, slow=5.0).model_copy(update={"name": name})
        us = one.arms[arm].median_us
        arms = {**one.arms, arm: timing([us * 0.5e-6, us * 1e-6, us * 1.5e-6])}
        cases.append(one.model_copy(update={"arms": arms}))
    told = lines_of(capsys, result_of(*cases))
    rows = [line.partition(" 2.0 ")[0] for line in told if " far" in line and "×" in line]
    assert rows == ["ours far ~", "peer far ~", "other far"]
    (remark,) = [line for line in told if line.startswith("~ ")]
    assert remark.startswith("~ 2 of 3 cases: half the interquartile range of ours or of what it")


def of_dtypes(**torch_us: float) -> list[BenchmarkCase]:
    """Two problems in each type; ``f32`` reads twice the bytes."""
    return [
        measured(ours=2.0, torch=us * n).model_copy(
            update={"case": {"n": n, "dtype": dtype}, "bytes": n * int(dtype[1:])}
        )
        for n in (1, 2)
        for dtype, us in torch_us.items()
    ]


def test_ratios_are_said_to_flatter_where_the_baseline_is_slower_in_the_narrower_type():
    result = result_of(*of_dtypes(f16=9.0, f32=3.0))
    assert remarks(result) == [
        "torch takes 3.0× as long in f16 as in f32 here, although it reads less (geometric mean of"
        " 2 pairs of cases): ratios in f16 flatter ours"
    ]
    assert remarks(result.model_copy(update={"others_busy": 0.5})) == []
    assert remarks(result_of(*of_dtypes(f16=3.0, f32=3.0))) == []
    assert remarks(result_of(*of_dtypes(f16=9.0))) == []
    other_problems = [*of_dtypes(f16=9.0)[:1], *of_dtypes(f32=3.0)[1:]]
    assert remarks(result_of(*other_problems)) == []


class Clock:
    """Times nothing; memory is as fast as it was last said to be."""

    device = torch.device("cpu")
    protocol = "none"

    def __init__(self, read_gb_s: float, sm_clock_mhz: int, others: Sequence[int] = ()) -> None:
        self.read_gb_s, self.clock, self.others = read_gb_s, sm_clock_mhz, list(others)
        self.asked: list[torch.dtype] = []

    def time(self, arms: Any, least_bytes: int, on_arm: Any, unseen: Any = None) -> Timed:
        calls, absent = runnable(arms(0))
        outputs = {}
        for name, call in calls.items():
            on_arm(name)
            outputs[name] = first_output(name, call())
        timings = {name: timing([1e-3] * 3) for name in calls}
        return Timed(timings, absent, outputs, self.clock - 5)

    def read_bandwidth(self) -> float:
        return self.read_gb_s

    def arithmetic(self, dtype: torch.dtype) -> float | None:
        self.asked.append(dtype)
        return {torch.float32: 100.0, torch.float16: 2.0, torch.bfloat16: 900.0}.get(dtype)

    def sm_clock_mhz(self) -> int:
        return self.clock

    def others_on_card(self) -> int | None:
        return self.others.pop(0) if self.others else None


def doubling(factor: float = 2) -> Any:
    """A harness that doubles a tensor, with a peer that is right and one that raises.

    What is timed of the library, and as its variant ``half``, takes it times ``factor``.
    """

    def make_inputs(case: Any, *, device: Any, seed: int) -> Any:
        return {"x": torch.ones(4)}

    def twice(inputs: Any, **_: Any) -> Any:
        return {"out": inputs["x"] * 2}

    def ours(inputs: Any, times: float) -> Any:
        return lambda: (inputs["x"] * times, "a second output")

    def raising() -> Any:
        raise ValueError("not these\nat all")

    def arms(inputs: Any, variants: Any = (), peers: Any = ()) -> Any:
        calls = {
            "ours": ours(inputs, 2 if variants else factor), "half": ours(inputs, factor),
            "torch": lambda: inputs["x"] * 2, "quick": raising, "empty": list,
        }  # fmt: skip
        return {name: calls[name] for name in ("ours", *variants, *peers)}

    return SimpleNamespace(
        SUBJECT="ours", BASELINE_ARM="torch", PEERS=("torch", "quick"), make_inputs=make_inputs,
        reference=lambda inputs: {"out": inputs["x"].double() * 2}, baseline=twice, call=twice,
        arms=arms, workspace_bytes=lambda inputs, variant: 0,
        work=lambda case: {"bytes": 1, "flops": 1},
    )  # fmt: skip


def timed(clock: Clock, harness: Any = None, **options: Any) -> BenchmarkResult:
    defaults = {"variants": [], "peers": None, "on_case": lambda n, part: None}
    return benchmark(
        harness or doubling(), [("s", {"name": "a"}), ("s", {"name": "b"})], clock, sha256="0" * 64,
        threads=1, seed=0, **{**defaults, **options},
    )  # fmt: skip


def test_the_output_of_the_timed_call_is_compared_with_the_reference():
    """The operator is right, and a call of it too; what the arm calls is not."""
    case = timed(Clock(1.0, 1980), doubling(factor=1)).cases[0]
    assert not case.rechecked and not case.timed["ours"].passed
    assert str(case.refused).startswith("arm ours was wrong after timing: ")
    assert case.peers["torch"].passed
    right = timed(Clock(1.0, 1980)).cases[0]
    assert (right.rechecked, right.refused, right.timed["ours"].passed) == (True, None, True)


def test_a_variant_that_is_wrong_where_it_is_timed_refuses_the_case():
    case = timed(Clock(1.0, 1980), doubling(factor=1), variants=["half"]).cases[0]
    assert case.timed["ours"].passed and not case.timed["half"].passed
    assert str(case.refused).startswith("arm half was wrong after timing: ")


def test_a_record_cannot_call_right_what_was_timed_wrong():
    case = timed(Clock(1.0, 1980), doubling(factor=1)).cases[0]
    fields = case.model_dump() | {"rechecked": True}
    with pytest.raises(ValidationError, match="what was timed as ours is wrong"):
        BenchmarkCase.model_validate(fields)


def test_an_arm_that_returns_no_output_is_named():
    with pytest.raises(HarnessError, match=r"arm 'ours' must return .* it returned NoneType"):
        first_output("ours", None)
    harness = doubling()
    harness.PEERS = ("torch", "empty")
    case = timed(Clock(1.0, 1980), harness).cases[0]
    assert "it returned list" in case.absent["empty"]


def test_a_peer_that_the_arms_do_not_know_is_absent_with_the_reason():
    harness = doubling()
    harness.PEERS, arms = ("torch", "ghost"), harness.arms
    harness.arms = lambda inputs, variants=(), peers=(): arms(
        inputs, variants, [peer for peer in peers if peer != "ghost"]
    )
    absent = timed(Clock(1.0, 1980), harness).cases[0].absent
    assert absent == {"ghost": "the harness has no arm of that name"}


def test_the_most_who_shared_the_card_are_recorded_and_the_clock_after_each_case():
    result = timed(Clock(1.0, 1980, others=[0, 3, 1]))
    assert result.others_on_card == 3
    assert [case.sm_clock_mhz for case in result.cases] == [1975, 1975]
    assert timed(Clock(1.0, 1980)).others_on_card is None


@pytest.mark.parametrize(
    ("share", "on_card", "spent", "done", "stops"),
    [
        (0.05, 0, 100, 1.0, False),  # the limit of a whole run
        (0.21, 0, 25, 0.5, True),
        (0.19, 0, 25, 0.5, False),  # the rest of the time can make up for this
        (1.0, 0, 1, 0.5, False),  # a burst may end
        (0.19, 0, 50, 0.25, False),  # slower than expected: there is a longer rest
        (0.21, 0, 50, 0.25, True),
        (None, 0, 100, 1.0, False),  # the system does not tell
        (0.0, 1, 1, 0.5, True),
    ],
)
def test_a_benchmark_is_hopeless_once_no_quiet_rest_can_mend_it(
    monkeypatch, share, on_card, spent, done, stops
):
    machine = benchmarks._Machine(Clock(1.0, 1980, others=[on_card]), None)
    machine.measure()
    monkeypatch.setattr(OtherProcesses, "share", lambda self: share)
    machine._began = 0.0  # so that the time spent is exact
    monkeypatch.setattr(benchmarks, "perf_counter", lambda: float(spent))
    assert machine.is_too_busy(100.0, done) == stops


def test_a_hopeless_benchmark_stops_and_says_how_far_it_came():
    result = timed(Clock(1.0, 1980, others=[1, 1, 1]))
    assert [case.name for case in result.cases] == ["a"]
    assert (result.not_reached, result.step_status) == (1, "noisy")
    assert headline(result).startswith("1 of 2 cases timed; noisy: other processes on the card")


@pytest.mark.slow
def test_the_cpu_clock_calls_each_arm_once_more_with_nan_in_the_output():
    """Arms that write to memory of their own: one does, one only did while it was timed."""
    honest, lazy = torch.empty(3), torch.empty(3)
    runs = {"lazy": 0}

    def tires() -> torch.Tensor:
        runs["lazy"] += 1
        return lazy.fill_(1) if runs["lazy"] <= CPU_ROUNDS + 5 else lazy

    both = {"honest": lambda: honest.fill_(1), "lazy": tires}
    outputs = CpuClock(5).time(lambda number: both, 1).outputs
    assert outputs["honest"].tolist() == [1, 1, 1]
    assert outputs["lazy"].isnan().all()


def test_arms_with_the_same_output_buffer_keep_their_own_outputs():
    shared = torch.empty(2)
    both = {"one": lambda: shared.fill_(1), "two": lambda: shared.fill_(2)}
    outputs = CpuClock(5).time(lambda number: both, 1).outputs
    assert (outputs["one"].tolist(), outputs["two"].tolist()) == ([1, 1], [2, 2])


def test_only_load_on_the_cores_of_this_process_counts_as_others(tmp_path, monkeypatch):
    """Of four cores, two are its own; another works on one of these for half of the time."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {1, 2})
    monkeypatch.setattr(os, "times", lambda: (0.0, 0.0, 0.0, 0.0, 0.0))
    now = [100.0]
    monkeypatch.setattr(benchmarks.time, "monotonic", lambda: now[0])
    hertz = os.sysconf("SC_CLK_TCK")
    stat = tmp_path / "stat"

    def ticked(seconds: float) -> None:
        busy = round(seconds * hertz)
        rest = "0 0 999 999 0 0 0 0 0"
        cores = [9 * busy, busy, 0, 9 * busy]
        lines = [f"cpu{n} {ticks} {rest}" for n, ticks in enumerate(cores)]
        stat.write_text("\n".join([f"cpu  {sum(cores)} {rest}", *lines, "intr 1 2 3"]))

    ticked(0)
    others = OtherProcesses(tmp_path)
    now[0] += 10
    ticked(5)
    assert others.share() == 0.25
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {77})
    assert OtherProcesses(tmp_path).share() is None


def test_processes_that_it_has_started_are_not_others(tmp_path, monkeypatch):
    """A peer's compiler, and what that has started, work on its cores; another's process too."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    monkeypatch.setattr(os, "times", lambda: (0.0, 0.0, 0.0, 0.0, 0.0))
    now = [100.0]
    monkeypatch.setattr(benchmarks.time, "monotonic", lambda: now[0])
    hertz = os.sysconf("SC_CLK_TCK")

    def ticked(mine: int, ended_childs: int, theirs: int) -> None:
        processes = {
            10: (os.getpid(), 0, 0),
            11: (10, mine, ended_childs),
            12: (1, theirs, 0),
        }
        for pid, (parent, own, waited) in processes.items():
            (tmp_path / str(pid)).mkdir(exist_ok=True)
            rest = f"S {parent} 0 0 0 0 0 0 0 0 0 {own} 0 {waited} 0 20 0"
            (tmp_path / str(pid) / "stat").write_text(f"{pid} (a) b (c) {rest}\n")
        busy = mine + ended_childs + theirs
        (tmp_path / "stat").write_text(f"cpu0 {busy} 0 0 0 0 0 0 0 0 0\n")

    ticked(0, 0, 0)
    others = OtherProcesses(tmp_path)
    now[0] += 10
    ticked(5 * hertz, 2 * hertz, 1 * hertz)
    assert others.share() == 0.1


def test_the_peer_is_announced_before_its_code_runs():
    said: list[str | None] = []
    timed(Clock(1.0, 1980), on_peer=said.append)
    one = [None, "torch", "quick", None, "torch", None]
    assert said == one * 2


def test_a_peer_that_raises_is_absent_with_the_first_line_of_what_it_says():
    absent = {"quick": "not these"}
    assert [case.absent for case in timed(Clock(1.0, 1980)).cases] == [absent] * 2


def test_a_peer_that_raises_when_it_is_profiled_is_a_harness_error(monkeypatch):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: None)
    with pytest.raises(HarnessError, match=r"^a: arm 'quick': not these$"):
        profiled_call(doubling(), {"name": "a"}, "quick", 0)


def test_a_resumed_benchmark_keeps_finished_cases():
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


def typed(case: dict[str, Any], inputs: dict[str, Any]) -> tuple[BenchmarkResult, Clock]:
    """A benchmark of one case whose harness makes these inputs too."""
    harness, clock = doubling(), Clock(1.0, 1980)
    harness.make_inputs = lambda case, *, device, seed: {"x": torch.ones(4), **inputs}
    result = benchmark(
        harness, [("s", {"name": "a", **case})] * 2, clock, sha256="0" * 64, threads=1, seed=0,
        variants=[], peers=None, on_case=lambda n, part: None,
    )  # fmt: skip
    return result, clock


@pytest.mark.parametrize(
    ("case", "inputs", "computes", "rates"),
    [
        ({"dtype": "float32"}, {}, "float32", {"float32": 100.0}),
        ({}, {"n": torch.ones(2, dtype=torch.int32)}, "float32", {"float32": 100.0}),
        ({}, {"y": [torch.ones(2).half()]}, None, {}),
        ({"dtype": "bf16"}, {}, "bfloat16", {"float32": 100.0, "bfloat16": 900.0}),
        # Values in float16 may be multiplied in float32.
        ({"dtype": "float16"}, {}, "float16", {"float32": 100.0, "float16": 100.0}),
        ({"dtype": "float64"}, {}, "float64", {}),
        ({"dtype": "int32"}, {}, None, {}),
        ({"dtype": "mixed"}, {}, "float32", {"float32": 100.0}),
    ],
)
def test_the_arithmetic_ceiling_is_of_the_type_of_the_case(case, inputs, computes, rates):
    result, clock = typed(case, inputs)
    assert [one.computes_in for one in result.cases] == [computes] * 2
    assert result.arithmetic_gflop_s == rates
    assert len(clock.asked) == len(set(clock.asked))  # once a run


def test_a_later_process_measures_no_arithmetic_ceiling_again():
    result, _ = typed({"dtype": "float16"}, {})
    known = result.model_copy(update={"cases": result.cases[:1]})
    clock = Clock(1.0, 1980)
    again = timed(clock, known=known)
    assert again.arithmetic_gflop_s == result.arithmetic_gflop_s and clock.asked == []


def test_the_report_says_which_ceiling_bounds_a_case(capsys):
    reads = measured(ours=2.0, torch=4.0).model_copy(
        update={"bytes": 1000, "flops": 1000, "computes_in": "float32"}
    )
    computes = reads.model_copy(update={"name": "d", "flops": 15_000})
    result = result_of(reads, computes).model_copy(update={"arithmetic_gflop_s": {"float32": 10.0}})
    told = lines_of(capsys, result)
    rates = "(reading, 1.0 GB/s) or of its operations (arithmetic, GFLOP/s of a matrix product: 10"
    assert any(rates in line for line in told)
    assert any(line.startswith("c ") and line.endswith(" 50% reading") for line in told)
    assert any(line.startswith("d ") and line.endswith(" 75% arithmetic") for line in told)


DECLARED = {"largest": {"unit": "1", "better": "higher"}, "read": {"unit": "B"}}


def measuring(metrics: Any, declared: Any = DECLARED) -> Any:
    harness = doubling()
    harness.METRICS, harness.metrics = declared, metrics
    return harness


def test_a_harness_gives_metrics_of_each_arm_and_leaves_out_what_it_does_not_know():
    def metrics(inputs: Any, arm: str, output: torch.Tensor) -> dict[str, Any]:
        read = {"read": inputs["x"].nbytes} if arm == "ours" else {}
        return {"largest": output.max(), **read}

    result = timed(Clock(1.0, 1980), measuring(metrics))
    told = [(one.name, one.unit, one.better) for one in result.metrics]
    assert told == [("largest", "1", "higher"), ("read", "B", "neither")]
    values = {"ours": {"largest": 2.0, "read": 16.0}, "torch": {"largest": 2.0}}
    assert [case.metrics for case in result.cases] == [values, values]
    tables = [part for part in report(result) if isinstance(part, Table)]
    (shown,) = [table for table in tables if "metric" in table.header]
    assert list(shown.rows[1]) == ["a", "read (B, neither is better)", "16", "—"]


def test_a_harness_that_declares_no_metric_is_asked_for_none():
    def metrics(*_: Any) -> Any:
        raise AssertionError("asked for")

    result = timed(Clock(1.0, 1980), measuring(metrics, {}))
    assert (result.metrics, result.cases[0].metrics) == ([], {})


@pytest.mark.parametrize(
    ("returned", "told"),
    [
        ({"largest": math.nan}, "metrics of arm 'ours', 'largest': nan is no measurement"),
        ({"largest": -math.inf}, "metrics of arm 'ours', 'largest': -inf is no measurement"),
        ({"largest": "many"}, "metrics of arm 'ours', 'largest': could not convert string"),
        ({"largest": None}, "metrics of arm 'ours', 'largest': float"),
        ({"least": 1.0}, "'least', which METRICS does not declare; it declares largest, read"),
        (3.0, "metrics of arm 'ours' must return a dict; it returned 3.0"),
    ],
)
def test_a_metric_that_is_no_measurement_is_refused(returned, told):
    with pytest.raises(HarnessError, match=f"{re.escape(told)}.*, in s/a$"):
        timed(Clock(1.0, 1980), measuring(lambda *_: returned))


@pytest.mark.parametrize(
    ("declared", "told"),
    [
        ({"a": {"better": "lower"}}, "METRICS['a']: metric 'a' has no unit: write one, such as"),
        ({"a": {"unit": "1", "better": "up"}}, "METRICS['a']: better: Input should be 'lower'"),
        ({"a": "B"}, "METRICS['a'] is 'B'; write {'a': {'unit': 'B', 'better': 'lower'}}"),
        ({"time": {"unit": "us"}}, "METRICS['time'] is kbtool's own: give it another name"),
        (["a"], "METRICS must be a dict of metrics by name; it is ['a']"),
    ],
)
def test_a_metric_has_a_unit_and_a_name_of_its_own(declared, told):
    with pytest.raises(HarnessError, match=re.escape(told)):
        metrics_declared(measuring(None, declared))


def test_a_harness_that_declares_metrics_has_to_measure_them():
    harness = doubling()
    harness.METRICS = DECLARED
    with pytest.raises(HarnessError, match="METRICS is defined, and metrics is not"):
        metrics_declared(harness)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"metrics": []}, "no metric 'largest'"),
        ({"metrics": [{"name": "time", "unit": "us"}]}, "kbtool's own"),
        ({"metrics": [{"name": "largest", "unit": "1"}] * 2}, "declared twice"),
    ],
)
def test_a_record_holds_no_metric_that_was_not_declared(change, told):
    result = timed(Clock(1.0, 1980), measuring(lambda *_: {"largest": 1}))
    with pytest.raises(ValidationError, match=told):
        BenchmarkResult.model_validate(result.model_dump(mode="json") | change)
