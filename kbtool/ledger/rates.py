"""Prices by name, and figures by reference: what an option of a command may say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from kbtool.model.address import AddressError, resolve, split_reference
from kbtool.model.base import Quantity, Rate
from kbtool.model.cost import CostKind
from kbtool.model.errors import RecordError, UsageError
from kbtool.model.ledger import Ledger, Price
from kbtool.store.scan import LEDGER

if TYPE_CHECKING:
    from kbtool.store.tree import KnowledgeBase


class Found(NamedTuple):
    """A rate, and the entry of the ledger that it comes from, if it does."""

    rate: Quantity
    price: Price | None


def sound_ledger(base: KnowledgeBase) -> Ledger:
    """The ledger; an empty one where there is none.

    Raises:
        RecordError: it does not load.
    """
    ledger = base.ledger
    own = [f"  {finding}" for finding in base.findings if finding.path == f"sessions/{LEDGER}"]
    if own:
        raise RecordError("\n".join([f"sessions/{LEDGER} is invalid; correct it first:", *own]))
    return ledger


def find_rate(ledger: Ledger, option: str, text: str, kind: CostKind | None = None) -> Found:
    """The rate that an option gives: by its id in the ledger, or as a price.

    Args:
        ledger: the ledger.
        option: the option's name, for the message.
        text: what it was given.
        kind: what a rate of the ledger has to be of; anything if ``None``.

    Raises:
        UsageError: it is neither, or of another kind.
    """
    price = ledger.price(text)
    if price is not None and kind is not None and price.kind != kind:
        known = ", ".join(one.id for one in ledger.rates if one.kind == kind) or "none yet"
        raise UsageError(
            f"{option}: {price.id} is a rate of {price.kind}, not of {kind}; of {kind} there is"
            f" {known}"
        )
    if price is not None:
        return Found(price.rate, price)
    try:
        return Found(figure(Rate, text), None)
    except ValueError:
        known = ", ".join(price.id for price in ledger.rates) or "none yet"
        raise UsageError(
            f"{option}: {text!r} is neither a rate of sessions/ledger.yaml ({known}) nor a price;"
            " write one such as '0.20 USD/h'"
        ) from None


def find_figure(base: KnowledgeBase, option: str, kind: Any, text: str) -> Quantity:
    """The figure that an option gives: as it is, or as RECORD#path of one that a record states.

    Args:
        base: the knowledge base.
        option: the option's name, for the message.
        kind: the annotated quantity that it has to be: ``Duration``, ``Rate``, ``Amount`` …
        text: what it was given.

    Raises:
        UsageError: it is no such figure, or a bound.
        NotFoundError: there is no such record.
    """
    stated: object = text
    if "#" in text:
        record, path = split_reference(text)
        if record is None:
            raise UsageError(f"{option}: {text!r} names no record; write SESSION{text}")
        known = base.patterns[record] if record in base.patterns else base.session(record)
        try:
            stated = resolve(known.record, path)
        except AddressError as error:
            raise UsageError(f"{option}: {error}") from None
    try:
        found = figure(kind, stated)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None
    if found.relation not in {"=", "~"}:
        raise UsageError(f"{option}: {found} is a bound; give a figure or a range")
    return found


def figure(kind: Any, stated: object) -> Quantity:
    """``stated`` as a quantity of its kind.

    Raises:
        ValueError: it is none; the message says what the kind takes.
    """
    try:
        found: Quantity = TypeAdapter(kind).validate_python(stated)
    except ValidationError as error:
        message = error.errors(include_url=False)[0]["msg"]
        raise ValueError(message.removeprefix("Value error, ")) from None
    return found
