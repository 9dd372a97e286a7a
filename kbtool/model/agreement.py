"""Compares a figure as a record states it with the figure that comes out."""

from __future__ import annotations

from fractions import Fraction

from kbtool.model.base import Quantity
from kbtool.model.figures import Figure, Span, WrongUnits, hull, stated
from kbtool.model.units import name_of, same_kind


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
    return _meet(hull(wanted), hull(derived))


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
