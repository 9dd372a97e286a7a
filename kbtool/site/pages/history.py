"""A kernel's speed over time: run by run, the commits marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kbtool.ledger.measured import (
    Group,
    Machine,
    of_another_problem,
    of_one_problem,
)
from kbtool.ledger.timings.conditions import timed
from kbtool.ledger.timings.series import LEAST_RUNS, series
from kbtool.markdown.escape import code, inline
from kbtool.markdown.figures import instant, many, significant
from kbtool.markdown.markup import heading, nothing, stacked_table
from kbtool.markdown.plot import Axis, Point, Series, plot
from kbtool.model.kernel import Kernel
from kbtool.model.run import Run
from kbtool.site import addresses as at
from kbtool.site.index import Index
from kbtool.site.pages.times import (
    against,
    commit_text,
    page_of,
    passed_text,
    short_commit,
)

_MOST_RUNS = 40
"""In a history: more would be a column of figures that nobody reads."""


def history(index: Index, kernel: Kernel, found: Mapping[Machine, list[Group]]) -> list[str]:
    """A chart a machine: the speed against the baseline, quiet run by quiet run, the commits
    marked. The table below it has the noisy ones too."""
    here = at.topic_page(kernel.id, "history")
    parts = [_about(found)] if found else []
    long = _longest(index, kernel)
    for number, (machine, every) in enumerate(found.items(), 1):
        parts.append(
            heading(2, f"{inline(machine.name)}, {code(machine.target)}", f"history.{number}")
        )
        runs = list({group.run.id: group.run for group in reversed(every)}.values())[-_MOST_RUNS:]
        newest = {run.id for run in runs}
        listed = shown = [group for group in every if group.run.id in newest]
        if len(shown) < len(every):
            everyone = at.link("the table of runs", at.RUNS, here)
            parts.append(f"The newest {_MOST_RUNS} runs; {everyone} has all.")
        noisy = {group.run.id for group in shown if group.noise_reason}
        quiet = [run for run in runs if run.id not in noisy]
        shown, others = of_one_problem(shown, shown[0])
        hidden = [many(len(noisy), "noisy run") if noisy else "", of_another_problem(others)]
        if any(hidden):
            parts.append(f"Not in the chart: {' and '.join(filter(None, hidden))}.")
        quiet = [run for run in quiet if any(group.run is run for group in shown)]
        if len(quiet) < 2:
            so_far = "one run" if not noisy else "one quiet run" if quiet else "no quiet run"
            parts.append(nothing(f"No chart because {so_far} timed it so far."))
        else:
            parts.append(_course(machine, quiet, shown, here))
        parts.append(_change_points(long.get(machine.name, 0)))
        parts.append(_runs(index, listed, here))
    return parts


def _about(found: Mapping[Machine, list[Group]]) -> str:
    named = dict.fromkeys(group.result.baseline for every in found.values() for group in every)
    return (
        f"Time of the baseline ({', '.join(map(code, named))}) ÷ ours, run by run, the oldest at"
        " the left: above 1 ours is faster."
    )


def _longest(index: Index, kernel: Kernel) -> dict[str, int]:
    """Machine → the runs of its longest series."""
    every = [one for run in index.runs_of(kernel=kernel.id) if (one := timed(run))]
    found: dict[str, int] = {}
    for each in series(every):
        found[each.machine] = max(found.get(each.machine, 0), len(each.us))
    return found


def _change_points(runs: int) -> str:
    """Whether a series is long enough to find the run at which it changed."""
    if runs < LEAST_RUNS:
        return f"Too few runs for change points: the longest series has {runs} of {LEAST_RUNS}."
    return f"{code('kbtool history')} finds the runs at which it became slower or faster."


def _course(machine: Machine, runs: Sequence[Run], every: Sequence[Group], here: str) -> str:
    places = {run.id: float(number) for number, run in enumerate(runs)}
    lines: dict[tuple[str, frozenset[str]], list[Point]] = {}
    labels: dict[tuple[str, frozenset[str]], str] = {}
    for group in reversed(every):
        ratio = group.ratio_to(group.result.baseline)
        if ratio is None:
            continue
        tooltip = (
            f"{group.label}, {instant(group.run.started)}, commit {short_commit(group.run)}:"
            f" {significant(ratio.mean)} × the speed of {group.result.baseline}"
        )
        lines.setdefault(group.key, []).append(
            Point(
                places[group.run.id], ratio.mean, tooltip, ratio.low, ratio.high,
                at.published(at.relative(page_of(group.run), here)),
            )
        )  # fmt: skip
        labels[group.key] = group.label
    return plot(
        f"Speed against the baseline on {machine.name}, run by run, with the quartiles of both;"
        " the table below has the figures",
        Axis("runs, oldest first, by commit", names=_commit_names(runs, places)),
        Axis("baseline's time ÷ ours", "log2"),
        [Series(labels[key], points, joined=True) for key, points in lines.items()],
    )


def _commit_names(runs: Sequence[Run], places: Mapping[str, float]) -> dict[float, str]:
    return {places[run.id]: short_commit(run) for run in runs}


def _runs(index: Index, every: Sequence[Group], here: str) -> str:
    lines = []
    for group in every:
        lines.append(
            [
                index.run_link(group.run, here),
                commit_text(group.run),
                inline(group.label),
                against(group, group.result.baseline),
                significant(group.ours_us),
                passed_text(group.run),
            ]
        )
    header = [
        "Run", "Commit", "Cases", "Baseline ÷ ours", "Ours, geometric mean (µs)",
        "Right in the same run",
    ]  # fmt: skip
    return stacked_table(header, lines, {3, 4})
