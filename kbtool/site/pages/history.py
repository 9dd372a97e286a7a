"""A kernel's speed over time: each case commit by commit, then the case sets run by run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kbtool.ledger.measured import (
    Group,
    Machine,
    of_another_problem,
    of_one_problem,
)
from kbtool.ledger.timings import series as timings
from kbtool.ledger.timings.conditions import timed
from kbtool.markdown.escape import code, inline
from kbtool.markdown.figures import instant, many, significant
from kbtool.markdown.markup import folded, heading, nothing, stacked_table
from kbtool.markdown.plot import Axis, Point, Series, plot
from kbtool.model.kernel import Kernel
from kbtool.model.run import Run
from kbtool.site import addresses as at
from kbtool.site.index import Index
from kbtool.site.pages.courses import by_commit, changes
from kbtool.site.pages.times import (
    against,
    commit_text,
    page_of,
    passed_text,
    short_commit,
)
from kbtool.site.parts import section

_MOST_RUNS = 40
"""In a history: more would be a column of figures that nobody reads."""


def history(index: Index, kernel: Kernel, found: Mapping[Machine, list[Group]]) -> list[str]:
    """Times by commit, what changed, and the case sets beside the baseline."""
    if not found:
        return []
    longest = max((len(one.us) for one in _series(index, kernel)), default=0)
    return [
        section("Times by commit", "commits", *by_commit(index, kernel)),
        section("Commits that changed a case", "steps", *changes(index, kernel), _gradual(longest)),
        section(
            "Case sets beside the baseline, run by run", "baseline", *_beside(index, kernel, found)
        ),
    ]


def _beside(index: Index, kernel: Kernel, found: Mapping[Machine, list[Group]]) -> Iterator[str]:
    """A chart a machine: the speed against the baseline, quiet run by quiet run, the commits
    marked. The table below it has the noisy ones too."""
    here = at.topic_page(kernel.id, "history")
    yield _about(found)
    for number, (machine, every) in enumerate(found.items(), 1):
        yield heading(3, f"{inline(machine.name)}, {code(machine.target)}", f"history.{number}")
        runs = list({group.run.id: group.run for group in reversed(every)}.values())[-_MOST_RUNS:]
        newest = {run.id for run in runs}
        listed = shown = [group for group in every if group.run.id in newest]
        if len(shown) < len(every):
            everyone = at.link("the table of runs", at.RUNS, here)
            yield f"The newest {_MOST_RUNS} runs; {everyone} has all."
        noisy = {group.run.id for group in shown if group.noise_reason}
        quiet = [run for run in runs if run.id not in noisy]
        shown, others = of_one_problem(shown, shown[0])
        hidden = [many(len(noisy), "noisy run") if noisy else "", of_another_problem(others)]
        if any(hidden):
            yield f"Not in the chart: {' and '.join(filter(None, hidden))}."
        quiet = [run for run in quiet if any(group.run is run for group in shown)]
        if len(quiet) < 2:
            so_far = "one run" if not noisy else "one quiet run" if quiet else "no quiet run"
            yield nothing(f"No chart because {so_far} timed it so far.")
        else:
            yield _course(machine, quiet, shown, here)
        yield _runs(index, listed, here)


def _about(found: Mapping[Machine, list[Group]]) -> str:
    named = dict.fromkeys(group.result.baseline for every in found.values() for group in every)
    return (
        f"Time of the baseline ({', '.join(map(code, named))}) ÷ ours, geometric mean over a case"
        " set, the oldest run at the left: above 1 ours is faster."
    )


def _series(index: Index, kernel: Kernel) -> list[timings.Series]:
    every = [one for run in index.runs_of(kernel=kernel.id) if (one := timed(run))]
    return timings.series(every)


def _gradual(runs: int) -> str:
    """Whether a series is long enough to find what no single step shows."""
    if runs < timings.LEAST_RUNS:
        return (
            "What changes little by little, no step shows. Change points over a whole series would,"
            f" and need {timings.LEAST_RUNS} runs; the longest series has {runs}."
        )
    return f"What changes little by little, no step shows; {code('kbtool history')} finds it."


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
    runs = many(len({group.run.id for group in every}), "run")
    return folded(f"The figures of {runs}, by case set", stacked_table(header, lines, {3, 4}))
