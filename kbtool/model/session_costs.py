"""The time and the costs of a session, without the rest of its record: plain data for a cache.

With it, sums over many sessions and a shell prompt need not load the models. Fields that
``SessionCosts`` shares with ``Session``, and ``Line`` with ``CostLine``, have the same names, so
that functions which sum costs take either.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

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
    from_runs: bool = False
    """Whether no record has it: it is the time of runs on a card, at the ledger's rate."""

    def stated_minutes(self) -> Decimal | None:
        """See ``CostLine.stated_minutes``."""
        return self.minutes


class SessionCosts(NamedTuple):
    """What sums and ``kbtool status`` need of a session: its time, its costs and its budgets."""

    id: str
    label: str
    status: str
    day: str | None
    minutes: Decimal | None
    """How long it took; ``None`` while it runs, or if nobody knows."""
    stretches: list[tuple[str, str | None]]
    """When work began and ended, between pauses, as ISO 8601."""
    costs: list[Line]
    budget_minutes: str | None
    budget_money: str | None
    budget_currency: str | None
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


class Ordered(Protocol):
    """A session as far as its place among all sessions goes."""

    @property
    def id(self) -> str:
        """Its id."""

    @property
    def label(self) -> str:
        """Its own name."""

    @property
    def day(self) -> str | None:
        """Its day; ``None`` where undated."""

    @property
    def follows(self) -> str | None:
        """The session before it in the same line of work."""

    def began(self) -> float | None:
        """See ``Session.began``."""


S = TypeVar("S", bound=Ordered)
"""What functions that need no more than its place take and give back."""


def plain_card(card: str | None) -> str | None:
    """A card by one name: logs say L4, drivers NVIDIA L4; ``None`` for none."""
    return card.removeprefix("NVIDIA ") if card and card != "none" else None


def session_costs_of(session: Session) -> SessionCosts:
    """The time and the costs of a session."""
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
    return SessionCosts(
        session.id, session.label, session.status, session.day, session.minutes, stretches, lines,
        None if time is None else str((time.high or time.low) * time.MINUTES[time.unit]),
        None if money is None else str(money.high or money.low),
        None if money is None else currency_of(money),
        session.follows, session.began(), session.engineer,
        session.environment.card if session.environment else None,
        session.named_patterns(), list(session.kernels),
    )  # fmt: skip


def to_json(one: SessionCosts) -> list[Any]:
    """As JSON data: decimals as text."""
    costs = [
        line._replace(amount=_text(line.amount), minutes=_text(line.minutes)) for line in one.costs
    ]
    return [*one[:4], _text(one.minutes), one.stretches, costs, *one[7:]]


def from_json(values: list[Any]) -> SessionCosts:
    """What ``to_json`` was given."""
    one = SessionCosts(*values)
    return one._replace(
        minutes=_decimal(one.minutes),
        stretches=[(began, ended) for began, ended in one.stretches],
        costs=[
            Line(*line)._replace(amount=_decimal(line[2]), minutes=_decimal(line[5]))
            for line in one.costs
        ],
    )


def _text(number: Decimal | None) -> Any:
    return None if number is None else str(number)


def _decimal(text: Any) -> Decimal | None:
    return None if text is None else Decimal(text)
