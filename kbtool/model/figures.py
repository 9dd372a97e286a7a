"""Figures as a log states them, to reckon with: exact ends, rounding, ranges, units.

A figure stands for every number that rounds to what is written: ``0.35`` for 0.345 to 0.355. What
is reckoned from such figures is known no better than they are, so all arithmetic is on spans. It is
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
import re
from collections.abc import Callable, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

from kbtool.model.base import Quantity
from kbtool.model.money import half_up

End = Fraction | float
"""A finite end is a fraction, an open one is ±inf; no other float occurs."""

MAX_EXPONENT = 60
"""Figures beyond 10^±60 measure nothing, and are no good to reckon with."""


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


class Unit(NamedTuple):
    """What a figure measures: how many base units one is, and of what."""

    scale: Fraction
    physical: tuple[tuple[str, int], ...]
    """Base unit → power, sorted: s, B, FLOP, currencies."""
    counted: tuple[tuple[str, int], ...]
    """What is counted → power: lines, iter. A bare number may count anything."""


PURE = Unit(Fraction(1), (), ())


class Figure(NamedTuple):
    """A number, or a range whose two ends are known up to their rounding; in base units."""

    low: Span
    high: Span
    unit: Unit

    @property
    def is_range(self) -> bool:
        """Whether two ends are stated, or follow from such."""
        return self.low is not self.high and self.low != self.high


_SCALES: dict[str, tuple[Fraction, str]] = {
    "ns": (Fraction(1, 10**9), "s"),
    "us": (Fraction(1, 10**6), "s"),
    "µs": (Fraction(1, 10**6), "s"),
    "ms": (Fraction(1, 10**3), "s"),
    "s": (Fraction(1), "s"),
    "min": (Fraction(60), "s"),
    "h": (Fraction(3600), "s"),
    "day": (Fraction(86400), "s"),
    "days": (Fraction(86400), "s"),
}
_PURE = {
    "": Fraction(1),
    "1": Fraction(1),
    "×": Fraction(1),
    "x": Fraction(1),
    "%": Fraction(1, 100),
}
_PREFIXED = re.compile(r"([kKMGTP])(i?)(B|FLOPS?|Hz)|B|FLOPS?|Hz")
_POWERS = {"k": 1, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_CURRENCY = re.compile("[A-Z]{3}")


@lru_cache(maxsize=1024)
def unit_of(text: str) -> Unit:
    """A unit as written: ``min``, ``USD/h``, ``GB/s``, ``iter/s``, ``%``, or nothing."""
    scale = Fraction(1)
    physical: dict[str, int] = {}
    counted: dict[str, int] = {}
    for place, part in enumerate(text.split("/")):
        power = -1 if place else 1
        for name in re.split("[·*]", part.strip()):
            factor, base, is_counted = _base(name.strip())
            scale *= factor if power > 0 else 1 / factor
            for each in base:
                powers = counted if is_counted else physical
                powers[each] = powers.get(each, 0) + power
    return Unit(scale, _sorted(physical), _sorted(counted))


def _base(name: str) -> tuple[Fraction, tuple[str, ...], bool]:
    if name in _PURE:
        return _PURE[name], (), False
    if name in _SCALES:
        factor, base = _SCALES[name]
        return factor, (base,), False
    prefixed = _PREFIXED.fullmatch(name)
    if prefixed:
        base = (prefixed[3] or name).removesuffix("S")
        power = _POWERS[prefixed[1]] if prefixed[1] else 0
        factor = Fraction(1024 if prefixed[2] else 1000) ** power
        return factor, (base,), False
    if _CURRENCY.fullmatch(name):
        return Fraction(1), (name,), False
    return Fraction(1), (name.removesuffix("s") if len(name) > 2 else name,), True


def _sorted(powers: dict[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((name, power) for name, power in powers.items() if power))


def is_money(unit: Unit) -> bool:
    """Whether it is an amount of money, or a price by the time."""
    return any(power == 1 and _CURRENCY.fullmatch(name) for name, power in unit.physical)


@lru_cache(maxsize=1 << 16)
def figure_of(quantity: Quantity, added: bool) -> Figure:
    """What an operand stands for; see the module.

    Args:
        quantity: as written.
        added: whether it is an item of a sum, a difference, a comparison: there, amounts of money
            are so many cents.

    Raises:
        NoFigure: it is too large or too small to reckon with.
    """
    unit = unit_of(quantity.unit)
    exact = is_money(unit) and (added or len(unit.physical) > 1)
    return _figure(quantity, unit, whole_is_rounded=False, exact=exact)


@lru_cache(maxsize=1 << 16)
def stated(quantity: Quantity) -> Figure:
    """What a claimed figure stands for: everything that rounds to it.

    Raises:
        NoFigure: it is too large or too small to reckon with.
    """
    return _figure(quantity, unit_of(quantity.unit), whole_is_rounded=True, exact=False)


def _figure(quantity: Quantity, unit: Unit, *, whole_is_rounded: bool, exact: bool) -> Figure:
    ends = []
    for number in (quantity.low, quantity.high):
        if number is not None:
            rounded = not exact and (whole_is_rounded or _exponent(number) < 0)
            ends.append(_span(number, rounded, quantity.relation, unit.scale))
    return Figure(ends[0], ends[-1], unit)


def _span(number: Decimal, is_rounded: bool, relation: str, scale: Fraction) -> Span:
    if abs(number.adjusted()) > MAX_EXPONENT or abs(_exponent(number)) > MAX_EXPONENT:
        raise NoFigure(f"{number} is too large or too small to reckon with")
    at = Fraction(number) * scale
    slack = Fraction(0)
    if relation == "~":
        slack = max(last_digit(number) * scale, abs(at) / 10)
    elif is_rounded and relation == "=":
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
    return Fraction(10) ** _exponent(number)


def _exponent(number: Decimal) -> int:
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
    return _combine(_minus, x, y, common_unit(x, y, "held against"))


def multiply(x: Figure, y: Figure) -> Figure:
    """x × y."""
    return _combine(_times, x, y, _powers(x.unit, y.unit, 1))


def divide(x: Figure, y: Figure) -> Figure:
    """x ÷ y.

    Raises:
        NoFigure: y is zero, or may be on either side of it.
    """
    if y.low.low < 0 < y.high.high:
        raise NoFigure("it divides by what may be zero")
    return _combine(_over, x, y, _powers(x.unit, y.unit, -1))


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
        unit = common_unit(figures[0], figure, "held against")
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


def same_kind(x: Unit, y: Unit) -> bool:
    """Whether they measure the same; a bare number may count anything."""
    if x.physical != y.physical:
        return False
    return not (x.counted and y.counted) or x.counted == y.counted


def name_of(unit: Unit) -> str:
    """A unit in words: ``USD/s``, ``a bare number``."""
    powers = [*unit.physical, *unit.counted]
    above = "·".join(name for name, power in powers for _ in range(power))
    below = "".join(f"/{name}" for name, power in powers for _ in range(-power))
    return f"{above or ('1' if below else '')}{below}" or "a bare number"


@lru_cache(maxsize=1024)
def _powers(x: Unit, y: Unit, sign: int) -> Unit:
    if not (y.physical or y.counted):
        return x
    if not (x.physical or x.counted) and sign > 0:
        return y
    merged = []
    for mine, other in ((x.physical, y.physical), (x.counted, y.counted)):
        powers = dict(mine)
        for name, power in other:
            powers[name] = powers.get(name, 0) + sign * power
        merged.append(_sorted(powers))
    return Unit(Fraction(1), *merged)


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


def agrees(claimed: Quantity, derived: Figure) -> bool:
    """Whether what is claimed and what comes out can be the same.

    Of two ranges each end is held against its own. A range and a single figure agree where the one
    lies in the other. A bound (``>0``) holds if what comes out can be on its side of it. Two spans
    that only touch do not meet: both figures would have to lie on the edge of their rounding; nor
    does ``<5`` reach ``>=5``.

    Raises:
        WrongUnits: they measure different things.
        NoFigure: the claimed figure is too large or too small.
    """
    wanted = stated(claimed)
    if not same_kind(wanted.unit, derived.unit):
        raise WrongUnits(f"stated in {name_of(wanted.unit)}, comes out in {name_of(derived.unit)}")
    if claimed.relation == ">":
        return derived.high.high > wanted.low.at
    if claimed.relation == ">=":
        return derived.high.high > wanted.low.at or (
            derived.high.high == wanted.low.at and not derived.high.open_high
        )
    if claimed.relation == "<":
        return derived.low.low < wanted.high.at
    if claimed.relation == "<=":
        return derived.low.low < wanted.high.at or (
            derived.low.low == wanted.high.at and not derived.low.open_low
        )
    if wanted.is_range and derived.is_range:
        return _meet(wanted.low, derived.low) and _meet(wanted.high, derived.high)
    return _meet(_hull(wanted), _hull(derived))


def _hull(figure: Figure) -> Span:
    low, high = figure.low, figure.high
    return Span(low.low, low.at, high.high, low.open_low, high.open_high)


def _meet(wanted: Span, derived: Span) -> bool:
    if derived.low == derived.high or wanted.low == wanted.high:
        return wanted.low <= derived.high and derived.low <= wanted.high
    return wanted.low < derived.high and derived.low < wanted.high


def sign_turns(claimed: Quantity, derived: Figure) -> bool:
    """Whether one is above zero and the other below."""
    ends = (claimed.low, claimed.low if claimed.high is None else claimed.high)
    above, below = min(ends) > 0, max(ends) < 0
    return (above and derived.high.at < 0) or (below and derived.low.at > 0)


_FACTORS: dict[Fraction, str] = {
    Fraction(60): "as minutes for seconds, or hours for minutes",
    Fraction(3600): "as hours for seconds",
    Fraction(1024): "as binary for decimal bytes",
}


def off_by(claimed: Quantity, derived: Figure) -> str | None:
    """How a figure is wrong that is wrong by a whole factor: an order of magnitude, a unit."""
    wanted = stated(claimed)
    if wanted.low.at <= 0 or derived.low.at <= 0:
        return None
    ratio = wanted.low.at / derived.low.at
    larger = ratio if ratio > 1 else 1 / ratio
    than = "as much as" if ratio > 1 else "of"
    for power in range(1, 16):
        if abs(larger / 10**power - 1) < Fraction(3, 100):
            share = f"{10**power:,} times" if ratio > 1 else f"a {10**power:,}th"
            return f"an order of magnitude: {share} {than} what comes out"
    for factor, guess in _FACTORS.items():
        if abs(larger / factor - 1) < Fraction(3, 100):
            share = f"{factor} times" if ratio > 1 else f"a {factor}th"
            return f"{share} {than} what comes out, {guess}"
    if larger >= 5:
        share = f"{float(larger):.3g} times" if ratio > 1 else f"1/{float(larger):.3g}"
        return f"{share} {than} what comes out"
    return None


def text_of(figure: Figure, like: Quantity) -> str:
    """What comes out, in the unit of the claim, with two digits more than it has."""
    unit = unit_of(like.unit)
    if not same_kind(unit, figure.unit):
        unit, name = Unit(Fraction(1), figure.unit.physical, ()), name_of(figure.unit)
    else:
        name = like.unit
    places = [max(0, -_exponent(number)) for number in (like.low, like.high) if number is not None]
    kept = max(places)
    ends = [
        _decimal(span.at / unit.scale, kept, kept + 2)
        for span in ((figure.low, figure.high) if figure.is_range else (figure.low,))
    ]
    said = f"{_relation(figure)}{'..'.join(ends)}"
    return f"{said} {name}".strip() if name != "a bare number" else said


def margin_of(figure: Figure, like: Quantity) -> str | None:
    """The ends between which a rounded result lies; ``None`` where it is exact or a bound."""
    hull = _hull(figure)
    unit = unit_of(like.unit)
    ends = (hull.low, hull.high)
    if hull.low == hull.high or figure.is_range or not same_kind(unit, figure.unit):
        return None
    if any(isinstance(end, float) for end in ends):
        return None
    kept = max(0, -_exponent(like.low))
    low, high = (_decimal(Fraction(end) / unit.scale, kept, kept + 2) for end in ends)
    return None if low == high else f"{low} and {high}"


def _relation(figure: Figure) -> str:
    if figure.low.open_low:
        return "> "
    if isinstance(figure.high.high, float):
        return ">= "
    if figure.high.open_high:
        return "< "
    return "<= " if figure.low.low != figure.low.at and isinstance(figure.low.low, float) else ""


def _decimal(number: Fraction, kept: int, places: int) -> str:
    """``number`` with at most so many places, at least ``kept``, more where it would be zero."""
    if number and abs(number) < Fraction(1, 10**places):
        places += len(str(int(1 / abs(number)))) - places + 1
    whole_part, _, part = f"{half_up(number, places):f}".partition(".")
    part = part[:kept] + part[kept:].rstrip("0")
    return f"{whole_part}{'.' if part else ''}{part}"


def _product_of(factors: Sequence[Figure]) -> Figure:
    result = factors[0]
    for factor in factors[1:]:
        result = multiply(result, factor)
    return result


def _share(part: Figure, base: Figure) -> Figure:
    common_unit(part, base, "held against")
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
