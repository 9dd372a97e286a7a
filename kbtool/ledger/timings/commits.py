"""A kernel's newest commit beside each earlier one, by the verdicts of ``kbtool compare``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from kbtool.ledger.timings.conditions import Timed, alike
from kbtool.ledger.timings.sides import newest_first
from kbtool.ledger.timings.spread import Spreads
from kbtool.ledger.timings.verdict import ONLY_IN_A, Comparison, Row, Side, compare
from kbtool.model.run import Run


class Line(NamedTuple):
    """Commits of a kernel that were timed on one machine under the same conditions."""

    kernel: str
    machine: str
    commits: list[Timed]
    """The newest run of each commit; the commit that was timed first last."""
    beside: list[Comparison]
    """The newest commit beside each of the others, in their order."""

    @property
    def last(self) -> list[Comparison]:
        """The newest commit beside those before it that timed its cases: each case stands in the
        comparison with the last that has it."""
        found, seen = [], set[str]()
        for one in self.beside:
            rows = [row for row in shared(one) if row.case not in seen]
            seen |= {row.case for row in rows}
            if rows:
                found.append(one._replace(rows=rows))
        return found

    @property
    def rows(self) -> list[Row]:
        """What became of each case of the newest commit since it was last timed."""
        return [row for one in self.last for row in one.rows]

    @property
    def new(self) -> int:
        """Cases of the newest commit that none before it timed."""
        known = {row.case for row in self.rows}
        every = {row.case for one in self.beside for row in one.rows if row.why != ONLY_IN_A}
        return len(every - known)


class Lines(NamedTuple):
    """What can be compared, and what cannot."""

    found: list[Line]
    """Of two commits and more, in the order of their newest times."""
    alone: dict[tuple[str, str], list[Timed]]
    """Kernel and machine → commits that were timed under conditions of their own, newest first."""


def shared(comparison: Comparison) -> list[Row]:
    """The cases of which both sides have a time."""
    return [row for row in comparison.rows if row.a is not None and row.b is not None]


def lines(runs: Iterable[Run]) -> Lines:
    """Every kernel on every machine, apart by the conditions that it was timed under.

    Args:
        runs: oldest first, with every attempt.
    """
    every = newest_first(runs)
    spreads = Spreads(every)
    of_kernels = [one for one in every if one.run.kernel is not None]
    found = alike(of_kernels, lambda one: (one.run.kernel or "", one.machine))
    made = Lines([], {})
    for (kernel, machine), groups in found.items():
        for timed in groups:
            commits = _commits(timed)
            if len(commits) > 1:
                beside = [*_beside(commits, timed, spreads)]
                made.found.append(Line(kernel, machine, commits, beside))
            else:
                made.alone.setdefault((kernel, machine), []).append(commits[0])
    made.found.sort(key=lambda line: line.commits[0].run.started, reverse=True)
    return made


def _commits(timed: Sequence[Timed]) -> list[Timed]:
    """The newest run of each commit; commits in the order in which they were first timed."""
    first: dict[str | None, Timed] = {}
    newest: dict[str | None, Timed] = {}
    for one in timed:  # newest first, so the last to be set is the first that was timed
        newest.setdefault(one.commit, one)
        first[one.commit] = one
    order = sorted(first, key=lambda commit: first[commit].run.started, reverse=True)
    return [newest[commit] for commit in order]


def _beside(
    commits: Sequence[Timed], timed: Sequence[Timed], spreads: Spreads
) -> Iterator[Comparison]:
    newest, *others = [
        Side(str(commit.commit), [one for one in timed if one.commit == commit.commit])
        for commit in commits
    ]
    for other in others:
        yield compare(other, newest, spreads)
