"""What bugs cost: the minutes that sessions say they lost, and the money of those minutes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction

from kbtool.ledger.faults import Meeting
from kbtool.model.money import to_cent
from kbtool.model.session_costs import SessionCosts


@dataclass(frozen=True)
class Lost:
    """What meetings of bugs cost, as far as that is known."""

    minutes: Decimal | None = None
    """``None`` where no session says."""
    money: Mapping[str, Decimal] = field(default_factory=dict)
    """Currency → the share of the known money of each session that the minutes are of its time, to
    the cent."""


def lost(meetings: Iterable[Meeting], costs: Mapping[str, SessionCosts]) -> Lost:
    """What meetings of bugs cost. A range or a bound of minutes counts as unknown.

    Args:
        meetings: of one bug or of several; one that is there twice counts once.
        costs: session id → what it cost.
    """
    minutes = None
    money: dict[str, Fraction] = {}
    for session, bug in {(one.session.id, one.bug.id): one for one in meetings}.values():
        time = bug.minutes_lost
        if time is None or not time.is_single:
            continue
        minutes = (minutes or Decimal(0)) + time.minutes
        whole = costs[session.id]
        if whole.minutes:
            share = min(Fraction(1), Fraction(time.minutes) / Fraction(whole.minutes))
            for line in whole.costs:
                if line.amount is not None:
                    so_far = money.get(line.currency, Fraction(0))
                    money[line.currency] = so_far + share * Fraction(line.amount)
    return Lost(minutes, {currency: to_cent(amount) for currency, amount in money.items()})
