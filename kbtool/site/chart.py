"""Charts as inline SVG: colours from the palette, figures from the table beside them.

Every part has a title that says what it is, and no word of a chart enters the search index.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import NamedTuple

from kbtool.site import axes
from kbtool.site.escape import attribute, raw
from kbtool.site.figures import money

WIDTH = 720
SPARK_WIDTH, SPARK_HEIGHT = 96, 24
SPARK_POINTS = 48
"""So many of the newest values a sparkline shows: more would be less than two pixels each."""
_LEFT, _RIGHT, _TOP, _FOOT = 56, 8, 28, 216
_FLAT, _TURNED = 24, 64
"""Room for the names below the bars, where they lie flat and where they are turned."""
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
    sofar: Decimal | None = None
    """The sum of all bars up to this one."""


def sparkline(title: str, values: Sequence[float]) -> str:
    """The course of ``values``, oldest first, small enough for a line of text; the last is marked.

    Values that are not finite are left out; empty where none is left.

    Args:
        title: what they are, for those who do not see it.
        values: in one unit; they span the height, so that a sparkline has no zero.
    """
    shown = [float(value) for value in values if math.isfinite(value)][-SPARK_POINTS:]
    if not shown:
        return ""
    low, high, room = min(shown), max(shown), 3
    step = (SPARK_WIDTH - 2 * room) / max(len(shown) - 1, 1)

    def y(value: float) -> float:
        # Halved, because the distance of two floats may be more than a float can hold.
        share = (value / 2 - low / 2) / (high / 2 - low / 2) if high > low else 0.5
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
    others = [value for bar in bars for value in (bar.limit, bar.sofar) if value is not None]
    ticks = _ticks(max([*heights, *others]))
    top = ticks[-1] or Decimal(1)
    step = (WIDTH - _LEFT - _RIGHT) / len(bars)
    wide = min(step * 0.7, 48)
    flat = all(_LETTER * len(_short(bar.label)) < step for bar in bars)

    def y(amount: Decimal) -> float:
        return _FOOT - float(amount / top) * (_FOOT - _TOP)

    names = ((y(tick), f"{tick.normalize():f}") for tick in ticks)
    parts = [_legend(bars), *axes.levels(names, _LEFT, WIDTH - _RIGHT)]
    line = []
    for at, bar in enumerate(bars):
        middle = _LEFT + step * (at + 0.5)
        parts.append(_bar(bar, middle - wide / 2, wide, y, currency))
        turn, end = ("", "middle") if flat else (" rotate(-35)", "end")
        parts.append(
            f'<text transform="translate({middle:.1f} {_FOOT + 14}){turn}"'
            f' text-anchor="{end}">{attribute(_short(bar.label))}</text>'
        )
        if bar.limit is not None:
            said = f"{bar.label}: box {money(bar.limit, currency)}"
            parts.append(
                f'<line class="kb-limit" x1="{middle - wide / 2 - 3:.1f}"'
                f' x2="{middle + wide / 2 + 3:.1f}" y1="{y(bar.limit):.1f}"'
                f' y2="{y(bar.limit):.1f}"><title>{attribute(said)}</title></line>'
            )
        if bar.sofar is not None:
            line.append((middle, y(bar.sofar), f"{bar.label}: {money(bar.sofar, currency)} so far"))
    if line:
        points = " ".join(f"{x:.1f},{height:.1f}" for x, height, _ in line)
        parts.append(f'<polyline class="kb-sofar" points="{points}"/>')
        parts += [
            f'<circle class="kb-sofar" cx="{x:.1f}" cy="{height:.1f}" r="3">'
            f"<title>{attribute(said)}</title></circle>"
            for x, height, said in line
        ]
    height = _FOOT + (_FLAT if flat else _TURNED)
    parts.append(f'<text x="{_LEFT - 6}" y="{_TOP - 12}" text-anchor="end">{currency}</text>')
    return raw(
        f'<div class="kb-chart" data-search-exclude><svg role="img" viewBox="0 0 {WIDTH} {height}"'
        f' aria-label="{attribute(title)}">{"".join(parts)}</svg></div>'
    )


def _bar(bar: Bar, left: float, wide: float, y: object, currency: str) -> str:
    assert callable(y)
    drawn = []
    foot = Decimal(0)
    missing = f"; not known: {bar.unknown}" if bar.unknown else ""
    for name, amount in bar.parts.items():
        high = y(foot) - y(foot + amount)
        said = f"{bar.label}: {name} {money(amount, currency)}{missing}"
        drawn.append(
            f'<rect class="kb-{name}" x="{left:.1f}" y="{y(foot + amount):.1f}" width="{wide:.1f}"'
            f' height="{high:.1f}"><title>{attribute(said)}</title></rect>'
        )
        foot += amount
    if bar.unknown and not bar.parts:
        drawn.append(
            f'<text x="{left + wide / 2:.1f}" y="{y(Decimal(0)) - 4:.1f}" text-anchor="middle">?'
            f"<title>{attribute(f'{bar.label}: not known: {bar.unknown}')}</title></text>"
        )
    return "".join(drawn)


def _legend(bars: Sequence[Bar]) -> str:
    """What the colours mean; only those that are there."""
    entries = [(f"kb-{name}", name) for name in dict.fromkeys(n for bar in bars for n in bar.parts)]
    if any(bar.sofar is not None for bar in bars):
        entries.append(("kb-sofar", "so far"))
    if any(bar.limit is not None for bar in bars):
        entries.append(("kb-limit", "box"))
    drawn = []
    x = _LEFT + 8
    for css, name in entries:
        shape = (
            f'<line class="{css}" x1="{x}" x2="{x + 14}" y1="11" y2="11"/>'
            if css in {"kb-sofar", "kb-limit"}
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


def _short(label: str) -> str:
    return label if len(label) <= 14 else label[:13].rstrip() + "…"
