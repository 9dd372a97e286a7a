"""What a derivation gives: operands found in the records, then reckoned with.

Two kinds of answer. A figure comes out of arithmetic (``derive``). A verdict comes out of words,
times and conditions (``verdict``): whether records bear a claim of success out, whether times run
forwards, whether two figures were measured under the same conditions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from fractions import Fraction
from functools import cache, cached_property
from itertools import pairwise
from typing import Any, NamedTuple

from pydantic import BaseModel

from kbtool.ledger.faults import Faults
from kbtool.model import figures
from kbtool.model.address import AddressError, item_key, resolve, split_reference
from kbtool.model.base import Instant, Quantity
from kbtool.model.claim import IN_WORDS, Claim, Derivation
from kbtool.model.figures import (
    ADDED,
    OPERATIONS,
    Figure,
    NoFigure,
    Span,
    Unit,
    WrongUnits,
)
from kbtool.model.pattern import Pattern
from kbtool.model.run import Run
from kbtool.model.session import Bug, CostLine, Fix, Row, Session
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


class Verdict(NamedTuple):
    """What words, times or conditions say of a claim."""

    holds: bool
    derived: str
    """What they show."""
    mixed: bool = False
    """Whether a part of them shows the opposite."""


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

    def _find(self, record: BaseModel, id_: str, path: str) -> Any:
        """``resolve``, with the items of the record's own lists looked up rather than searched."""
        field, _, rest = path.partition(".")
        if rest:
            keys = rest.split(".")
            items = self._items_of(record, id_, field)
            for length in range(len(keys), 0, -1):
                item = items.get(".".join(keys[:length]))
                if item is not None and (length < len(keys) or not isinstance(item, CostLine)):
                    return resolve(item, ".".join(keys[length:])) if length < len(keys) else item
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


MEANS = {"mean": "arithmetic", "geometric_mean": "geometric", "harmonic_mean": "harmonic"}
"""Kinds of mean, in words."""


def records_of(base: KnowledgeBase) -> Records:
    """Every session and pattern that loads, and the runs that a derivation names."""
    sessions = {id_: entry.record for id_, entry in base.sessions.items()}
    patterns = {id_: entry.record for id_, entry in base.patterns.items()}

    def run(id_: str) -> Run | None:
        entry = base.run(id_)
        return entry.record if entry else None

    return Records({**sessions, **patterns}, list(sessions), run)


