"""Sums of money and time as pages show them; the ledger does the adding."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import NamedTuple

from kbtool.ledger.rollup import EXPECTED, KINDS, By, Costed, Links, Rollup, Row, roll_up
from kbtool.markdown.figures import UNKNOWN, minutes, money
from kbtool.model.words import many

MONEY = KINDS


def rollups(sessions: Sequence[Costed], by: By, links: Links | None = None) -> list[Rollup]:
    """One table a currency, for currencies are never added up; one where nothing was paid for."""
    used = {line.currency for session in sessions for line in session.costs}
    currencies: list[str | None] = [*sorted(used)] or [None]
    return [roll_up(sessions, by, currency, links) for currency in currencies]


class Known(NamedTuple):
    """What is known of the money of sessions."""

    money: str
    """The sums; ``unknown`` where nothing is known."""
    coverage: tuple[str, ...]
    """Of how many of several sessions, and whether the GPU is estimated by the time of runs."""

    def __str__(self) -> str:
        return ", ".join((self.money, *self.coverage))


def known(sessions: Sequence[Costed]) -> Known:
    """All money that is known of some sessions."""
    return known_in(rollups(sessions, "session"))


def known_in(tables: Sequence[Rollup]) -> Known:
    """All money that is known of the sessions in these tables, as ``rollups`` returns them."""
    totals = [(table.total, table.currency or "") for table in tables]
    sums = [money(row.total, currency) for row, currency in totals if row.total is not None]
    if not sums:
        return Known(UNKNOWN, ())
    priced = set[str]().union(*(row.priced for row, _ in totals))
    estimated = set[str]().union(*(row.estimated for row, _ in totals))
    began = totals[0][0].sessions - totals[0][0].planned
    told = []
    if len(began) > 1:
        told.append(f"{len(priced)} of {many(len(began), 'session')} priced")
    if estimated:
        told.append("GPU estimated" + (f" for {len(estimated)}" if len(began) > 1 else ""))
    return Known(" + ".join(sums), tuple(told))


def time_in(tables: Sequence[Rollup]) -> str:
    """All time that the records state, and how many do not say; of the same tables."""
    total = tables[0].total
    missing = total.unknown.get("minutes", 0) if total.minutes is not None else 0
    return minutes(total.minutes) + (f" and {missing} without a time" if missing else "")


def unstated(session: Costed) -> str:
    """The kinds of cost of a session that are not known: ``gpu, engineer``."""
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
