"""GPU costs that no record states: the time that runs held a card, at the ledger's rate of it."""

from __future__ import annotations

from typing import NamedTuple

from kbtool.ledger.held import Held, is_one_model, rate_of
from kbtool.model.price import currency_of
from kbtool.model.session_costs import Line, SessionCosts
from kbtool.store.held_cards import held_cards
from kbtool.store.tree import KnowledgeBase


class Costs(NamedTuple):
    """What sessions cost, with the GPU estimated where no record states it."""

    sessions: dict[str, SessionCosts]
    """Session id → its costs, in the order of the work."""
    held: dict[str, list[Held]]
    """Session id → the cards that its runs held, and that no cost line pays for."""


def costs_of(base: KnowledgeBase) -> Costs:
    """The costs of all sessions; those of cards that runs held are estimated.

    A card that a cost line of the session pays for counts as paid, and so does every card if a line
    of GPU names none. Between runs a card may have been held too: nobody recorded that.
    """
    time = held_cards(base)
    stated = [line.currency for session in base.session_costs.values() for line in session.costs]
    currencies = [*stated, *(currency_of(price.rate) for price in base.ledger.rates)]
    sessions, held = {}, {}
    for session in base.session_costs.values():
        paid = {session.card_of(line.card) for line in session.costs if line.kind == "gpu"}
        unpaid = [
            Held(card, seconds, seconds, rate_of(base, card, session.day))
            for card, seconds in time.get(session.id, {}).items()
            if not any(one is None or is_one_model(one, card) for one in paid)
        ]
        held[session.id] = unpaid
        sessions[session.id] = session._replace(
            costs=[*session.costs, *_lines(unpaid, currencies[:1])]
        )
    return Costs(sessions, held)


def _lines(unpaid: list[Held], currency: list[str]) -> list[Line]:
    """The lines of these cards; in ``currency``, if there is one, those whose rate is not known."""
    return [
        Line("gpu", used, one.money, None, one.card, one.minutes, from_runs=True)
        for one in unpaid
        for used in (currency if one.price is None else [currency_of(one.price.rate)])
    ]
