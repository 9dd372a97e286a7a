"""The journal, judged by beancount itself: accepted, balanced to the last digit, our own sums."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import get_args

import pytest
from beancount import loader
from beancount.core.data import Balance, Transaction
from costed import SESSIONS, line, session
from hypothesis import given

from kbtool.ledger.export.beancount import AGAINST, EXPENSES, beancount
from kbtool.ledger.rollup import roll_up
from kbtool.model.cost import CostLine
from kbtool.store.tree import KnowledgeBase

REPOSITORY = Path(__file__).parents[2]
DAY = date(2025, 10, 1)


def load(text: bytes):
    entries, errors, _ = loader.load_string(text.decode())
    return entries, [error.message for error in errors]


def by_account(entries) -> dict[tuple[str, str], Decimal]:
    sums: dict[tuple[str, str], Decimal] = defaultdict(Decimal)
    for entry in entries:
        if isinstance(entry, Transaction):
            for posting in entry.postings:
                sums[posting.account, posting.units.currency] += posting.units.number
    return dict(sums)


def rolled_up(sessions) -> dict[tuple[str, str], Decimal]:
    """Account and currency → the sum of ``kbtool costs``."""
    sums = {}
    for currency in {entry.currency for one in sessions for entry in one.costs}:
        total = roll_up(sessions, "kind", currency).total
        for kind, account in EXPENSES.items():
            if getattr(total, kind) is not None:
                sums[account, currency] = getattr(total, kind)
    return sums


def test_every_kind_and_every_basis_has_an_account():
    assert set(EXPENSES) == set(get_args(CostLine.model_fields["kind"].annotation))
    assert set(AGAINST) == set(get_args(CostLine.model_fields["basis"].annotation))


def test_the_records_of_this_repository_come_back_to_the_cent(tmp_path):
    sessions = [entry.record for entry in KnowledgeBase(REPOSITORY).sessions.values()]
    file = tmp_path / "costs.beancount"
    file.write_bytes(beancount(sessions, undated=DAY).data)
    checker = Path(sys.executable).with_name("bean-check")
    done = subprocess.run([checker, file], capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    sums = by_account(load(file.read_bytes())[0])
    expected = rolled_up(sessions)
    assert expected[EXPENSES["gpu"], "USD"] > 0
    assert {place: sums[place] for place in expected} == expected


@pytest.mark.slow
@given(SESSIONS)
def test_whatever_the_sessions_it_balances_and_holds_the_rollup(sessions):
    export = beancount(sessions, undated=DAY)
    entries, errors = load(export.data)
    assert errors == []
    sums = by_account(entries)
    for currency in {currency for _, currency in sums}:
        assert sum(n for (_, of), n in sums.items() if of == currency) == 0
    expenses = {place: n for place, n in sums.items() if place[0] in EXPENSES.values()}
    assert expenses == rolled_up(sessions)
    for basis, account in AGAINST.items():
        for currency in ("USD", "EUR"):
            owed = [
                entry.amount
                for one in sessions
                for entry in one.costs
                if (entry.basis, entry.currency) == (basis, currency) and entry.amount is not None
            ]
            assert -sums.get((account, currency), Decimal(0)) == sum(owed)
    assert export.written + sum(export.left_out.values()) == sum(len(s.costs) for s in sessions)


TWO_MONTHS = [
    session("2025-09-30-a", line("gpu", "0.1"), line("ai", "1.255", currency="EUR")),
    session("2025-10-02-b", line("gpu", "0.25", "billed"), line("gpu", "0.2", id="more")),
]


def test_a_balance_an_account_and_month_from_the_rollup():
    entries, errors = load(beancount(TWO_MONTHS).data)
    assert errors == []
    stated = [(str(e.date), e.account, str(e.amount), e.tolerance) for e in entries
              if isinstance(e, Balance)]  # fmt: skip
    assert stated == [
        ("2025-10-01", "Expenses:AI", "1.255 EUR", 0),
        ("2025-10-01", "Expenses:GPU", "0.10 USD", 0),
        ("2025-11-01", "Expenses:AI", "1.255 EUR", 0),
        ("2025-11-01", "Expenses:GPU", "0.55 USD", 0),
    ]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("Expenses:GPU  0.25 USD", "Expenses:GPU  0.26 USD", "does not balance"),
        ("balance Expenses:GPU  0.55 ~", "balance Expenses:GPU  0.56 ~", "Balance failed"),
        ("0.55 ~ 0 USD", "0.551 ~ 0 USD", "Balance failed"),
    ],
)
def test_beancount_would_see_a_cent_too_much(old, new, said):
    text = beancount(TWO_MONTHS).data.decode()
    assert text.count(old) == 1
    assert any(said in error for error in load(text.replace(old, new).encode())[1])


def test_what_the_journal_says_of_a_line():
    entries, _ = load(
        beancount(
            [
                session(
                    "2025-10-12-a",
                    line("gpu", "1.40", duration="7 h", rate="0.20 USD/h", note='say "7"\n\\ h'),
                    evidence=[{"pattern": "P07", "verdict": "applied", "note": "n"}],
                )
            ]
        ).data
    )
    (transaction,) = (entry for entry in entries if isinstance(entry, Transaction))
    assert (transaction.flag, transaction.payee, transaction.links) == (
        "!", "A", frozenset({"2025-10-12-a"}),
    )  # fmt: skip
    assert transaction.meta["session"] == "2025-10-12-a"
    assert transaction.meta["patterns"] == "P07"
    meta = transaction.postings[0].meta
    assert {key: meta[key] for key in ("line", "basis", "time", "rate", "note")} == {
        "line": "2025-10-12-a#costs.gpu",
        "basis": "claimed",
        "time": "7 h",
        "rate": "0.20 USD/h",
        "note": 'say "7" \\ h',
    }


def test_the_flag_says_whether_all_of_it_is_billed():
    entries, _ = load(
        beancount(
            [
                session("2025-10-12-a", line("gpu", "1", "billed")),
                session("2025-10-13-b", line("gpu", "1", "billed"), line("ai", "1")),
            ]
        ).data
    )
    assert [e.flag for e in entries if isinstance(e, Transaction)] == ["*", "!"]


def test_sessions_without_a_date_need_a_declared_one():
    sessions = [session("undated-a", line("gpu", "1")), session("2025-10-12-b", line("ai", None))]
    export = beancount(sessions)
    assert export.written == 0
    assert list(export.left_out.values()) == [1, 1]
    assert load(export.data) == ([], [])
    (transaction,) = (
        entry
        for entry in load(beancount(sessions, undated=DAY).data)[0]
        if isinstance(entry, Transaction)
    )
    assert (transaction.date, transaction.meta["undated"]) == (DAY, True)
