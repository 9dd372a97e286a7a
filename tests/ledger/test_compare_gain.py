"""Savings against an earlier session; the cost of a fixed bug and of a doubling of speed."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from kbtool.ledger.compare import compare, compare_json
from kbtool.ledger.gain import fixed_bugs, per_bug, per_speedup, sped_up
from kbtool.ledger.rollup import Row, roll_up
from kbtool.model.run import Run
from kbtool.model.session import Session
from kbtool.store.tree import KnowledgeBase

REPOSITORY = Path(__file__).parents[2]


def session(id_: str, costs: dict[str, str | None] | None = None, **keys: object) -> Session:
    lines = [
        {"kind": kind, "amount": amount, "basis": "claimed"}
        for kind, amount in (costs or {}).items()
    ]
    data = {"id": id_, "label": id_, "title": "T", "origin": "person", "status": "complete"}
    return Session.model_validate({**data, "costs": lines, **keys})


def row(costs: dict[str, str | None], **keys: object) -> Row:
    return roll_up([session("2025-01-01-a", costs, **keys)], "session").rows[0]


def test_n4_against_n_as_the_log_says_it():
    """The log of N+4: 88 % cheaper, 3.19 USD saved, and 86 % of the time of N."""
    base = KnowledgeBase(REPOSITORY)
    one, before = (roll_up([base.session(name).record], "session").rows[0] for name in ("N+4", "N"))
    found = compare(one, before)
    assert (found.saved, found.percent) == (Decimal("3.19"), Decimal("88.6"))
    assert (found.minutes_saved, found.minutes_percent) == (155, Decimal("86.1"))
    assert (found.kinds, found.not_compared) == (("gpu", "ai"), {"engineer": "both"})


def test_only_what_both_sides_know_is_compared():
    before = row({"gpu": "4.00", "ai": "1.00", "engineer": None})
    now = row({"gpu": "1.00", "engineer": "50.00"}, duration="10 min")
    found = compare(now, before)
    assert (found.kinds, found.before, found.now) == (("gpu",), 4, 1)
    assert found.not_compared == {"ai": "now", "engineer": "before"}
    assert (found.minutes_saved, found.minutes_percent) == (None, None)
    said = compare_json(found, "N")["compared"]
    assert (said["saved"], said["saved_percent"], said["minutes_saved"]) == ("3.00", "75.0", None)


def test_without_a_common_kind_of_cost_the_saving_is_unknown():
    found = compare(row({"gpu": "1"}), row({"ai": "1"}))
    assert (found.kinds, found.before, found.now, found.saved, found.percent) == (
        (), None, None, None, None,
    )  # fmt: skip


def test_a_higher_cost_is_a_negative_saving():
    assert compare(row({"gpu": "3"}), row({"gpu": "2"})).percent == Decimal("-50.0")
    free = compare(row({"gpu": "3"}), row({"gpu": "0"}))
    assert (free.saved, free.percent) == (-3, None)


def test_other_costs_are_nothing_where_there_are_none():
    found = compare(row({"gpu": "1"}), row({"gpu": "1", "other": "2"}))
    assert (found.kinds, found.saved) == (("gpu", "other"), 2)


def test_costs_in_another_currency_are_not_compared():
    lines = [
        {"kind": "gpu", "amount": "9", "currency": "EUR", "basis": "billed"},
        {"kind": "ai", "amount": "1", "basis": "billed"},
        {"kind": "other", "amount": "2", "currency": "EUR", "basis": "billed"},
    ]
    paid = session("2025-01-02-b", label="b").model_dump(exclude_unset=True) | {"costs": lines}
    mixed = roll_up([Session.model_validate(paid)], "session", "USD").rows[0]
    assert mixed.unknown == {"minutes": 1, "gpu": 1, "engineer": 1, "other": 1}
    for found in (
        compare(mixed, row({"gpu": "4", "ai": "3"})), compare(row({"gpu": "4", "ai": "3"}), mixed)
    ):  # fmt: skip
        assert found.kinds == ("ai",)
        assert (found.not_compared["gpu"], found.not_compared["other"]) == ("other currency",) * 2
        assert abs(found.saved) == 2


def test_an_unknown_kind_of_cost_is_named():
    found = compare(row({"gpu": "1", "other": None}), row({"gpu": "1"}))
    assert (found.kinds, found.not_compared["other"]) == (("gpu",), "now")


def bug(id_: str, recurrence_of: str | None = None) -> dict[str, object]:
    more = {"recurrence_of": recurrence_of} if recurrence_of else {}
    return {"id": id_, "title": "t", "status": "open", **more}


def fix(reference: str, confirmed: str | None = "true") -> dict[str, object]:
    return {"bug": reference, "change": "c", "confirmed": confirmed}


def counts(*sessions: Session) -> dict[str, tuple[int, int]]:
    return {name: tuple(count) for name, count in fixed_bugs(sessions).items()}


A, B, C = "2025-01-01-a", "2025-01-02-b", "2025-01-03-c"


def test_a_bug_counts_in_the_session_of_its_fix():
    assert counts(
        session(A, bugs=[bug(name) for name in "xyz"],
                fixes=[fix("#bugs.x"), fix("#bugs.y", None)]),
        session(B, fixes=[fix(f"{A}#bugs.z")]),
    ) == {A: (1, 1), B: (1, 0)}  # fmt: skip


def test_a_fix_refuted_by_a_recurrence_does_not_count():
    first = session(A, bugs=[bug("x")], fixes=[fix("#bugs.x")])
    again = session(B, bugs=[bug("x2", f"{A}#bugs.x")])
    assert counts(first, again) == {}
    # Mended at its second meeting, it is one bug, there.
    last = session(C, fixes=[fix(f"{B}#bugs.x2")])
    assert counts(first, again, last) == {C: (1, 0)}
    assert counts(session(A, bugs=[bug("x")], fixes=[fix("#bugs.x", "false")])) == {}


def test_what_is_fixed_twice_counts_once_and_the_last_fix_says_how():
    assert counts(
        session(A, bugs=[bug("x")], fixes=[fix("#bugs.x")]),
        session(B, fixes=[fix(f"{A}#bugs.x", None)]),
    ) == {B: (0, 1)}  # fmt: skip
    assert counts(
        session(A, bugs=[bug("x")], fixes=[fix("#bugs.x")]),
        session(B, fixes=[fix(f"{A}#bugs.x", "false")]),
    ) == {}  # fmt: skip


def test_the_cost_of_a_bug_is_at_least_what_is_known():
    sessions = [session(A, {"gpu": "1", "ai": "2", "engineer": "4"}, bugs=[bug("x"), bug("y")],
                        fixes=[fix("#bugs.x"), fix("#bugs.y", None)]),
                session(B, {"gpu": "3"})]  # fmt: skip
    table = roll_up(sessions, "session")
    found = [per_bug(one, fixed_bugs(sessions)) for one in (*table.rows, table.total)]
    assert [one["bugs_fixed"] for one in found] == [2, 0, 2]
    assert [one["bugs_fixed_claimed"] for one in found] == [1, 0, 1]
    assert [one["per_bug"] for one in found] == ["3.50", None, "5.00"]
    assert [one["per_bug_at_least"] for one in found] == [False, True, True]


SHA = "ab" * 32
CASE = {"name": "S=128", "case": {"S": 128}, "bytes": 1, "flops": 1, "rechecked": True}


def timing(median: float, spread: float = 0.01) -> dict[str, object]:
    low, high = median * (1 - spread), median * (1 + spread)
    samples = [low, low, median, high, high]
    return {"samples_us": samples, "median_us": median, "low_us": low, "high_us": high,
            "calls_per_sample": 1}  # fmt: skip


def run(day: int, session_id: str, *times: float | None, **keys: object) -> Run:
    """A validated run that timed the cases S=128, S=256 …; a time of ``None`` leaves one out."""
    spread = keys.pop("spread", 0.01)
    case_keys = keys.pop("case", {})
    cases = [
        {**CASE, "name": f"S={128 * 2**n}", "case": {"S": 128 * 2**n},
         "arms": {"ours": timing(time, spread), "theirs": timing(9.0)}, **case_keys}
        for n, time in enumerate(times) if time is not None
    ]  # fmt: skip
    step = {"expected_seconds": 1, "expected_from": "declared", "title": "T", "status": "passed"}
    checked = {"case_set": "s", "name": "n", "case": {}, "passed": True}
    validation = {"type": "validation", "sha256": SHA, "device": "cuda", "seed": 1, "rule": "r",
                  "cases": [checked]}  # fmt: skip
    benchmark = {"type": "benchmark", "sha256": SHA, "device": "cuda", "threads": 1,
                 "subject": "ours", "baseline": "theirs", "read_gb_s": 1.0, "protocol": "p",
                 "cases": cases, **keys.pop("benchmark", {})}  # fmt: skip
    machine = {"card": "H100", "python": "3", "kbtool": "0", "os": "L", "cpu": "C", "cores": 1}
    return Run.model_validate({
        "id": f"202501{day:02d}T000000Z-x", "session": session_id, "recipe": "r", "pattern": "P01",
        "kernel": "k", "parameters": {}, "status": "passed", "repository": {},
        "started": f"2025-01-{day:02d}T00:00:00Z", "ended": f"2025-01-{day:02d}T01:00:00Z",
        "machine": machine | keys.pop("machine", {}),
        "steps": [{"id": "v", "kind": "validate", "result": validation, **step},
                  {"id": "b", "kind": "benchmark", "result": benchmark, **step}], **keys,
    })  # fmt: skip


SESSIONS = [session(A, {"gpu": "1"}), session(B, {"gpu": "6"}), session(C, {"gpu": "2"})]


def gained(*runs: Run, sessions: list[Session] = SESSIONS) -> dict[str, dict[str, object]]:
    gains = sped_up(sessions, runs)
    table = roll_up(sessions, "session")
    return {one.label: per_speedup(one, gains) for one in (*table.rows, table.total)}


def test_a_speedup_is_over_the_best_before_and_steps_add_up():
    found = gained(run(3, C, 2.0), run(1, A, 8.0), run(2, B, 4.0))
    assert [found[name]["speedup"] for name in (A, B, C, "total")] == [None, 2.0, 2.0, 4.0]
    assert [found[name]["per_doubling"] for name in (A, B, C, "total")] == [
        None, "6.00", "2.00", "4.50",  # 9 USD over two doublings, the first measurement included
    ]  # fmt: skip
    assert found[B]["speedup_basis"] == "validated"


def test_what_got_slower_gains_nothing_and_getting_it_back_is_no_gain():
    found = gained(run(1, A, 4.0), run(2, B, 8.0), run(3, C, 4.0))
    assert [found[name]["speedup"] for name in (B, C)] == [1.0, 1.0]
    assert found["total"]["per_doubling"] is None


def test_a_difference_within_the_quartiles_is_no_speedup():
    assert gained(run(1, A, 4.0), run(2, B, 3.95))[B]["speedup"] == 1.0
    assert gained(run(1, A, 4.0), run(2, B, 3.9))[B]["speedup"] == 1.026


def test_several_cases_count_by_their_geometric_mean_and_new_ones_not():
    found = gained(run(1, A, 8.0, 8.0), run(2, B, 1.0, 4.0, 5.0))
    assert (found[B]["speedup"], found[B]["speedup_cases"]) == (4.0, 2)  # 8 × and 2 ×


@pytest.mark.parametrize(
    "other",
    [
        {"machine": {"card": "L4"}},
        {"kernel": "other"},
        {"benchmark": {"protocol": "q"}},
        {"benchmark": {"others_busy": 0.5}},
        {"case": {"rechecked": False}},
        {"case": {"refused": "above the ceiling"}},
        {"case": {"case": {"S": 129}}},
    ],
)
def test_runs_of_different_kernels_cards_or_cases_give_no_speedup(other):
    assert gained(run(1, A, 8.0), run(2, B, 4.0, **other))[B]["speedup"] is None


def test_a_field_that_an_older_harness_did_not_know_is_no_difference():
    later = run(2, B, 4.0, case={"case": {"S": 128, "fill": "random"}})
    assert gained(run(1, A, 8.0), later)[B]["speedup"] == 2.0


def stated(id_: str, time: str, unit: str = "ms", **keys: object) -> Session:
    table = {"id": "t", "title": "T", "kind": "benchmark", "subject": "ours",
             "columns": {"ours": {"title": "Ours", "unit": unit}},
             "rows": [{"id": "s128", "case": {"S": "128"}, "values": {"ours": time}}],
             **keys}  # fmt: skip
    return session(id_, {"gpu": "1"}, measurements=[table], environment={"card": "L4"})


def test_tables_count_as_claimed_where_no_run_is():
    found = gained(sessions=[stated(A, "0.8"), stated(B, "200", "us")])
    assert (found[B]["speedup"], found[B]["speedup_basis"]) == (4.0, "claimed")
    assert found[B]["per_doubling"] == "0.50"
    # A validated run of the session silences its table.
    with_run = gained(run(2, B, 4.0), sessions=[stated(A, "0.8"), stated(B, "0.2")])
    assert with_run[B]["speedup"] is None


@pytest.mark.parametrize(
    "keys",
    [
        {"validated": "false"},
        {"subject": None},
        {"rows": [{"id": "s128", "case": {"S": "128"}, "values": {"ours": "0.2"},
                   "verdict": "fail"}]},
        {"rows": [{"id": "s128", "case": {"S": "256"}, "values": {"ours": "0.2"}}]},
        {"rows": [{"id": "s128", "values": {"ours": "0.2"}}]},
    ],
)  # fmt: skip
def test_a_table_known_to_be_wrong_claims_no_speedup(keys):
    found = gained(sessions=[stated(A, "0.8"), stated(B, "0.2", **keys)])
    assert found[B]["speedup"] is None


def test_a_subject_is_a_column_of_times():
    with pytest.raises(ValueError, match="'ours' is no column of times"):
        stated(A, "0.8", "GB/s")
    with pytest.raises(ValueError, match="'theirs' is no column of times"):
        stated(A, "0.8", subject="theirs")
