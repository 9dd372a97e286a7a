"""What the cards of sweeps and runs cost: the time that they were held, at the ledger's rates."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import NamedTuple

from kbtool.ledger.rates import sound_ledger
from kbtool.model.cards import card_of
from kbtool.model.ledger import Price
from kbtool.model.money import half_up
from kbtool.model.price import price_of
from kbtool.model.session_costs import plain_card
from kbtool.model.sweep import Sweep
from kbtool.store.edit import set_cost
from kbtool.store.tree import KnowledgeBase


class Held(NamedTuple):
    """A card, how long it was held, and what that cost."""

    card: str
    held_s: float
    busy_s: float
    """The part in which steps ran."""
    price: Price | None
    """The rate; ``None`` where the ledger has none for the card."""

    @property
    def minutes(self) -> Decimal:
        """How long, to a tenth."""
        return half_up(Decimal(repr(self.held_s)) / 60, 1)

    @property
    def money(self) -> Decimal | None:
        """What it cost; ``None`` where no rate is known."""
        return None if self.price is None else money_of(self.price, self.held_s)


def held(base: KnowledgeBase, sweep: Sweep, now: datetime | None = None) -> list[Held]:
    """Each card that the sweep held, the longest first.

    Args:
        base: the knowledge base.
        sweep: the sweep.
        now: the present moment, up to which cells count that run. Default: they do not count.
    """
    busy = sweep.busy_s
    found = [
        Held(card, seconds, busy.get(card, 0.0), rate_of(base, card))
        for card, seconds in sweep.held_until(now).items()
    ]
    return sorted(found, key=lambda one: -one.held_s)


def enter(base: KnowledgeBase, sweep: Sweep) -> list[str]:
    """Enter the costs into the session, a line a card; returns what was left out, and why.

    A card that the session pays for by the hour already is not paid for twice.
    """
    # Read anew: the session may have been made for the sweep.
    session = KnowledgeBase(base.root).session(sweep.session).record
    is_open = {session.card_of(line.card) for line in session.costs if line.is_open}
    left = []
    for number, one in enumerate(held(base, sweep), 1):
        if one.price is None:
            left.append(f"{one.card}: sessions/ledger.yaml has no rate of it")
            continue
        if plain_card(one.card) in is_open:
            left.append(f"{one.card}: {session.id} pays for it by the hour already")
            continue
        line: dict[str, str | None] = {
            "kind": "gpu",
            "id": cost_id(sweep) + (f"-{number}" if number > 1 else ""),
            "basis": "estimated",
            "duration": f"{one.minutes} min",
            "rate": one.price.rate.text,
            "rate_id": one.price.id,
            "card": one.card,
            "note": f"Held by sweep {sweep.id}",
        }
        set_cost(base.root / "sessions" / session.id / "session.yaml", {
            key: value for key, value in line.items() if value is not None
        })  # fmt: skip
    return left


def cost_id(sweep: Sweep) -> str:
    """The id of its cost line in its session; those of further cards begin so."""
    return f"sweep-{sweep.id[-4:]}"


def rate_of(base: KnowledgeBase, card: str | None, day: str | None = None) -> Price | None:
    """The newest rate of the ledger for a card that holds on a day; ``None`` if it has none.

    A rate that names the card as the driver does goes before one of the same model: H100 is also
    the rate of an H100 80GB HBM3.

    Args:
        base: the knowledge base.
        card: the card, as its driver names it.
        day: YYYY-MM-DD. Default: today.
    """
    on = day or f"{datetime.now(UTC):%Y-%m-%d}"
    rates = [
        one
        for one in sound_ledger(base).rates
        if card and one.card and one.kind == "gpu" and is_one_model(one.card, card)
        and one.day <= on and (one.until is None or on <= one.until)
    ]  # fmt: skip
    return max(
        rates, key=lambda one: (plain_card(one.card) == plain_card(card), one.day), default=None
    )


def is_one_model(one: str, other: str) -> bool:
    """Whether two names are those of one model of card."""
    known = card_of(one)
    return plain_card(one) == plain_card(other) or (known is not None and known == card_of(other))


def money_of(price: Price, seconds: float) -> Decimal:
    """What a card costs for that time, to the cent."""
    return price_of(price.rate, Decimal(repr(seconds)) / 60)
