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

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

from kbtool.checks.paths import locate
from kbtool.ledger.derive import (
    MEANS,
    Leaf,
    Reckoning,
    Record,
    Records,
    Unknown,
    expression,
    leaves_of,
    records_of,
    references,
    shown,
)
from kbtool.ledger.implied import Implied, Links, implied
from kbtool.model import figures
from kbtool.model.address import split_reference
from kbtool.model.base import Quantity
from kbtool.model.claim import Claim
from kbtool.model.figures import Figure, NoFigure, WrongUnits
from kbtool.model.session import Session
from kbtool.store.history import commits_known
from kbtool.store.pool import collector_off
from kbtool.store.tree import Entry, KnowledgeBase

Grade = Literal["consistent", "inconsistent", "decision", "undetermined"]
GRADES: tuple[Grade, ...] = get_args(Grade)
WRONG: frozenset[Grade] = frozenset(("inconsistent", "decision"))
"""Grades that are findings until they are acknowledged."""

Key = tuple[str, str]
"""A claim: its record, its id."""


@dataclass(slots=True)
class Item:
    """One claim and its grade. What it came to in figures is reckoned when asked for."""

    record: str
    claim: str
    """The claim's id; of one that the record's fields make, the field."""
    where: str
    """The path in the record, by which it is acknowledged."""
    says: str
    stated: Quantity | str | None
    """As stated; ``None`` for a claim in words."""
    how: str | None
    """The operation; ``fact`` of a fact; ``None`` where nothing determines the claim."""
    of: Sequence[Any]
    grade: Grade
    implied: bool
    """Whether the record's fields make the claim, rather than somebody who wrote it down."""
    figure: Figure | None = None
    """What comes out, where that is a figure."""
    said: str | None = None
    """What comes out, where that is in words."""
    why: str | None = None
    """Why nothing comes out, or nothing that can be held against the claim."""
    turns: tuple[str, ...] = ()
    """References to what rests on it and changes."""
    acknowledged: str | None = None
    """The reason that the record gives for leaving it so."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Of a count, which things; of an outcome, what bears it out."""


class Reckoned(NamedTuple):
    """What a claim came to, and from what."""

    derived: str | None
    """What comes out; ``None`` where nothing does."""
    why: str | None
    """What else there is to say: by how much it is off, why it is undetermined."""
    expression: str
    """The derivation with its figures put in."""
    leaves: tuple[Leaf, ...]
    """The operands, and where they stand."""


class Stale(NamedTuple):
    """An acknowledgement, or a link from what rests on a claim, that has nothing to name."""

    record: str
    where: str
    """Path in the record."""
    message: str


