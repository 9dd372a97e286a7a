"""Verdicts of claims in words: whether records bear a success out, times run forwards, and two
figures were measured under the same conditions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any, NamedTuple

from kbtool.ledger.claims.arithmetic import has_fields, since
from kbtool.ledger.claims.operands import Operands, Unknown, references
from kbtool.ledger.claims.words import expression, shown, word_of
from kbtool.model.address import AddressError, measuring_step, resolve, split_reference
from kbtool.model.base import Quantity
from kbtool.model.bug import Bug
from kbtool.model.claim import Derivation
from kbtool.model.kinds.logged import MetricsResult
from kbtool.model.measurement import Row


class Verdict(NamedTuple):
    """What words, times or conditions say of a claim."""

    holds: bool
    derived: str
    """What they show."""
    mixed: bool = False
    """Whether a part of them shows the opposite."""


def verdict(
    lookup: Operands, how: str, of: Sequence[Any], where: Mapping[str, str] | None = None
) -> Verdict:
    """What words, times or conditions show; of an outcome, ``where`` says what bears it out.

    Raises:
        Unknown: they show nothing either way.
    """
    if how == "outcome":
        return _outcome(lookup, of, where or {})
    return _order(lookup, of) if how == "order" else _alike(lookup, of)


def same_conditions(lookup: Operands, of: Sequence[Any]) -> None:
    """Ask of two figures that are said to be the same whether they were measured alike.

    Raises:
        Unknown: they were not, or one does not say how.
    """
    alike = _alike(lookup, of)
    if not alike.holds:
        raise Unknown(alike.derived)


def version(lookup: Operands, how: str, of: Sequence[Any], stated: Quantity) -> Verdict | None:
    """Of a version that is said to stand elsewhere: whether it does; ``None`` of anything else.

    ``2.7`` is 2.7.1 too, and not 2.2.1.
    """
    if how != "same" or not isinstance(of[0], str):
        return None
    found = lookup.records.at(of[0], lookup.own)
    if not isinstance(found, str):
        return None
    wanted, there = _VERSION.fullmatch(stated.text), _VERSION.match(found)
    if wanted is None or there is None:
        return None
    short, long = wanted[0].split("."), there[0].split(".")
    return Verdict(long[: len(short)] == short, found)


_VERSION = re.compile(r"\d+(\.\d+)*")


def _outcome(lookup: Operands, of: Sequence[Any], where: Mapping[str, str]) -> Verdict:
    # What was found, in which record → the figures that say so.
    findings: dict[bool | None, dict[tuple[str, str, str], list[str]]]
    findings = {True: {}, False: {}, None: {}}
    for operand in of:
        if not isinstance(operand, str):
            raise Unknown("an outcome derives from records only")
        value = lookup.at(operand)
        name = split_reference(operand)[0]
        word = word_of(value)
        if isinstance(value, Bug) and "status" in where:
            # As its session left it, later ones may not have left it.
            word = lookup.records.faults.status((name or lookup.own, value.id))
            value = value.model_copy(update={"status": word})
        when = lookup.records.when(name, lookup.own) if name else ""
        speaks = has_fields(value, where) if where else bears_out(value)
        unvalidated = _unvalidated(lookup, operand, value)
        if unvalidated:
            speaks, word = None, unvalidated
        text = f"{shown(value)}, {word}" if word else shown(value)
        places = findings[speaks].setdefault((name or "", text, when), [])
        places.append(operand.removeprefix("#"))
    if findings[False] and findings[True]:
        both = f"{_findings(findings[False])}; and yet {_findings(findings[True])}"
        return Verdict(False, both, mixed=True)
    for holds in (False, True):
        if findings[holds]:
            return Verdict(holds, _findings(findings[holds]))
    raise Unknown(f"neither borne out nor contradicted: {_findings(findings[None])}")


def _unvalidated(lookup: Operands, reference: str, value: Any) -> str | None:
    """Why what stands in a run is no result: a script, a command or another tool gave the value."""
    run = lookup.records.run(reference)
    if run is None:
        return None
    if run.why_no_test:
        return run.why_no_test
    step = measuring_step(run, split_reference(reference)[1], value)
    found = step.result if step else None
    return found.unvalidated if isinstance(found, MetricsResult) else None


def _order(lookup: Operands, of: Sequence[Any]) -> Verdict:
    moments = [lookup.moment(operand) for operand in of]
    for earlier, later in pairwise(moments):
        passed = since(later, earlier)
        if passed < timedelta(0):
            return Verdict(False, f"{later} is {_spoken(-passed)} before {earlier}")
    return Verdict(True, " ≤ ".join(str(moment) for moment in moments))


def _alike(lookup: Operands, of: Sequence[Any]) -> Verdict:
    sides = []
    for operand in of:
        cases = _cases(lookup, operand)
        if not cases or not all(cases):
            text = operand
            if isinstance(operand, Derivation):
                text = expression(operand.how, operand.of, lookup.records, lookup.own)
            raise Unknown(f"{text} does not say under which conditions it was measured")
        for reference in references([operand]):
            lookup.at(reference)
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


def _cases(lookup: Operands, operand: Any) -> list[frozenset[tuple[str, str]]]:
    """The cases of every measured figure that an operand derives from; empty ones unsaid."""
    found: list[frozenset[tuple[str, str]]] = []
    waiting: list[tuple[Any, str]] = [(operand, lookup.own)]
    seen: set[tuple[str, str]] = set()
    while waiting:
        one, own = waiting.pop()
        if isinstance(one, Derivation):
            waiting += [(inner, own) for inner in one.of]
        elif isinstance(one, str) and (one, own) not in seen:
            seen.add((one, own))
            claim = lookup.records.claim(one, own)
            if claim is not None:
                of = lookup.records.claim_named(*claim).of
                waiting += [(inner, claim[0]) for inner in of]
                continue
            case = _case(lookup, one, own)
            if case is not None:
                found.append(case)
    return found


def _case(lookup: Operands, reference: str, own: str) -> frozenset[tuple[str, str]] | None:
    """The case of the row that a figure stands in; ``None`` for what was not measured."""
    name, path = split_reference(reference)
    record = lookup.records.by_id.get(name or own)
    keys = path.split(".")
    for length in range(len(keys), 0, -1):
        try:
            node = resolve(record, ".".join(keys[:length]))  # type: ignore[arg-type]
        except AddressError:
            continue
        if isinstance(node, Row):
            return frozenset(node.case.items())
    return None


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


def _spoken(passed: timedelta) -> str:
    minutes = int(passed.total_seconds() // 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"


def _findings(findings: Mapping[tuple[str, str, str], list[str]]) -> str:
    """Each finding with its figure, or with their number where several of a record say the same."""
    parts = []
    for (record, value, when), places in findings.items():
        of = f" of {record}" if record else ""
        subject = f"{places[0]} is" if len(places) == 1 else f"{len(places)} figures{of} are"
        parts.append(f"{subject} {value}" + (f" ({when})" if when else ""))
    return "; ".join(parts)


def _conditions(cases: Iterable[frozenset[tuple[str, str]]]) -> str:
    texts = sorted(" ".join(f"{k}={v}" for k, v in sorted(case)) or "unsaid" for case in cases)
    return f"{texts[0]}" if len(texts) == 1 else f"an average over {len(texts)}: {', '.join(texts)}"
