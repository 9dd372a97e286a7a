"""The audit: every claim recomputed from the figures that determine it, and graded.

``consistent``: what is stated can be what comes out, rounding honoured; ``inconsistent``: it can't;
``decision``: it cannot, and a decision, a plan or an outcome of a record rests on the part that
changes: a sign, a bound, a verdict. A claim whose operands nobody knows is ``undetermined``: it is
counted, and never called wrong.

What rests on a claim is what the record says (``rests_on``), and what can be derived: a decision or
a plan of the record rests on the claims that hold its own figures against each other. Where such a
claim holds only because a figure below it is wrong, the wrong figure turns the decision.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kbtool.ledger.claims.arithmetic import derive
from kbtool.ledger.claims.implied import LATER, Implied, Links, implied
from kbtool.ledger.claims.operands import Operands, Record, Records, Unknown, records_of, references
from kbtool.ledger.claims.report import WRONG, Grade, Item, Report, Stale
from kbtool.ledger.claims.ties import Around, around, ties_of
from kbtool.ledger.claims.verdict import same_conditions, verdict, version
from kbtool.model import agreement
from kbtool.model.address import split_reference
from kbtool.model.base import Quantity
from kbtool.model.claim import Claim
from kbtool.model.figures import Figure, NoFigure, WrongUnits
from kbtool.model.session import Session
from kbtool.store.pool import collector_off
from kbtool.store.tree import KnowledgeBase

Key = tuple[str, str]
"""A claim: its record, its id."""


def audit(base: KnowledgeBase) -> Report:
    """Recompute and grade every claim of every record that loads."""
    with collector_off():
        ties = {id_: ties_of(entry.record) for id_, entry in base.sessions.items()}
        return audit_of(base, around(str(base.root), ties))


def audit_of(base: KnowledgeBase, known: Around) -> Report:
    """The same of a part of a knowledge base.

    Args:
        base: the records; no other record refers to them, and they to none.
        known: what is known of all sessions.
    """
    return _Audit(base, known).report()


@dataclass
class _Node:
    """A claim that somebody wrote down, on its way through the audit."""

    claim: Claim
    own: str
    needs: list[Key]
    """The claims whose figures it derives from."""
    item: Item | None = None
    figure: Figure | None = None


class _Audit:
    def __init__(self, base: KnowledgeBase, known: Around) -> None:
        self.base = base
        self.around = known
        self.records = records_of(base)
        self.all = self.records.by_id
        self.nodes = {
            (id_, claim.id): _Node(claim, id_, list(self._needs(claim.of, id_)))
            for id_, record in self.all.items()
            for claim in record.claims
        }
        self.rests: dict[Key, dict[str, None]] = defaultdict(dict)
        """Claim → what rests on it."""
        self.corrected: dict[Key, Figure] = {}
        """Claim → the figure that it should have been."""
        self.turns: dict[Key, dict[str, None]] = defaultdict(dict)
        self.typed: set[Key] = set()
        """Claims whose operands stand in no record but in claims like them, with no source."""
        self.stale: list[Stale] = []

    def report(self) -> Report:
        """See ``audit``."""
        for id_, record in self.all.items():
            self._note_rests(id_, record)
        ordered, circular = _in_line(self.nodes)
        for key in circular:
            node = self.nodes[key]
            reason = "it derives from itself; see `kbtool check`"
            node.item = _item(node, Judged(None, None, None, reason))
        for key in ordered:
            self._judge_node(key)
        self._turn(ordered)
        items = list(self._items())
        for item in items:
            if item.grade in WRONG:
                item.acknowledged = self.all[item.record].acknowledged.get(item.where)
        self._find_stale(items)
        return Report(self.base, self.records, items, self.stale)

    def _needs(self, of: Sequence[Any], own: str) -> Iterator[Key]:
        for reference in references(of):
            claim = self.records.claim(reference, own)
            if claim is not None:
                yield claim

    def _note_rests(self, id_: str, record: Record) -> None:
        for path, targets in record.rests_on.items():
            for target in targets:
                key = self.records.claim(target, id_)
                if key is None:
                    where = f"rests_on.{path}"
                    self.stale.append(Stale(id_, where, f"{target} is no claim; name one"))
                else:
                    self.rests[key][f"{id_}#{path}"] = None
        for claim in record.claims:
            for reference in references(claim.of):
                name, path = split_reference(reference)
                parts = path.split(".")
                if name in (None, id_) and parts[0] in {"decisions", "plans"} and len(parts) > 1:
                    self.rests[id_, claim.id][f"{id_}#{parts[0]}.{parts[1]}"] = None

    def _judge_node(self, key: Key) -> None:
        node = self.nodes[key]
        claim = node.claim
        if claim.source is None and self._is_typed(key):
            self.typed.add(key)
        if claim.how is None:
            record = self.all[node.own]
            reason = record.unknown.get(f"claims.{claim.id}.how")
            why = reason or "nothing recorded determines it"
            node.item = _item(node, Judged(None, None, None, why))
            return
        judged = judge(claim.how, claim.of, claim.stated, node.own, self.records, where=claim.where)
        if judged.holds and key in self.typed:
            why = "rests on typed figures alone: name where they stand, or the source of the claim"
            judged = Judged(None, None, None, why)
        node.item = _item(node, judged)
        again = judged
        if any(need in self.corrected for need in node.needs):
            again = judge(
                claim.how, claim.of, claim.stated, node.own, self.records, self.corrected,
                claim.where,
            )  # fmt: skip
        if again.holds is False and again.figure is not None:
            self.corrected[key] = again.figure
        if key in self.rests:
            if _turned(claim, judged):
                self.turns[key].update(self.rests[key])
            elif _turned(claim, again):
                # It holds as stated and not as recomputed: what is wrong lies below it.
                for need in node.needs:
                    self.turns[need].update(self.rests[key])

    def _is_typed(self, key: Key) -> bool:
        node = self.nodes[key]
        return all(
            self.records.claim(reference, node.own) in self.typed
            for reference in references(node.claim.of)
        )

    def _turn(self, ordered: Sequence[Key]) -> None:
        """Hand what a figure turns down to the wrong figures that it derives from, and grade."""
        for key in reversed(ordered):
            turned = self.turns.get(key)
            node = self.nodes[key]
            if not turned or node.item is None:
                continue
            if node.item.grade == "inconsistent":
                node.item.grade = "decision"
                node.item.turns = tuple(turned)
            elif key in self.corrected:
                for need in node.needs:
                    self.turns[need].update(turned)

    def _items(self) -> Iterator[Item]:
        links = Links(self.records, self.around)
        for id_, record in self.all.items():
            if isinstance(record, Session):
                for made in implied(record, links):
                    yield implied_item(id_, made, judge_implied(made, id_, self.records))
            for claim in record.claims:
                item = self.nodes[id_, claim.id].item
                assert item is not None
                yield item

    def _find_stale(self, items: Sequence[Item]) -> None:
        at = {(item.record, item.where): item for item in items}
        wrong = {(item.record, item.where) for item in items if item.grade in WRONG}
        for id_, record in self.all.items():
            for where in record.acknowledged:
                if (id_, where) in wrong:
                    continue
                item = at.get((id_, where))
                message = (
                    f"{where} is {item.grade}: remove the acknowledgement"
                    if item is not None
                    else f"{where} is not an audited claim: correct the path, or remove it"
                )
                self.stale.append(Stale(id_, f"acknowledged.{where}", message))


class Judged(NamedTuple):
    """What recomputing one claim came to."""

    holds: bool | None
    """``None``: undetermined."""
    figure: Figure | None
    """What comes out, where that is a figure."""
    finding: str | None
    """What comes out, where that is in words."""
    why: str | None
    """Why nothing comes out, or nothing that can be held against the claim."""
    mixed: bool = False
    """Whether a part of what was found says the opposite."""


def judge(
    how: str,
    of: Sequence[Any],
    stated: Quantity | None,
    own: str,
    records: Records,
    instead: Mapping[Key, Figure] | None = None,
    where: Mapping[str, str] | None = None,
) -> Judged:
    """Recompute one claim and hold it against what is stated.

    Args:
        how: the operation.
        of: its operands.
        stated: the figure as stated; ``None`` for a claim in words.
        own: the record that the operands are of.
        records: all records.
        instead: figures to take in place of what claims state.
        where: of a count, which things; of an outcome, what bears it out.
    """
    lookup = Operands(records, own, instead)
    figure: Figure | None = None
    holds: bool | None = None
    finding = why = None
    mixed = False
    try:
        if how == "same" and len(of) == 2:
            same_conditions(lookup, of)
        if stated is None:
            holds, finding, mixed = verdict(lookup, how, of, where)
        elif (there := version(lookup, how, of, stated)) is not None:
            holds, finding, _ = there
        else:
            figure = derive(lookup, how, of, where)
            holds = agreement.agrees(stated, figure)
    except (Unknown, NoFigure) as error:
        why = str(error)
    except WrongUnits as error:
        holds, why = False, str(error)
    return Judged(holds, figure, finding, why, mixed)


def judge_implied(claim: Implied, own: str, records: Records) -> Judged:
    """Recompute a claim that the fields of the record ``own`` make."""
    if claim.how in {"fact", LATER}:
        is_open = claim.holds is None
        finding, why = (None, claim.derived) if is_open else (claim.derived, None)
        return Judged(claim.holds, None, finding, why)
    assert not isinstance(claim.stated, str)
    return judge(claim.how, claim.of, claim.stated, own, records, where=claim.where)


def implied_item(own: str, claim: Implied, judged: Judged) -> Item:
    """The item of a claim that the fields of the record ``own`` make."""
    return Item(
        own, claim.path, claim.path, claim.says, claim.stated, claim.how, claim.of,
        GRADES[judged.holds], True, judged.figure, judged.finding, judged.why,
        fields=claim.where or {},
    )  # fmt: skip


def _turned(claim: Claim, judged: Judged) -> bool:
    """Whether a verdict, the side of a bound or a sign is another when recomputed.

    A verdict that a part of the evidence bears out is no other one.
    """
    if judged.holds is not False or judged.mixed:
        return False
    if claim.stated is None or claim.stated.relation not in {"=", "~"}:
        return True
    return judged.figure is not None and agreement.sign_turns(claim.stated, judged.figure)


GRADES: dict[bool | None, Grade] = {
    True: "consistent", False: "inconsistent", None: "undetermined"
}  # fmt: skip
"""Whether a claim holds → its grade."""


def _item(node: _Node, judged: Judged) -> Item:
    claim = node.claim
    return Item(
        node.own, claim.id, f"claims.{claim.id}", claim.says, claim.stated, claim.how, claim.of,
        GRADES[judged.holds], False, judged.figure, judged.finding, judged.why,
        fields=claim.where,
    )  # fmt: skip


def _in_line(nodes: Mapping[Key, _Node]) -> tuple[list[Key], list[Key]]:
    """Claims, each after those that it derives from; and those that derive from themselves."""
    waits = {key: len(node.needs) for key, node in nodes.items()}
    needed_by: dict[Key, list[Key]] = defaultdict(list)
    for key, node in nodes.items():
        for need in node.needs:
            needed_by[need].append(key)
    ready = [key for key, count in waits.items() if count == 0]
    for key in ready:
        for other in needed_by.get(key, ()):
            waits[other] -= 1
            if waits[other] == 0:
                ready.append(other)
    return ready, [key for key, count in waits.items() if count > 0]
