"""Each case of a kernel commit by commit: its times, and what changed from one to the next."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kbtool.ledger.timings.conditions import Timed, unlike
from kbtool.ledger.timings.spread import METRICS, Metric, Spreads, is_own, wrong
from kbtool.ledger.timings.verdict import Entry, Row, Side, compare, entries_of


class Point(NamedTuple):
    """A case at a commit."""

    side: Side
    """The quiet runs of the commit under the same conditions."""
    entries: list[Entry]
    """How those that timed the case did, newest first."""
    before: Side | None
    """The last commit before it that timed the case."""
    row: Row | None
    """The case beside that commit, by the verdicts of ``kbtool compare``."""
    deviation: dict[Metric, float]
    """How far runs of the same code lie apart: the standard deviation of the library's time, as a
    share. A metric of which nobody knows is left out."""

    @property
    def is_ranked(self) -> bool:
        """Whether both commits were timed for the same, under the same conditions."""
        return self.row is not None and self.row.verdict in _RANKED

    def times(self, arm: str, metric: Metric) -> Times | None:
        """The time of the library, or of a peer, in µs; ``None`` where none proves anything."""
        found = [
            (low or us, us, high or us)
            for entry in self.entries
            if wrong(entry.case, arm) is None and (timing := entry.case.arms.get(arm))
            for low, us, high in [timing.quartiles(metric == "between")]
            if us
        ]
        if not found:
            return None
        lows, medians, highs = zip(*found, strict=True)
        mean = math.exp(math.fsum(map(math.log, medians)) / len(medians))
        return Times(mean, min(lows), max(highs))

    @property
    def arms(self) -> list[str]:
        """The library by its own choice of variant, then its peers."""
        names = [entry.arm for entry in self.entries]
        for _, result, case, _ in self.entries:
            names += [
                arm for arm in case.arms if not is_own(result, arm) and arm not in result.own_calls
            ]
        return list(dict.fromkeys(names))


_RANKED = {"same", "slower", "faster", "too_noisy"}


class Times(NamedTuple):
    """Of all runs of a commit."""

    us: float
    """The geometric mean of their medians."""
    low: float
    """The least lower quartile."""
    high: float
    """The largest upper quartile."""


class Course(NamedTuple):
    """A case on one machine, commit by commit, whatever the conditions were."""

    machine: str
    case_set: str | None
    """``None`` where no record names it."""
    case: str
    points: list[Point]
    """In the order in which the commits were first timed."""


class Step(NamedTuple):
    """What became of the cases that two commits timed, and none between them."""

    before: Side
    after: Side
    rows: list[Row]


def courses(every: Sequence[Timed]) -> list[Course]:
    """The course of every case of a kernel, by machine.

    Args:
        every: the runs of one kernel, newest first.
    """
    spreads = Spreads(every)
    found: dict[tuple[str, str | None, str], Course] = {}
    rows: dict[tuple[int, int], dict[str, Row]] = {}
    for side in _sides(every):
        machine = side.newest.machine
        for (case_set, case, number), entries in entries_of(side).items():
            if number:  # a second case of that name in one run
                continue
            key = _key(found, machine, case_set, case)
            course = found.setdefault(key, Course(machine, case_set, case, []))
            before = course.points[-1].side if course.points else None
            row = None
            if before is not None:
                pair = id(before), id(side)
                if pair not in rows:
                    compared = compare(before, side, spreads).rows
                    rows[pair] = {one.case: one for one in reversed(compared)}
                row = rows[pair].get(f"{key[1]}/{case}" if key[1] else case)
            deviation = {
                metric: math.sqrt(spread.variance / len(entries))
                for metric in METRICS
                if (spread := spreads.of(*entries[0], metric))
            }
            course.points.append(Point(side, entries, before, row, deviation))
    return list(found.values())


def _key(
    found: dict[tuple[str, str | None, str], Course], machine: str, case_set: str | None, case: str
) -> tuple[str, str | None, str]:
    """The course that a case belongs to: older records do not name the case set."""
    if case_set and (course := found.pop((machine, None, case), None)):
        found[machine, case_set, case] = course._replace(case_set=case_set)
    return machine, case_set, case


def steps(found: Sequence[Course]) -> list[Step]:
    """What changed between commits that were timed for the same under the same conditions, newest
    first. Each case stands in the step to the commit that timed it next."""
    made: dict[tuple[int, int], Step] = {}
    for course in found:
        for point in course.points:
            if point.before is not None and point.row is not None and point.is_ranked:
                pair = id(point.before), id(point.side)
                step = made.setdefault(pair, Step(point.before, point.side, []))
                step.rows.append(point.row)
    return sorted(made.values(), key=lambda step: step.after.newest.run.started, reverse=True)


def _sides(every: Sequence[Timed]) -> Iterator[Side]:
    """The quiet runs of each commit on each machine, apart by conditions; the commit that was timed
    first comes first."""
    found: dict[tuple[str, str], list[list[Timed]]] = {}
    for one in every:
        if one.commit is None or one.noise:
            continue
        groups = found.setdefault((one.machine, one.commit), [])
        group = next((group for group in groups if not unlike(one, group[0])), None)
        if group is None:
            groups.append([one])
        else:
            group.append(one)
    sides = [Side(commit, group) for (_, commit), groups in found.items() for group in groups]
    yield from sorted(sides, key=lambda side: side.runs[-1].run.started)
