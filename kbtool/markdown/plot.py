"""Measured values as inline SVG: series of points over an axis, or a row of marks for each case.

Series differ in shape as well as in colour; colours are classes (``assets/charts.css``), so that
both palettes are followed. Every mark has a title, and no word of a chart enters the search index.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from kbtool.markdown import axes
from kbtool.markdown.escape import attribute, raw
from kbtool.markdown.figures import significant

WIDTH = 720
HEIGHT = 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 16, 12, 44
_ROW = 48
_APART = 18
_FAR = 4
TALL = 12
"""Rows that one screen shows: of more, axis and legend stand at both ends."""
_AXIS = 32
"""Room for an axis above its rows."""
SERIES = 20
"""So many colours and shapes there are; of more series, none has both in common with another."""

ScaleName = Literal["linear", "log2", "log10"]


class Point(NamedTuple):
    """One measured value."""

    x: float
    y: float
    tooltip: str
    """What it is, in words."""
    low: float | None = None
    """The lower end of its bar: the 25th percentile."""
    high: float | None = None
    """The upper end."""
    to: str = ""
    """Where a click on it leads."""


class Series(NamedTuple):
    """Points of one kind; a line joins them where they are one after the other."""

    name: str
    points: Sequence[Point]
    joined: bool = False


class Axis(NamedTuple):
    """What an axis shows."""

    title: str
    scale: ScaleName = "linear"
    names: Mapping[float, str] = {}
    """Value → what stands at it, in place of round figures."""


class Mark(NamedTuple):
    """One value of a row."""

    value: float
    tooltip: str
    low: float | None = None
    high: float | None = None


class Row(NamedTuple):
    """A case, and what each series has in it; series without a value are left out."""

    name: str
    marks: Mapping[str, Mark]
    ceiling: Mark | None = None
    """What the machine allows."""


def plot(
    title: str,
    x_axis: Axis,
    y_axis: Axis,
    series: Sequence[Series],
    ceiling: tuple[str, Sequence[tuple[float, float]]] | None = None,
) -> str:
    """Series over two axes; one line of HTML, empty where there is no point to show.

    Args:
        title: what the chart shows, for those who do not see it.
        x_axis: the horizontal one.
        y_axis: the vertical one.
        series: in the order of their colours, the first on top. What a logarithm cannot show is
            left out.
        ceiling: what the machine allows: its name, and the points of the line that it is.
    """
    kept = [
        one._replace(
            points=[p for p in one.points if _fits(p.x, x_axis.scale) and _fits(p.y, y_axis.scale)]
        )
        for one in series
    ]
    points = [point for one in kept for point in one.points]
    if not points:
        return ""
    limit = list(ceiling[1]) if ceiling else []
    top, foot = _TOP, HEIGHT - _BOTTOM
    across = [p.x for p in points] + [x for x, _ in limit]
    x = _Scale(x_axis, across, (_LEFT + 24, WIDTH - _RIGHT - 24))
    reach = [v for p in points for v in _ends(p.y, p.low, p.high)] + [y for _, y in limit]
    y = _Scale(y_axis, [v for v in reach if _fits(v, y_axis.scale)], (foot - 8, top + 8))
    parts = axes.levels(y.ticks(), _LEFT, WIDTH - _RIGHT)
    parts += axes.columns(x.ticks(), top, foot)
    parts.append(
        f'<text x="{(_LEFT + WIDTH) / 2}" y="{HEIGHT - 8}" text-anchor="middle">'
        f"{attribute(x_axis.title)}</text>"
        f'<text transform="translate(12 {(top + foot) / 2:.0f}) rotate(-90)"'
        f' text-anchor="middle">{attribute(y_axis.title)}</text>'
    )
    if ceiling:
        drawn = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in limit)
        parts.append(
            f'<polyline class="kb-ceiling" points="{drawn}"><title>{attribute(ceiling[0])}</title>'
            "</polyline>"
        )
    for at, one in reversed([*enumerate(kept)]):
        parts += _drawn(at, one, x, y)
    shown = [(one.name, at) for at, one in enumerate(kept) if one.points]
    drawn = _svg(title, HEIGHT, parts, links=any(p.to for p in points))
    return _framed(_legend(shown, ceiling[0] if ceiling else None), drawn)


def _drawn(number: int, series: Series, x: _Scale, y: _Scale) -> list[str]:
    """A series: its line, then its points, each with its bar."""
    parts = []
    if series.joined and len(series.points) > 1:
        line = " ".join(f"{x(p.x):.1f},{y(p.y):.1f}" for p in series.points)
        parts.append(f'<polyline class="kb-series-{_number(number)}" points="{line}"/>')
    for p in series.points:
        across = x(p.x)
        bar = "".join(
            f"M{across:.1f},{y(low):.1f}V{y(high):.1f}M{across - 3:.1f},{y(low):.1f}h6"
            f"M{across - 3:.1f},{y(high):.1f}h6"
            for low, high in _bar(p.low, p.high, y.axis.scale)
        )
        parts.append(_mark(number, across, y(p.y), bar, p.tooltip, p.to))
    return parts


def rows(
    title: str,
    axis: Axis,
    names: Sequence[str],
    cases: Sequence[Row],
    reference: float | None = None,
) -> str:
    """A row of marks for each case, over one axis; one line of HTML, empty without a mark.

    Args:
        title: what the chart shows, for those who do not see it.
        axis: the horizontal one.
        names: the series, in the order of their colours, the first on top.
        cases: from above. A ceiling beyond a quarter of the least mark is an arrow at the edge.
        reference: where a line stands: what the others are held against.
    """
    values = [
        value
        for case in cases
        for mark in case.marks.values()
        for value in _ends(mark.value, mark.low, mark.high)
        if _fits(value, axis.scale)
    ]
    if not values:
        return ""
    used = {
        name: number
        for number, name in enumerate(names)
        if any(name in case.marks for case in cases)
    }
    ceilings = [case.ceiling.value for case in cases if case.ceiling]
    # A ceiling far off says only that it is far off; the marks are what needs the room.
    values += [reference] if reference is not None else []
    near = [value for value in ceilings if value >= min(values) / _FAR]
    ceiling = "ceiling" + (", < where it is beyond the axis" if len(near) < len(ceilings) else "")
    legend = _legend(used.items(), ceiling if ceilings else None)
    is_tall = len(cases) > TALL
    top = _AXIS * is_tall
    foot = top + _ROW * len(cases)
    x = _Scale(axis, [*values, *near], (24, WIDTH - 24))
    parts = axes.columns(x.ticks(), top, foot + 4)
    if is_tall:
        parts += [
            f'<text x="{at:.1f}" y="{top - 4}" text-anchor="middle">{attribute(name)}</text>'
            for at, name in x.ticks()
        ]
        parts.append(_axis_title(axis, top - 19))
    if reference is not None:
        # It stands beside the marks alone: above them it would cross the names of the rows.
        pieces = "".join(
            f"M{x(reference):.1f},{top + _ROW * at + 20}v24" for at in range(len(cases))
        )
        parts.append(f'<path class="kb-reference" d="{pieces}"/>')
    parts.append(_axis_title(axis, foot + 36))
    for at, case in enumerate(cases):
        parts += _row(case, top + _ROW * at + 32, x, used, near)
    return _framed(legend, _svg(title, foot + 44, parts, links=False), legend * is_tall)


def _row(
    case: Row, middle: int, x: _Scale, used: Mapping[str, int], near: Sequence[float]
) -> list[str]:
    """The row of a case: its name, its ceiling, and a mark for each series with its bar.

    Args:
        case: what to show.
        middle: the height of the row's line.
        x: the scale of the axis.
        used: series → its number, the first on top.
        near: the ceilings that the axis reaches.
    """
    parts = [
        f'<line class="kb-row" x1="8" x2="{WIDTH - 8}" y1="{middle}" y2="{middle}"/>'
        f'<text class="kb-case" x="8" y="{middle - 18}">{attribute(_cut(case.name, 96))}</text>'
    ]
    if case.ceiling and _fits(case.ceiling.value, x.axis.scale):
        is_near = case.ceiling.value in near
        place = f"{x(case.ceiling.value):.1f}" if is_near else "14"
        shape = "v16" if is_near else "l-8,8l8,8"
        parts.append(
            f'<path class="kb-ceiling" d="M{place},{middle - 8}{shape}"><title>'
            f"{attribute(case.ceiling.tooltip)}</title></path>"
        )
    for at, (name, number) in reversed([*enumerate(used.items())]):
        mark = case.marks.get(name)
        if mark is None or not _fits(mark.value, x.axis.scale):
            continue
        # One below the other, so that equal values do not hide each other.
        y = middle + (at - (len(used) - 1) / 2) * _APART / len(used)
        bar = "".join(
            f"M{x(low):.1f},{y:.1f}H{x(high):.1f}M{x(low):.1f},{y - 3:.1f}v6"
            f"M{x(high):.1f},{y - 3:.1f}v6"
            for low, high in _bar(mark.low, mark.high, x.axis.scale)
        )
        parts.append(_mark(number, x(mark.value), y, bar, mark.tooltip))
    return parts


def _axis_title(axis: Axis, y: float) -> str:
    return f'<text x="{WIDTH / 2}" y="{y}" text-anchor="middle">{attribute(axis.title)}</text>'


def _svg(title: str, height: float, parts: Iterable[str], links: bool) -> str:
    # An image has no links in it, for those who do not see it; a group has.
    role = "group" if links else "img"
    return raw(
        f'<div class="kb-chart kb-plot" data-search-exclude tabindex="0"><svg role="{role}"'
        f' viewBox="0 0 {WIDTH} {height:.0f}" aria-label="{attribute(title)}">{"".join(parts)}'
        "</svg></div>"
    )


def _framed(*parts: str) -> str:
    """A chart and its legends as one element: of two on a line Markdown makes a paragraph."""
    return f"<div>{''.join(parts)}</div>"


def _number(series: int) -> int:
    # The first is ours: what comes after the last colour begins with the second.
    return 1 + (series if series < SERIES else 1 + (series - SERIES) % (SERIES - 1))


_SHAPES = (
    ("m-4.5,0a4.5,4.5 0 1,0 9,0a4.5,4.5 0 1,0-9,0z", True),  # circle
    ("m-4,-4h8v8h-8z", True),  # square
    ("m0,-5.5l5,9h-10z", True),  # triangle
    ("m0,-5.5l5.5,5.5l-5.5,5.5l-5.5,-5.5z", True),  # diamond
    ("m0,5.5l5,-9h-10z", True),  # triangle, point down
    ("m-4,-4l8,8m0,-8l-8,8", False),  # cross
    ("m0,-5v10m-5,-5h10", False),  # plus
    ("m-5,-2.5h10m0,5h-10", False),  # two bars
    ("m-4.5,0a4.5,4.5 0 1,0 9,0a4.5,4.5 0 1,0-9,0z", False),
    ("m-4,-4h8v8h-8z", False),
    ("m0,-5.5l5,9h-10z", False),
    ("m0,-5.5l5.5,5.5l-5.5,5.5l-5.5,-5.5z", False),
    ("m0,5.5l5,-9h-10z", False),
    ("m-5.5,0l9,-5v10z", True),  # triangle, point left
    ("m5.5,0l-9,-5v10z", True),  # triangle, point right
    ("m-4.5,-5h9l-9,10h9z", True),  # hourglass
    ("m-5,-4.5v9l10,-9v9z", True),  # bow tie
    ("m-2.5,-5v10m5,-10v10", False),  # two posts
    ("m-5.5,0l9,-5v10z", False),
    ("m5.5,0l-9,-5v10z", False),
)
"""Shapes of marks, from their middle, and whether each is filled."""


def mark_of(series: int) -> tuple[int, str, bool]:
    """The number of a series' colour, its shape from the middle, whether that is filled."""
    # A series with the colour of an earlier one has another shape.
    at = (series + 3 * (max(series - 1, 0) // (SERIES - 1))) % SERIES
    return _number(series), *_SHAPES[at]


def _shape(series: int, x: float, y: float) -> str:
    _, shape, filled = mark_of(series)
    css = "kb-mark" if filled else "kb-mark kb-open"
    return f'<path class="{css}" d="M{x:.1f},{y:.1f}{shape}"/>'


def _mark(series: int, x: float, y: float, bar: str, tooltip: str, to: str = "") -> str:
    drawn = f'<path class="kb-bar" d="{bar}"/>' if bar else ""
    name = attribute(tooltip)
    group = (
        f'<g class="kb-series-{_number(series)}"><title>{name}</title>{drawn}'
        f"{_shape(series, x, y)}</g>"
    )
    return f'<a href="{attribute(to)}" aria-label="{name}">{group}</a>' if to else group


def _legend(series: Iterable[tuple[str, int]], ceiling: str | None) -> str:
    """What shapes and colours mean, in columns as wide as the longest name.

    Args:
        series: the name and the number of each.
        ceiling: what the line of the machine is called, if there is one.
    """
    entries = [
        (_cut(name, 60), f'<g class="kb-series-{_number(number)}">{_shape(number, 0, 0)}</g>')
        for name, number in series
    ]
    if ceiling:
        entries.append((ceiling, '<path class="kb-ceiling" d="M-7,0h14"/>'))
    keys = "".join(
        f'<li><svg class="kb-key" viewBox="-7 -7 14 14" aria-hidden="true">{shape}</svg> '
        f"{attribute(name)}</li>"
        for name, shape in entries
    )
    longest = max(len(name) for name, _ in entries)
    return raw(
        f'<ul class="kb-keys" style="--kb-name: {longest}ch" data-search-exclude>{keys}</ul>'
    )


class _Scale:
    """From values to places along an axis."""

    def __init__(self, axis: Axis, values: Sequence[float], places: tuple[float, float]) -> None:
        self.axis = axis
        self.first, self.last = places
        if axis.names:
            values = [*values, *axis.names]
        low, high = self.map(min(values)), self.map(max(values))
        if axis.scale == "linear" and not axis.names:
            low = min(low, 0.0)
        if high <= low:
            low, high = low - 0.5, high + 0.5
        self.low, self.high = low, high

    def __call__(self, value: float) -> float:
        share = (self.map(value) - self.low) / (self.high - self.low)
        return self.first + share * (self.last - self.first)

    def map(self, value: float) -> float:
        """``value`` as the axis counts."""
        match self.axis.scale:
            case "linear":
                return value
            case "log2":
                return math.log2(value)
            case "log10":
                return math.log10(value)

    def ticks(self) -> list[tuple[float, str]]:
        """Places of values that are worth a line, and what stands at them."""
        return [(self(value), name) for value, name in self._worth_a_line()]

    def _worth_a_line(self) -> list[tuple[float, str]]:
        if self.axis.names:
            return _thinned(list(self.axis.names.items()))
        if self.axis.scale == "linear":
            return [(value, _round(value)) for value in _steps(self.low, self.high)]
        base = 2.0 if self.axis.scale == "log2" else 10.0
        if base**self.high < 3 * base**self.low:
            values = _steps(base**self.low, base**self.high)
        else:
            inner = (1, 2, 5) if base == 10.0 and self.high - self.low < 3 else (1,)
            values = [
                factor * base**power
                for power in range(math.floor(self.low), math.ceil(self.high) + 1)
                for factor in inner
            ]
        inside = [v for v in values if self.low - 1e-9 <= self.map(v) <= self.high + 1e-9]
        return _thinned([(value, _round(value)) for value in inside])


def _thinned(ticks: list[tuple[float, str]]) -> list[tuple[float, str]]:
    return ticks[:: math.ceil(len(ticks) / 12)] if ticks else ticks


def _steps(low: float, high: float) -> list[float]:
    """Round figures between two: 1, 2 or 5 times 10ⁿ apart."""
    unit = 10.0 ** math.floor(math.log10((high - low) / 5))
    step = next(unit * n for n in (1, 2, 5, 10) if unit * n >= (high - low) / 5 * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [step * n for n in range(first, last + 1)]


def _round(value: float) -> str:
    for unit, factor in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value:.3g}"


def _fits(value: float, scale: ScaleName) -> bool:
    return math.isfinite(value) and (scale == "linear" or value > 0)


def _ends(value: float, low: float | None, high: float | None) -> list[float]:
    return [value, *(end for end in (low, high) if end is not None)]


def _bar(low: float | None, high: float | None, scale: ScaleName) -> list[tuple[float, float]]:
    if low is None or high is None or not (_fits(low, scale) and _fits(high, scale)):
        return []
    return [(low, high)]


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def timed(name: str, median: float, low: float, high: float) -> Mark:
    """A time in microseconds with its quartiles, as a mark."""
    tooltip = f"{name}: {significant(median)} µs ({significant(low)}–{significant(high)})"
    return Mark(median, tooltip, low, high)
