"""Sums of money and time as pages show them; the ledger does the adding."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from kbtool.ledger.rollup import EXPECTED, KINDS, By, Links, Rollup, Row, roll_up
from kbtool.markdown.figures import UNKNOWN, minutes, money
from kbtool.model.session import Session

MONEY = KINDS


def rollups(sessions: Sequence[Session], by: By, links: Links | None = None) -> list[Rollup]:
    """One table a currency, for currencies are never added up; one where nothing was paid for."""
    used = {line.currency for session in sessions for line in session.costs}
    currencies: list[str | None] = [*sorted(used)] or [None]
    return [roll_up(sessions, by, currency, links) for currency in currencies]


def stated(sessions: Sequence[Session]) -> str:
    """All money that the records state; ``unknown`` where they state none."""
    tables = rollups(sessions, "session")
    known = [
        money(table.total.total, table.currency or "")
        for table in tables
        if table.total.total is not None
    ]
    return " + ".join(known) or UNKNOWN


def time(sessions: Sequence[Session]) -> str:
    """All time that the records state, and how many do not say."""
    total = rollups(sessions, "session")[0].total
    missing = total.unknown.get("minutes", 0) if total.minutes is not None else 0
    return minutes(total.minutes) + (f" and {missing} without a time" if missing else "")


def unstated(session: Session) -> str:
    """The kinds of cost that a session does not state: ``gpu, engineer``."""
    if session.status == "planned" and not session.costs:
        return ""  # it has taken nothing yet
    missing = {kind for kind in EXPECTED if kind not in {line.kind for line in session.costs}}
    missing |= {line.kind for line in session.costs if line.amount is None}
    return ", ".join(kind for kind in MONEY if kind in missing)


def cell(row: Row, column: str, currency: str) -> str:
    """One sum: what is known, then in how many sessions it is not."""
    amount: Decimal | None = getattr(row, column)
    missing = row.unknown.get(column, 0)
    if amount is None:
        return UNKNOWN if missing else "–"
    known = minutes(amount) if column == "minutes" else money(amount, currency)
    if not missing:
        return known
    return f"{known} + {missing} unknown" if len(row.sessions) > 1 else f"{known} + a part unknown"
