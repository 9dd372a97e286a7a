"""Charts as inline SVG: colours from the palette, figures from the table beside them.

Every part has a title that says what it is, and no word of a chart enters the search index.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from decimal import Decimal
from itertools import pairwise
from typing import NamedTuple

from kbtool.markdown import axes
from kbtool.markdown.escape import attribute, raw
from kbtool.markdown.figures import money

WIDTH = 720
SPARK_WIDTH, SPARK_HEIGHT = 96, 24
SPARK_POINTS = 48
"""So many of the newest values a sparkline shows: more would be less than two pixels each."""
SPARK_SPAN = 0.05
"""A sparkline's height is at least so much of its middle, up and down: what repeats to within the
noise of a measurement is flat."""
_LEFT, _RIGHT, _TOP, _FOOT = 56, 8, 28, 216
_LINES, _LINE = 3, 14
"""Names below bars lie flat in so many lines at most, each so high; longer ones are turned."""
_TURN = 35
"""Degrees that a name is turned by."""
_LONGEST = 24
"""Letters of a name that is turned."""
_TICKS = 5
_LETTER = 8
"""So wide is a letter, nearly."""


class Bar(NamedTuple):
    """One place on the horizontal axis."""

    label: str
    parts: Mapping[str, Decimal]
    """Series → amount, in the order that they are stacked in."""
    unknown: str = ""
    """What is not in the bar, because no record says."""
    limit: Decimal | None = None
    """What it may come to."""
    running_total: Decimal | None = None
    """The sum of all bars up to this one."""

    @property
    def is_unknown(self) -> bool:
        """Whether no record says anything of it."""
        return bool(self.unknown) and not self.parts


def sparkline(title: str, values: Sequence[float]) -> str:
    """The course of ``values``, oldest first, small enough for a line of text; the last is marked.

    Values that are not finite are left out; empty where none is left.

    Args:
        title: what they are, for those who do not see it.
        values: in one unit; they span the height, so that a sparkline has no zero, unless they are
            nearly equal.
    """
    # Halved, because the distance of two floats may be more than a float can hold.
    shown = [value / 2 for value in map(float, values) if math.isfinite(value)][-SPARK_POINTS:]
    if not shown:
        return ""
    middle, room = min(shown) / 2 + max(shown) / 2, 3
    low = min(*shown, middle - SPARK_SPAN * abs(middle))
    high = max(*shown, middle + SPARK_SPAN * abs(middle))
    step = (SPARK_WIDTH - 2 * room) / max(len(shown) - 1, 1)

    def y(value: float) -> float:
        share = (value - low) / (high - low) if high > low else 0.5
        return SPARK_HEIGHT - room - share * (SPARK_HEIGHT - 2 * room)

    places = [f"{room + step * at:.1f},{y(value):.1f}" for at, value in enumerate(shown)]
    x, height = (places[-1] if len(places) > 1 else f"{SPARK_WIDTH / 2},{y(shown[0])}").split(",")
    line = f'<polyline points="{" ".join(places)}"/>' if len(places) > 1 else ""
    name = attribute(title)
    return raw(
        f'<span class="kb-spark" data-search-exclude><svg role="img" aria-label="{name}"'
        f' width="{SPARK_WIDTH}" height="{SPARK_HEIGHT}"'
        f' viewBox="0 0 {SPARK_WIDTH} {SPARK_HEIGHT}"><title>{name}</title>{line}'
        f'<circle cx="{x}" cy="{height}" r="2.5"/></svg></span>'
    )


def stacked(title: str, bars: Sequence[Bar], currency: str) -> str:
    """Bars of stacked parts, with their limits and a line of the running total; one line of HTML.

    Args:
        title: what the chart shows, for those who do not see it.
        bars: at least one.
        currency: of all amounts.
    """
    heights = [sum(bar.parts.values(), Decimal(0)) for bar in bars]
    others = [
        value for bar in bars for value in (bar.limit, bar.running_total) if value is not None
    ]
    ticks = _ticks(max([*heights, *others]))
    top = ticks[-1] or Decimal(1)
    step = (WIDTH - _LEFT - _RIGHT) / len(bars)
    wide = min(step * 0.7, 48)
    names, foot = _names([bar.label for bar in bars], step)

    def y(amount: Decimal) -> float:
        return _FOOT - float(amount / top) * (_FOOT - _TOP)

    levels = ((y(tick), f"{tick.normalize():f}") for tick in ticks)
    parts = [_legend(bars), *axes.levels(levels, _LEFT, WIDTH - _RIGHT), *names]
    line = []
    for at, bar in enumerate(bars):
        middle = _LEFT + step * (at + 0.5)
        parts.append(_bar(bar, middle - wide / 2, wide, y, currency))
        if bar.limit is not None:
            tooltip = f"{bar.label}: budget {money(bar.limit, currency)}"
            parts.append(
                f'<line class="kb-limit" x1="{middle - wide / 2 - 3:.1f}"'
                f' x2="{middle + wide / 2 + 3:.1f}" y1="{y(bar.limit):.1f}"'
                f' y2="{y(bar.limit):.1f}"><title>{attribute(tooltip)}</title></line>'
            )
        if bar.running_total is not None:
            line.append((middle, y(bar.running_total), bar))
    parts += _running_line(line, currency)
    height = _FOOT + foot
    parts.append(f'<text x="{_LEFT - 6}" y="{_TOP - 12}" text-anchor="end">{currency}</text>')
    return raw(
        f'<div class="kb-chart" data-search-exclude><svg role="img" viewBox="0 0 {WIDTH} {height}"'
        f' aria-label="{attribute(title)}">{"".join(parts)}</svg></div>'
    )


def _names(labels: Sequence[str], step: float) -> tuple[list[str], int]:
    """What stands below the bars, and the room that it takes: in lines where all fit so, else
    turned and, if long, cut in the middle, for names that are alike differ at one of their ends."""
    fit = int(step / _LETTER)
    lines = [
        textwrap.wrap(label, max(fit, 1), break_long_words=False, break_on_hyphens=False)
        for label in labels
    ]
    across = [_LEFT + step * (at + 0.5) for at in range(len(labels))]
    if all(len(parts) <= _LINES and max(map(len, parts), default=0) <= fit for parts in lines):
        drawn = [
            f'<text x="{x:.1f}" y="{_FOOT + _LINE * (number + 1)}" text-anchor="middle">'
            f"{attribute(part)}</text>"
            for x, parts in zip(across, lines, strict=True)
            for number, part in enumerate(parts)
        ]
        return drawn, _LINE * max(map(len, lines), default=1) + 10
    run, fall = math.cos(math.radians(_TURN)), math.sin(math.radians(_TURN))
    # The first names have only the room up to the edge.
    shown = [
        _cut(label, min(_LONGEST, int(x / (_LETTER * run))))
        for x, label in zip(across, labels, strict=True)
    ]
    drawn = [
        f'<text transform="translate({x:.1f} {_FOOT + _LINE}) rotate(-{_TURN})" text-anchor="end">'
        f"{attribute(name)}<title>{attribute(label)}</title></text>"
        for x, name, label in zip(across, shown, labels, strict=True)
    ]
    return drawn, _LINE + math.ceil(_LETTER * fall * max(map(len, shown))) + 4


def _running_line(line: Sequence[tuple[float, float, Bar]], currency: str) -> list[str]:
    """The sum so far; dashed on the way to a bar of which nothing is known, for it is not in it."""
    drawn = [
        f'<polyline class="kb-sofar{" kb-unknown" * bar.is_unknown}"'
        f' points="{x:.1f},{y:.1f} {to_x:.1f},{to_y:.1f}"/>'
        for (x, y, _), (to_x, to_y, bar) in pairwise(line)
    ]
    for x, y, bar in line:
        if not bar.is_unknown:
            tooltip = f"{bar.label}: {money(bar.running_total, currency)} so far"
            drawn.append(
                f'<circle class="kb-sofar" cx="{x:.1f}" cy="{y:.1f}" r="3">'
                f"<title>{attribute(tooltip)}</title></circle>"
            )
    return drawn


def _bar(bar: Bar, left: float, wide: float, y: object, currency: str) -> str:
    assert callable(y)
    drawn = []
    foot = Decimal(0)
    missing = f"; not known: {bar.unknown}" if bar.unknown else ""
    for name, amount in bar.parts.items():
        high = y(foot) - y(foot + amount)
        tooltip = f"{bar.label}: {name} {money(amount, currency)}{missing}"
        drawn.append(
            f'<rect class="kb-{name}" x="{left:.1f}" y="{y(foot + amount):.1f}" width="{wide:.1f}"'
            f' height="{high:.1f}"><title>{attribute(tooltip)}</title></rect>'
        )
        foot += amount
    if bar.is_unknown:
        drawn.append(
            f'<text x="{left + wide / 2:.1f}" y="{y(Decimal(0)) - 4:.1f}" text-anchor="middle">?'
            f"<title>{attribute(f'{bar.label}: not known: {bar.unknown}')}</title></text>"
        )
    return "".join(drawn)


def _legend(bars: Sequence[Bar]) -> str:
    """What the colours mean; only those that are there."""
    entries = [(f"kb-{name}", name) for name in dict.fromkeys(n for bar in bars for n in bar.parts)]
    if any(bar.running_total is not None for bar in bars):
        entries.append(("kb-sofar", "so far"))
    if any(bar.running_total is not None and bar.is_unknown for bar in bars):
        entries.append(("kb-sofar kb-unknown", "nothing known"))
    if any(bar.limit is not None for bar in bars):
        entries.append(("kb-limit", "budget"))
    drawn = []
    x = _LEFT + 8
    for css, name in entries:
        shape = (
            f'<line class="{css}" x1="{x}" x2="{x + 14}" y1="11" y2="11"/>'
            if css.startswith(("kb-sofar", "kb-limit"))
            else f'<rect class="{css}" x="{x}" y="5" width="12" height="12"/>'
        )
        drawn.append(f'{shape}<text x="{x + 18}" y="15">{attribute(name)}</text>')
        x += 34 + 7 * len(name)
    return "".join(drawn)


def _ticks(most: Decimal) -> list[Decimal]:
    """Round figures from 0 up to ``most`` and no further than one step: 1, 2 or 5 times 10ⁿ."""
    if most <= 0:
        return [Decimal(0), Decimal(1)]
    rough = most / _TICKS
    unit = Decimal(1).scaleb(math.floor(rough.log10()))
    step = next(unit * n for n in (1, 2, 5, 10) if unit * n >= rough)
    count = math.ceil(most / step)
    return [step * n for n in range(count + 1)]


def _cut(label: str, most: int) -> str:
    if len(label) <= most:
        return label
    end = (most - 1) // 2
    return f"{label[: most - 1 - end].rstrip()}…{label[len(label) - end :].lstrip()}"
