"""What a time costs at a rate: exact, to the cent only at the end.

No Pydantic here: a prompt that shows the burn rate must not wait for it.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

from kbtool.model.money import cents, to_cent

if TYPE_CHECKING:
    from kbtool.model.base import Quantity

_HOURS = {"s": Fraction(1, 3600), "min": Fraction(1, 60), "h": Fraction(1), "day": Fraction(24)}
"""Unit of time → hours."""


def currency_of(money: Quantity) -> str:
    """The currency of an amount or of a rate: ``0.20 USD/h`` → ``USD``."""
    return money.unit.partition("/")[0]


def is_exact(figure: Quantity) -> bool:
    """Whether it is one figure, neither a range nor a bound."""
    return figure.high is None and figure.relation == "="


def ends_per_hour(rate: Quantity) -> tuple[Fraction, Fraction]:
    """Money an hour: the two ends of a range, or the one figure twice."""
    hour = _HOURS[rate.unit.partition("/")[2]]
    return Fraction(rate.low) / hour, Fraction(rate.high or rate.low) / hour


def per_hour(rate: Quantity) -> Fraction:
    """Money an hour; the middle of a range."""
    return sum(ends_per_hour(rate), Fraction(0)) / 2


def hours(minutes: Decimal) -> Fraction:
    """Minutes as hours; a third that a decimal cannot hold is a third again."""
    return Fraction(minutes).limit_denominator(10**9) / 60


def price_of(rate: Quantity, minutes: Decimal) -> Decimal:
    """What so many minutes cost, to the cent."""
    return to_cent(per_hour(rate) * hours(minutes))


def require_product(amount: Decimal, rate: Quantity, time: Quantity) -> None:
    """Hold a stated amount against rate × time, at the digits that it was stated to.

    Raises:
        ValueError: it is another; of ranges, it is outside.
    """
    if {rate.relation, time.relation} != {"="}:
        return  # of about or at least so much, every amount may be right
    spent = [hours(end * time.MINUTES[time.unit]) for end in (time.low, time.high or time.low)]
    low, high = (rate * time for rate, time in zip(ends_per_hour(rate), spent, strict=True))
    half = Fraction(Decimal(1).scaleb(int(amount.as_tuple().exponent))) / 2
    if not low - half <= Fraction(amount) <= high + half:
        follows = cents(low) + (f" to {cents(high)}" if high != low else "")
        raise ValueError(
            f"an estimate of {amount} is not {rate} × {time} = {follows}; correct one of the"
            " three, or leave the amount out and it is derived"
        )
