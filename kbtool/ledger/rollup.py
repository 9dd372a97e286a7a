"""Where money and time went: sums over sessions, and what the sums do not cover.

Pure functions of records. A figure that nobody knows is ``None`` and is counted; it is never zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal, get_args

from kbtool.model.errors import UsageError
from kbtool.model.session import CostLine, Session

By = Literal["session", "day", "month", "kind", "card"]
BY: tuple[By, ...] = get_args(By)
KINDS = ("gpu", "ai", "engineer", "other")
"""The kinds of cost line, in the order of the columns."""
EXPECTED = ("minutes", "gpu", "ai", "engineer")
"""What every session is taken to have cost: one that does not say is counted as unknown."""
UNDATED = "undated"
NO_CARD = "unstated"


@dataclass
class Row:
    """One line of the table: sums over the sessions that share a key."""

    key: str
    label: str
    minutes: Decimal | None = None
    gpu: Decimal | None = None
    ai: Decimal | None = None
    engineer: Decimal | None = None
    other: Decimal | None = None
    sessions: set[str] = field(default_factory=set)
    """Ids of the sessions in the row."""
    unknown: dict[str, int] = field(default_factory=dict)
    """Column → in how many of these sessions it, or a part of it, is not known."""

    @property
    def total(self) -> Decimal | None:
        """The sum of the money that is known; ``None`` if none is."""
        known = [amount for kind in KINDS if (amount := getattr(self, kind)) is not None]
        return sum(known, Decimal(0)) if known else None

    def add(self, column: str, amount: Decimal | None) -> None:
        """Add a known figure to a column."""
        if amount is not None:
            setattr(self, column, (getattr(self, column) or Decimal(0)) + amount)

    def miss(self, column: str) -> None:
        """Count a figure that is not known."""
        self.unknown[column] = self.unknown.get(column, 0) + 1


@dataclass(frozen=True)
class Rollup:
    """The table and its last line."""

    currency: str | None
    """``None`` where nothing was paid for."""
    rows: list[Row]
    total: Row
    other_currencies: dict[str, int]
    """Currency → cost lines that are left out of the sums."""


def roll_up(sessions: Sequence[Session], by: By, currency: str | None = None) -> Rollup:
    """Sum ``sessions``, in their order, by a key.

    Args:
        sessions: the sessions to sum.
        by: what makes a row. By ``kind``, a row's minutes are those that its lines state, and the
            total has none: what is paid for at the same time does not add up. By ``card``, a cost
            line counts for the card it names, else for the session's.
        currency: the currency to sum; needed where there are several, which are never added up.

    Raises:
        UsageError: there are several currencies and none was chosen, or the chosen one is not used.
    """
    lines = [line for session in sessions for line in session.costs]
    chosen = _currency({line.currency for line in lines}, currency)
    left_out: dict[str, int] = {}
    for line in lines:
        if line.currency != chosen:
            left_out[line.currency] = left_out.get(line.currency, 0) + 1
    rows: dict[str, Row] = {}
    total = Row("total", "total")
    for session in sessions:
        for row in (total, *_session_rows(rows, session, by)):
            row.sessions.add(session.id)
        _add_minutes(session, by, rows, total)
        _add_money(session, by, chosen, rows, total)
    ordered = list(rows.values())
    if by in {"day", "month"}:
        ordered.sort(key=lambda row: (row.key == UNDATED, row.key))
    elif by == "kind":
        ordered.sort(key=lambda row: KINDS.index(row.key))
    elif by == "card":
        ordered.sort(key=lambda row: (row.key == NO_CARD, row.key))
    return Rollup(chosen, ordered, total, left_out)


def select_range(ordered: Sequence[Session], first: str | None, last: str | None) -> list[Session]:
    """The sessions from one id to another, both included, in the order of the work.

    Args:
        ordered: all sessions.
        first: the first id; ``None`` begins with the first of all.
        last: the last id; ``None`` ends with the last of all.

    Raises:
        UsageError: the second comes before the first.
    """
    ids = [session.id for session in ordered]
    start = 0 if first is None else ids.index(first)
    end = len(ids) - 1 if last is None else ids.index(last)
    if end < start:
        raise UsageError(f"{last} comes before {first} in the order of the work; swap them")
    return list(ordered[start : end + 1])


def _currency(used: set[str], wanted: str | None) -> str | None:
    if wanted is not None:
        if used and wanted not in used:
            raise UsageError(f"nothing was paid in {wanted}; there is {', '.join(sorted(used))}")
        return wanted
    if len(used) > 1:
        names = ", ".join(sorted(used))
        raise UsageError(
            f"costs are in several currencies ({names}), which cannot be added: choose one with"
            f" --currency {min(used)}"
        )
    return next(iter(used), None)


def _session_rows(rows: dict[str, Row], session: Session, by: By) -> list[Row]:
    """The rows that a session belongs to as a whole."""
    key_of = _KEYS.get(by)
    return [] if key_of is None else [_row(rows, key_of(session), session, by)]


def _row(rows: dict[str, Row], key: str, session: Session, by: By) -> Row:
    label = session.label if by == "session" else key
    return rows.setdefault(key, Row(key, label))


def _card(session: Session) -> str:
    environment = session.environment
    return _card_name(environment.card if environment else None)


def _card_name(stated: str | None) -> str:
    """One name for one card: logs say L4, drivers NVIDIA L4."""
    return stated.removeprefix("NVIDIA ") if stated else NO_CARD


_KEYS: dict[By, Callable[[Session], str]] = {
    "session": lambda session: session.id,
    "day": lambda session: session.day or UNDATED,
    "month": lambda session: (session.day or UNDATED)[: None if session.day is None else 7],
    "card": _card,
}


def _add_minutes(session: Session, by: By, rows: dict[str, Row], total: Row) -> None:
    if by == "kind":
        return
    for row in (total, *_session_rows(rows, session, by)):
        row.add("minutes", session.minutes)
        if session.minutes is None:
            row.miss("minutes")


def _add_money(
    session: Session, by: By, currency: str | None, rows: dict[str, Row], total: Row
) -> None:
    missed: dict[int, tuple[Row, set[str]]] = {}

    def miss(row: Row, kind: str) -> None:
        missed.setdefault(id(row), (row, set()))[1].add(kind)

    for line in session.costs:
        if line.amount is not None and line.currency != currency:
            continue
        row = _line_row(rows, session, line, by)
        row.sessions.add(session.id)
        for place in (row, total):
            place.add(line.kind, line.amount)
            if line.amount is None:
                miss(place, line.kind)
        if by == "kind":
            row.add("minutes", None if line.duration is None else line.duration.minutes)
            if line.duration is None:
                miss(row, "minutes")
    absent = set(EXPECTED[1:]) - {line.kind for line in session.costs}
    for kind in absent:
        miss(total, kind)
        if by == "kind":
            row = rows.setdefault(kind, Row(kind, kind))
            row.sessions.add(session.id)
            miss(row, kind)
            miss(row, "minutes")
        else:
            for row in _session_rows(rows, session, by):
                miss(row, kind)
    for row, kinds in missed.values():
        for kind in kinds:
            row.miss(kind)


def _line_row(rows: dict[str, Row], session: Session, line: CostLine, by: By) -> Row:
    if by == "kind":
        return rows.setdefault(line.kind, Row(line.kind, line.kind))
    if by == "card" and line.card is not None:
        card = _card_name(line.card)
        return rows.setdefault(card, Row(card, card))
    return _row(rows, _KEYS[by](session), session, by)


def money(amount: Decimal | None) -> str | None:
    """An amount as text: every digit that was stated, two at least."""
    if amount is None:
        return None
    places = max(2, -int(amount.as_tuple().exponent))
    return f"{amount:.{places}f}"


def number(minutes: Decimal | None) -> int | float | None:
    """Minutes as a JSON number: whole where they are whole, else to a thousandth."""
    if minutes is None:
        return None
    return int(minutes) if minutes == minutes.to_integral_value() else round(float(minutes), 3)


def as_json(rollup: Rollup, unreadable: Iterable[str] = ()) -> dict[str, object]:
    """The contract that scripts rely on: money as decimal strings, minutes as numbers."""
    return {
        "currency": rollup.currency,
        "rows": [row_json(row) for row in rollup.rows],
        "total": row_json(rollup.total),
        "other_currencies": rollup.other_currencies,
        "left_out": sorted(set(unreadable)),
    }


def row_json(row: Row) -> dict[str, object]:
    """One row of ``as_json``."""
    return {
        "key": row.key,
        "label": row.label,
        "minutes": number(row.minutes),
        "gpu": money(row.gpu),
        "ai": money(row.ai),
        "engineer": money(row.engineer),
        "other": money(row.other),
        "total": money(row.total),
        "sessions": len(row.sessions),
        "unknown": row.unknown,
    }
