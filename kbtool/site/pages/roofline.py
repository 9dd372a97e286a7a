"""The roofline of a kernel on one machine: what each arm reaches under both measured ceilings."""

from __future__ import annotations

from collections.abc import Sequence

from kbtool.ledger.headline import Headline
from kbtool.ledger.measured import Machine
from kbtool.markdown.escape import inline
from kbtool.markdown.figures import significant
from kbtool.markdown.plot import Axis, Point, Series, plot
from kbtool.model.kernel import case_label
from kbtool.model.kinds.benchmark import BenchmarkCase
from kbtool.site import addresses as at
from kbtool.site.pages.times import page_of


def rooflines(
    machine: Machine,
    shown: Sequence[Headline],
    arms: Sequence[str],
    few: Sequence[str],
    here: str,
) -> list[str]:
    """A chart for each element type whose arithmetic ceiling was measured, quiet runs alone, below
    a line that says which.

    Args:
        machine: where the runs were.
        shown: the case sets.
        arms: in the order of their colours.
        few: those that are shown.
        here: the page that the charts are on.
    """
    timed: dict[str, list[tuple[Headline, BenchmarkCase]]] = {}
    for one in shown:
        for case in one.cases:
            of = case.computes_in
            rate = one.newest.result.arithmetic_ceiling(case)
            if of and rate and case.intensity and not one.newest.noise_reason:
                timed.setdefault(of, []).append((one, case))
    return [
        part
        for dtype, cases in timed.items()
        for part in (
            f"**{inline(machine.name)}, {inline(dtype)}**",
            _roofline(machine, dtype, cases, arms, few, here),
        )
    ]


def _roofline(
    machine: Machine,
    dtype: str,
    cases: Sequence[tuple[Headline, BenchmarkCase]],
    arms: Sequence[str],
    few: Sequence[str],
    here: str,
) -> str:
    newest = max((one.newest for one, _ in cases), key=lambda group: group.run.started).result
    peak, read = newest.arithmetic_gflop_s[dtype], newest.read_gb_s
    series = [
        Series(
            arm,
            [
                _point(arm, one, case, here)
                for one, case in cases
                if arm in case.arms and arm in few
            ],
        )
        for arm in arms
    ]
    intensities = [point.x for one in series for point in one.points]
    ridge = peak / read
    first, last = min([ridge, *intensities]) / 2, max([ridge, *intensities]) * 2
    return plot(
        f"Roofline in {dtype} on {machine.name}: operations a second over operations per byte, both"
        " on log scales; the ceilings are those of the newest run, the page of results has the"
        " figures",
        Axis("arithmetic intensity, FLOP per byte, log scale", "log10"),
        Axis("GFLOP/s, log scale", "log10"),
        series,
        (
            f"read {significant(read)} GB/s, matrix product {significant(peak)} GFLOP/s",
            [(first, first * read), (ridge, peak), (last, peak)],
        ),
    )


def _point(arm: str, one: Headline, case: BenchmarkCase, here: str) -> Point:
    timing, bound = case.arms[arm], one.newest.result.bound(case)
    assert bound is not None and case.intensity is not None
    rate, low, high = (
        case.flops / (us * 1e3) for us in (timing.median_us, timing.high_us, timing.low_us)
    )
    share = f"{significant(100 * bound.us / timing.median_us)} % of the {bound.by} ceiling"
    told = f"{significant(rate)} GFLOP/s, {significant(case.intensity)} FLOP/B, {share}"
    tooltip = f"{case_label(case)}, {arm}: {told}"
    return Point(case.intensity, rate, tooltip, low, high, _run(arm, one, case.name, here))


def _run(arm: str, one: Headline, case: str, here: str) -> str:
    """The page of the newest run of the commit that timed an arm in a case."""
    run = next(
        group.run
        for group in one.pooled
        if any(timed.name == case and arm in timed.arms for timed in group.cases)
    )
    return at.published(at.relative(page_of(run), here))
