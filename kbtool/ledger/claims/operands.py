"""Operands: what the references of a derivation stand for, found in the records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from typing import Any, NamedTuple

from pydantic import BaseModel

from kbtool.ledger.faults import Faults
from kbtool.model import figures
from kbtool.model.address import (
    AddressError,
    figure_in,
    item_key,
    measuring_step,
    resolve,
    split_reference,
    unproved,
)
from kbtool.model.base import Instant, Quantity
from kbtool.model.claim import Claim, Derivation
from kbtool.model.cost import CostLine
from kbtool.model.figures import ADDED, Figure
from kbtool.model.pattern import Pattern
from kbtool.model.run import Run
from kbtool.model.session import Session
from kbtool.store.tree import KnowledgeBase

Record = Session | Pattern


class Unknown(Exception):  # noqa: N818 - an answer, not an error
    """An operand that no record knows, or that is no figure; the message says which."""


class Given(NamedTuple):
    """An operand that was looked up already: where it stands in the record, and the figure."""

    path: str
    value: Quantity | Instant


class Leaf(NamedTuple):
    """A figure that something derives from."""

    value: Any
    """What stands there; ``shown`` puts it in words."""
    record: str | None
    """The record that it stands in; ``None`` for a figure written in the derivation itself."""
    path: str | None
    """Where, in that record."""


class Records:
    """Sessions, patterns and runs by id, and what stands at a reference."""

    def __init__(
        self,
        records: Mapping[str, Record],
        order: Sequence[str] = (),
        run: Callable[[str], Run | None] = lambda _: None,
    ) -> None:
        """See the class.

        Args:
            records: id → session or pattern.
            order: the ids of the sessions, in the order of the work.
            run: id → the run, if there is one; asked for once, and only where a derivation names
                it, for runs are large.
        """
        self.by_id = records
        self._run = cache(run)
        self._indices: dict[tuple[str, str], dict[str, BaseModel]] = {}
        self._claims = {
            id_: {claim.id: claim for claim in record.claims}
            for id_, record in records.items()
            if record.claims
        }
        self._place = {id_: place for place, id_ in enumerate(order)}

    @cached_property
    def faults(self) -> Faults:
        """What became of every bug."""
        named = (self.by_id[id_] for id_ in self._place or self.by_id)
        return Faults([record for record in named if isinstance(record, Session)])

    def at(self, reference: str, own: str) -> Any:
        """What stands at a reference in the record ``own``.

        Raises:
            Unknown: nothing does.
        """
        name, path = split_reference(reference)
        record: BaseModel | None = self.by_id.get(name or own) or self._run(name or own)
        if record is None:
            raise Unknown(f"there is no record {name or own}; see `kbtool check`")
        try:
            return self._find(record, name or own, path)
        except AddressError as error:
            raise Unknown(f"{reference}: {error}") from None

    def run(self, reference: str) -> Run | None:
        """The run that a reference leads into, if it is one."""
        name, _ = split_reference(reference)
        return self._run(name) if name and name not in self.by_id else None

    def _find(self, record: BaseModel, id_: str, path: str) -> Any:
        """``resolve``, with the items of the record's own lists looked up rather than searched."""
        field, _, rest = path.partition(".")
        if rest:
            items = self._items_of(record, id_, field)
            if rest in items:
                return figure_in(items[rest])
            keys = rest.split(".")
            for length in range(len(keys) - 1, 0, -1):
                item = items.get(".".join(keys[:length]))
                if item is not None:
                    return resolve(item, ".".join(keys[length:]))
        return resolve(record, path)

    def _items_of(self, record: BaseModel, id_: str, field: str) -> dict[str, BaseModel]:
        """The items of a list of a record by their names, without those that share one."""
        found = self._indices.get((id_, field))
        if found is None:
            value = getattr(record, field, None) if field in type(record).model_fields else None
            found = {}
            shared = set()
            for item in value if isinstance(value, list) else ():
                key = item_key(item)
                if key in found:
                    shared.add(key)
                elif key is not None:
                    found[key] = item
            for key in shared:
                del found[key]
            self._indices[id_, field] = found
        return found

    def claim(self, reference: str, own: str) -> tuple[str, str] | None:
        """The record and the id of the claim whose figure a reference is, if it is one's."""
        name, path = split_reference(reference)
        field, _, rest = path.partition(".")
        claims = self._claims.get(name or own)
        if field != "claims" or claims is None:
            return None
        for id_ in (rest, rest.removesuffix(".stated")):
            if id_ in claims:
                return name or own, id_
        return None

    def claim_named(self, record: str, claim: str) -> Claim:
        """A claim that ``claim`` found."""
        return self._claims[record][claim]

    def when(self, record: str, than: str) -> str:
        """``later`` or ``earlier`` in the order of the work; empty where neither can be told."""
        here, there = self._place.get(record), self._place.get(than)
        if here is None or there is None or here == there:
            return ""
        return "later" if here > there else "earlier"


