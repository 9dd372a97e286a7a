"""A benchmark as text: one line for the run, lines and tables for the terminal."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping
from statistics import geometric_mean

from kbtool.model.kernel import Kernel
from kbtool.model.kinds.benchmark import BenchmarkCase, BenchmarkResult
from kbtool.model.kinds.timing import Timing
from kbtool.model.words import counted, listed, many, significant
from kbtool.steps.base import Table, not_reached

ROUGH = "~"
"""Marks a row whose samples lie far apart."""
ROUGH_SPREAD = 0.1
"""Half the interquartile range, as a share of the median, from which on it does."""
SLOW_FIRST_CALL_US = 1e6
SLOWER = 1.05
"""How many times as long the baseline takes in a narrower type, where that is worth a remark."""


def speed(result: BenchmarkResult) -> str:
    """The speed of a benchmark relative to the best peer of each case, between plain kernels where
    that was timed; where no peer was, relative to its baseline."""
    if result.noise is not None:
        return result.noise
    between = any(result.ratio_to_best(case, between=True) for case in result.cases)
    ratios: dict[str | None, list[float]] = {}
    peers: dict[str, None] = {}
    for case in result.cases:
        value = result.ratio_to_best(case, between=between)
        peer = result.best_peer(case, between=between)
        if value and peer:
            ratios.setdefault(case.dtype, []).append(value)
            peers[peer] = None
    if not ratios:
        ratios, peers = result.ratios(), {result.baseline: None}
    if not ratios:
        return f"no ratio to {result.baseline}: no case has both figures"
    text = _by_dtype({dtype: span(found) for dtype, found in ratios.items()})
    against = f"the fastest of {listed(peers)}" if len(peers) > 1 else listed(peers)
    how = " between plain kernels" if between else ""
    return f"{text} × the speed of {against}{how}{not_reached(result.not_reached)}"


def span(ratios: Iterable[float]) -> str:
    """Smallest to largest: ``0.8–1.9 (geometric mean 1.2)``."""
    ordered = sorted(ratios)
    low, high = significant(ordered[0]), significant(ordered[-1])
    if len(ordered) == 1:
        return low
    return f"{low}–{high} (geometric mean {significant(geometric_mean(ordered))})"


def headline(result: BenchmarkResult) -> str:
    """A benchmark in one line, against the baseline, by dtype. ``kbtool.ledger.headline`` compares
    with the peers, because other runs of the commit may have timed other peers."""
    timed = many(len(result.cases), "case")
    if result.noise is not None and result.not_reached:
        timed = f"{len(result.cases)} of {many(len(result.cases) + result.not_reached, 'case')}"
    if result.noise is not None:
        return f"{timed} timed; {result.noise}, so no ratio is claimed"
    ratios = result.ratios()
    if not ratios:
        return f"{timed} timed; no {result.baseline} to compare with"
    text = _by_dtype({dtype: _span(found) for dtype, found in ratios.items()})
    return f"{result.baseline} ÷ {result.subject}: {text}"


def _by_dtype(texts: Mapping[str | None, str]) -> str:
    return "; ".join(f"{dtype}: {words}" if dtype else words for dtype, words in texts.items())


def report(result: BenchmarkResult, kernel: Kernel | None = None) -> list[str | Table]:
    """Every arm of every case, remarks on missing or wrong ones, and the summary.

    Args:
        result: of the step.
        kernel: what has named the cases and the implementations.
    """
    on_host = any(timing.host_us for case in result.cases for timing in case.arms.values())
    also = "; host: one call as the host sees it, launch and return included" if on_host else ""
    plain = [case.plain_us for case in result.cases if case.plain_us]
    if plain:
        also += (
            "; between: a call together with a plain kernel before it; that kernel alone takes"
            f" {statistics.median(plain):.2f}"
        )
    parts: list[str | Table] = [
        f"microseconds, median ± half the interquartile range of single calls, {result.device},"
        f" {many(result.threads, 'thread')}{also}",
        _share_of(result),
    ]
    if result.ratios():
        parts.append(f"÷ {result.subject}: above 1 {result.subject} is faster")
    timed = dict.fromkeys(arm for case in result.cases for arm in case.arms)
    told = kernel.implementations if kernel else {}
    parts += [f"{arm}: {told[arm]}" for arm in timed if arm in told]
    parts += _named(result, kernel)
    sets = list(dict.fromkeys(case.case_set for case in result.cases))
    for name in sets:
        if len(sets) > 1:
            parts.append(f"\n{name}")
        cases = [case for case in result.cases if case.case_set == name]
        parts.append(_times(result, cases, on_host))
    parts += _beside_time(result)
    if len(sets) > 1:
        parts.append("")
    return [*parts, *remarks(result), headline(result)]


def _share_of(result: BenchmarkResult) -> str:
    """What the shares in the last column are of."""
    if not result.arithmetic_gflop_s:
        return (
            f"of read bandwidth: the least bytes of the case ÷ the time of {result.subject}, as a"
            f" share of {result.read_gb_s:.1f} GB/s, which this run measured for reading memory"
        )
    rates = ", ".join(f"{rate:,.0f} in {name}" for name, rate in result.arithmetic_gflop_s.items())
    return (
        f"of ceiling: the least time of the case ÷ the time of {result.subject}; the least time is"
        f" that of its bytes (reading, {result.read_gb_s:.1f} GB/s) or of its operations"
        f" (arithmetic, GFLOP/s of a matrix product: {rates}), whichever is longer; this run"
        " measured both rates"
    )


def _share(result: BenchmarkResult, case: BenchmarkCase) -> str:
    share, bound = result.share_of_ceiling(case), result.bound(case)
    if share is None or bound is None:
        return "—"
    return f"{share:.0%} {bound.by}" if result.arithmetic_gflop_s else f"{share:.0%}"


def _named(result: BenchmarkResult, kernel: Kernel | None) -> list[str]:
    """The fields of the cases that have a name instead."""
    found: dict[str, str] = {}
    for case in result.cases:
        # The name of a case that has none lists its fields.
        if kernel is None or "=" in case.name or not set(case.case) >= set(kernel.case_fields):
            continue
        words = kernel.case_text(case.case).split()
        name = case.name.removesuffix(f" {case.dtype}")
        found[name] = " ".join(word for word in words if word != f"dtype={case.dtype}")
    return [f"{name}: {fields}" for name, fields in found.items()]


def _times(result: BenchmarkResult, cases: list[BenchmarkCase], on_host: bool) -> Table:
    """A table of cases, with the arms that were timed in any of them."""
    arms = list(dict.fromkeys(arm for case in cases for arm in case.arms))
    apart = any(case.plain_us for case in cases)
    rows = []
    for case in cases:
        value = result.ratio(case)
        best, peer = result.ratio_to_best(case), result.best_peer(case)
        hosts = [case.arms.get(result.subject), case.arms[peer] if peer else None]
        between = result.ratio_to_best(case, between=True)
        behind = result.best_peer(case, between=True)
        rows.append(
            [
                f"{case.name} {ROUGH}" if _is_rough(result, case) else case.name,
                *(_timing(case.arms.get(arm)) for arm in arms),
                "refused" if case.refused else f"{value:.2f}×" if value else "—",
                f"{best:.2f}× {peer}" if best else "—",
                *([f"{between:.2f}× {behind}" if between else "—"] if apart else ()),
                *(map(_host, hosts) if on_host else ()),
                _share(result, case),
            ]
        )
    header = [
        "case", *arms, f"{result.baseline} ÷ {result.subject}",
        f"fastest peer here ÷ {result.subject}",
        *(["between"] if apart else []),
        *([f"host {result.subject}", "host fastest peer"] if on_host else []),
        "of ceiling" if result.arithmetic_gflop_s else "of read bandwidth",
    ]  # fmt: skip
    return Table(header, rows, set(range(1, len(header))))


def beside_time(
    result: BenchmarkResult, case: BenchmarkCase
) -> list[tuple[str, str, str, dict[str, str]]]:
    """Name, unit and better value of each metric of a case, and its values by arm."""
    found = [
        (
            metric.name, metric.unit, metric.better,
            {
                arm: counted(values[metric.name])
                for arm, values in case.metrics.items() if metric.name in values
            },
        )
        for metric in result.metrics
    ]  # fmt: skip
    peaks = {arm: f"{value:,}" for arm, value in case.peak_bytes.items()}
    joules = {arm: f"{value:.4g}" for arm, value in case.energy_j.items()}
    every = (*found, ("energy", "J", "lower", joules), ("peak memory", "B", "lower", peaks))
    return [one for one in every if one[3]]


def _beside_time(result: BenchmarkResult) -> list[str | Table]:
    """What was asked for beside time; peak memory is on the run's page alone."""
    arms = list(
        dict.fromkeys(arm for case in result.cases for arm in (*case.metrics, *case.energy_j))
    )
    rows = [
        [case.name, f"{name} ({unit}, {better} is better)", *(values.get(a, "—") for a in arms)]
        for case in result.cases
        for name, unit, better, values in beside_time(result, case)
        if name != "peak memory"
    ]
    if not rows:
        return []
    table = Table(["case", "metric", *arms], rows, set(range(2, 2 + len(arms))))
    return ["\nbeside time", table, ""]


