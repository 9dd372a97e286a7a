"""A session as far as time and money go: plain data, which a cache can keep.

Sums of many sessions and a shell prompt need not wait for the models. ``Sitting`` and ``Line`` have
the names of ``Session`` and ``CostLine`` where both have a thing, so that sums take either.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from kbtool.model.session import Session


class Line(NamedTuple):
    """A cost line."""

    kind: str
    currency: str
    amount: Decimal | None
    """``None`` if it is not known, or not yet."""
    per_hour: str | None
    """Of a line that goes on for as long as the session does: its price, as a fraction."""
    card: str | None
    minutes: Decimal | None
    """See ``stated_minutes``."""

    def stated_minutes(self) -> Decimal | None:
        """See ``CostLine.stated_minutes``."""
        return self.minutes


class Sitting(NamedTuple):
    """A session, as far as time and money go."""

    id: str
    label: str
    status: str
    day: str | None
    minutes: Decimal | None
    """How long it took; ``None`` while it runs, or if nobody knows."""
    stretches: list[tuple[str, str | None]]
    """Its times of work, as ISO 8601."""
    costs: list[Line]
    box_minutes: str | None
    box_money: str | None
    box_currency: str | None
    follows: str | None
    seconds: float | None
    """See ``began``."""
    engineer: str | None
    card: str | None
    """That of its environment, as stated."""
    patterns: list[str]
    kernels: list[str]

    def card_of(self, stated: str | None = None) -> str | None:
        """See ``Session.card_of``."""
        return plain_card(stated or self.card)

    def began(self) -> float | None:
        """See ``Session.began``."""
        return self.seconds

    def named_patterns(self) -> list[str]:
        """See ``Session.named_patterns``."""
        return self.patterns


S = TypeVar("S", "Session", Sitting)
"""What functions that need no more than a sitting take and give back."""


def plain_card(card: str | None) -> str | None:
    """A card by one name: logs say L4, drivers NVIDIA L4; ``None`` for none."""
    return card.removeprefix("NVIDIA ") if card and card != "none" else None


def sitting_of(session: Session) -> Sitting:
    """What a session says of time and money."""
    from kbtool.model.price import currency_of, per_hour

    lines = [
        Line(
            line.kind, line.currency, line.amount,
            str(per_hour(line.rate)) if line.is_open and line.rate is not None else None,
            line.card, line.stated_minutes(),
        )
        for line in session.costs
    ]  # fmt: skip
    times = [(stretch.started, stretch.ended) for stretch in session.stretches]
    if not times and session.started is not None:
        times = [(session.started, session.ended)]
    stretches = [(began.text, None if ended is None else ended.text) for began, ended in times]
    time, money = session.budget_time, session.budget_money
    return Sitting(
        session.id, session.label, session.status, session.day, session.minutes, stretches, lines,
        None if time is None else str((time.high or time.low) * time.MINUTES[time.unit]),
        None if money is None else str(money.high or money.low),
        None if money is None else currency_of(money),
        session.follows, session.began(), session.engineer,
        session.environment.card if session.environment else None,
        session.named_patterns(), list(session.kernels),
    )  # fmt: skip


def to_json(one: Sitting) -> list[Any]:
    """A sitting as JSON data: its decimals as text."""
    costs = [
        (kind, currency, _text(amount), per_hour, card, _text(minutes))
        for kind, currency, amount, per_hour, card, minutes in one.costs
    ]
    return [*one[:4], _text(one.minutes), one.stretches, costs, *one[7:]]


def from_json(values: list[Any]) -> Sitting:
    """The sitting that ``to_json`` was given."""
    one = Sitting(*values)
    return one._replace(
        minutes=_decimal(one.minutes),
        stretches=[(began, ended) for began, ended in one.stretches],
        costs=[
            Line(kind, currency, _decimal(amount), per_hour, card, _decimal(minutes))
            for kind, currency, amount, per_hour, card, minutes in one.costs
        ],
    )


def _text(number: Decimal | None) -> Any:
    return None if number is None else str(number)


def _decimal(text: Any) -> Decimal | None:
    return None if text is None else Decimal(text)
