"""A kernel's speed over time: each case commit by commit, then every run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kbtool.ledger.measured import Group, Machine
from kbtool.ledger.timings import series as timings
from kbtool.ledger.timings.conditions import timed
from kbtool.markdown.escape import code, inline
from kbtool.markdown.figures import many, significant
from kbtool.markdown.markup import folded, heading, stacked_table
from kbtool.model.kernel import Kernel
from kbtool.site import addresses as at
from kbtool.site.index import Index
from kbtool.site.pages.courses import by_commit, changes
from kbtool.site.pages.times import against, commit_text, passed_text
from kbtool.site.parts import section


def history(index: Index, kernel: Kernel, found: Mapping[Machine, list[Group]]) -> list[str]:
    """Times by commit, what changed, and every run."""
    if not found:
        return []
    longest = max((len(one.us) for one in _series(index, kernel)), default=0)
    return [
        section("Times by commit", "commits", *by_commit(index, kernel)),
        section("Commits that changed a case", "steps", *changes(index, kernel), _gradual(longest)),
        section("Every run", "baseline", *_every_run(index, kernel, found)),
    ]


def _every_run(index: Index, kernel: Kernel, found: Mapping[Machine, list[Group]]) -> Iterator[str]:
    """By machine, what each run timed; the noisy ones too."""
    here = at.topic_page(kernel.id, "history")
    named = dict.fromkeys(group.result.baseline for every in found.values() for group in every)
    yield (
        f"Time of the baseline ({', '.join(map(code, named))}) ÷ ours in a chain, geometric mean"
        " over a case set: above 1 ours is faster."
    )
    for number, (machine, every) in enumerate(found.items(), 1):
        title = f"{inline(machine.name)}, {code(machine.target)}"
        yield heading(3, title, f"history.{number}")
        yield _runs(index, every, here)


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