def remarks(result: BenchmarkResult) -> list[str]:
    """Remarks on the table: why an arm was not timed, which outputs are wrong."""
    total = f"of {many(len(result.cases), 'case')}"
    absent = Counter(item for case in result.cases for item in case.absent.items())
    lines = [
        f"{arm} not timed in {count} {total}: {reason}" for (arm, reason), count in absent.items()
    ]
    wrong: dict[str, list[str | None]] = {}
    for case in result.cases:
        for arm, error in case.peers.items():
            if not error.passed:
                wrong.setdefault(arm, []).append(error.message)
    lines += [
        f"{arm} wrong, so not compared, in {len(messages)} {total}; in the first: {messages[0]}"
        for arm, messages in wrong.items()
    ]
    if rough := sum(_is_rough(result, case) for case in result.cases):
        lines.append(
            f"{ROUGH} {rough} {total}: half the interquartile range of {result.subject} or of what"
            f" it is compared with is over {ROUGH_SPREAD:.0%} of its time, so the ratio is rough"
        )
    lines += _flattered(result)
    if slow := slow_first_calls(result):
        lines.append(slow)
    if result.not_reached:
        lines.append(f"{many(result.not_reached, 'case')} not reached")
    timings = [timing for case in result.cases for timing in case.arms.values()]
    calls = [timing.calls_per_sample for timing in timings]
    if max(calls, default=1) > 1:
        took = [timing.sample_ms for timing in timings]
        lines.append(
            f"a sample: {min(calls)} to {max(calls)} calls, {min(took):.2f} to {max(took):.2f} ms"
        )
    return lines


