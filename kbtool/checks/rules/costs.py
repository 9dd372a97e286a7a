"""Cost lines take rates of the ledger, and invoices are counted once."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, NamedTuple

from kbtool.checks.facts import Location, fact
from kbtool.checks.tree import Rule, Tree
from kbtool.model.cards import are_unlike
from kbtool.model.finding import Finding

if TYPE_CHECKING:
    from kbtool.model.ledger import Ledger
    from kbtool.model.ledger import Price as LedgerPrice
    from kbtool.model.session import Session


class Price(NamedTuple):
    """A rate of the ledger."""

    id: str
    kind: str
    rate: str
    until: str | None
    """The last day."""
    card: str | None


@fact("ledger", Price)
def prices(ledger: Ledger) -> Iterator[Price]:
    """The rates of the ledger."""
    yield from map(price_facts, ledger.rates)


def price_facts(rate: LedgerPrice) -> Price:
    """What the rule asks of a rate of the ledger."""
    return Price(rate.id, rate.kind, rate.rate.text, rate.until, rate.card)


class RateFacts(NamedTuple):
    """A cost line that names a rate of the ledger."""

    location: Location
    id: str
    kind: str
    rate: str
    """The rate, as the line has it."""
    day: str | None
    """Of the session."""
    card: str | None
    """That the line pays for, its own or the session's."""


@fact("session", RateFacts)
def rates(session: Session) -> Iterator[RateFacts]:
    """A session's cost lines that name a rate."""
    for at, line in enumerate(session.costs):
        if line.rate_id is not None and line.rate is not None:
            place: Location = ["costs", at, "rate_id"]
            card = session.card_of(line.card)
            yield RateFacts(place, line.rate_id, line.kind, line.rate.text, session.day, card)


class InvoiceFacts(NamedTuple):
    """A cost line that names an invoice."""

    location: Location
    number: str
    amount: str
    currency: str
    note: str | None


@fact("session", InvoiceFacts)
def invoices(session: Session) -> Iterator[InvoiceFacts]:
    """A session's cost lines that name an invoice."""
    for at, line in enumerate(session.costs):
        if line.invoice is not None and line.amount is not None:
            place: Location = ["costs", at, "invoice"]
            yield InvoiceFacts(place, line.invoice, str(line.amount), line.currency, line.note)


def lines_take_rates_of_the_ledger(tree: Tree) -> Iterator[Finding]:
    """A rate that a cost line names is in the ledger, of its kind, of its price, of its day, and of
    no other card."""
    ledgers = [facts for facts in tree.facts if facts.kind == "ledger"]
    if any(not facts.valid for facts in ledgers):
        return
    known = {price.id: price for facts in ledgers for price in prices.of(facts)}
    for facts in tree.sessions.values():
        for line in rates.of(facts):
            price = known.get(line.id)
            problem: str | None
            if price is None:
                names = ", ".join(known) or "none"
                problem = f"sessions/ledger.yaml has no rate {line.id!r}; it has {names}"
            else:
                problem = problem_of_rate(line, price)
            if problem is not None:
                yield tree.at(facts, line.location, "rate", problem)


def problem_of_rate(line: RateFacts, price: Price) -> str | None:
    """Why a cost line cannot take a rate of the ledger; ``None`` if it can."""
    _, kind, rate, until, card = price
    if line.kind != kind:
        return f"{line.id} is a rate of {kind}, the line is of {line.kind}"
    if line.rate != rate:
        return f"{line.id} is {rate}, but the line says {line.rate}: name another rate"
    if until is not None and line.day is not None and line.day > until:
        return f"{line.id} held until {until}; name the rate that replaced it"
    if card is not None and line.card is not None and are_unlike(card, line.card):
        return (
            f"{line.id} is the price of card {card}; the line pays for card {line.card}: name a"
            " rate of that card, or correct the card"
        )
    return None


def invoices_are_counted_once(tree: Tree) -> Iterator[Finding]:
    """No two cost lines have one invoice and one amount, unless their notes tell them apart."""
    seen: dict[Hashable, list[tuple[str, InvoiceFacts]]] = {}
    for facts in tree.sessions.values():
        for line in invoices.of(facts):
            others = seen.setdefault((line.number, Decimal(line.amount), line.currency), [])
            for session, other in others:
                if line.note is None or other.note is None or line.note == other.note:
                    yield tree.at(
                        facts, line.location, "invoice",
                        f"{line.amount} {line.currency} of invoice {line.number!r} is counted in"
                        f" {session}#costs.{other.location[1]} already: delete one of the two; if"
                        " the invoice charges it twice, say in the note of each what it is for",
                    )  # fmt: skip
                    break
            others.append((facts.id, line))


RULES: tuple[Rule, ...] = (lines_take_rates_of_the_ledger, invoices_are_counted_once)
