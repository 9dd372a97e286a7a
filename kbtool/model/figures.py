"""Figures as a log states them, to compute with: exact ends, rounding, ranges, units.

A figure stands for every number that rounds to what is written: ``0.35`` for 0.345 to 0.355. What
is computed from such figures is known no better than they are, so all arithmetic is on spans. It is
exact (fractions), so that a figure on the very edge of its rounding is judged rightly.

What an operand stands for is decided once, here:

- A figure with decimals stands for what rounds to it.
- A whole number stands for itself: counts, and times as a clock or a plan has them.
- A price by the hour stands for itself.
- An amount of money is so many cents where amounts are added up, as a column is; in a quotient it
  may have been rounded before, as a percentage is taken of what was not yet rounded.
- A bound stands for all on its side; ``<`` and ``>`` leave the bound itself out. It is not rounded.
- ``~`` stands for a tenth more or less, at least for one unit of the last digit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

from kbtool.model.base import Quantity
from kbtool.model.units import PURE, Unit, is_money, name_of, same_kind, unit_of, unit_product

End = Fraction | float
"""A finite end is a fraction, an open one is ±inf; no other float occurs."""

MAX_EXPONENT = 60
"""Figures beyond 10^±60 measure nothing, and cannot be computed with."""


class NoFigure(Exception):  # noqa: N818 - an answer, not an error
    """Nothing comes out; the message says why."""


class WrongUnits(Exception):  # noqa: N818
    """Figures that cannot be added up or held against each other; the message names the units."""


class Span(NamedTuple):
    """What a number may be, and what it is as written."""

    low: End
    at: Fraction
    high: End
    open_low: bool = False
    """Whether ``low`` itself is left out, as by ``>``."""
    open_high: bool = False
    """Whether ``high`` itself is left out, as by ``<``."""


class Figure(NamedTuple):
    """A number, or a range whose two ends are known up to their rounding; in base units."""

    low: Span
    high: Span
    unit: Unit

    @property
    def is_range(self) -> bool:
        """Whether two ends are stated, or follow from such."""
        return self.low is not self.high and self.low != self.high


@lru_cache(maxsize=1 << 16)
def figure_of(quantity: Quantity, added: bool) -> Figure:
    """What an operand stands for; see the module.

    Args:
        quantity: as written.
        added: whether it is an item of a sum, a difference, a comparison: there, amounts of money
            are so many cents.

    Raises:
        NoFigure: it is too large or too small to compute with.
    """
    unit, money = _unit_of(quantity.unit)
    exact = money and (added or len(unit.physical) > 1)
    return _figure(quantity, unit, whole_is_rounded=False, exact=exact)


@lru_cache(maxsize=1024)
def _unit_of(text: str) -> tuple[Unit, bool]:
    """A unit, and whether it is of money."""
    unit = unit_of(text)
    return unit, is_money(unit)


@lru_cache(maxsize=1 << 16)
def stated(quantity: Quantity) -> Figure:
    """What a claimed figure stands for: everything that rounds to it.

    Raises:
        NoFigure: it is too large or too small to compute with.
    """
    return _figure(quantity, unit_of(quantity.unit), whole_is_rounded=True, exact=False)


def _figure(quantity: Quantity, unit: Unit, *, whole_is_rounded: bool, exact: bool) -> Figure:
    ends = []
    for number in (quantity.low, quantity.high):
        if number is not None:
            rounded = not exact and (whole_is_rounded or exponent_of(number) < 0)
            ends.append(_span(number, rounded, quantity.relation, unit.scale))
    return Figure(ends[0], ends[-1], unit)


def _span(number: Decimal, is_rounded: bool, relation: str, scale: Fraction) -> Span:
    if abs(number.adjusted()) > MAX_EXPONENT or abs(exponent_of(number)) > MAX_EXPONENT:
        raise NoFigure(f"{number} is too large or too small to compute with")
    at = Fraction(number) if scale == 1 else Fraction(number) * scale
    if relation == "=" and not is_rounded:
        return _exact(at)
    slack = Fraction(0)
    if relation == "~":
        slack = max(last_digit(number) * scale, abs(at) / 10)
    elif relation == "=":
        slack = last_digit(number) * scale / 2
    low: End = at - slack if slack else at
    high: End = at + slack if slack else at
    if relation in {">", ">="}:
        high = math.inf
    elif relation in {"<", "<="}:
        low = Fraction(0) if at > 0 else -math.inf
    return Span(low, at, high, relation == ">", relation == "<")


def last_digit(number: Decimal) -> Fraction:
    """One unit of the last digit written: a hundredth for ``0.35``."""
    return Fraction(10) ** exponent_of(number)


def exponent_of(number: Decimal) -> int:
    """The power of ten of the last digit."""
    return int(number.as_tuple().exponent)


def add(x: Figure, y: Figure) -> Figure:
    """x + y, of one kind.

    Raises:
        WrongUnits: they are not.
    """
    return _combine(_plus, x, y, common_unit(x, y, "added to"))


def subtract(x: Figure, y: Figure) -> Figure:
    """x − y, of one kind.

    Raises:
        WrongUnits: they are not.
    """
    return _combine(_minus, x, y, common_unit(x, y, "compared with"))


def multiply(x: Figure, y: Figure) -> Figure:
    """x × y."""
    return _combine(_times, x, y, unit_product(x.unit, y.unit, 1))


def divide(x: Figure, y: Figure) -> Figure:
    """x ÷ y.

    Raises:
        NoFigure: y is zero, or may be on either side of it.
    """
    if y.low.low < 0 < y.high.high:
        raise NoFigure("it divides by what may be zero")
    return _combine(_over, x, y, unit_product(x.unit, y.unit, -1))


def whole(number: int) -> Figure:
    """A count."""
    span = _exact(Fraction(number))
    return Figure(span, span, PURE)


def money(amount: Decimal, currency: str) -> Figure:
    """An item of a column of money: so many cents."""
    span = _exact(Fraction(amount))
    return Figure(span, span, unit_of(currency))


def total(figures: Sequence[Figure]) -> Figure:
    """The sum of figures of one kind."""
    result = figures[0]
    if all(f.unit == result.unit and f.low is f.high and f.low.low is f.low.high for f in figures):
        # Exact figures of one unit, as a column of costs: a third of the time.
        scale = math.lcm(*(figure.low.at.denominator for figure in figures))
        numerators = (f.low.at.numerator * (scale // f.low.at.denominator) for f in figures)
        span = _exact(Fraction(sum(numerators), scale))
        return Figure(span, span, result.unit)
    for figure in figures[1:]:
        result = add(result, figure)
    return result


def arithmetic_mean(figures: Sequence[Figure]) -> Figure:
    """The sum over how many."""
    return divide(total(figures), whole(len(figures)))


def harmonic_mean(figures: Sequence[Figure]) -> Figure:
    """How many over the sum of the reciprocals."""
    one = whole(1)
    return divide(whole(len(figures)), total([divide(one, figure) for figure in figures]))


def geometric_mean(figures: Sequence[Figure]) -> Figure:
    """The root of the product.

    Raises:
        NoFigure: one of them may be zero or less.
    """
    result = figures[0]
    for figure in figures[1:]:
        result = multiply(result, figure)
        common_unit(figures[0], figure, "averaged with")
    degree = len(figures)
    low, high = (
        span._replace(
            low=_root(span.low, degree),
            at=Fraction(_root(span.at, degree)),
            high=_root(span.high, degree),
        )
        for span in (result.low, result.high)
    )
    return Figure(low, high, figures[0].unit)


def _root(number: End, degree: int) -> End:
    if number <= 0:
        raise NoFigure("a geometric mean is of figures above zero")
    if isinstance(number, float):
        return number
    with localcontext(prec=60):  # far beyond any rounding that a log states
        quotient = Decimal(number.numerator) / Decimal(number.denominator)
        return Fraction(quotient ** (Decimal(1) / degree))


def extreme(figures: Sequence[Figure], pick: Callable[..., End]) -> Figure:
    """The least (``min``) or the largest (``max``) of figures of one kind."""
    unit = figures[0].unit
    for figure in figures[1:]:
        unit = common_unit(figures[0], figure, "compared with")
    low = _each(pick, [figure.low for figure in figures])
    high = _each(pick, [figure.high for figure in figures])
    return Figure(low, high, unit)


def common_unit(x: Figure, y: Figure, what: str) -> Unit:
    """The unit of two figures of one kind.

    Raises:
        WrongUnits: they are of two.
    """
    if not same_kind(x.unit, y.unit):
        raise WrongUnits(f"{name_of(x.unit)} cannot be {what} {name_of(y.unit)}")
    return x.unit if x.unit.counted else y.unit


def _combine(operation: Callable[[Span, Span], Span], x: Figure, y: Figure, unit: Unit) -> Figure:
    if x.low is x.high and y.low is y.high:
        span = operation(x.low, y.low)
        return Figure(span, span, unit)
    corners = [operation(one, other) for one in (x.low, x.high) for other in (y.low, y.high)]
    return Figure(_each(min, corners), _each(max, corners), unit)


def _each(pick: Callable[..., Any], spans: Sequence[Span]) -> Span:
    """The least, or the largest, of each of the three numbers of some spans."""
    low = pick(span.low for span in spans)
    high = pick(span.high for span in spans)
    return Span(
        low,
        pick(span.at for span in spans),
        high,
        all(span.open_low for span in spans if span.low == low),
        all(span.open_high for span in spans if span.high == high),
    )


def _exact(number: Fraction) -> Span:
    # One object three times: that a span is a point is seen without a comparison.
    return Span(number, number, number)


def _plus(x: Span, y: Span) -> Span:
    if x.low is x.high and y.low is y.high:
        return _exact(x.at + y.at)
    open_ends = x.open_low or y.open_low, x.open_high or y.open_high
    return Span(_sum(x.low, y.low), x.at + y.at, _sum(x.high, y.high), *open_ends)


def _minus(x: Span, y: Span) -> Span:
    open_ends = x.open_low or y.open_high, x.open_high or y.open_low
    return Span(_sum(x.low, -y.high), x.at - y.at, _sum(x.high, -y.low), *open_ends)


def _times(x: Span, y: Span) -> Span:
    at = x.at * y.at
    if x.low is x.high and y.low is y.high:
        return _exact(at)
    if not (x.open_low or x.open_high or y.open_low or y.open_high):
        ends = [_product(a, b) for a in (x.low, x.high) for b in (y.low, y.high)]
        return Span(min(ends), at, max(ends))
    # Each corner, and whether it is left out; of two alike, one that is not.
    corners = [
        (_product(a, b), (a_open and b != 0) or (b_open and a != 0))
        for a, a_open in ((x.low, x.open_low), (x.high, x.open_high))
        for b, b_open in ((y.low, y.open_low), (y.high, y.open_high))
    ]
    low = min(corners)
    high = max(corners, key=lambda corner: (corner[0], not corner[1]))
    return Span(low[0], at, high[0], low[1], high[1])


def _over(x: Span, y: Span) -> Span:
    if y.at == 0:
        raise NoFigure("it divides by zero")
    ends = _inverse(y.high, y.at), 1 / y.at, _inverse(y.low, y.at)
    inverse = Span(*ends, y.open_high, y.open_low)
    return _times(x, inverse)


def _sum(a: End, b: End) -> End:
    return a if isinstance(a, float) else b if isinstance(b, float) else a + b


def _product(a: End, b: End) -> End:
    if isinstance(a, float) or isinstance(b, float):
        return Fraction(0) if 0 in (a, b) else math.inf if (a > 0) == (b > 0) else -math.inf
    return a * b


def _inverse(end: End, at: Fraction) -> End:
    if isinstance(end, float):
        return Fraction(0)
    if end == 0:
        return math.inf if at > 0 else -math.inf
    return 1 / end


def hull(figure: Figure) -> Span:
    """The span from the lower end of a figure to its upper end."""
    low, high = figure.low, figure.high
    return Span(low.low, low.at, high.high, low.open_low, high.open_high)


def _product_of(factors: Sequence[Figure]) -> Figure:
    result = factors[0]
    for factor in factors[1:]:
        result = multiply(result, factor)
    return result


def _share(part: Figure, base: Figure) -> Figure:
    common_unit(part, base, "compared with")
    return divide(part, base)._replace(unit=PURE)


OPERATIONS: dict[str, Callable[[Sequence[Figure]], Figure]] = {
    "sum": total,
    "difference": lambda f: subtract(f[0], f[1]),
    "product": _product_of,
    "ratio": lambda f: divide(f[0], f[1]),
    "percent": lambda f: _share(f[0], f[1]),
    # Each operand occurs once, so that a span grows no wider than it has to.
    "change": lambda f: subtract(_share(f[0], f[1]), whole(1)),
    "saving": lambda f: subtract(whole(1), _share(f[0], f[1])),
    "mean": arithmetic_mean,
    "geometric_mean": geometric_mean,
    "harmonic_mean": harmonic_mean,
    "minimum": lambda f: extreme(f, min),
    "maximum": lambda f: extreme(f, max),
    "same": lambda f: f[0],
}
"""The operations of claims that come to a figure and need nothing but figures."""

ADDED = frozenset(
    ("sum", "difference", "minimum", "maximum", "same", "mean", "geometric_mean", "harmonic_mean")
)
"""Operations in which an amount of money is so many cents."""
