"""The roofline of a kernel on one machine: what each arm reaches under both measured ceilings."""

from __future__ import annotations

from collections.abc import Sequence

from kbtool.ledger.headline import Headline
from kbtool.ledger.measured import Group, Machine
from kbtool.markdown.figures import significant
from kbtool.markdown.plot import Axis, Point, Series, plot
from kbtool.model.kinds.benchmark import BenchmarkCase


def rooflines(
    machine: Machine, shown: Sequence[Headline], arms: Sequence[str], few: Sequence[str]
) -> list[str]:
    """A chart for each element type whose arithmetic ceiling was measured, quiet runs alone.

    Args:
        machine: where the runs were.
        shown: the case sets.
        arms: in the order of their colours.
        few: those that are shown.
    """
    timed: dict[str, list[tuple[Group, BenchmarkCase]]] = {}
    for one in shown:
        for case in one.cases:
            of = case.computes_in
            rate = one.newest.result.arithmetic_ceiling(case)
            if of and rate and case.intensity and not one.newest.noise_reason:
                timed.setdefault(of, []).append((one.newest, case))
    return [_roofline(machine, dtype, cases, arms, few) for dtype, cases in timed.items()]


def _roofline(
    machine: Machine,
    dtype: str,
    cases: Sequence[tuple[Group, BenchmarkCase]],
    arms: Sequence[str],
    few: Sequence[str],
) -> str:
    newest = max((group for group, _ in cases), key=lambda group: group.run.started).result
    peak, read = newest.arithmetic_gflop_s[dtype], newest.read_gb_s
    series = [
        Series(
            arm,
            [_point(arm, group, case) for group, case in cases if arm in case.arms and arm in few],
        )
        for arm in arms
    ]
    intensities = [point.x for one in series for point in one.points]
    ridge = peak / read
    first, last = min([ridge, *intensities]) / 2, max([ridge, *intensities]) * 2
    return plot(
        f"Roofline in {dtype} on {machine.name}: operations a second over operations per byte, both"
        " on log scales; the ceilings are those of the newest run, the table below has the figures",
        Axis("arithmetic intensity, FLOP per byte, log scale", "log10"),
        Axis("GFLOP/s, log scale", "log10"),
        series,
        (
            f"read {significant(read)} GB/s, matrix product {significant(peak)} GFLOP/s",
            [(first, first * read), (ridge, peak), (last, peak)],
        ),
    )


def _point(arm: str, group: Group, case: BenchmarkCase) -> Point:
    timing, bound = case.arms[arm], group.result.bound(case)
    assert bound is not None and case.intensity is not None
    rate, low, high = (
        case.flops / (us * 1e3) for us in (timing.median_us, timing.high_us, timing.low_us)
    )
    share = f"{significant(100 * bound.us / timing.median_us)} % of the {bound.by} ceiling"
    told = f"{significant(rate)} GFLOP/s, {significant(case.intensity)} FLOP/B, {share}"
    return Point(case.intensity, rate, f"{case.name}, {arm}: {told}", low, high)
