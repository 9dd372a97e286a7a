"""What a benchmark refuses, and how arms take turns; no test here looks at a clock."""

from __future__ import annotations

from kbtool.gpu.benchmark import CEILING_MARGIN, refusal, timing
from kbtool.gpu.cpu_clock import interleave
from kbtool.model.run import BenchmarkCase


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