def slow_first_calls(result: BenchmarkResult) -> str | None:
    """The arms whose first call took so long that they compiled or loaded something in it."""
    longest: dict[str, float] = {}
    for case in result.cases:
        for arm, us in case.first_call_us.items():
            if us > SLOW_FIRST_CALL_US:
                longest[arm] = max(longest.get(arm, 0.0), us)
    if not longest:
        return None
    told = ", ".join(f"{arm} {us / 1e6:.1f} s" for arm, us in longest.items())
    return f"longest first calls, which are not in the times: {told}"


def _is_rough(result: BenchmarkResult, case: BenchmarkCase) -> bool:
    """Whether the samples behind a ratio of the row lie far apart."""
    arms = {result.subject, result.baseline, result.best_peer(case)}
    return any(t.spread > ROUGH_SPREAD for arm, t in case.arms.items() if arm in arms)


def _flattered(result: BenchmarkResult) -> list[str]:
    """The element types in which the baseline is slower than in a wider one, in the same cases."""
    if result.noise is not None:
        return []
    problems: dict[str, list[BenchmarkCase]] = {}
    for case in result.cases:
        if case.dtype is not None and result.baseline in case.arms:
            fields = {name: value for name, value in case.case.items() if name != "dtype"}
            problems.setdefault(f"{case.case_set} {sorted(fields.items())}", []).append(case)
    slower: dict[tuple[str, str], list[float]] = {}
    for cases in problems.values():
        wide = max(cases, key=lambda case: case.bytes)
        for case in cases:
            if case.bytes < wide.bytes:
                own, other = (one.arms[result.baseline].median_us for one in (case, wide))
                slower.setdefault((str(case.dtype), str(wide.dtype)), []).append(own / other)
    return [
        f"{result.baseline} takes {geometric_mean(found):.1f}× as long in {narrow} as in {wide}"
        f" here, although it reads less (geometric mean of {many(len(found), 'pair')} of cases):"
        f" ratios in {narrow} flatter {result.subject}"
        for (narrow, wide), found in slower.items()
        if geometric_mean(found) > SLOWER
    ]


def _span(ratios: list[float]) -> str:
    return (
        f"geometric mean {geometric_mean(ratios):.2f}×,"
        f" {min(ratios):.2f}× to {max(ratios):.2f}× over {many(len(ratios), 'case')}"
    )


def _timing(timing: Timing | None) -> str:
    if timing is None:
        return "—"
    return f"{timing.median_us:,.1f} ±{timing.spread:3.0%}"


def _host(timing: Timing | None) -> str:
    return "—" if timing is None or timing.host_us is None else f"{timing.host_us:,.1f}"
