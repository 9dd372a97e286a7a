"""Sweeps under way: what their cards have cost so far, and what is still to come."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from statistics import fmean
from typing import NamedTuple

from kbtool.ledger.budget import Ongoing
from kbtool.ledger.held import cost_id, money_of, rate_of
from kbtool.model.price import currency_of, per_hour
from kbtool.model.session_costs import plain_card
from kbtool.model.sweep import UNDER_WAY, Attempt, Sweep
from kbtool.store.sweeps import running_sweeps
from kbtool.store.tree import KnowledgeBase


class UnderWay(NamedTuple):
    """A sweep that has not ended."""

    sweep: Sweep
    is_driven: bool
    """Whether a process drives it now; else it was cut off, and how its cells are nobody knows."""
    held_s: dict[str, float]
    """Card → seconds for which it was held, cells that run counted up to now."""
    to_come_s: float | None
    """Seconds that the cells that are left should take, one after the other; ``None`` if nobody
    knows."""
    money: Ongoing
    """What of it no cost line has yet."""

    @property
    def running(self) -> list[Attempt]:
        """The attempts that run."""
        return [one for one in self.sweep.attempts if one.status == "running"]

    @property
    def wall_s(self) -> float | None:
        """Seconds until it ends, if as many cells run at once as now."""
        return None if self.to_come_s is None else self.to_come_s / max(1, len(self.running))


def sweeps_under_way(
    base: KnowledgeBase, now: datetime, is_driven: Callable[[str], bool]
) -> list[UnderWay]:
    """The sweeps that have not ended, oldest first.

    Args:
        base: the knowledge base.
        now: the present moment.
        is_driven: whether a process drives the sweep of this id.
    """
    return [under_way(base, one, now, is_driven(one.id)) for one in running_sweeps(base)]


def under_way(base: KnowledgeBase, sweep: Sweep, now: datetime, is_driven: bool) -> UnderWay:
    """What a sweep has taken up to ``now``, and what is to come."""
    running = [one for one in sweep.attempts if one.status == "running"]
    held = sweep.held_until(now if is_driven else None)
    unknown = []
    if not is_driven and any(one.cards for one in running):
        unknown.append("what the cells took that ran when it was cut off")
    session = base.session(sweep.session).record
    by_the_hour = {session.card_of(line.card) for line in session.costs if line.is_open}
    prices = {card: rate_of(base, card) for card in held if plain_card(card) not in by_the_hour}
    unknown += [f"the rate of {card}" for card, price in prices.items() if price is None]
    spent: dict[str, Decimal] = {}
    for card, price in prices.items():
        if price is not None:
            currency = currency_of(price.rate)
            spent[currency] = spent.get(currency, Decimal(0)) + money_of(price, held[card])
    for line in session.costs:
        # What an earlier end of it entered, before it was resumed.
        if line.currency in spent and line.amount and str(line.id).startswith(cost_id(sweep)):
            spent[line.currency] = max(Decimal(0), spent[line.currency] - line.amount)
    burn: dict[str, Fraction] = {}
    for one in running if is_driven else ():
        price = prices.get(one.machine or "")
        if price is not None and one.cards:
            currency = currency_of(price.rate)
            burn[currency] = burn.get(currency, Fraction(0)) + per_hour(price.rate) * one.cards
    left = _left(sweep, now) if is_driven else None
    return UnderWay(
        sweep, is_driven, held, left,
        Ongoing(
            sweep.id, sweep.session, spent, burn, _to_come(base, sweep, left, by_the_hour), unknown
        ),
    )  # fmt: skip


def _left(sweep: Sweep, now: datetime) -> float | None:
    """Seconds that the cells that are left should take: as each was expected to when the sweep
    began, else as those that passed took."""
    passed = [one.held_s for one in sweep.attempts if one.status == "passed"]
    took = [one for one in passed if one is not None]
    left = 0.0
    for cell in sweep.cells:
        if cell.status not in ("waiting", *UNDER_WAY):
            continue
        expected = cell.expected_s if cell.expected_s is not None else fmean(took) if took else None
        if expected is None:
            return None
        took_so_far = cell.attempts[-1].held_until(now) if cell.status == "running" else None
        left += max(0.0, expected - (took_so_far or 0.0))
    return left


def _to_come(
    base: KnowledgeBase, sweep: Sweep, left: float | None, by_the_hour: set[str | None]
) -> dict[str, Decimal] | None:
    """What the cells that are left should cost on the cards of those before."""
    places = {(one.machine, one.cards) for one in sweep.attempts if one.started and one.machine}
    if left is None or len(places) != 1:
        return {} if left == 0 else None
    ((card, count),) = places
    if not count or plain_card(card) in by_the_hour:
        return {}
    price = rate_of(base, card)
    return None if price is None else {currency_of(price.rate): money_of(price, left * count)}
