"""Writes a figure that comes out, with the digits and the unit of the one that is stated."""

from __future__ import annotations

from fractions import Fraction

from kbtool.model.base import Quantity
from kbtool.model.figures import Figure, exponent_of, hull
from kbtool.model.money import half_up
from kbtool.model.units import Unit, name_of, same_kind, unit_of


def text_of(figure: Figure, like: Quantity) -> str:
    """What comes out, in the unit of the claim, with two digits more than it has; with a plus where
    the claim has one."""
    unit = unit_of(like.unit)
    if not same_kind(unit, figure.unit):
        unit, name = Unit(Fraction(1), figure.unit.physical, ()), name_of(figure.unit)
    else:
        name = like.unit
    places = [
        max(0, -exponent_of(number)) for number in (like.low, like.high) if number is not None
    ]
    kept = max(places)
    plus = "+" if like.text.lstrip("~<>= ").startswith("+") else ""
    ends = [
        plus * (span.at > 0) + _decimal(span.at / unit.scale, kept, kept + 2)
        for span in ((figure.low, figure.high) if figure.is_range else (figure.low,))
    ]
    text = f"{_relation(figure)}{'..'.join(ends)}"
    return f"{text} {name}".strip() if name != "a bare number" else text


def margin_of(figure: Figure, like: Quantity) -> str | None:
    """The ends between which a rounded result lies; ``None`` where it is exact or a bound."""
    whole = hull(figure)
    unit = unit_of(like.unit)
    ends = (whole.low, whole.high)
    if whole.low == whole.high or figure.is_range or not same_kind(unit, figure.unit):
        return None
    if any(isinstance(end, float) for end in ends):
        return None
    kept = max(0, -exponent_of(like.low))
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
