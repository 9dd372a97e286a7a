"""The facts about one file that rules between records need, as plain data for the cache."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kbtool.model.finding import Finding
from kbtool.store.scan import FileKind

Location = list[str | int]
"""Keys and indices from the top of a file: ``["claims", 0, "of", 1]``."""

BUG_ROLES = frozenset(("fix", "recurrence", "bugs"))
"""Links that must lead to a bug."""
SESSION_ROLES = frozenset(("follows", "stated_in", "since", "lesson"))
"""Links that must name a session."""
PATTERN_ROLES = frozenset(
    (
        "supersedes", "related", "needs", "conflicts", "evidence", "evidence against", "step",
        "symptom",
    )
)  # fmt: skip
"""Links that must name a pattern."""


Questions = Mapping[str, Sequence[str]]
"""Path of a file → paths in its record that others refer to."""


class Ref(NamedTuple):
    """A link from this record to a record, or to a place in one."""

    role: str
    """The role of the link: follows, supersedes, claim …; ``label`` if it is not an id."""
    location: Location
    target: str
    """``RECORD`` or ``RECORD#path``. Links within the record are checked with the file."""


class FigureFacts(NamedTuple):
    """A figure in prose that refers to records."""

    line: int
    text: str
    """The figure, as written in the text."""
    target: str
    """Its source: an address, or an operation over addresses."""
    of: list[str]
    """The addresses in it, RECORD#path, in order."""


class Found(NamedTuple):
    """The value at a path in a record."""

    type: str
    """Its type's name; empty where nothing stands there."""
    claim: str
    """The id of the claim that it belongs to, if any."""
    figure: str
    """The figure that it is, if it is one."""
    problem: str
    """Why nothing stands there, or why it is no figure."""
    unproved: str = ""
    """Why it proves nothing, if it is such a time of a run: others were busy, or it was refused."""
    asked: str = ""
    """The digest of the problem that the run solved which measured it, if it is such a time."""


@dataclass(slots=True)
class Facts:
    """The facts about one file that other files may depend on."""

    path: str
    kind: FileKind
    id: str
    """The record's id; where the record does not load, the one that it or its name promises."""
    findings: list[Finding] = field(default_factory=list)
    """What is wrong with the file by itself."""
    valid: bool = True
    """Whether the record loads."""
    refs: list[Ref] = field(default_factory=list)
    bugs: list[tuple[str, str, Location]] = field(default_factory=list)
    """Bugs met before: their id here, SESSION#ID of the earlier one, and where that is said."""
    claims: list[tuple[str, str, Location]] = field(default_factory=list)
    """Claims that derive from claims: their id, ``#ID`` of one of this record or ``RECORD#path``
    into another, and where that is said."""
    run: dict[str, Any] = field(default_factory=dict)
    """What a run names: attempt, session, recipe, pattern, kernel; when it started and ended,
    whether it was imported from another session, and what its validation says."""
    figures: list[FigureFacts] = field(default_factory=list)
    """The figures that its prose takes from records."""
    judged: dict[str, str] = field(default_factory=dict)
    """A figure and what stands at its addresses → what is wrong with it, empty where they agree."""
    kept: dict[str, Any] = field(default_factory=dict)
    """What the rules between records need of it besides, by the name of the ``Fact``."""
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
            facts.figures = [FigureFacts(*figure) for figure in facts.figures]
            facts.answers = {at: Found(*found) for at, found in facts.answers.items()}
        return facts


_REST = ("bugs", "claims", "run", "figures", "judged", "kept", "answers")


class Fact:
    """What a rule between records needs of one record; made when its file is examined."""

    def __init__(self, kind: FileKind, make: Callable[[Any], Any], row: Any, empty: Any) -> None:
        self.name = f"{make.__module__.rpartition('.')[2]}.{make.__name__}"
        self.kind = kind
        self._make = make
        self._row = row
        self._empty = empty

    def keep(self, facts: Facts, record: Any) -> None:
        """Put it among ``facts``, those of ``record``; nothing is kept of what is empty."""
        value = self._make(record) if self._row is None else list(self._make(record))
        if value:
            facts.kept[self.name] = value

    def of(self, facts: Facts) -> Any:
        """It, as its function gives it; rows as a list."""
        if self._row is None:
            return facts.kept.get(self.name, self._empty)
        return [self._row(*row) for row in facts.kept.get(self.name, ())]


def fact(
    kind: FileKind, row: Any = None, *, empty: Any = None
) -> Callable[[Callable[[Any], Any]], Fact]:
    """Make a function of a record a fact that rules can ask for.

    Args:
        kind: of the records that have it.
        row: the named tuple that the function yields; without it, it returns what JSON can hold.
        empty: what stands for a record that does not load, without ``row``.
    """
    return lambda make: Fact(kind, make, row, empty)
