"""Budgets of time and money: what is spent, what is left, when the card should stop.

Takes ``SessionCosts``, which are plain data, so that a shell prompt need not wait for the models:
see ``kbtool.ledger.session_costs``. A figure that is not known is ``None``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

from kbtool.model.money import to_cent
from kbtool.model.price import hours
from kbtool.model.session_costs import SessionCosts

EXPECTED = ("gpu", "ai", "engineer")
"""What every session is taken to cost."""


class MonthLimits(NamedTuple):
    """The limits of time and money that the ledger sets for a month."""

    month: str
    minutes: str | None
    money: str | None
    currency: str | None


class Ongoing(NamedTuple):
    """What a sweep under way adds to the costs of its session."""

    id: str
    session: str
    spent: dict[str, Decimal]
    """Currency → money so far that is in no cost line of the session yet."""
    per_hour: dict[str, Fraction]
    """Currency → what the cards that it holds now cost."""
    to_come: dict[str, Decimal] | None
    """Currency → what the rest should cost; ``None`` if nobody knows."""
    unknown: list[str]
    """What is in none of these."""


@dataclass(frozen=True)
class Budget:
    """A limit of time or money for a session or a month, and how much of it is spent."""

    of: str
    """A session's label, or a month."""
    unit: str
    """``min``, or a currency."""
    limit: Decimal
    spent: Decimal | None
    """``None`` if nothing is known of it."""
    per_minute: Fraction
    """How much is spent a minute now."""
    under_way: Decimal = Decimal(0)
    """How much of ``spent`` is by sweeps under way, whose costs are not final."""
    to_come: Decimal | None = Decimal(0)
    """What they should take besides; ``None`` if nobody knows."""

    @property
    def left(self) -> Decimal | None:
        """What is left; negative once it is exceeded."""
        return None if self.spent is None else self.limit - self.spent

    @property
    def exceeded(self) -> bool:
        """Whether more is spent than the limit."""
        return self.spent is not None and self.spent > self.limit

    def full_at(self, now: datetime) -> datetime | None:
        """When it is used up at this rate; ``None`` if never, ``now`` if it is used up."""
        left = self.left
        if left is None or (self.per_minute <= 0 and left > 0):
            return None
        if left <= 0:
            return now
        seconds = float(Fraction(left) / self.per_minute * 60)
        return now + timedelta(seconds=seconds) if seconds < _FOREVER else None


_FOREVER = 100 * 365 * 86400.0
"""Seconds beyond which a budget counts as never used up."""


@dataclass(frozen=True)
class Account:
    """What a session has taken so far."""

    session: SessionCosts
    minutes: Decimal | None
    """Minutes of work, pauses left out; ``None`` if nobody knows, or its times name no zone."""
    spent: dict[str, Decimal]
    """Currency → money known to be spent."""
    per_hour: dict[str, Fraction]
    """Currency → burn rate while it runs: the rates of what goes on for as long as it does."""
    unknown: list[str]
    """Kinds of cost that are not, or not all, in ``spent``."""
    budgets: list[Budget]
    ticks: bool = False
    """Whether its time runs now."""
    sweeps: Sequence[Ongoing] = ()
    """Its sweeps under way, which are not in ``spent``."""


@dataclass(frozen=True)
class Status:
    """Where things stand."""

    now: datetime
    going: list[Account]
    month: str
    month_budgets: list[Budget]
    month_unknown: dict[str, int] = field(default_factory=dict)
    """Kind, or ``minutes`` → sessions of the month of which it, or a part of it, is not known."""
    sweeps: Sequence[Ongoing] = ()
    """Those under way."""

    @property
    def budgets(self) -> list[Budget]:
        """Every budget, those of the sessions first."""
        return [*(budget for one in self.going for budget in one.budgets), *self.month_budgets]

    @property
    def exceeded(self) -> list[Budget]:
        """The budgets that are exceeded."""
        return [budget for budget in self.budgets if budget.exceeded]

    @property
    def stop(self) -> tuple[datetime, Budget] | None:
        """When the first budget is used up, and which; ``None`` if none will be."""
        ends = [
            (at, budget) for budget in self.budgets if (at := budget.full_at(self.now)) is not None
        ]
        return (
            min(ends, key=lambda end: end[0], default=None) if self.going or self.sweeps else None
        )


def status(
    sessions: Iterable[SessionCosts],
    months: Sequence[MonthLimits],
    now: datetime,
    sweeps: Sequence[Ongoing] = (),
) -> Status:
    """Where every running session and this month stand.

    Args:
        sessions: all sessions.
        months: the limits of months.
        now: the present moment, with its zone; the month is that of its calendar. A session
            counts whole in the month of its day, as in ``kbtool costs --by month``.
        sweeps: those under way; they count with their sessions.
    """
    month = f"{now:%Y-%m}"
    accounts = [
        account(session, now, [one for one in sweeps if one.session == session.id])
        for session in sessions
    ]
    missing: dict[str, int] = {}
    for one in _within(month, accounts):
        for kind in (*(["minutes"] if one.minutes is None else []), *one.unknown):
            missing[kind] = missing.get(kind, 0) + 1
    return Status(
        now,
        [one for one in accounts if one.session.status == "running"],
        month,
        [budget for one in months if one.month == month for budget in month_budgets(one, accounts)],
        missing,
        sweeps,
    )