class Reckoning:
    """Reckons derivations of one record; remembers the operands met on the way.

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

    def derive(self, how: str, of: Sequence[Any], where: Mapping[str, str] | None = None) -> Figure:
        """The figure that follows; of a count, ``where`` says of what.

        Raises:
            Unknown: an operand is not known, or is no figure.
            WrongUnits: the operands cannot be reckoned with each other.
            NoFigure: nothing comes out: it divides by zero.
        """
        if how == "count":
            things = [thing for operand in of for thing in self._things(operand)]
            return figures.whole(sum(_is(thing, where or {}) for thing in things))
        if how == "elapsed":
            return self._elapsed(of)
        operands = [one for operand in of for one in self._figures(operand, how)]
        if not operands:
            raise Unknown("an empty list has no figures")
        return OPERATIONS[how](operands)

    def verdict(
        self, how: str, of: Sequence[Any], where: Mapping[str, str] | None = None
    ) -> Verdict:
        """What words, times or conditions show; of an outcome, ``where`` says what bears it out.

        Raises:
            Unknown: they show nothing either way.
        """
        if how == "outcome":
            return self._outcome(of, where or {})
        return self._order(of) if how == "order" else self._alike(of)

    def same_conditions(self, of: Sequence[Any]) -> None:
        """Ask of two figures that are said to be the same whether they were measured alike.

        Raises:
            Unknown: they were not, or one does not say how.
        """
        alike = self._alike(of)
        if not alike.holds:
            raise Unknown(alike.derived)

    def version(self, how: str, of: Sequence[Any], stated: Quantity) -> Verdict | None:
        """Of a version that is said to stand elsewhere: whether it does; ``None`` of anything else.

        ``2.7`` is 2.7.1 too, and not 2.2.1.
        """
        if how != "same" or not isinstance(of[0], str):
            return None
        found = self.records.at(of[0], self.own)
        if not isinstance(found, str):
            return None
        wanted, there = _VERSION.fullmatch(stated.text), _VERSION.match(found)
        if wanted is None or there is None:
            return None
        short, long = wanted[0].split("."), there[0].split(".")
        return Verdict(long[: len(short)] == short, found)

    def _figures(self, operand: Any, how: str) -> Iterator[Figure]:
        """The figure of an operand; of a list, those of all its items."""
        if isinstance(operand, Derivation):
            yield self.derive(operand.how, operand.of)
        elif isinstance(operand, str):
            claim = self.records.claim(operand, self.own)
            value = self.records.at(operand, self.own)
            for one in value if isinstance(value, list) else (value,):
                self._note(one, operand)
                if claim in self.instead:
                    yield self.instead[claim]  # type: ignore[index]
                else:
                    yield self._figure(one, operand, how)
        elif isinstance(operand, Given):
            self.leaves.append(Leaf(operand.value, self.own, operand.path))
            yield self._figure(operand.value, operand.path, how)
        else:
            self.leaves.append(Leaf(operand, None, None))
            yield self._figure(operand, str(operand), how)

    def _figure(self, value: Any, name: str, how: str) -> Figure:
        if isinstance(value, Claim):
            value = value.stated
        if isinstance(value, CostLine) and value.amount is not None:
            return figures.money(value.amount, value.currency)
        if value is None or isinstance(value, CostLine):
            raise Unknown(f"{name} is not known")
        if not isinstance(value, Quantity):
            raise Unknown(f"{name} is no figure")
        return figures.figure_of(value, how in ADDED)

    def _things(self, operand: Any) -> Iterator[Any]:
        """What an operand of a count stands for: one thing, or all that a list holds."""
        if isinstance(operand, str):
            value = self.records.at(operand, self.own)
            self._note(value, operand)
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

    def _moment(self, operand: Any) -> Instant:
        value = self.records.at(operand, self.own) if isinstance(operand, str) else operand
        if isinstance(value, Given):
            self.leaves.append(Leaf(value.value, self.own, value.path))
            value = value.value
        elif isinstance(operand, str):
            self._note(value, operand)
        else:
            self.leaves.append(Leaf(value, None, None))
        if value is None:
            raise Unknown(f"{operand} is not known")
        if not isinstance(value, Instant):
            raise Unknown(f"{operand} is no time")
        return value

    def _elapsed(self, of: Sequence[Any]) -> Figure:
        earlier, later = (self._moment(operand) for operand in of)
        at = _seconds(_since(later, earlier))
        # A clock read to the minute may be up to a minute behind.
        slack = max(_resolution(earlier), _resolution(later))
        span = Span(at - slack, at, at + slack)
        return Figure(span, span, Unit(Fraction(1), (("s", 1),), ()))

    def _order(self, of: Sequence[Any]) -> Verdict:
        moments = [self._moment(operand) for operand in of]
        for earlier, later in pairwise(moments):
            passed = _since(later, earlier)
            if passed < timedelta(0):
                return Verdict(False, f"{later} is {_spoken(-passed)} before {earlier}")
        return Verdict(True, " ≤ ".join(str(moment) for moment in moments))

    def _outcome(self, of: Sequence[Any], where: Mapping[str, str]) -> Verdict:
        # What was found, in which record → the figures that say so.
        said: dict[bool | None, dict[tuple[str, str, str], list[str]]]
        said = {True: {}, False: {}, None: {}}
        for operand in of:
            if not isinstance(operand, str):
                raise Unknown("an outcome derives from records only")
            value = self.records.at(operand, self.own)
            self._note(value, operand)
            name = split_reference(operand)[0]
            word = word_of(value)
            if isinstance(value, Bug) and "status" in where:
                # As its session left it, later ones may not have left it.
                word = self.records.faults.status((name or self.own, value.id))
                value = value.model_copy(update={"status": word})
            when = self.records.when(name, self.own) if name else ""
            speaks = _is(value, where) if where else bears_out(value)
            text = f"{shown(value)}, {word}" if word else shown(value)
            found = said[speaks].setdefault((name or "", text, when), [])
            found.append(operand.removeprefix("#"))
        if said[False] and said[True]:
            both = f"{_findings(said[False])}; and yet {_findings(said[True])}"
            return Verdict(False, both, mixed=True)
        for holds in (False, True):
            if said[holds]:
                return Verdict(holds, _findings(said[holds]))
        raise Unknown(f"neither borne out nor contradicted: {_findings(said[None])}")

    def _alike(self, of: Sequence[Any]) -> Verdict:
        sides = []
        for operand in of:
            cases = self._cases(operand)
            if not cases or not all(cases):
                said = operand
                if isinstance(operand, Derivation):
                    said = expression(operand.how, operand.of, self.records, self.own)
                raise Unknown(f"{said} does not say under which conditions it was measured")
            for reference in references([operand]):
                self._note(self.records.at(reference, self.own), reference)
            sides.append(cases)
        shared = {key for case in sides[0] for key, _ in case}
        shared &= {key for case in sides[1] for key, _ in case}
        if not shared:
            raise Unknown("their conditions have no key in common")
        kept = [
            {frozenset((k, v) for k, v in case if k in shared) for case in cases} for cases in sides
        ]
        if kept[0] == kept[1]:
            return Verdict(True, f"both at {_conditions(kept[0])}")
        return Verdict(
            False, f"unlike: one is at {_conditions(kept[0])}, the other at {_conditions(kept[1])}"
        )

    def _cases(self, operand: Any) -> list[frozenset[tuple[str, str]]]:
        """The cases of every measured figure that an operand derives from; empty ones unsaid."""
        found: list[frozenset[tuple[str, str]]] = []
        waiting: list[tuple[Any, str]] = [(operand, self.own)]
        seen: set[tuple[str, str]] = set()
        while waiting:
            one, own = waiting.pop()
            if isinstance(one, Derivation):
                waiting += [(inner, own) for inner in one.of]
            elif isinstance(one, str) and (one, own) not in seen:
                seen.add((one, own))
                claim = self.records.claim(one, own)
                if claim is not None:
                    of = self.records.claim_named(*claim).of
                    waiting += [(inner, claim[0]) for inner in of]
                    continue
                case = self._case(one, own)
                if case is not None:
                    found.append(case)
        return found

    def _case(self, reference: str, own: str) -> frozenset[tuple[str, str]] | None:
        """The case of the row that a figure stands in; ``None`` for what was not measured."""
        name, path = split_reference(reference)
        record = self.records.by_id.get(name or own)
        keys = path.split(".")
        for length in range(len(keys), 0, -1):
            try:
                node = resolve(record, ".".join(keys[:length]))  # type: ignore[arg-type]
            except AddressError:
                continue
            if isinstance(node, Row):
                return frozenset(node.case.items())
        return None

    def _note(self, value: Any, reference: str) -> None:
        name, path = split_reference(reference)
        self.leaves.append(Leaf(value, name or self.own, path))


def _is(thing: Any, where: Mapping[str, str]) -> bool:
    """Whether the fields of a thing are what ``where`` says."""
    fields = {name: getattr(thing, name, None) for name in where}
    for name, value in fields.items():
        if value is None:
            raise Unknown(f"{shown(thing)} does not say its {name}")
    return all(str(value) == where[name] for name, value in fields.items())


def leaves_of(how: str, of: Sequence[Any], own: str, records: Records) -> tuple[Leaf, ...]:
    """The operands of a derivation, as far as they are known."""
    reckoning = Reckoning(records, own)
    try:
        if how in IN_WORDS:
            reckoning.verdict(how, of)
        else:
            reckoning.derive(how, of)
    except (Unknown, NoFigure, WrongUnits):
        pass
    return tuple(reckoning.leaves)


_GOOD = frozenset(
    ("done", "pass", "passed", "fixed", "complete", "confirmed", "proved", "applied", "true")
)
_BAD = frozenset(
    ("failed", "fail", "timeout", "crashed", "open", "rejected", "terminated", "skipped",
     "contradicted", "not_reproduced", "false")
)  # fmt: skip


def bears_out(value: Any) -> bool | None:
    """Whether what a record says speaks for a claim of success; ``None`` if it says neither.

    A status speaks by its word, and so does what has one, as a step; a fix by its test, a figure by
    being more than nothing; a bug that was met speaks against the claim that it is gone.
    """
    value = word_of(value) or value
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return True if value in _GOOD else False if value in _BAD else None
    if isinstance(value, Quantity):
        return bool(value.high or value.low)
    return False if isinstance(value, Bug) else None


def word_of(value: Any) -> str | None:
    """The word by which a thing says how it ended; ``None`` of what has none."""
    if isinstance(value, Fix):
        return {True: "confirmed", False: "failed", None: "untested"}[value.confirmed]
    if isinstance(value, Bug) or not isinstance(value, BaseModel):
        return None
    for name in ("status", "verdict", "state"):
        word = getattr(value, name, None)
        if isinstance(word, str):
            return word
    passed = getattr(value, "passed", None)
    return None if passed is None else "passed" if passed else "failed"


def shown(value: Any) -> str:
    """What stands somewhere, in a few words."""
    if isinstance(value, Claim):
        value = value.stated if value.stated is not None else value.says
    if isinstance(value, CostLine):
        return "unknown" if value.amount is None else f"{value.amount} {value.currency}"
    if isinstance(value, BaseModel):
        names = (getattr(value, key, None) for key in ("title", "id", "name"))
        name = next(filter(None, names), None)
        return f"{_kind_of(value)} {name!r}" if name else _kind_of(value)
    if isinstance(value, (list, dict)):
        return f"{len(value)} items"
    if isinstance(value, bool):
        return str(value).lower()
    return "unknown" if value is None else str(value)


def _kind_of(value: BaseModel) -> str:
    """What a thing is, as people call it: a StepRecord is a step, a PlannedStep a planned step."""
    words = re.findall("[A-Z][a-z]*", type(value).__name__)
    return " ".join(words[:-1] if words[-1] in {"Record", "Result", "Entry"} else words).lower()


_VERSION = re.compile(r"\d+(\.\d+)*")
_SYMBOLS = {"sum": " + ", "difference": " − ", "product": " × ", "ratio": " ÷ "}
_PHRASES = {
    "percent": "{} in per cent of {}",
    "change": "change from {1} to {0}",
    "saving": "saving of {} against {}",
    "elapsed": "from {} to {}",
    "same": "{}",
    "alike": "{} beside {}",
}


def expression(how: str, of: Sequence[Any], records: Records, own: str) -> str:
    """A derivation with its figures put in: ``107 min × 0.20 USD/h``."""
    operands = [_operand(operand, records, own) for operand in of]
    if how in _SYMBOLS:
        return _SYMBOLS[how].join(operands)
    if how in _PHRASES:
        return _PHRASES[how].format(*operands)
    return f"{how.replace('_', ' ')} of {', '.join(operands)}"


def references(of: Sequence[Any]) -> Iterator[str]:
    """What operands refer to, and those of the derivations among them."""
    for operand in of:
        if isinstance(operand, Derivation):
            yield from references(operand.of)
        elif isinstance(operand, str):
            yield operand


def _operand(operand: Any, records: Records, own: str) -> str:
    if isinstance(operand, Derivation):
        return f"({expression(operand.how, operand.of, records, own)})"
    if isinstance(operand, Given):
        return str(operand.value)
    if not isinstance(operand, str):
        return str(operand)
    try:
        return shown(records.at(operand, own))
    except Unknown:
        return operand


def _since(later: Instant, earlier: Instant) -> timedelta:
    passed = later.since(earlier)
    if passed is None:
        raise Unknown(f"of {earlier} and {later} one has no zone")
    return passed


def _seconds(passed: timedelta) -> Fraction:
    return Fraction(passed // timedelta(microseconds=1), 10**6)


def _resolution(moment: Instant) -> Fraction:
    """The unit of a clock's last figure: a minute, or a second and less."""
    return Fraction(60) if re.fullmatch(r".{10}.\d\d:?\d\d([Z+-].*)?", moment.text) else Fraction(1)


def _spoken(passed: timedelta) -> str:
    minutes = int(passed.total_seconds() // 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"


def _findings(said: Mapping[tuple[str, str, str], list[str]]) -> str:
    """Each finding with its figure, or with their number where several of a record say the same."""
    parts = []
    for (record, value, when), places in said.items():
        of = f" of {record}" if record else ""
        subject = f"{places[0]} is" if len(places) == 1 else f"{len(places)} figures{of} are"
        parts.append(f"{subject} {value}" + (f" ({when})" if when else ""))
    return "; ".join(parts)


def _conditions(cases: Iterable[frozenset[tuple[str, str]]]) -> str:
    said = sorted(" ".join(f"{k}={v}" for k, v in sorted(case)) or "unsaid" for case in cases)
    return f"{said[0]}" if len(said) == 1 else f"an average over {len(said)}: {', '.join(said)}"
