"""Boxes of time and money: what is spent, what is left, when the card should stop.

Works on ``Sitting``s, which are plain data, so that a prompt need not wait for the models: see
``kbtool.ledger.sittings``. A figure that nobody knows is ``None``; what no box holds has no box.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

from kbtool.model.money import to_cent
from kbtool.model.price import hours
from kbtool.model.sitting import Sitting

EXPECTED = ("gpu", "ai", "engineer")
"""What every session is taken to cost."""


class MonthBox(NamedTuple):
    """The boxes of a month."""

    month: str
    minutes: str | None
    money: str | None
    currency: str | None


@dataclass(frozen=True)
class Box:
    """A limit, and how much of it is gone."""

    of: str
    """A session's label, or a month."""
    unit: str
    """``min``, or a currency."""
    limit: Decimal
    spent: Decimal | None
    """``None`` if nothing of it is known."""
    per_minute: Fraction
    """How fast it fills now."""

    @property
    def left(self) -> Decimal | None:
        """What is left; negative once it is exceeded."""
        return None if self.spent is None else self.limit - self.spent

    @property
    def exceeded(self) -> bool:
        """Whether more is gone than it holds."""
        return self.spent is not None and self.spent > self.limit

    def full_at(self, now: datetime) -> datetime | None:
        """When it is full as things go; ``None`` if it does not fill, ``now`` if it is full."""
        left = self.left
        if left is None or (self.per_minute <= 0 and left > 0):
            return None
        if left <= 0:
            return now
        seconds = float(Fraction(left) / self.per_minute * 60)
        return now + timedelta(seconds=seconds) if seconds < _FOREVER else None


_FOREVER = 100 * 365 * 86400.0
"""Seconds beyond which a box counts as never full."""


@dataclass(frozen=True)
class Account:
    """What a session has taken so far."""

    sitting: Sitting
    minutes: Decimal | None
    """Minutes of work, pauses left out; ``None`` if nobody knows, or its times name no zone."""
    spent: dict[str, Decimal]
    """Currency → money known to be spent."""
    per_hour: dict[str, Fraction]
    """Currency → burn rate while it runs: the rates of what goes on for as long as it does."""
    unknown: list[str]
    """Kinds of cost that are not, or not all, in ``spent``."""
    boxes: list[Box]
    ticks: bool = False
    """Whether its time runs now."""


@dataclass(frozen=True)
class Status:
    """Where things stand."""

    now: datetime
    going: list[Account]
    month: str
    month_boxes: list[Box]
    month_unknown: dict[str, int] = field(default_factory=dict)
    """Kind, or ``minutes`` → sessions of the month of which it, or a part of it, is not known."""

    @property
    def boxes(self) -> list[Box]:
        """Every box, those of the sessions first."""
        return [*(box for one in self.going for box in one.boxes), *self.month_boxes]

    @property
    def exceeded(self) -> list[Box]:
        """The boxes that are exceeded."""
        return [box for box in self.boxes if box.exceeded]

    @property
    def stop(self) -> tuple[datetime, Box] | None:
        """When the first box is full, and which; ``None`` if none fills."""
        ends = [(at, box) for box in self.boxes if (at := box.full_at(self.now)) is not None]
        return min(ends, key=lambda end: end[0], default=None) if self.going else None


def status(sittings: Iterable[Sitting], months: Sequence[MonthBox], now: datetime) -> Status:
    """Where every running session and this month stand.

    Args:
        sittings: all sessions.
        months: the boxes of months.
        now: the present moment, with its zone; the month is that of its calendar. A session
            counts whole in the month of its day, as in ``kbtool costs --by month``.
    """
    month = f"{now:%Y-%m}"
    accounts = [account(sitting, now) for sitting in sittings]
    missing: dict[str, int] = {}
    for one in _within(month, accounts):
        for kind in (*(["minutes"] if one.minutes is None else []), *one.unknown):
            missing[kind] = missing.get(kind, 0) + 1
    return Status(
        now,
        [one for one in accounts if one.sitting.status == "running"],
        month,
        [box for one in months if one.month == month for box in month_boxes(one, accounts)],
        missing,
    )