def records_of(base: KnowledgeBase) -> Records:
    """Every session and pattern that loads, and the runs that a derivation names."""
    sessions = {id_: entry.record for id_, entry in base.sessions.items()}
    patterns = {id_: entry.record for id_, entry in base.patterns.items()}

    def run(id_: str) -> Run | None:
        entry = base.run(id_)
        return entry.record if entry else None

    return Records({**sessions, **patterns}, list(sessions), run)


def references(of: Sequence[Any]) -> Iterator[str]:
    """What operands refer to, and those of the derivations among them."""
    for operand in of:
        if isinstance(operand, str):
            yield operand
        elif isinstance(operand, Derivation):
            yield from references(operand.of)


class Operands:
    """Looks up the operands of one record's derivations, and remembers those met on the way.

    Args:
        records: all records.
        own: the id of the record that the derivations stand in.
        instead: (record, claim) → the figure to take for that claim's in place of the stated one.
    """

    def __init__(
        self,
        records: Records,
        own: str,
        instead: Mapping[tuple[str, str], Figure] | None = None,
    ) -> None:
        self.records = records
        self.own = own
        self.instead = instead or {}
        self.leaves: list[Leaf] = []
        self._asked: tuple[str, str] | None = None
        """The problem that the runs solve whose times are operands, and one of these."""

    def at(self, reference: str) -> Any:
        """What stands at a reference; it is remembered.

        Raises:
            Unknown: nothing does.
        """
        value = self.records.at(reference, self.own)
        self._note(value, reference)
        return value

    def figures(self, operand: Any, how: str) -> Iterator[Figure]:
        """The figure of an operand that is no derivation; of a list, those of all its items.

        Args:
            operand: a reference, or a figure.
            how: the operation that it is an operand of.

        Raises:
            Unknown: it is not known, or is no figure.
        """
        if isinstance(operand, str):
            claim = self.records.claim(operand, self.own) if self.instead else None
            value = self.records.at(operand, self.own)
            self._check_measured(operand, value)
            for one in value if isinstance(value, list) else (value,):
                self._note(one, operand)
                if claim in self.instead:
                    yield self.instead[claim]  # type: ignore[index]
                else:
                    yield _figure(one, operand, how)
        elif isinstance(operand, Given):
            self.leaves.append(Leaf(operand.value, self.own, operand.path))
            yield _figure(operand.value, operand.path, how)
        else:
            self.leaves.append(Leaf(operand, None, None))
            yield _figure(operand, str(operand), how)

    def _check_measured(self, reference: str, value: Any) -> None:
        """Raise if a figure is a time that proves nothing, or of another problem than the others.

        Raises:
            Unknown: it is.
        """
        run = self.records.run(reference)
        step = measuring_step(run, split_reference(reference)[1], value) if run else None
        if run is None or step is None or step.result is None:
            return
        why = unproved(run, split_reference(reference)[1], step)
        if why:
            raise Unknown(f"{reference} proves nothing: {why}")
        if run.identity is None:
            return  # older records do not say what they solve
        asked = run.identity.problem_digest, reference
        first = self._asked or asked
        if first[0] != asked[0]:
            raise Unknown(f"{first[1]} and {reference} are times of different problems")
        self._asked = first

    def things(self, operand: Any) -> Iterator[Any]:
        """What an operand of a count stands for: one thing, or all that a list holds.

        Raises:
            Unknown: one of them is not known.
        """
        if isinstance(operand, str):
            value = self.at(operand)
            things = [value]
            if isinstance(value, (list, dict)):
                things = list(value.values() if isinstance(value, dict) else value)
            if any(thing is None for thing in things):
                raise Unknown(f"{operand} is not known")
            yield from things
            return
        if isinstance(operand, Quantity):
            self.leaves.append(Leaf(operand, None, None))
        yield operand

    def moment(self, operand: Any) -> Instant:
        """The time that an operand stands for.

        Raises:
            Unknown: it is not known, or is no time.
        """
        if isinstance(operand, str):
            value = self.at(operand)
        elif isinstance(operand, Given):
            value = operand.value
            self.leaves.append(Leaf(value, self.own, operand.path))
        else:
            value = operand
            self.leaves.append(Leaf(value, None, None))
        if value is None:
            raise Unknown(f"{operand} is not known")
        if not isinstance(value, Instant):
            raise Unknown(f"{operand} is no time")
        return value

    def _note(self, value: Any, reference: str) -> None:
        name, path = split_reference(reference)
        self.leaves.append(Leaf(value, name or self.own, path))


def _figure(value: Any, name: str, how: str) -> Figure:
    if isinstance(value, Quantity):
        return figures.figure_of(value, how in ADDED)
    if isinstance(value, Claim):
        value = value.stated
    if isinstance(value, CostLine) and value.amount is not None:
        return figures.money(value.amount, value.currency)
    if value is None or isinstance(value, CostLine):
        raise Unknown(f"{name} is not known")
    if not isinstance(value, Quantity):
        raise Unknown(f"{name} is no figure")
    return figures.figure_of(value, how in ADDED)
