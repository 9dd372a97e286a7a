"""What a benchmark refuses, and how arms take turns; no test here looks at a clock."""

from __future__ import annotations

from kbtool.gpu.benchmark import CEILING_MARGIN, refusal, runnable, timing
from kbtool.gpu.cpu_clock import interleave
from kbtool.model.results import BenchmarkCase, BenchmarkResult, OutputError
from kbtool.steps.benchmark import report


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
        before=lambda: calls.append("-"),
    )  # fmt: skip
    text = "".join(calls)
    assert text.count("-a") == text.count("-b") == text.count("-") // 2
    assert "-a-b" in text
    assert "-b-a" in text
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
        "a: best peer ÷ ours: geometric mean 2.00×, 2.00× to 2.00× over 1 cases",
        "b: best peer ÷ ours: geometric mean 0.50×, 0.50× to 0.50× over 1 cases",
    ]


def test_an_arm_that_cannot_be_timed_gives_its_reason():
    calls, absent = runnable({"a": list, "b": "needs a card"})
    assert list(calls) == ["a"]
    assert absent == {"b": "needs a card"}
