"""Units of figures: what they measure, their scale, and the unit of a product or a quotient."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple


class Unit(NamedTuple):
    """What a figure measures: how many base units one is, and of what."""

    scale: Fraction
    physical: tuple[tuple[str, int], ...]
    """Base unit → power, sorted: s, B, FLOP, currencies."""
    counted: tuple[tuple[str, int], ...]
    """What is counted → power: lines, iter. A bare number may count anything."""


PURE = Unit(Fraction(1), (), ())

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
def unit_product(x: Unit, y: Unit, sign: int) -> Unit:
    """The unit of a product (``sign`` 1) or a quotient (``sign`` -1)."""
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
