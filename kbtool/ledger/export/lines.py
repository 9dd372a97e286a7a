"""Cost lines as every export sees them, and what an export tells of itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta

from kbtool.ledger.rollup import Links, links_of
from kbtool.model.address import item_key
from kbtool.model.cost import CostLine
from kbtool.model.session import Session

UNKNOWN = "whose amount no record states"
UNDATED = "of sessions without a date; --undated YYYY-MM-DD enters them at a day"


@dataclass
class Export:
    """The bytes of a file, and what they do not hold."""

    data: bytes
    written: int
    """Cost lines, or records, in it."""
    sessions: set[str] | None = None
    """Ids of the sessions that these lines are of; of records, nothing."""
    left_out: dict[str, int] = field(default_factory=dict)
    """Why, in words → how many."""
    notes: list[str] = field(default_factory=list)
    """What else the reader of the file should know."""


@dataclass(frozen=True)
class Entry:
    """One cost line, and what its session says of it."""

    session: Session
    line: CostLine
    reference: str
    """SESSION#costs.NAME; by its place, from 0, where two lines share a name."""
    day: date | None
    """The session's day, or the one declared for sessions without; ``None`` without either."""
    patterns: tuple[str, ...]
    """The patterns that the session belongs to, as in ``kbtool costs --by pattern``."""

    @property
    def dated(self) -> bool:
        """Whether the record has the day."""
        return self.session.day is not None


def entries(
    sessions: Sequence[Session], links: Links | None = None, undated: date | None = None
) -> Iterator[Entry]:
    """Every cost line, in the order of the sessions.

    Args:
        sessions: in the order of the work.
        links: the patterns that they belong to; as their records alone have it where not given.
        undated: the day to enter the lines of sessions without a date at.
    """
    patterns = (links or links_of(sessions, ())).patterns
    for session in sessions:
        day = date.fromisoformat(session.day) if session.day is not None else undated
        names = [item_key(line) for line in session.costs]
        for place, (line, name) in enumerate(zip(session.costs, names, strict=True)):
            own = name if names.count(name) == 1 else str(place)
            yield Entry(session, line, f"{session.id}#costs.{own}", day, patterns[session.id])


def month_after(day: date) -> date:
    """The first day of the month after the one of ``day``."""
    return (day.replace(day=1) + timedelta(days=32)).replace(day=1)


def as_text(label: str) -> str:
    """A label that a spreadsheet would take for a formula, so that it does not."""
    return f"'{label}" if label.startswith(("=", "+", "-", "@", "\t", "\r")) else label


def one_line(text: str) -> str:
    """``text`` without line breaks."""
    return " ".join(text.split())
