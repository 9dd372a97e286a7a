"""What an audit came to: claims with their grades, in words, and as scripts read them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

from kbtool.checks.paths import locate
from kbtool.ledger.claims.arithmetic import derive
from kbtool.ledger.claims.operands import Leaf, Operands, Records, Unknown
from kbtool.ledger.claims.verdict import verdict
from kbtool.ledger.claims.words import expression, shown
from kbtool.model import agreement, figure_text
from kbtool.model.base import Quantity
from kbtool.model.claim import IN_WORDS
from kbtool.model.figures import Figure, NoFigure, WrongUnits
from kbtool.store.tree import Entry, KnowledgeBase

Grade = Literal["consistent", "inconsistent", "decision", "undetermined"]
GRADES: tuple[Grade, ...] = get_args(Grade)
WRONG: frozenset[Grade] = frozenset(("inconsistent", "decision"))
"""Grades that are findings until they are acknowledged."""

_MEANS = {"mean": "arithmetic", "geometric_mean": "geometric", "harmonic_mean": "harmonic"}
"""Kinds of mean, in words."""


@dataclass(slots=True)
class Item:
    """One claim and its grade. Its figure is computed when asked for."""

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
    finding: str | None = None
    """What comes out, where that is in words."""
    why: str | None = None
    """Why nothing comes out, or nothing that can be held against the claim."""
    turns: tuple[str, ...] = ()
    """References to what rests on it and changes."""
    acknowledged: str | None = None
    """The reason that the record gives for leaving it so."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Of a count, which things; of an outcome, what bears it out."""


class Computation(NamedTuple):
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

    def derived(self, item: Item) -> str | None:
        """What comes out, in the unit of the claim; ``None`` where nothing does."""
        if item.figure is not None and isinstance(item.stated, Quantity):
            return figure_text.text_of(item.figure, item.stated)
        return item.finding

    def computation(self, item: Item) -> Computation:
        """The computation of one claim, in words."""
        if item.how is None or item.how == "fact":
            return Computation(item.finding, item.why, "", ())
        remarks = [item.why]
        if item.figure is not None and isinstance(item.stated, Quantity) and item.why is None:
            if item.how in _MEANS:
                remarks.append(_means(item, item.stated, self.records))
            if item.grade in WRONG:
                margin = figure_text.margin_of(item.figure, item.stated)
                remarks += [
                    agreement.off_by(item.stated, item.figure),
                    f"between {margin} with the rounding of its operands" if margin else None,
                ]
        why = "; ".join(remark for remark in remarks if remark) or None
        leaves = _leaves_of(item.how, item.of, item.record, self.records)
        text = expression(item.how, item.of, self.records, item.record)
        if item.fields:
            text += ", where " + " and ".join(f"{k} is {v}" for k, v in item.fields.items())
        return Computation(self.derived(item), why, text, leaves)

    def place(self, record: str, path: str) -> tuple[str, int]:
        """File and line of a path in a record; the last key of it that is there."""
        entry: Entry[Any] | None = self.base.sessions.get(record) or self.base.patterns.get(record)
        if entry is None or entry.document is None:
            run = self.base.run(record)
            assert run is not None  # a computation has named it
            return run.path, 1
        document = entry.document
        top, _, rest = path.partition(".")
        keys = rest.split(".") if rest else []
        for length in range(len(keys), 0, -1):
            found = locate(document.data.get(top), ".".join(keys[:length]))
            if found:
                return entry.path, document.line([top, *found[0]])
        return entry.path, document.line([top])


def _leaves_of(how: str, of: Sequence[Any], own: str, records: Records) -> tuple[Leaf, ...]:
    """The operands of a derivation, as far as they are known."""
    lookup = Operands(records, own)
    try:
        if how in IN_WORDS:
            verdict(lookup, how, of)
        else:
            derive(lookup, how, of)
    except (Unknown, NoFigure, WrongUnits):
        pass
    return tuple(lookup.leaves)


def _means(item: Item, stated: Quantity, records: Records) -> str | None:
    """Which mean gives the stated figure, and what the others give."""
    values: list[str] = []
    fitting: list[str] = []
    for how, name in _MEANS.items():
        try:
            figure = derive(Operands(records, item.record), how, item.of)
            values.append(f"{name} {figure_text.text_of(figure, stated)}")
            if agreement.agrees(stated, figure):
                fitting.append(name)
        except (Unknown, NoFigure, WrongUnits):
            continue
    gives = f"the {' and the '.join(fitting)} mean gives it" if fitting else "no mean gives it"
    return f"{gives}; of these figures: {', '.join(values)}"


@dataclass
class Answer:
    """An audit as commands print it."""

    findings: list[dict[str, Any]]
    """The claims that were asked for, in the order of a report's items."""
    stale: list[dict[str, Any]]
    counts: dict[str, int]
    """Those of a report, of all claims."""
    left_out: list[str]
    """Files that do not load."""

    @property
    def passed(self) -> bool:
        """Whether every record loads, everything wrong is acknowledged, and nothing else is."""
        return not (self.left_out or self.counts["unacknowledged"] or self.counts["stale"])

    def as_json(self) -> dict[str, Any]:
        """The contract that scripts rely on: findings with their grade, and counts."""
        return {
            "findings": [one for one in self.findings if one["grade"] != "undetermined"],
            "undetermined": [one for one in self.findings if one["grade"] == "undetermined"],
            "stale": self.stale,
            "counts": self.counts,
            "left_out": self.left_out,
        }


def answer_of(
    report: Report, grades: Collection[Grade] = GRADES, *, in_full: bool = False
) -> Answer:
    """The answer that a report is.

    Args:
        report: the audit.
        grades: the grades to list; the counts are always of all.
        in_full: with the computation of consistent claims too.
    """
    return Answer(
        [finding_of(report, item, in_full) for item in report.items if item.grade in grades],
        [
            {**dict(zip(("path", "line"), report.place(s.record, s.where), strict=True)),
             "record": s.record, "message": s.message}
            for s in report.stale
        ],
        report.counts,
        sorted(finding.path for finding in report.base.findings),
    )  # fmt: skip


def finding_of(
    report: Report, item: Item, in_full: bool = False, place: tuple[str, int] | None = None
) -> dict[str, Any]:
    """One claim; of one that is consistent, what came out and only in full how.

    Args:
        report: the audit.
        item: the claim.
        in_full: see ``answer_of``.
        place: where it stands; looked up without it.
    """
    path, line = place or report.place(item.record, item.where)
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
    if item.grade == "consistent" and not in_full:
        return finding
    computed = report.computation(item)
    return finding | {
        "how": item.how,
        "expression": computed.expression or None,
        "operands": [_operand(report, leaf) for leaf in computed.leaves],
        "why": computed.why,
        "turns": list(item.turns),
        "acknowledged": item.acknowledged,
    }


def _operand(report: Report, leaf: Leaf) -> dict[str, Any]:
    value = shown(leaf.value)
    if leaf.record is None or leaf.path is None:
        return {"value": value, "path": None, "line": None}
    path, line = report.place(leaf.record, leaf.path)
    return {"value": value, "path": path, "line": line}
