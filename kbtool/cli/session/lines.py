"""``kbtool session`` ``note``, ``cost``: add a line to a record."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from kbtool.cli.common import json_option, knowledge_base, print_json
from kbtool.cli.session.common import (
    cost_line,
    current,
    item_of,
    refuse_secrets,
    session_option,
)

if TYPE_CHECKING:
    from kbtool.model.cost import CostKind
    from kbtool.model.session import Session
    from kbtool.store.tree import KnowledgeBase


@click.command(
    epilog="""\b
Examples:
  kbtool session note "S=4 differs by 0.08; the bound of 0.1 hides it"
  nvidia-smi -q -d CLOCK | kbtool session note -
"""
)
@click.argument("text")
@session_option
@json_option
@click.pass_context
def note(ctx: click.Context, text: str, name: str | None, as_json: bool) -> None:
    """Add TEXT, with the time, to notes.md of the running or paused session; - reads stdin."""
    base = knowledge_base(ctx)
    if text == "-":
        text = sys.stdin.buffer.read().decode("utf-8", "replace")
    record, line = noted(base, name, text)
    if as_json:
        path = f"sessions/{record.id}/notes.md"
        print_json({"session": record.id, "path": path, "note": line})
    else:
        click.echo(line)


def noted(base: KnowledgeBase, name: str | None, text: str) -> tuple[Session, str]:
    """Add a note to the session of that name, or to the running one, or where none runs to the
    paused one: the session, and the line."""
    from kbtool.store.edit import add_note

    path, record = current(base, name)
    refuse_secrets(text)
    return record, add_note(path, text)


@click.command(
    epilog="""\b
Examples:
  kbtool session cost gpu 0.40 --basis billed --invoice 2026-118
  kbtool session cost gpu --rate '0.20 USD/h'    # for as long as the session lasts
  kbtool session cost engineer --rate '50 USD/h' --duration '90 min' --session last
  kbtool session cost gpu 0.36 --basis estimated --rate '0.20 USD/h' --duration '107 min'

\b
Without AMOUNT, the cost is an estimate: the rate times the duration, or times the session's time
without pauses, rounded to the cent. If you give amount and rate, they must agree.

\b
Correct or remove a wrong line under `costs` in session.yaml, then run `kbtool check`."""
)
@click.argument("kind", type=click.Choice(["gpu", "ai", "engineer", "other"]))
@click.argument("amount", required=False)
@click.option(
    "--basis",
    type=click.Choice(["billed", "estimated", "claimed"]),
    help="billed: on an invoice; estimated: rate times time; claimed: stated without proof.",
)
@click.option(
    "--currency",
    metavar="CODE",
    help="ISO 4217 code. Default: the currency of the rate, else USD.",
)
@click.option("--duration", metavar="TIME", help="The time paid for: '2 h'.")
@click.option(
    "--rate",
    metavar="ID|RATE",
    help="A rate of sessions/ledger.yaml, or the price of a unit of time: '0.20 USD/h'.",
)
@click.option("--card", help="The card paid for, if not the session's.")
@click.option("--invoice", metavar="NUMBER", help="The invoice number of a billed amount.")
@click.option("--note", "remark", help="What the line covers.")
@session_option
@json_option
@click.pass_context
def cost(
    ctx: click.Context,
    kind: CostKind,
    amount: str | None,
    basis: str | None,
    currency: str | None,
    duration: str | None,
    rate: str | None,
    card: str | None,
    invoice: str | None,
    remark: str | None,
    name: str | None,
    as_json: bool,
) -> None:
    """Add a cost to a session: AMOUNT, a decimal number, for KIND."""
    from kbtool.checks.rules.costs import RateFacts, price_facts, problem_of_rate
    from kbtool.ledger.rates import find_rate, sound_ledger
    from kbtool.model.cost import CostLine
    from kbtool.model.errors import UsageError
    from kbtool.model.price import currency_of
    from kbtool.store.edit import add_item

    base = knowledge_base(ctx)
    path, record = current(base, name)
    if amount is None and rate is None:
        raise UsageError("give AMOUNT, or --rate to derive it from")
    if basis is None and amount is not None:
        raise UsageError("give the basis of the amount: --basis billed, estimated or claimed")
    if amount is None and basis not in (None, "estimated"):
        raise UsageError(f"a {basis} amount must be given: AMOUNT is missing")
    if invoice is not None and basis != "billed":
        raise UsageError(
            "an amount on an invoice is billed: give --basis billed, or leave --invoice out"
        )
    ledger = sound_ledger(base)
    found = None if rate is None else find_rate(ledger, "--rate", rate, kind)
    paid_in = (currency or ("USD" if found is None else currency_of(found.rate))).upper()
    given: dict[str, str | None] = {
        "kind": kind,
        "amount": None if amount is None else amount.strip(),
        "currency": None if paid_in == "USD" else paid_in,
        "basis": basis or "estimated",
        "duration": duration,
        "rate": None if found is None else found.rate.text,
        "card": card,
        "invoice": invoice,
        "note": remark,
    }
    if found is not None and found.price is not None:
        price = found.price
        given["rate_id"] = price.id
        if card is None and _other_card(record, price.card):
            given["card"] = price.card
        paid = RateFacts(
            [], price.id, kind, price.rate.text, record.day, record.card_of(given["card"])
        )
        if problem := problem_of_rate(paid, price_facts(price)):
            raise UsageError(f"--rate: {problem}")
    line = item_of(CostLine, given)
    # Read back: the amount of an open line follows from the session's time.
    added = add_item(path, "costs", line).costs[-1]
    if as_json:
        cost_ = added.model_dump(mode="json", exclude_none=True)
        print_json({"session": record.id, "path": base.shown(path), "cost": cost_})
    else:
        click.echo(f"{record.id}: {cost_line(added)}")


def _other_card(record: Session, card: str | None) -> bool:
    """Whether the price is for another card than the session's."""
    own = record.environment.card if record.environment else None
    return card is not None and (own is None or card.lower() not in own.lower())
