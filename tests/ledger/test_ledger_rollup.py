"""Sums over sessions are exact and count what they do not cover."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from knowledge import RUN

from kbtool.ledger.rollup import (
    BY,
    EXPECTED,
    Links,
    Running,
    links_of,
    roll_up,
    running,
    select_range,
)
from kbtool.ledger.rollup_json import as_json, number
from kbtool.model.errors import UsageError
from kbtool.model.run import Run
from kbtool.model.session import Session
from kbtool.model.session_costs import from_json, session_costs_of, to_json
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
    table: dict[str, Any] = as_json(roll_up(select_range(ordered, first, last), "session"))
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


def test_amounts_of_different_currencies_are_not_added():
    sessions = [session("2025-01-01-a", line("gpu", "1"), line("ai", "2", currency="EUR"))]
    with pytest.raises(UsageError, match=r"EUR, USD.*--currency EUR"):
        roll_up(sessions, "session")
    table = roll_up(sessions, "session", "USD")
    assert (table.total.gpu, table.total.ai) == (1, None)
    assert table.other_currencies == {"EUR": 1}
    with pytest.raises(UsageError, match="nothing was paid in CHF"):
        roll_up(sessions, "session", "CHF")


def test_without_sessions_the_total_is_null():
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


def test_weeks_are_those_of_iso_8601():
    days = ["2024-12-30", "2025-01-05", "2025-01-06", "2021-01-03"]
    table = roll_up([session(f"{day}-a", line("gpu", "1")) for day in days], "week")
    assert [(row.key, row.gpu) for row in table.rows] == [
        ("2020-W53", 1), ("2025-W01", 2), ("2025-W02", 1),
    ]  # fmt: skip


def test_by_outcome_is_how_a_session_ended_and_not_known_is_not_attributed():
    sessions = [
        session("2025-01-01-a", line("gpu", "1"), status="terminated"),
        session("2025-01-02-b", line("gpu", "2")),
        session("2025-01-03-c", line("gpu", "4"), status="unknown"),
    ]
    table = roll_up(sessions, "outcome")
    assert [(r.key, r.gpu) for r in table.rows] == [
        ("complete", 2), ("terminated", 1), ("unknown", 4),
    ]  # fmt: skip
    assert (table.attributed, table.unattributed) == (3, 4)


def test_by_engineer_is_who_worked_whatever_was_paid_for():
    sessions = [
        session("2025-01-01-a", line("engineer", "1"), engineer="Marie", duration="5 min"),
        session("2025-01-02-b", line("engineer", "2"), line("gpu", "4"), duration="7 min"),
        session("2025-01-03-c", line("gpu", "8"), engineer="Marie", duration="1 h"),
        session("2025-01-04-d", line("ai", "16"), engineer="Bob"),
    ]
    table = roll_up(sessions, "engineer")
    assert [(r.key, r.minutes, r.engineer, r.total) for r in table.rows] == [
        ("Bob", None, None, 16), ("Marie", 65, 1, 9), ("unstated", 7, 2, 6),
    ]  # fmt: skip
    assert (table.attributed, table.unattributed) == (25, 6)


SHARED = [
    session("2025-01-01-a", line("gpu", "1.00"), line("ai", None), duration="10 min"),
    session("2025-01-02-b", line("gpu", "2.00"), duration="20 min"),
    session("2025-01-03-c", line("ai", "4.00"), duration="40 min"),
]
LINKS = Links({"2025-01-01-a": ("P01", "P02"), "2025-01-02-b": ("P02",)}, {"2025-01-01-a": ("k",)})


def test_a_session_of_two_patterns_is_in_both_rows_and_counts_once_in_the_total():
    table = roll_up(SHARED, "pattern", links=LINKS)
    assert [(r.label, r.minutes, r.total) for r in table.rows] == [
        ("P01", 10, 1), ("P02", 30, 3), ("no pattern", 40, 4),
    ]  # fmt: skip
    assert (table.total.minutes, table.total.total) == (70, 7)
    assert (table.attributed, table.unattributed, table.repeated) == (3, 4, 1)
    assert table.shared == {"2025-01-01-a"}
    assert [row.unknown.get("ai") for row in table.rows] == [1, 2, None]
    said = as_json(table)
    assert (said["attributed"], said["unattributed"], said["repeated"]) == ("3.00", "4.00", "1.00")
    assert said["sessions_in_several_rows"] == 1


def test_groupings_combine_in_the_order_given():
    table = roll_up(SHARED, ("kernel", "pattern", "kind"), links=LINKS)
    assert [(r.keys, r.total) for r in table.rows if r.total is not None] == [
        (("k", "P01", "gpu"), 1), (("k", "P02", "gpu"), 1),
        (("none", "P02", "gpu"), 2), (("none", "none", "ai"), 4),
    ]  # fmt: skip
    assert as_json(table)["rows"][0]["keys"] == {"kernel": "k", "pattern": "P01", "kind": "gpu"}
    # Attributed is what every grouping has a place for.
    assert (table.attributed, table.unattributed) == (1, 6)
    with pytest.raises(UsageError, match="names a grouping twice"):
        roll_up(SHARED, ("kind", "kind"))


def test_patterns_and_kernels_come_from_evidence_steps_records_and_runs():
    evidence = {"pattern": "P03", "verdict": "applied", "note": "n"}
    step = {"id": "s", "title": "t", "pattern": "P02"}
    one = session("2025-01-01-a", evidence=[evidence], steps=[step], kernels=["mine"])
    run = Run.model_validate({**RUN, "kernel": "add"})
    links = links_of([one, session("2025-01-02-b")], [run])
    assert links.patterns == {"2025-01-01-a": ("P01", "P02", "P03"), "2025-01-02-b": ()}
    assert links.kernels == {"2025-01-01-a": ("add", "mine"), "2025-01-02-b": ()}
    # A run of a session that was not selected has no say.
    assert links_of([], [run]) == Links()


def test_running_totals_end_at_the_total():
    sessions = [session("undated-x", line("gpu", "8"), duration="5 min"), *SHARED]
    table = roll_up(sessions, "month")
    assert running(table) == [Running(Decimal(70), Decimal(7)), Running(Decimal(75), Decimal(15))]
    with pytest.raises(UsageError, match="begin with session, day, week, month"):
        running(roll_up(SHARED, ("kind", "month")))
    with pytest.raises(UsageError, match="count a session once for each"):
        running(roll_up(SHARED, ("month", "pattern"), links=LINKS))


AMOUNT = st.decimals(min_value=0, max_value=10_000, places=3)
LINES = st.lists(
    st.tuples(
        st.sampled_from(["gpu", "ai", "engineer", "other"]),
        AMOUNT | st.none(),
        st.sampled_from([None, "card 0", "card 7"]),
    ),
    max_size=5,
)
PATTERNS = st.lists(st.sampled_from(["P01", "P02", "P03"]), unique=True, max_size=3)
SESSION = st.tuples(
    LINES, PATTERNS, st.booleans(), st.sampled_from(["complete", "unknown"]),
    st.sampled_from(["Marie", "Bob", None]),
)  # fmt: skip
GROUPINGS = st.lists(st.sampled_from(BY), min_size=1, max_size=3, unique=True)


@given(st.lists(SESSION, max_size=6), GROUPINGS)
def test_the_sums_against_a_second_independent_sum(sessions, by):
    """Every row, every column and the total, in thousandths, from a list of single amounts."""
    sessions, patterns = [], {}
    # One entry an amount: where it belongs under each grouping, its column, its thousandths.
    flat: list[tuple[dict[str, list[str]], str, int | None]] = []
    for n, (lines, names, has_card, status, engineer) in enumerate(sessions):
        day = f"2025-0{n % 3 + 1}-0{n % 9 + 1}" if n % 4 else None
        id_ = f"{day or 'undated'}-s{n}"
        costs = [
            line(kind, None if amount is None else str(amount), **({"card": card} if card else {}))
            for kind, amount, card in lines
        ]
        environment = {"card": f"card {n % 2}"} if has_card else {}
        sessions.append(
            session(id_, *costs, environment=environment, status=status, engineer=engineer)
        )
        patterns[id_] = tuple(sorted(names))
        for kind, amount, card in lines:
            year, week, _ = date.fromisoformat(day).isocalendar() if day else (0, 0, 0)
            places = {
                "session": [id_], "day": [day or "undated"], "kind": [kind],
                "week": [f"{year}-W{week:02d}" if day else "undated"],
                "month": [day[:7] if day else "undated"], "outcome": [status],
                "card": [card or (f"card {n % 2}" if has_card else "unstated")],
                "pattern": sorted(names) or ["none"], "kernel": ["none"],
                "engineer": [engineer or "unstated"],
            }  # fmt: skip
            flat.append((places, kind, None if amount is None else int(amount * 1000)))
    table = roll_up(sessions, by, links=Links(patterns))

    def thousandths(amount):
        return None if amount is None else int(amount * 1000)

    def expected(chosen, column):
        known = [a for _, kind, a in chosen if a is not None and column in (kind, "total")]
        return sum(known) if known else None

    for column in ("gpu", "ai", "engineer", "other", "total"):
        assert thousandths(getattr(table.total, column)) == expected(flat, column)
        for row in table.rows:
            within = [
                one for one in flat
                if all(key in one[0][g] for g, key in zip(by, row.keys, strict=True))
            ]  # fmt: skip
            assert thousandths(getattr(row, column)) == expected(within, column)
    nowhere = {"undated", "unstated", "none", "unknown"}
    known = [(places, amount) for places, _, amount in flat if amount is not None]
    lost = sum(amount for places, amount in known if any(nowhere & set(places[g]) for g in by))
    assert thousandths(table.unattributed) == lost
    assert table.attributed + table.unattributed == (table.total.total or 0)
    rows = sum((row.total for row in table.rows if row.total is not None), Decimal(0))
    assert rows - table.repeated == (table.total.total or 0)
    if not {"pattern", "kernel"} & set(by):
        assert (table.repeated, table.shared) == (0, set())
        for column in ("gpu", "ai", "engineer"):
            missed = sum(row.unknown.get(column, 0) for row in table.rows)
            if "card" not in by:  # lines of one session may stand in the rows of several cards
                assert table.total.unknown.get(column, 0) == missed


@pytest.mark.slow
def test_every_grouping_of_the_records_adds_up_to_the_same_sum():
    base = KnowledgeBase(REPOSITORY)
    sessions = [entry.record for entry in base.sessions.values()]
    links = links_of(sessions, [entry.record for entry in base.runs])
    tables = [roll_up(sessions, by, "USD", links) for by in BY]
    sums = {
        sum(row.total for row in table.rows if row.total is not None) - table.repeated
        for table in tables
    }
    assert sums == {table.attributed + table.unattributed for table in tables}
    assert sums == {tables[0].total.total}


@pytest.mark.slow
def test_sums_over_session_costs_are_those_over_records():
    base = KnowledgeBase(REPOSITORY)
    records = [entry.record for entry in base.sessions.values()]
    sessions = [
        from_json(json.loads(json.dumps(to_json(session_costs_of(one))))) for one in records
    ]
    runs = [entry.record for entry in base.runs]
    assert links_of(sessions, runs) == links_of(records, runs)
    for by in BY:
        table = roll_up(sessions, by, "USD", links_of(sessions, []))
        assert table == roll_up(records, by, "USD", links_of(records, []))


def test_what_is_unknown_comes_in_the_order_of_the_columns():
    table = roll_up([session("2025-01-01-a")], "session")
    assert list(table.total.unknown) == list(table.rows[0].unknown) == list(EXPECTED)


def test_figures_as_scripts_read_them():
    assert (number(Decimal("734")), number(Decimal("1.5")), number(None)) == (734, 1.5, None)


def test_sessions_without_a_card_are_unstated_and_planned_ones_cost_nothing():
    tool = session("2025-01-01-a", line("ai", "1"), environment={"card": "none"})
    card = session("2025-01-02-b", line("gpu", "2"), environment={"card": "NVIDIA L4"})
    plan = session("2025-01-03-c", status="planned")
    table = roll_up([tool, card, plan], "card")
    assert [row.key for row in table.rows] == ["L4", "unstated"]
    assert table.rows[1].unknown == {"minutes": 1, "gpu": 1, "engineer": 1}
    assert table.unattributed == 1
    rows = roll_up([card, plan], "session").rows
    assert (rows[1].key, rows[1].unknown) == ("2025-01-03-c", {})
    assert roll_up([card, plan], "kind").total.unknown == {"ai": 1, "engineer": 1}