def month_budgets(limits: MonthLimits, accounts: Iterable[Account]) -> list[Budget]:
    """The budgets of a month, and what its sessions have spent of them.

    Args:
        limits: what may be spent.
        accounts: sessions; those of other months do not count.
    """
    within = _within(limits.month, accounts)
    budgets = []
    if limits.minutes is not None:
        times = [one.minutes for one in within if one.minutes is not None]
        pace = Fraction(sum(one.ticks for one in within))
        budgets.append(
            Budget(limits.month, "min", Decimal(limits.minutes), _sum(times, within), pace)
        )
    if limits.money is not None and limits.currency is not None:
        currency = limits.currency
        known = _sum([one.spent[currency] for one in within if currency in one.spent], within)
        burn = sum((one.per_hour.get(currency, Fraction(0)) for one in within), Fraction(0))
        # If it is not known what has been spent, nor is it when the budget will be used up.
        pace = Fraction(0) if any(_burnt_unknown(one, currency) for one in within) else burn / 60
        budget = Budget(limits.month, currency, Decimal(limits.money), known, pace)
        budgets.append(_with(budget, [one for each in within for one in each.sweeps]))
    return budgets


def _with(budget: Budget, sweeps: Sequence[Ongoing]) -> Budget:
    """A budget of money with what sweeps under way take of it."""
    so_far = [one.spent[budget.unit] for one in sweeps if budget.unit in one.spent]
    rest = [one.to_come for one in sweeps]
    known = [one.get(budget.unit, Decimal(0)) for one in rest if one is not None]
    burn = sum((one.per_hour.get(budget.unit, Fraction(0)) for one in sweeps), Fraction(0))
    under_way = sum(so_far, Decimal(0))
    return replace(
        budget,
        spent=(budget.spent or Decimal(0)) + under_way if so_far else budget.spent,
        per_minute=budget.per_minute + burn / 60,
        under_way=under_way,
        to_come=sum(known, Decimal(0)) if len(known) == len(rest) else None,
    )


def _within(month: str, accounts: Iterable[Account]) -> list[Account]:
    """The sessions of a month; one that is only planned has taken nothing."""
    return [
        one
        for one in accounts
        if (one.session.day or "").startswith(month)
        and (one.session.status != "planned" or one.session.costs)
    ]


def _sum(known: list[Decimal], within: list[Account]) -> Decimal | None:
    """What is known; nothing where there is no session, ``None`` where there are and none says."""
    return sum(known, Decimal(0)) if known or not within else None


def _burnt_unknown(one: Account, currency: str) -> bool:
    return one.minutes is None and currency in one.per_hour


def elapsed(session: SessionCosts, now: datetime) -> Decimal | None:
    """Minutes of work up to ``now``: its stretches, without the pauses between them."""
    total = Decimal(0)
    for started, ended in session.stretches:
        begin = datetime.fromisoformat(started)
        end = datetime.fromisoformat(ended) if ended is not None else now
        if (begin.tzinfo is None) != (end.tzinfo is None):
            return None
        total += Decimal(str(max(0.0, (end - begin).total_seconds())))
    return total / 60 if session.stretches else None


def account(session: SessionCosts, now: datetime | None, sweeps: Sequence[Ongoing] = ()) -> Account:
    """What a session has taken, up to ``now`` if it runs; without it, what its record says."""
    runs = session.status == "running" and now is not None
    minutes = elapsed(session, now) if runs and now is not None else session.minutes
    spent, unknown = _spent(session, minutes)
    # One that starts in the future burns nothing yet.
    ticks = runs and (now is None or not _is_ahead(session, now))
    per_hour: dict[str, Fraction] = {}
    for line in session.costs:
        if ticks and line.per_hour is not None:
            so_far = per_hour.get(line.currency, Fraction(0))
            per_hour[line.currency] = so_far + Fraction(line.per_hour)
    budgets = []
    if session.budget_minutes is not None:
        limit = Decimal(session.budget_minutes)
        budgets.append(Budget(session.label, "min", limit, minutes, Fraction(ticks)))
    if session.budget_money is not None and session.budget_currency is not None:
        currency = session.budget_currency
        # Without the time it is not known what is spent, nor when the budget is used up.
        burn = Fraction(0) if minutes is None else per_hour.get(currency, Fraction(0))
        known = spent.get(currency)
        limit = Decimal(session.budget_money)
        budgets.append(_with(Budget(session.label, currency, limit, known, burn / 60), sweeps))
    return Account(session, minutes, spent, per_hour, unknown, budgets, ticks, sweeps)


def _is_ahead(session: SessionCosts, now: datetime) -> bool:
    """Whether it is known to start after ``now``."""
    begins = [datetime.fromisoformat(started) for started, _ in session.stretches]
    return bool(begins) and all(one.tzinfo is not None and one > now for one in begins)


def _spent(session: SessionCosts, minutes: Decimal | None) -> tuple[dict[str, Decimal], list[str]]:
    """Currency → what is known to be spent, and the kinds of which something is not known.

    Args:
        session: the session.
        minutes: how long it has lasted.
    """
    spent: dict[str, Decimal] = {}
    unknown = {kind for kind in EXPECTED if kind not in {line.kind for line in session.costs}}
    for line in session.costs:
        amount = line.amount
        if amount is None and line.per_hour is not None and minutes is not None:
            amount = to_cent(Fraction(line.per_hour) * hours(minutes))
        if amount is None:
            unknown.add(line.kind)
        else:
            spent[line.currency] = spent.get(line.currency, Decimal(0)) + amount
    order = [*EXPECTED, "other"]
    return spent, sorted(unknown, key=order.index)
