"""Each case of a kernel commit by commit: its times, and what changed from one to the next."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kbtool.ledger.timings.conditions import Timed, alike
from kbtool.ledger.timings.spread import METRICS, Metric, Spreads, is_own, margin, wrong
from kbtool.ledger.timings.verdict import Comparison, Entry, Row, Side, compare, entries_of


class Times(NamedTuple):
    """Of all runs of a commit, in µs."""

    us: float
    """The geometric mean of their medians."""
    low: float
    """The least lower quartile."""
    high: float
    """The largest upper quartile."""


class Point(NamedTuple):
    """A case at a commit."""

    side: Side
    """The quiet runs of the commit under the same conditions."""
    entries: list[Entry]
    """How those that timed the case did, newest first."""
    before: Side | None
    """The last commit before it that timed the case so."""
    row: Row | None
    """The case beside that commit, by the verdicts of ``kbtool compare``."""
    margin: float | None
    """How far another run of the same code may lie from it, as a logarithm; ``None`` if no runs of
    the same code tell."""

    def times(self, arm: str, metric: Metric) -> Times | None:
        """The time of the library, or of a peer; ``None`` where none proves anything."""
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


class Course(NamedTuple):
    """A case on one machine by one metric, commit by commit, whatever the conditions were."""

    machine: str
    case_set: str | None
    """``None`` where no record names it."""
    case: str
    metric: Metric
    points: list[Point]
    """In the order in which the commits were first timed."""


class History(NamedTuple):
    """What the runs of a kernel tell of its commits."""

    courses: list[Course]
    steps: list[Comparison]
    """Two commits that were timed under the same conditions, and a case by none between them;
    newest first."""


def history(every: Sequence[Timed]) -> History:
    """The course of every case of a kernel, by machine, and its steps.

    Args:
        every: the runs of one kernel, newest first.
    """
    spreads = Spreads(every)
    found: list[Course] = []
    pairs: dict[tuple[int, int], tuple[Side, Side]] = {}
    for metric in METRICS:
        for course in _courses(every, metric, spreads):
            found.append(course)
            for point in course.points:
                if point.before is not None:
                    pairs[id(point.before), id(point.side)] = point.before, point.side
    compared = [compare(before, side, spreads) for before, side in pairs.values()]
    steps = [one for one in compared if one.of("same", "slower", "faster", "too_noisy")]
    steps.sort(key=lambda one: one.b.newest.run.started, reverse=True)
    return History(found, steps)


def _courses(every: Sequence[Timed], metric: Metric, spreads: Spreads) -> list[Course]:
    found: dict[tuple[str, str | None, str], Course] = {}
    rows: dict[tuple[int, int], dict[str, Row]] = {}
    for side in _sides(every):
        machine = side.newest.machine
        for (case_set, case, number), entries in entries_of(side).items():
            kept = [entry for entry in entries if _proves(entry, metric)]
            if number or not kept:  # a second case of that name in one run
                continue
            key = _key(found, machine, case_set, case)
            course = found.setdefault(key, Course(machine, case_set, case, metric, []))
            before = course.points[-1].side if course.points else None
            row = None
            if before is not None:
                pair = id(before), id(side)
                if pair not in rows:
                    compared = compare(before, side, spreads, metric).rows
                    rows[pair] = {one.case: one for one in reversed(compared)}
                row = rows[pair].get(f"{key[1]}/{case}" if key[1] else case)
            spread = spreads.of(*kept[0], metric)
            room = margin(spread, len(kept)) if spread else None
            course.points.append(Point(side, kept, before, row, room))
    return list(found.values())


def _proves(entry: Entry, metric: Metric) -> bool:
    timing = entry.case.arms[entry.arm]
    return wrong(entry.case, entry.arm) is None and bool(timing.us(metric == "between"))


def _key(
    found: dict[tuple[str, str | None, str], Course], machine: str, case_set: str | None, case: str
) -> tuple[str, str | None, str]:
    """The course that a case belongs to: older records do not name the case set."""
    if case_set and (course := found.pop((machine, None, case), None)):
        found[machine, case_set, case] = course._replace(case_set=case_set)
    return machine, case_set, case


def _sides(every: Sequence[Timed]) -> Iterator[Side]:
    """The quiet runs of each commit on each machine, apart by conditions; the commit that was timed
    first comes first."""
    found = alike(every, lambda one: (one.machine, one.commit or ""))
    sides = [Side(commit, group) for (_, commit), groups in found.items() for group in groups]
    yield from sorted(sides, key=lambda side: side.runs[-1].run.started)
