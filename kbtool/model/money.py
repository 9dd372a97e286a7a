"""Money: computed exactly, rounded and written here alone. Half a cent and more is a cent.

``tests/ledger/test_money.py`` holds that no other module that handles money rounds a figure.
No Pydantic here: a prompt that shows the burn rate must not wait for it.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction


def half_up(value: Fraction | Decimal, places: int = 2) -> Decimal:
    """``value`` to so many decimal places; a half goes away from zero.

    Decimals and fractions both come as they are: no digit is lost before the one that is rounded.
    """
    nearest = int(abs(Fraction(value)) * 10**places + Fraction(1, 2))
    return Decimal(f"{-nearest if value < 0 else nearest}e{-places}")


def to_cent(amount: Fraction | Decimal) -> Decimal:
    """An amount to the cent."""
    return half_up(amount, 2)


def amount_text(amount: Decimal, *, grouped: bool = False) -> str:
    """An amount with every digit that was stated, two at least: ``1.50``, ``0.125``.

    Args:
        amount: the amount; nothing is rounded.
        grouped: whether thousands are set apart, as for people: ``1,234.50``.
    """
    places = max(2, -int(amount.as_tuple().exponent))
    return f"{amount:{',' if grouped else ''}.{places}f}"


def amount_json(amount: Decimal | None) -> str | None:
    """``amount_text`` of an amount that may be unknown: JSON has null for it."""
    return None if amount is None else amount_text(amount)


def cents(amount: Fraction | Decimal) -> str:
    """An amount to the cent, as text: ``0.13``."""
    return amount_text(to_cent(amount))


def hourly(rate: Fraction) -> str:
    """Money an hour: to the cent, or to a hundredth of it where that says more: ``0.0125``."""
    return amount_text(half_up(rate, 4)).removesuffix("00")
