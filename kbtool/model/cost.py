"""What a session paid for."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Literal

from pydantic import Field, model_validator

from kbtool.model.base import (
    Cited,
    Duration,
    Money,
    Rate,
    Slug,
    Text,
)
from kbtool.model.price import currency_of, is_exact, price_of, require_product

CostKind = Literal["gpu", "ai", "engineer", "other"]
"""What is paid for."""


class CostLine(Cited):
    """One thing that was paid for. A total is never a line: totals are derived."""

    kind: CostKind
    """What was paid for."""
    id: Slug | None = None
    """A name for references; the kind where it is absent (#costs.gpu)."""
    amount: Money | None = None
    """How much; null, with the reason under `unknown`, where nobody knows. An estimate may leave it
    out: it is then the rate times the duration, or times the session's own time, to the cent."""
    currency: Annotated[str, Field(pattern="^[A-Z]{3}$")] = "USD"
    """Three capitals, as in ISO 4217."""
    basis: Literal["claimed", "estimated", "billed"]
    """claimed: stated by somebody; estimated: from a rate and a time; billed: on an invoice."""
    duration: Duration | None = None
    """The time paid for, where it is stated apart from the session's own."""
    rate: Rate | None = None
    """The price of a unit of time: 0.20 USD/h."""
    rate_id: Slug | None = None
    """The rate in sessions/ledger.yaml that `rate` was taken from."""
    card: str | None = None
    """The card that the line pays for, if not the session's."""
    invoice: Text | None = None
    """The number of the invoice, of a line that is billed."""
    note: str | None = None
    """What the line covers."""

    def stated_minutes(self) -> Decimal | None:
        """The time that it states, if that is a figure to add up."""
        time = self.duration
        return time.minutes if time is not None and time.is_single else None

    @property
    def is_open(self) -> bool:
        """Whether it is an estimate that goes on for as long as the session does."""
        return (
            self.basis == "estimated"
            and self.rate is not None
            and self.duration is None
            and "amount" not in self.model_fields_set
        )

    def settled(self, minutes: Decimal) -> CostLine:
        """An estimate that leaves the amount out, with the one that follows from its rate.

        The amount does not count as stated: it is not among the fields that were set.
        """
        assert self.rate is not None
        values = {**dict(self), "amount": price_of(self.rate, minutes)}
        return CostLine.model_construct(self.model_fields_set, **values)

    @model_validator(mode="after")
    def _estimate_follows_from_rate(self) -> CostLine:
        """An estimate that has a rate and a time is their product."""
        if self.rate_id is not None and self.rate is None:
            raise ValueError(f"rate_id names {self.rate_id!r}: write the rate itself too")
        if self.basis != "estimated":
            return self
        stated = "amount" in self.model_fields_set
        if self.rate is None:
            if not stated:
                raise ValueError("an estimate needs an amount, or a rate to derive it from")
            return self
        if currency_of(self.rate) != self.currency:
            raise ValueError(f"the rate {self.rate} is not in {self.currency}; set currency")
        if not stated:
            time = self.duration
            if not is_exact(self.rate) or (time is not None and not is_exact(time)):
                raise ValueError(
                    "without an amount, an estimate needs one exact rate and one exact duration;"
                    f" it has {self.rate}" + ("" if time is None else f" and {time}")
                )
            if time is not None:
                return self.settled(time.minutes)
        elif self.amount is not None and self.duration is not None:
            require_product(self.amount, self.rate, self.duration)
        return self