def month_boxes(budget: MonthBox, accounts: Iterable[Account]) -> list[Box]:
    """The boxes of a month.

    Args:
        budget: what they hold.
        accounts: sessions; those of other months do not count.
    """
    within = _within(budget.month, accounts)
    boxes = []
    if budget.minutes is not None:
        times = [one.minutes for one in within if one.minutes is not None]
        pace = Fraction(sum(one.ticks for one in within))
        boxes.append(Box(budget.month, "min", Decimal(budget.minutes), _sum(times, within), pace))
    if budget.money is not None and budget.currency is not None:
        currency = budget.currency
        known = _sum([one.spent[currency] for one in within if currency in one.spent], within)
        burn = sum((one.per_hour.get(currency, Fraction(0)) for one in within), Fraction(0))
        # When it is full, nobody can say who does not know what has been burnt.
        pace = Fraction(0) if any(_burnt_unknown(one, currency) for one in within) else burn / 60
        boxes.append(Box(budget.month, currency, Decimal(budget.money), known, pace))
    return boxes


def _within(month: str, accounts: Iterable[Account]) -> list[Account]:
    """The sessions of a month; one that is only planned has taken nothing."""
    return [
        one
        for one in accounts
        if (one.sitting.day or "").startswith(month)
        and (one.sitting.status != "planned" or one.sitting.costs)
    ]


def _sum(known: list[Decimal], within: list[Account]) -> Decimal | None:
    """What is known; nothing where there is no session, ``None`` where there are and none says."""
    return sum(known, Decimal(0)) if known or not within else None


def _burnt_unknown(one: Account, currency: str) -> bool:
    return one.minutes is None and currency in one.per_hour


def elapsed(sitting: Sitting, now: datetime) -> Decimal | None:
    """Minutes of work up to ``now``: its stretches, without the pauses between them."""
    total = Decimal(0)
    for started, ended in sitting.stretches:
        begin = datetime.fromisoformat(started)
        end = datetime.fromisoformat(ended) if ended is not None else now
        if (begin.tzinfo is None) != (end.tzinfo is None):
            return None
        total += Decimal(str(max(0.0, (end - begin).total_seconds())))
    return total / 60 if sitting.stretches else None


def account(sitting: Sitting, now: datetime | None) -> Account:
    """What a session has taken, up to ``now`` if it runs; without it, what its record says."""
    runs = sitting.status == "running" and now is not None
    minutes = elapsed(sitting, now) if runs and now is not None else sitting.minutes
    spent, unknown = _spent(sitting, minutes)
    # One that starts in the future burns nothing yet.
    ticks = runs and (now is None or not _is_ahead(sitting, now))
    per_hour: dict[str, Fraction] = {}
    for line in sitting.costs:
        if ticks and line.per_hour is not None:
            so_far = per_hour.get(line.currency, Fraction(0))
            per_hour[line.currency] = so_far + Fraction(line.per_hour)
    boxes = []
    if sitting.box_minutes is not None:
        limit = Decimal(sitting.box_minutes)
        boxes.append(Box(sitting.label, "min", limit, minutes, Fraction(ticks)))
    if sitting.box_money is not None and sitting.box_currency is not None:
        currency = sitting.box_currency
        # What has burnt so far is not known without the time: neither is when the box is full.
        burn = Fraction(0) if minutes is None else per_hour.get(currency, Fraction(0))
        known = spent.get(currency)
        boxes.append(Box(sitting.label, currency, Decimal(sitting.box_money), known, burn / 60))
    return Account(sitting, minutes, spent, per_hour, unknown, boxes, ticks)


def _is_ahead(sitting: Sitting, now: datetime) -> bool:
    """Whether it is known to start after ``now``."""
    begins = [datetime.fromisoformat(started) for started, _ in sitting.stretches]
    return bool(begins) and all(one.tzinfo is not None and one > now for one in begins)


def _spent(sitting: Sitting, minutes: Decimal | None) -> tuple[dict[str, Decimal], list[str]]:
    """Currency → what is known to be spent, and the kinds of which something is not known.

    Args:
        sitting: the session.
        minutes: how long it has lasted.
    """
    spent: dict[str, Decimal] = {}
    unknown = {kind for kind in EXPECTED if kind not in {line.kind for line in sitting.costs}}
    for line in sitting.costs:
        amount = line.amount
        if amount is None and line.per_hour is not None and minutes is not None:
            amount = to_cent(Fraction(line.per_hour) * hours(minutes))
        if amount is None:
            unknown.add(line.kind)
        else:
            spent[line.currency] = spent.get(line.currency, Decimal(0)) + amount
    order = [*EXPECTED, "other"]
    return spent, sorted(unknown, key=order.index)
