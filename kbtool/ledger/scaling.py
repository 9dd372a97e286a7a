"""Measured cases in lines: all fields but one the same, for the times over that one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kbtool.model.kernel import Case, CaseValue, value_text
from kbtool.model.twin import MeasuredCase, MeasuredSet, ProblemField

_FEWEST = 3
"""The fewest points of a line that make a field an axis."""


class Line(NamedTuple):
    """Cases of one machine and target that differ in one field alone."""

    machine: str
    target: str
    axis: str
    """The field in which they differ."""
    shape: Case
    """The fields that they share."""
    points: list[tuple[float, MeasuredSet, MeasuredCase]]
    """Value of the axis, the set and the case, by the value."""


def axes(known: Sequence[ProblemField], results: Sequence[MeasuredSet]) -> list[str]:
    """The fields of numbers that times can be drawn over: that of the longest line first."""
    sizes = {
        field.name: len(lines(known, results, field.name)[0].points)
        for field in known
        if field.type in ("int", "float") and any(map(_positive, field.values))
    }
    long = [name for name, size in sizes.items() if size >= _FEWEST]
    return sorted(long, key=lambda name: sizes[name], reverse=True)


def lines(known: Sequence[ProblemField], results: Iterable[MeasuredSet], axis: str) -> list[Line]:
    """The cases that are current as lines over ``axis``, the one of most points first."""
    found: dict[tuple[str, ...], Line] = {}
    for of in results:
        for case in of.cases:
            values = {field.name: case.case.get(field.name, field.default) for field in known}
            size = _positive(values.pop(axis))
            if not case.current or not size:
                continue
            key = (of.machine, of.target, *map(value_text, values.values()))
            line = found.setdefault(key, Line(of.machine, of.target, axis, values, []))
            line.points.append((size, of, case))
    for line in found.values():
        line.points.sort(key=lambda point: point[0])
    return sorted(found.values(), key=lambda line: len(line.points), reverse=True)


def _positive(value: CaseValue) -> float | None:
    return float(value) if isinstance(value, int | float) and value > 0 else None
