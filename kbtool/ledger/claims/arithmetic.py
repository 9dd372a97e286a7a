"""The arithmetic of derivations: the figure that follows from their operands."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from fractions import Fraction
from typing import Any

from kbtool.ledger.claims.operands import Operands, Unknown
from kbtool.ledger.claims.words import shown
from kbtool.model import figures
from kbtool.model.base import Instant
from kbtool.model.claim import Derivation
from kbtool.model.figures import OPERATIONS, Figure, Span
from kbtool.model.units import Unit


def derive(
    lookup: Operands, how: str, of: Sequence[Any], where: Mapping[str, str] | None = None
) -> Figure:
    """The figure that follows.

    Args:
        lookup: finds the operands.
        how: the operation.
        of: its operands.
        where: of a count, which things.

    Raises:
        Unknown: an operand is not known, or is no figure.
        WrongUnits: the operands cannot be combined.
        NoFigure: nothing comes out: it divides by zero.
    """
    if how == "count":
        things = [thing for operand in of for thing in lookup.things(operand)]
        return figures.whole(sum(has_fields(thing, where or {}) for thing in things))
    if how == "elapsed":
        return _elapsed(lookup, of)
    operands: list[Figure] = []
    for operand in of:
        if not isinstance(operand, str) and isinstance(operand, Derivation):
            operands.append(derive(lookup, operand.how, operand.of))
        else:
            operands += lookup.figures(operand, how)
    if not operands:
        raise Unknown("an empty list has no figures")
    return OPERATIONS[how](operands)


def _elapsed(lookup: Operands, of: Sequence[Any]) -> Figure:
    earlier, later = (lookup.moment(operand) for operand in of)
    at = _seconds(since(later, earlier))
    # A clock read to the minute may be up to a minute behind.
    slack = max(_resolution(earlier), _resolution(later))
    span = Span(at - slack, at, at + slack)
    return Figure(span, span, Unit(Fraction(1), (("s", 1),), ()))


def has_fields(thing: Any, where: Mapping[str, str]) -> bool:
    """Whether the fields of a thing are what ``where`` says.

    Raises:
        Unknown: it does not say one of them.
    """
    fields = {name: getattr(thing, name, None) for name in where}
    for name, value in fields.items():
        if value is None:
            raise Unknown(f"{shown(thing)} does not say its {name}")
    return all(str(value) == where[name] for name, value in fields.items())


def since(later: Instant, earlier: Instant) -> timedelta:
    """The time from one moment to another.

    Raises:
        Unknown: only one of them names its zone.
    """
    passed = later.since(earlier)
    if passed is None:
        raise Unknown(f"of {earlier} and {later} one has no zone")
    return passed


def _seconds(passed: timedelta) -> Fraction:
    return Fraction(passed // timedelta(microseconds=1), 10**6)


def _resolution(moment: Instant) -> Fraction:
    """The unit of a clock's last figure: a minute, or a second and less."""
    return Fraction(60) if re.fullmatch(r".{10}.\d\d:?\d\d([Z+-].*)?", moment.text) else Fraction(1)
