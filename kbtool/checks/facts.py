"""What the rules across records need to know of one file; plain data that a cache can keep."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kbtool.model.finding import Finding
from kbtool.store.scan import FileKind

Location = list[str | int]
"""Keys and indices from the top of a file: ``["claims", 0, "of", 1]``."""

BUG_ROLES = frozenset(("fix", "recurrence"))
"""Links that must lead to a bug."""
SESSION_ROLES = frozenset(("follows", "stated_in", "since"))
"""Links that must name a session."""
PATTERN_ROLES = frozenset(("supersedes", "related", "evidence", "evidence against", "step"))
"""Links that must name a pattern."""


class Ref(NamedTuple):
    """A link from a place in this record to a record, or to a place in one."""

    role: str
    """What the link is: follows, supersedes, claim …; ``label`` where it names no id."""
    location: Location
    target: str
    """``RECORD``, ``RECORD#path``; never ``#path``, which the file's own check resolves."""


class RecipeFacts(NamedTuple):
    """A recipe, with the defaults and the choices of its parameters put in."""

    name: str
    location: Location
    kernel: str | None
    case_sets: list[tuple[Location, str]]
    targets: list[tuple[Location, str]]
    paths: list[tuple[Location, str]]


class MutantFacts(NamedTuple):
    """An edit that puts a bug back."""

    location: Location
    id: str
    kernel: str
    target: str
    variant: str | None
    file: str
    find: str


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


class InvoiceFacts(NamedTuple):
    """A cost line that names an invoice."""

    location: Location
    number: str
    amount: str
    currency: str
    note: str | None


class FigureFacts(NamedTuple):
    """A figure that prose takes from records."""

    line: int
    text: str
    """The figure, as the text has it."""
    target: str
    """Where it comes from: an address, or an operation over addresses."""
    of: list[str]
    """The addresses in it, RECORD#path, in order."""


class Found(NamedTuple):
    """What stands at a path in a record."""

    type: str
    """Its type's name; empty where nothing stands there."""
    claim: str
    """The id of the claim that it belongs to, if any."""
    figure: str
    """The figure that it is, if it is one."""
    problem: str
    """Why nothing stands there, or why it is no figure."""


@dataclass(slots=True)
class Facts:
    """One file, as other files see it."""

    path: str
    kind: FileKind
    id: str
    """The record's id; where the record does not load, the one that it or its name promises."""
    findings: list[Finding] = field(default_factory=list)
    """What is wrong with the file by itself."""
    valid: bool = True
    """Whether the record loads."""
    refs: list[Ref] = field(default_factory=list)
    recipes: list[RecipeFacts] = field(default_factory=list)
    bugs: list[tuple[str, str, Location]] = field(default_factory=list)
    """Bugs met before: their id here, SESSION#ID of the earlier one, and where that is said."""
    claims: list[tuple[str, str, Location]] = field(default_factory=list)
    """Claims that derive from claims: their id, ``#ID`` of one of this record or ``RECORD#path``
    into another, and where that is said."""
    mutants: list[MutantFacts] = field(default_factory=list)
    """Edits that put bugs back, of a session's bugs."""
    rates: list[RateFacts] = field(default_factory=list)
    """A session's cost lines that name a rate."""
    invoices: list[InvoiceFacts] = field(default_factory=list)
    """A session's cost lines that name an invoice."""
    prices: dict[str, list[Any]] = field(default_factory=dict)
    """The ledger's rates: id → kind, rate, last day or null, card or null."""
    label: str = ""
    """A session's label."""
    confirmed: list[tuple[Location, str | None]] = field(default_factory=list)
    """A session's fixes that a test confirmed and that do not name what showed it, with the kernel
    that they were made in, if they say so."""
    unended: bool = False
    """Whether a session that kbtool made is over, and has a start but no end."""
    times: dict[str, str] = field(default_factory=dict)
    """Of a session: when it ``started`` and ``ended``, as stated, where the zone is known."""
    files: list[tuple[Location, str]] = field(default_factory=list)
    """Files that a kernel's manifest names, relative to its folder."""
    names: dict[str, list[str]] = field(default_factory=dict)
    """What a kernel offers: ``case_sets``, ``targets``, ``variants`` as TARGET/VARIANT."""
    run: dict[str, Any] = field(default_factory=dict)
    """What a run names: attempt, session, recipe, pattern, kernel; when it started and ended,
    whether it was taken in from another session, and what its validation says."""
    figures: list[FigureFacts] = field(default_factory=list)
    """The figures that its prose takes from records."""
    judged: dict[str, str] = field(default_factory=dict)
    """A figure and what stands at its addresses → what is wrong with it, empty where they agree."""
    answers: dict[str, Found] = field(default_factory=dict)
    """Path in this record → what stands there. Filled in when another record refers to it; true as
    long as this file does not change."""

    def to_json(self) -> list[Any]:
        """The facts as JSON, without what is empty."""
        rest = {name: value for name in _REST if (value := getattr(self, name))}
        return [self.kind, self.id, self.findings, self.valid, self.refs, rest]

    @classmethod
    def from_json(cls, path: str, value: list[Any]) -> Facts:
        """The facts that ``to_json`` wrote; ``ValueError`` and the like if it did not."""
        kind, id_, findings, valid, refs, rest = value
        facts = cls(path, kind, id_, valid=valid)
        if findings:
            facts.findings = [Finding(*finding) for finding in findings]
        if refs:
            facts.refs = [Ref(*ref) for ref in refs]
        if rest:
            for name, part in rest.items():
                setattr(facts, name, part)
            facts.recipes = [RecipeFacts(*recipe) for recipe in facts.recipes]
            facts.mutants = [MutantFacts(*mutant) for mutant in facts.mutants]
            facts.rates = [RateFacts(*rate) for rate in facts.rates]
            facts.invoices = [InvoiceFacts(*invoice) for invoice in facts.invoices]
            facts.figures = [FigureFacts(*figure) for figure in facts.figures]
            facts.answers = {at: Found(*found) for at, found in facts.answers.items()}
        return facts


_REST = (
    "recipes", "bugs", "claims", "mutants", "rates", "invoices", "prices", "label", "confirmed",
    "unended", "times", "files", "names", "run", "figures", "judged", "answers",
)  # fmt: skip
