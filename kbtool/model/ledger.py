"""The ledger: what things cost by the hour, as stated, and what a month may cost."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from kbtool.model.base import (
    Amount,
    Cited,
    Duration,
    ExactDuration,
    Likelihood,
    Model,
    Rate,
    Slug,
    SourceFile,
)
from kbtool.model.cost import CostKind
from kbtool.model.price import is_exact
from kbtool.model.session import Purchase


def _is_a_day(text: str) -> str:
    try:
        date.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is no day: {error}") from None
    return text


Day = Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$"), AfterValidator(_is_a_day)]
"""A calendar day, YYYY-MM-DD."""
Month = Annotated[str, Field(pattern=r"^\d{4}-(0[1-9]|1[0-2])$")]
"""A calendar month, YYYY-MM."""


class Statement(Cited):
    """One more place that states a price."""

    day: Day
    """The day of the statement."""


class Price(Cited):
    """What something costs by the hour, as somebody stated it; never worked out from a total."""

    id: Slug
    """A name for `--rate` and for cost lines."""
    kind: CostKind
    """What is paid for."""
    rate: Rate
    """The price of a unit of time: 0.20 USD/h."""
    day: Day
    """The day on which it was stated, or read."""
    until: Day | None = None
    """The last day on which it holds, once another has replaced it."""
    card: str | None = None
    """Of a GPU: the card."""
    purchase: Purchase | None = None
    """Of a GPU: how it is paid for."""
    provider: str | None = None
    """Who asks for it."""
    stated_again: list[Statement] = []
    """Other places that state the same price."""
    note: str | None = None
    """What the price covers."""

    @model_validator(mode="after")
    def _is_one_price(self) -> Self:
        if not is_exact(self.rate):
            raise ValueError(f"rate: {self.rate} is no single price; give each its own entry")
        if self.until is not None and self.until < self.day:
            raise ValueError(f"until {self.until} is before {self.day}, the day it was stated")
        return self


class MonthBudget(Model):
    """What a month may cost, in money and in time."""

    month: Month
    """The month, YYYY-MM."""
    money: Amount | None = None
    """The limit of money; of a range, its upper end."""
    time: ExactDuration | None = None
    """The limit of time."""

    @model_validator(mode="after")
    def _has_a_limit(self) -> Self:
        if self.money is None and self.time is None:
            raise ValueError(f"the budget of {self.month} has neither money nor time")
        return self


class KeepOrStop(Model):
    """What `kbtool keep-or-stop` takes where its options are not given."""

    rate: Slug | None = None
    """The rate of the card, by its id."""
    people: list[Slug] = []
    """The rates of all who wait while a card starts again, by their ids."""
    restart: Duration | None = None
    """Minutes from stopped to working again."""
    restart_cost: Amount | None = None
    """What else a restart costs: finding the thread of the work again."""
    preemption: Likelihood | None = None
    """The chance that a card that is kept is taken away before the work goes on."""
    preemption_cost: Amount | None = None
    """What that costs beside the restart."""


class Ledger(Model):
    """Prices by the hour, and the budgets of months."""

    sources: dict[Slug, SourceFile] = {}
    """The documents that prices are cited from, by a short name."""
    rates: list[Price] = []
    """Prices, as stated."""
    budgets: list[MonthBudget] = []
    """What a month may cost."""
    keep_or_stop: KeepOrStop | None = None
    """Defaults of `kbtool keep-or-stop`."""
    unknown: dict[str, Annotated[str, Field(min_length=1)]] = {}
    """Path of a null → why nobody knows."""

    @model_validator(mode="after")
    def _names_are_known(self) -> Self:
        months = [budget.month for budget in self.budgets]
        twice = next((month for month in months if months.count(month) > 1), None)
        if twice is not None:
            raise ValueError(f"budgets: {twice} has two; keep one")
        if self.keep_or_stop is not None:
            card, people = self.keep_or_stop.rate, self.keep_or_stop.people
            for key, name in [("rate", card), *(("people", one) for one in people)]:
                price = None if name is None else self.price(name)
                if name is not None and price is None:
                    raise ValueError(f"keep_or_stop: there is no rate {name!r}")
                if price is not None and (price.kind == "gpu") != (key == "rate"):
                    takes = "takes the rate of a card" if key == "rate" else "takes no card"
                    raise ValueError(
                        f"keep_or_stop.{key} {takes} (kind: gpu), and {name} is one of {price.kind}"
                    )
        return self

    def price(self, name: str) -> Price | None:
        """The price of this id, or ``None``."""
        return next((price for price in self.rates if price.id == name), None)

    def budget(self, month: str) -> MonthBudget | None:
        """The budget of a month, or ``None``."""
        return next((budget for budget in self.budgets if budget.month == month), None)