@dataclass
class Report:
    """What an audit came to."""

    base: KnowledgeBase
    records: Records
    items: list[Item]
    """By record, in the order of the work, patterns last; each record's in its own order."""
    stale: list[Stale] = field(default_factory=list)

    def only(self, records: Iterable[str]) -> Report:
        """The part that is about these records."""
        kept = set(records)
        return Report(
            self.base,
            self.records,
            [item for item in self.items if item.record in kept],
            [stale for stale in self.stale if stale.record in kept],
        )

    @property
    def counts(self) -> dict[str, int]:
        """Grade → claims; then how many wrong ones are acknowledged, and what is stale."""
        grades = Counter(item.grade for item in self.items)
        known = sum(item.acknowledged is not None for item in self.items if item.grade in WRONG)
        wrong = sum(grades[grade] for grade in WRONG)
        return {
            **{grade: grades[grade] for grade in GRADES},
            "acknowledged": known,
            "unacknowledged": wrong - known,
            "stale": len(self.stale),
        }

    @property
    def passed(self) -> bool:
        """Whether every record loads, everything wrong is acknowledged, and nothing else is."""
        counts = self.counts
        return not (self.base.findings or counts["unacknowledged"] or counts["stale"])

    def derived(self, item: Item) -> str | None:
        """What comes out, in the unit of the claim; ``None`` where nothing does."""
        if item.figure is not None and isinstance(item.stated, Quantity):
            return figures.text_of(item.figure, item.stated)
        return item.said

    def reckoned(self, item: Item) -> Reckoned:
        """The reckoning of one claim, in words."""
        if item.how is None or item.how == "fact":
            return Reckoned(item.said, item.why, "", ())
        remarks = [item.why]
        if item.figure is not None and isinstance(item.stated, Quantity) and item.why is None:
            if item.how in MEANS:
                remarks.append(_means(item, item.stated, self.records))
            if item.grade in WRONG:
                margin = figures.margin_of(item.figure, item.stated)
                remarks += [
                    figures.off_by(item.stated, item.figure),
                    f"between {margin} with the rounding of its operands" if margin else None,
                ]
        why = "; ".join(remark for remark in remarks if remark) or None
        leaves = leaves_of(item.how, item.of, item.record, self.records)
        text = expression(item.how, item.of, self.records, item.record)
        if item.fields:
            text += ", where " + " and ".join(f"{k} is {v}" for k, v in item.fields.items())
        return Reckoned(self.derived(item), why, text, leaves)

    def place(self, record: str, path: str) -> tuple[str, int]:
        """File and line of a path in a record; the last key of it that is there."""
        entry: Entry[Any] | None = self.base.sessions.get(record) or self.base.patterns.get(record)
        if entry is None or entry.document is None:
            run = self.base.run(record)
            assert run is not None  # a reckoning has named it
            return run.path, 1
        document = entry.document
        top, _, rest = path.partition(".")
        keys = rest.split(".") if rest else []
        for length in range(len(keys), 0, -1):
            found = locate(document.data.get(top), ".".join(keys[:length]))
            if found:
                return entry.path, document.line([top, *found[0]])
        return entry.path, document.line([top])


def audit(base: KnowledgeBase) -> Report:
    """Recompute and grade every claim of every record that loads."""
    with collector_off():
        return _Audit(base).report()


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
    def __init__(self, base: KnowledgeBase) -> None:
        self.base = base
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
        sessions = [record for record in self.all.values() if isinstance(record, Session)]
        commits = commits_known(str(self.base.root), _commits(sessions))
        links = Links(self.records.faults, commits, self.records)
        links.take(sessions)
        for id_, record in self.all.items():
            if isinstance(record, Session):
                for made in implied(record, links):
                    yield self._implied(id_, made)
            for claim in record.claims:
                item = self.nodes[id_, claim.id].item
                assert item is not None
                yield item

    def _implied(self, id_: str, claim: Implied) -> Item:
        if claim.how == "fact":
            said = (None, claim.derived) if claim.holds is None else (claim.derived, None)
            judged = Judged(claim.holds, None, *said)
        else:
            assert not isinstance(claim.stated, str)
            judged = judge(claim.how, claim.of, claim.stated, id_, self.records)
        return Item(
            id_, claim.path, claim.path, claim.says, claim.stated, claim.how, claim.of,
            _GRADES[judged.holds], True, judged.figure, judged.said, judged.why,
        )  # fmt: skip

    def _find_stale(self, items: Sequence[Item]) -> None:
        at = {(item.record, item.where): item for item in items}
        wrong = {(item.record, item.where) for item in items if item.grade in WRONG}
        for id_, record in self.all.items():
            for where in record.acknowledged:
                if (id_, where) in wrong:
                    continue
                item = at.get((id_, where))
                said = (
                    f"{where} is {item.grade}: remove the acknowledgement"
                    if item is not None
                    else f"{where} is no claim that is audited: mend the path, or remove it"
                )
                self.stale.append(Stale(id_, f"acknowledged.{where}", said))


class Judged(NamedTuple):
    """What recomputing one claim came to."""

    holds: bool | None
    """``None``: undetermined."""
    figure: Figure | None
    """What comes out, where that is a figure."""
    said: str | None
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
    reckoning = Reckoning(records, own, instead)
    figure: Figure | None = None
    holds: bool | None = None
    said = why = None
    mixed = False
    try:
        if how == "same" and len(of) == 2:
            reckoning.same_conditions(of)
        if stated is None:
            holds, said, mixed = reckoning.verdict(how, of, where)
        elif (version := reckoning.version(how, of, stated)) is not None:
            holds, said, _ = version
        else:
            figure = reckoning.derive(how, of, where)
            holds = figures.agrees(stated, figure)
    except (Unknown, NoFigure) as error:
        why = str(error)
    except WrongUnits as error:
        holds, why = False, str(error)
    return Judged(holds, figure, said, why, mixed)


