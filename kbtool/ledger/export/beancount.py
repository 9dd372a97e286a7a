"""Costs as a journal of beancount: a transaction a session, balanced to the last digit.

An account a kind of cost stands against one that says on what the amount rests: what was billed is
owed, what was claimed or estimated is no debt of anybody's yet. The balance assertions at the end
of each month are the rollup's own sums, so that ``bean-check`` holds one against the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from decimal import Decimal
from itertools import groupby

from kbtool.ledger.export.lines import (
    UNDATED,
    UNKNOWN,
    Entry,
    Export,
    entries,
    month_after,
    one_line,
)
from kbtool.ledger.rollup import KINDS, Links, roll_up
from kbtool.model.money import amount_text
from kbtool.model.session import Session

EXPENSES = {
    "gpu": "Expenses:GPU",
    "ai": "Expenses:AI",
    "engineer": "Expenses:Engineer",
    "other": "Expenses:Other",
}
"""Kind of cost → account."""
AGAINST = {
    "billed": "Liabilities:Billed",
    "estimated": "Equity:Estimated",
    "claimed": "Equity:Claimed",
}
"""Basis of an amount → the account on the other side."""

HEAD = """\
; Costs of sessions, written by `kbtool export beancount`: do not edit, export again.
; Liabilities:Billed is what invoices say; Equity:Claimed and Equity:Estimated are the other side
; of what somebody stated, or what a rate and a time come to. Flag !: not all of it is billed.
; The balances are kbtool's own sums, exact (~ 0).
"""


def beancount(
    sessions: Sequence[Session], links: Links | None = None, undated: date | None = None
) -> Export:
    """A journal of the amounts that are known.

    Args:
        sessions: in the order of the work.
        links: the patterns that they belong to; as their records alone have it where not given.
        undated: the day to enter sessions without a date at; they are left out where not given.
    """
    within: set[str] = set()
    export = Export(b"", 0, within)
    booked: dict[date, list[tuple[Session, list[Entry]]]] = {}
    for entry in entries(sessions, links, undated):
        if entry.line.amount is None:
            export.left_out[UNKNOWN] = export.left_out.get(UNKNOWN, 0) + 1
        elif entry.day is None:
            export.left_out[UNDATED] = export.left_out.get(UNDATED, 0) + 1
        else:
            export.written += 1
            within.add(entry.session.id)
            day = booked.setdefault(entry.day, [])
            if not day or day[-1][0] is not entry.session:
                day.append((entry.session, []))
            day[-1][1].append(entry)
    export.data = "".join(f"{text}\n" for text in _journal(booked)).encode()
    return export


def _journal(booked: dict[date, list[tuple[Session, list[Entry]]]]) -> Iterator[str]:
    yield HEAD
    yield 'option "title" "Costs of sessions"'
    lines = [entry.line for day in booked.values() for _, own in day for entry in own]
    currencies = sorted({line.currency for line in lines})
    for currency in currencies:
        yield f'option "operating_currency" "{currency}"'
    if not lines:
        return
    first = min(booked)
    yield ""
    for currency in currencies:
        yield f"{first} commodity {currency}"
    used = {EXPENSES[line.kind] for line in lines} | {AGAINST[line.basis] for line in lines}
    for account in (*EXPENSES.values(), *AGAINST.values()):
        if account in used:
            yield f"{first} open {account}"
    sums: dict[tuple[str, str], Decimal] = {}
    for end, days in groupby(sorted(booked), key=month_after):
        month = []
        for day in days:
            for session, own in booked[day]:
                month.append(session)
                yield ""
                yield from _transaction(day, session, own)
        yield ""
        yield from _balances(end, month, sums)


def _transaction(day: date, session: Session, own: list[Entry]) -> Iterator[str]:
    flag = "*" if all(entry.line.basis == "billed" for entry in own) else "!"
    yield f"{day} {flag} {_text(session.label)} {_text(session.title)} ^{session.id}"
    yield f"  session: {_text(session.id)}"
    if not own[0].dated:
        yield "  undated: TRUE"
    if own[0].patterns:
        yield f"  patterns: {_text(' '.join(own[0].patterns))}"
    against: dict[tuple[str, str], Decimal] = {}
    for entry in own:
        line = entry.line
        assert line.amount is not None
        yield f"  {EXPENSES[line.kind]}  {amount_text(line.amount)} {line.currency}"
        yield f"    line: {_text(entry.reference)}"
        yield f"    basis: {_text(line.basis)}"
        for name, value in (
            ("time", line.duration), ("rate", line.rate), ("card", line.card),
            ("invoice", line.invoice),
            ("source", line.source), ("note", line.note),
        ):  # fmt: skip
            if value is not None:
                yield f"    {name}: {_text(str(value))}"
        other = AGAINST[line.basis], line.currency
        against[other] = against.get(other, Decimal(0)) + line.amount
    for (account, currency), amount in against.items():
        yield f"  {account}  {amount_text(-amount)} {currency}"


def _balances(
    day: date, month: list[Session], sums: dict[tuple[str, str], Decimal]
) -> Iterator[str]:
    """Assertions of every account that has been used, with the rollup of a month added."""
    for currency in sorted({line.currency for session in month for line in session.costs}):
        total = roll_up(month, "month", currency).total
        for kind in KINDS:
            amount: Decimal | None = getattr(total, kind)
            if amount is not None:
                key = EXPENSES[kind], currency
                sums[key] = sums.get(key, Decimal(0)) + amount
    for (account, currency), amount in sums.items():
        yield f"{day} balance {account}  {amount_text(amount)} ~ 0 {currency}"


def _text(text: str) -> str:
    """``text`` as a string of beancount's."""
    escaped = one_line(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
