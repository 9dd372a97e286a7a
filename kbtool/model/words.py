"""Words that messages share."""

from __future__ import annotations

import math
from collections.abc import Iterable


def many(count: int, noun: str) -> str:
    """``1 case``, ``2 cases``: a number of things whose plural ends in s."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def listed(names: Iterable[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    *first, last = list(names) or [""]
    return f"{', '.join(first)} and {last}" if first else last


def significant(value: float, digits: int = 3) -> str:
    """``value`` to so many digits, without an exponent where one can do without."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    places = digits - 1 - math.floor(math.log10(abs(value)))
    if places > 6 or places < -9:
        return f"{value:.{digits - 1}e}"
    shown = round(value, places)
    if abs(shown) >= 10.0 ** (digits - places):
        places -= 1  # it was rounded up to a power of ten, which has a digit more
    return f"{shown:,.{max(places, 0)}f}"


def counted(value: float) -> str:
    """A figure that may be a count, a size or a limit: whole numbers in full."""
    return f"{value:,.0f}" if float(value).is_integer() else significant(value)
