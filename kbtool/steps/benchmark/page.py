"""A benchmark on the page of its run: every arm of every case."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from kbtool.markdown.escape import code, inline
from kbtool.markdown.figures import (
    arithmetic_text,
    many,
    noise_reason,
    of_implementations,
    share_text,
    significant,
    sm_clock,
)
from kbtool.markdown.markup import (
    bullets,
    chip,
    facts,
    folded,
    join,
    muted,
    narrow,
    no_ratio,
    nothing,
    slim_table,
    yes_no,
)
from kbtool.markdown.plot import TALL, Axis, Mark, Row, rows, timed
from kbtool.model.kernel import case_label
from kbtool.model.kinds.benchmark import BenchmarkCase, BenchmarkResult
from kbtool.model.kinds.timing import Timing
from kbtool.steps.base import Links, not_reached
from kbtool.steps.benchmark import report
from kbtool.steps.benchmark.report import slow_first_calls

_MOST_ROWS = 60
"""Cases in one chart."""

_AXIS = Axis("µs per call, log scale", "log10")

_FEW = 4
"""The most cases to name if a peer was not timed; otherwise their number is given."""


def page(result: BenchmarkResult, links: Links) -> str:
    """The times of every arm, their summary, and links to compare them."""
    timed = (arm for case in result.cases for arm in case.arms)
    return join(
        [
            timed_beside(result, links.case_set, links.arms()),
            links.meanings(timed),
            _with_others(result, links),
        ]
    )


def timed_beside(
    result: BenchmarkResult, titled: Callable[[str], str] = str, colours: Sequence[str] = ()
) -> str:
    """The times of every arm as a table and a chart, and their summary.

    Args:
        result: what was timed.
        titled: the title of a case set, from its name.
        colours: the arms of the kernel, in the order of their colours.
    """
    arms = list(dict.fromkeys(
        [result.subject, result.baseline, *(arm for case in result.cases for arm in case.arms)]
    ))  # fmt: skip
    noise = noise_reason(result)
    return join(
        [
            facts(
                [
                    ("Cases", f"{len(result.cases)} timed{not_reached(result.not_reached)}"),
                    ("Subject", inline(result.subject)),
                    ("Baseline", inline(result.baseline)),
                    ("Read ceiling", f"{significant(result.read_gb_s)} GB/s"),
                    ("Arithmetic ceiling", inline(arithmetic_text(result))),
                    ("Device", inline(result.device)),
                    ("SM clock", sm_clock(result)),
                    ("Threads", str(result.threads) if result.device == "cpu" else ""),
                    ("Noise", f"{chip('noisy')} {inline(noise)}" if noise else ""),
                    ("Artifact", code(result.sha256[:12])),
                ]
            ),
            folded("How it was timed", inline(of_implementations(result.protocol))),
            "Median, with the 25th and the 75th percentile in small type. Speed above 1 is faster"
            f" than {inline(result.baseline)}." + _between(result),
            _table(result, arms[1:]),
            _charts(result, list(dict.fromkeys([*colours, *arms])), titled),
            bullets(_remarks(result)),
            _workspaces(result),
            _metrics(result),
        ]
    )


def _table(result: BenchmarkResult, others: Sequence[str]) -> str:
    """One row per case; ``others`` are the arms besides the subject."""
    apart = any(result.ratio_to_best(case, between=True) for case in result.cases)
    header = [
        "Case", f"{narrow(result.subject)} (µs)",
        f"Speed against {inline(result.baseline)}", "Against the fastest peer of this run",
        *(["The same, between plain kernels"] if apart else []),
        "Share of ceiling", "Right after timing",
        *(f"{narrow(arm)} (µs)" for arm in others),
    ]  # fmt: skip
    lines = []
    for case in result.cases:
        times = result.ratio(case)
        lines.append(
            [
                inline(case_label(case)),
                _timing(case.arms.get(result.subject)),
                significant(times) if times is not None else no_ratio(result),
                _against_best(result, case),
                *([_against_best(result, case, between=True)] if apart else []),
                share_text(result, case) or no_ratio(result),
                chip("refused") if case.refused else yes_no(case.rechecked),
                *(_timing(case.arms.get(arm)) for arm in others),
            ]
        )
    right = [n for n in range(1, len(header)) if header[n] != "Right after timing"]
    return slim_table(header, lines, right) if lines else nothing("No case was timed.")


def _remarks(result: BenchmarkResult) -> list[str]:
    """What is wrong with a case or an arm, and what was not timed."""
    remarks = []
    for case in result.cases:
        if case.refused:
            remarks.append(
                f"{inline(case_label(case))}: refused, {inline(of_implementations(case.refused))}"
            )
        remarks += [
            f"{inline(case_label(case))}, {inline(arm)}: wrong, {inline(output.message or '')}"
            for arm, output in case.peers.items()
            if not output.passed
        ]
    if slow := slow_first_calls(result):
        remarks.append(inline(slow))
    return remarks + [
        f"{inline(arm)}, {inline(cases)}: no data because {inline(why)}"
        for (arm, why), cases in _absent(result).items()
    ]


def _with_others(result: BenchmarkResult, links: Links) -> str | None:
    """Links that compare an arm of the library with other arms, runs and cards."""
    timed_arms = {arm for case in result.cases for arm in case.arms}
    shown = [links.compare(arm) for arm in (result.subject, *result.variants) if arm in timed_arms]
    return f"Compare with others, runs and cards: {', '.join(shown)}" if shown else None


def _charts(result: BenchmarkResult, arms: Sequence[str], titled: Callable[[str], str]) -> str:
    """One chart per case set, because times differ most between sets; folded up where they are
    longer than a screen. One row per case: the time of every arm, and the shortest time that the
    memory bandwidth allows."""
    by_set: dict[str | None, list[Row]] = {}
    for case in result.cases:
        marks = {
            arm: timed(arm, timing.median_us, timing.low_us, timing.high_us)
            for arm, timing in case.arms.items()
        }
        if not case.refused:
            row = Row(case_label(case), marks, ceiling(result, case))
            by_set.setdefault(case.case_set, []).append(row)
    device = f" on {result.device}" if result.device else ""
    parts = []
    for name, cases in by_set.items():
        of = f" of {titled(name)}" if name else ""
        title = f"Time of a call{device}, for each case{of} and implementation, with quartiles;"
        chart = rows(f"{title} the table has them", _AXIS, arms, cases[:_MOST_ROWS])
        left = len(cases[_MOST_ROWS:])
        parts += [
            f"**{inline(titled(name))}**" if len(by_set) > 1 and name else "",
            chart,
            f"{many(left, 'more case')} in the table alone." if left else "",
        ]
    drawn = join(parts)
    long = len(result.cases) > TALL
    return folded("The times as charts, a row for each case", drawn) if long and drawn else drawn


def ceiling(result: BenchmarkResult, case: BenchmarkCase) -> Mark | None:
    """The least time that the machine needs for the bytes or the operations of the case."""
    bound = result.bound(case)
    if bound is None:
        return None
    name, work = ("read", f"{case.bytes:,} bytes")
    if bound.by == "arithmetic":
        name, work = "arithmetic", f"{case.flops:,} operations in {case.computes_in}"
    return Mark(bound.us, f"{name} ceiling: {significant(bound.us)} µs for {work}")


def _between(result: BenchmarkResult) -> str:
    """An explanation of the times between plain kernels."""
    alone = [case.plain_us for case in result.cases if case.plain_us]
    if not alone:
        return ""
    return (
        " Between plain kernels: each call together with a plain kernel before it, during which it"
        f" cannot start. The plain kernel alone takes {significant(median(alone))} µs."
    )


def _against_best(result: BenchmarkResult, case: BenchmarkCase, *, between: bool = False) -> str:
    best = result.best_peer(case, between=between)
    value = result.ratio_to_best(case, between=between)
    if value is None:
        return no_ratio(result)
    return f"{significant(value)} {muted(inline(best or ''))}"


def _absent(result: BenchmarkResult) -> dict[tuple[str, str], str]:
    """Arm and why it was not timed → the cases, in words."""
    found: dict[tuple[str, str], list[str]] = {}
    for case in result.cases:
        for arm, why in case.absent.items():
            found.setdefault((arm, why), []).append(case_label(case))
    return {key: _named(names, len(result.cases)) for key, names in found.items()}


def _named(names: list[str], of: int) -> str:
    """The names of a few cases; the number of many."""
    if len(names) == of:
        return "every case"
    return "; ".join(names) if len(names) <= _FEW else f"{len(names)} of {of} cases"


def _workspaces(result: BenchmarkResult) -> str | None:
    """Memory beside inputs and outputs, for the arms that run the library."""
    cases = [case for case in result.cases if case.workspace_bytes]
    own = [result.subject, *result.variants]
    arms = [arm for arm in own if any(arm in case.workspace_bytes for case in cases)]
    if not cases:
        return None
    needy = [arm for arm in arms if any(case.workspace_bytes.get(arm) for case in cases)]
    rows = [
        [
            inline(case_label(case)),
            *(f"{case.workspace_bytes[a]:,}" if a in case.workspace_bytes else "" for a in needy),
        ]
        for case in cases
        if any(case.workspace_bytes.get(arm) for arm in needy)
    ]
    header = ["Case", *(f"{inline(arm)} (bytes)" for arm in needy)]
    none = [arm for arm in arms if arm not in needy]
    return join(
        [
            f"No workspace in any case: {', '.join(map(inline, none))}." if none else None,
            folded(
                "Workspace, case by case" + ("; none in others" if len(rows) < len(cases) else ""),
                slim_table(header, rows, range(1, len(header))),
            )
            if needy
            else None,
        ]
    )


def _metrics(result: BenchmarkResult) -> str | None:
    """What was measured beside time: a row per case and metric, a column per arm."""
    arms = list(dict.fromkeys(arm for case in result.cases for arm in case.arms))
    lines = [
        [
            inline(case_label(case)),
            inline(name),
            inline(unit),
            better,
            *(values.get(a, "") for a in arms),
        ]
        for case in result.cases
        for name, unit, better, values in report.beside_time(result, case)
    ]
    if not lines:
        return None
    header = ["Case", "Metric", "Unit", "Better", *map(narrow, arms)]
    return folded("Beside time, case by case", slim_table(header, lines, range(4, len(header))))


def _timing(timing: Timing | None) -> str:
    if timing is None:
        return ""
    low, high = significant(timing.low_us), significant(timing.high_us)
    return f"{significant(timing.median_us)} <small>{low}–{high}</small>"
