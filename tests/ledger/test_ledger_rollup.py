"""Sums over sessions: exact, and honest about what they do not cover."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbtool.ledger.rollup import as_json, money, number, roll_up, select_range
from kbtool.model.errors import UsageError
from kbtool.model.session import Session
from kbtool.store.tree import KnowledgeBase

REPOSITORY = Path(__file__).parents[2]


def session(id_: str = "2025-01-01-a", *costs: dict, **keys: object) -> Session:
    data = {"id": id_, "label": id_, "title": "T", "origin": "person", "status": "complete"}
    lines = [{"basis": "billed", **line} for line in costs]
    return Session.model_validate({**data, "costs": lines, **keys})


def line(kind: str, amount: str | None, **keys: str) -> dict:
    return {"kind": kind, "amount": amount, **keys}


def test_the_sessions_n_to_n7a_of_the_logs():
    base = KnowledgeBase(REPOSITORY)
    ordered = [entry.record for entry in base.sessions.values()]
    first, last = base.session("N").record.id, base.session("N+7A").record.id
    table = as_json(roll_up(select_range(ordered, first, last), "session"))
    total = table["total"]
    assert [row["label"] for row in table["rows"]] == [
        "N", "N+1", "N+2", "N+3", "N+4", "N+5", "N+6", "N+7A",
    ]  # fmt: skip
    assert total["minutes"] == 734
    assert (total["gpu"], total["ai"], total["total"]) == ("2.44", "10.06", "12.50")
    assert total["engineer"] is None
    assert total["unknown"] == {"engineer": 8}
    assert table["currency"] == "USD"


def test_unknown_is_null_and_counted_never_zero():
    table = roll_up(
        [
            session("2025-01-01-a", line("gpu", "1.00"), line("ai", None), duration="5 min"),
            session("2025-01-02-b", line("gpu", "0.00"), line("gpu", None)),
            session("2025-01-03-c"),
        ],
        "session",
    )
    first, second, third = (as_json(table)["rows"][n] for n in range(3))
    assert (first["gpu"], first["ai"], first["engineer"]) == ("1.00", None, None)
    assert first["unknown"] == {"ai": 1, "engineer": 1}
    assert (second["gpu"], second["total"], second["minutes"]) == ("0.00", "0.00", None)
    assert second["unknown"] == {"minutes": 1, "gpu": 1, "ai": 1, "engineer": 1}
    assert (third["total"], third["unknown"]["gpu"]) == (None, 1)
    assert as_json(table)["total"]["unknown"] == {"minutes": 2, "gpu": 2, "ai": 3, "engineer": 3}


def test_other_costs_are_in_the_total_and_never_missed():
    table = roll_up([session("2025-01-01-a", line("other", "2.50"), line("gpu", "1"))], "session")
    row = as_json(table)["rows"][0]
    assert (row["other"], row["gpu"], row["total"]) == ("2.50", "1.00", "3.50")
    assert "other" not in row["unknown"]


def test_days_and_months_keep_the_undated_apart_and_last():
    sessions = [
        session("undated-x", line("gpu", "1")),
        session("2025-02-01-b", line("gpu", "2"), duration="1 h"),
        session("2025-01-31-a", line("gpu", "4"), duration="30 min"),
        session("2025-02-09-c", line("gpu", "8"), duration="30 s"),
    ]
    months = roll_up(sessions, "month")
    assert [(r.key, r.gpu, r.minutes) for r in months.rows] == [
        ("2025-01", 4, 30),
        ("2025-02", 10, Decimal("60.5")),
        ("undated", 1, None),
    ]
    days = roll_up(sessions, "day")
    assert [r.key for r in days.rows] == ["2025-01-31", "2025-02-01", "2025-02-09", "undated"]
    assert days.total == months.total


def test_by_kind_the_minutes_are_those_of_the_lines_and_have_no_sum():
    table = roll_up(
        [
            session(
                "2025-01-01-a",
                line("gpu", "1", duration="7 h"),
                line("engineer", "2", duration="30 min"),
                line("engineer", "2", duration="15 min"),
                line("other", "3"),
                duration="35 min",
            ),
            session("2025-01-02-b", line("gpu", "1"), line("ai", "1"), duration="5 min"),
        ],
        "kind",
    )
    assert [(r.key, r.minutes, r.total) for r in table.rows] == [
        ("gpu", 420, 2),
        ("ai", None, 1),
        ("engineer", 45, 4),
        ("other", None, 3),
    ]
    assert [r.unknown for r in table.rows] == [
        {"minutes": 1},
        {"minutes": 2, "ai": 1},
        {"minutes": 1, "engineer": 1},
        {"minutes": 1},
    ]
    assert (table.total.minutes, table.total.total) == (None, 10)
    assert table.total.unknown == {"ai": 1, "engineer": 1}


def test_by_card_a_line_may_name_its_own():
    table = roll_up(
        [
            session(
                "2025-01-01-a",
                line("gpu", "1"),
                line("gpu", "9", card="H100"),
                environment={"card": "NVIDIA L4"},
                duration="5 min",
            ),
            session("2025-01-02-b", line("gpu", "2"), environment={"card": "L4"}),
            session("2025-01-03-c", line("gpu", "4")),
        ],
        "card",
    )
    assert [(r.key, r.gpu) for r in table.rows] == [("H100", 9), ("L4", 3), ("unstated", 4)]
    assert table.total.gpu == 16


def test_currencies_are_never_added():
    sessions = [session("2025-01-01-a", line("gpu", "1"), line("ai", "2", currency="EUR"))]
    with pytest.raises(UsageError, match=r"EUR, USD.*--currency EUR"):
        roll_up(sessions, "session")
    table = roll_up(sessions, "session", "USD")
    assert (table.total.gpu, table.total.ai) == (1, None)
    assert table.other_currencies == {"EUR": 1}
    with pytest.raises(UsageError, match="nothing was paid in CHF"):
        roll_up(sessions, "session", "CHF")


def test_nothing_at_all():
    table = as_json(roll_up([], "month"))
    assert table["rows"] == []
    assert table["currency"] is None
    assert table["total"]["total"] is None
    assert table["total"]["minutes"] is None


def test_a_range_runs_forwards():
    sessions = [session(f"2025-01-0{n}-a") for n in (1, 2, 3)]
    ids = [s.id for s in sessions]
    assert select_range(sessions, ids[0], ids[1]) == sessions[:2]
    assert select_range(sessions, ids[2], ids[2]) == sessions[2:]
    assert select_range(sessions, ids[1], None) == sessions[1:]
    assert select_range(sessions, None, ids[1]) == sessions[:2]
    with pytest.raises(UsageError, match="swap them"):
        select_range(sessions, ids[1], ids[0])


AMOUNT = st.decimals(min_value=0, max_value=10_000, places=3)
LINES = st.lists(
    st.tuples(st.sampled_from(["gpu", "ai", "engineer", "other"]), AMOUNT | st.none()), max_size=5
)


@given(st.lists(LINES, max_size=6), st.sampled_from(["session", "day", "month", "kind", "card"]))
def test_the_rows_add_up_to_the_total_whatever_makes_a_row(costs, by):
    sessions = [
        session(
            f"2025-0{n % 3 + 1}-01-s{n}" if n % 4 else f"undated-s{n}",
            *(line(kind, None if amount is None else str(amount)) for kind, amount in lines),
            environment={"card": f"card {n % 2}"},
        )
        for n, lines in enumerate(costs)
    ]
    table = roll_up(sessions, by)
    known = [amount for lines in costs for _, amount in lines if amount is not None]
    assert table.total.total == (sum(known) if known else None)
    for column in ("gpu", "ai", "engineer", "other", "total"):
        parts = [v for row in table.rows if (v := getattr(row, column)) is not None]
        assert getattr(table.total, column) == (sum(parts) if parts else None)
        missed = sum(row.unknown.get(column, 0) for row in table.rows)
        assert table.total.unknown.get(column, 0) == missed


def test_figures_as_scripts_read_them():
    assert money(Decimal("12.5")) == "12.50"
    assert money(Decimal("0.1234")) == "0.1234"
    assert money(Decimal("1E+2")) == "100.00"
    assert money(None) is None
    assert (number(Decimal("734")), number(Decimal("1.5")), number(None)) == (734, 1.5, None)