def _means(item: Item, stated: Quantity, records: Records) -> str | None:
    """Which mean gives the stated figure, and what the others give."""
    values: list[str] = []
    fitting: list[str] = []
    for how, name in MEANS.items():
        try:
            figure = Reckoning(records, item.record).derive(how, item.of)
            values.append(f"{name} {figures.text_of(figure, stated)}")
            if figures.agrees(stated, figure):
                fitting.append(name)
        except (Unknown, NoFigure, WrongUnits):
            continue
    gives = f"the {' and the '.join(fitting)} mean gives it" if fitting else "no mean gives it"
    return f"{gives}; of these figures: {', '.join(values)}"


def _turned(claim: Claim, judged: Judged) -> bool:
    """Whether a verdict, the side of a bound or a sign is another when recomputed.

    A verdict that a part of the evidence bears out is no other one.
    """
    if judged.holds is not False or judged.mixed:
        return False
    if claim.stated is None or claim.stated.relation not in {"=", "~"}:
        return True
    return judged.figure is not None and figures.sign_turns(claim.stated, judged.figure)


_GRADES: dict[bool | None, Grade] = {
    True: "consistent", False: "inconsistent", None: "undetermined"
}  # fmt: skip


def _item(node: _Node, judged: Judged) -> Item:
    claim = node.claim
    return Item(
        node.own, claim.id, f"claims.{claim.id}", claim.says, claim.stated, claim.how, claim.of,
        _GRADES[judged.holds], False, judged.figure, judged.said, judged.why,
        fields=claim.where,
    )  # fmt: skip


def _commits(sessions: Iterable[Session]) -> Iterator[str]:
    """Every commit that a session names."""
    for session in sessions:
        of_repository = [session.repository.commit] if session.repository else []
        of_fixes = [fix.commit for fix in session.fixes]
        of_entries = [entry.sha for entry in session.commits]
        yield from filter(None, (*of_repository, *of_fixes, *of_entries))


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


def as_json(report: Report, grades: Iterable[Grade] = GRADES) -> dict[str, Any]:
    """The contract that scripts rely on: findings with their grade, and counts.

    Args:
        report: the audit.
        grades: the grades to list; the counts are always of all.
    """
    wanted = set(grades)
    listed = [item for item in report.items if item.grade in wanted]
    return {
        "findings": [_finding(report, item) for item in listed if item.grade != "undetermined"],
        "undetermined": [_finding(report, item) for item in listed if item.grade == "undetermined"],
        "stale": [
            {**dict(zip(("path", "line"), report.place(s.record, s.where), strict=True)),
             "record": s.record, "message": s.message}
            for s in report.stale
        ],
        "counts": report.counts,
        "left_out": sorted(finding.path for finding in report.base.findings),
    }  # fmt: skip


def _finding(report: Report, item: Item) -> dict[str, Any]:
    """One claim; of one that is consistent, what came out and not how."""
    path, line = report.place(item.record, item.where)
    finding: dict[str, Any] = {
        "path": path,
        "line": line,
        "record": item.record,
        "claim": item.claim,
        "says": item.says,
        "stated": None if item.stated is None else str(item.stated),
        "derived": report.derived(item),
        "grade": item.grade,
        "implied": item.implied,
    }
    if item.grade == "consistent":
        return finding
    came = report.reckoned(item)
    return finding | {
        "how": item.how,
        "expression": came.expression or None,
        "operands": [_operand(report, leaf) for leaf in came.leaves],
        "why": came.why,
        "turns": list(item.turns),
        "acknowledged": item.acknowledged,
    }


def _operand(report: Report, leaf: Leaf) -> dict[str, Any]:
    value = shown(leaf.value)
    if leaf.record is None or leaf.path is None:
        return {"value": value, "path": None, "line": None}
    path, line = report.place(leaf.record, leaf.path)
    return {"value": value, "path": path, "line": line}
