"""Budgets of time and money: pauses, months, when a budget is used up, unknown costs."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbtool.ledger.budget import MonthLimits, elapsed, status
from kbtool.ledger.session_costs import read_session_costs
from kbtool.model.session import Session
from kbtool.model.session_costs import SessionCosts, session_costs_of
from kbtool.store import derived

NOW = datetime.fromisoformat("2025-10-12T12:00:00+00:00")


def session(id_: str = "2025-10-12-a", **keys: object) -> SessionCosts:
    data = {"id": id_, "label": id_[-1].upper(), "title": "T", "origin": "person"}
    return session_costs_of(Session.model_validate({**data, "status": "running", **keys}))


def gpu(**keys: str) -> dict[str, str]:
    return {"kind": "gpu", "basis": "estimated", **keys}


STRETCHES = [
    {"started": "2025-10-12T09:00Z", "ended": "2025-10-12T09:50Z"},
    {"started": "2025-10-12T11:30Z"},
]
"""50 minutes, a pause, and 30 minutes up to noon."""


def test_elapsed_leaves_pauses_out():
    assert elapsed(session(stretches=STRETCHES), NOW) == 80
    assert elapsed(session(started="2025-10-12T13:30+02:00"), NOW) == 30
    assert elapsed(session(started="2025-10-12T11:30"), NOW) is None  # the zone is not known
    assert elapsed(session(), NOW) is None
    assert elapsed(session(started="2025-10-12T12:30Z"), NOW) == 0  # a clock that is ahead


def test_a_running_session_is_compared_with_its_budgets():
    found = status(
        [
            session(
                stretches=STRETCHES, budget_time="2 h", budget_money="1..5 USD",
                costs=[
                    gpu(rate="3 USD/h"),
                    {"kind": "engineer", "basis": "billed", "amount": "0.50"},
                    gpu(rate="60 USD/h", duration="1 min", id="other-card"),
                ],
            )
        ],
        [], NOW,
    )  # fmt: skip
    going = found.going[0]
    time, money = going.budgets
    assert (time.spent, time.left, time.exceeded) == (80, 40, False)
    assert going.spent == {"USD": Decimal("5.50")}  # 80 min × 3 USD/h + 0.50 + 1.00
    assert going.per_hour == {"USD": 3}  # what has a duration of its own is over
    assert (money.limit, money.exceeded) == (5, True)  # of a range, its upper end
    assert going.unknown == ["ai"]
    assert found.stop == (NOW, money)
    assert found.exceeded == [money]
    assert found.budgets == [time, money]


def test_the_time_to_stop_is_when_the_first_budget_is_used_up():
    def stop(**keys: object) -> tuple[datetime, str] | None:
        found = status([session(stretches=STRETCHES, **keys)], [], NOW).stop
        return None if found is None else (found[0], found[1].unit)

    line = [gpu(rate="3 USD/h")]  # 4.00 USD so far
    assert stop(budget_time="2 h") == (NOW + timedelta(minutes=40), "min")
    assert stop(budget_money="5 USD", costs=line) == (NOW + timedelta(minutes=20), "USD")
    both = {"budget_time": "2 h", "budget_money": "5 USD", "costs": line}
    assert stop(**both) == (NOW + timedelta(minutes=20), "USD")
    assert stop(budget_money="5 USD") is None  # nothing burns
    assert stop(costs=line) is None  # there is no budget
    assert stop(budget_time="80 min") == (NOW, "min")  # full, and not exceeded
    assert status([session(stretches=STRETCHES, budget_time="80 min")], [], NOW).exceeded == []


def test_a_month_counts_the_sessions_of_its_days():
    sessions = [
        session("2025-10-12-a", stretches=STRETCHES, costs=[gpu(rate="3 USD/h")]),
        session("2025-10-01-b", status="complete", duration="100 min", costs=[
            {"kind": "ai", "basis": "billed", "amount": "2.00"},
            {"kind": "ai", "basis": "billed", "amount": "9.00", "currency": "EUR"},
        ]),
        session("2025-10-02-c", status="complete"),
        session("2025-09-30-d", status="complete", duration="999 min", costs=[
            {"kind": "gpu", "basis": "billed", "amount": "99.00"},
        ]),
        session("undated-e", status="complete", duration="999 min"),
    ]  # fmt: skip
    months = [
        MonthLimits("2025-09", "1", "1", "USD"),
        MonthLimits("2025-10", "200", "6.50", "USD"),
    ]
    found = status(sessions, months, NOW)
    time, money = found.month_budgets
    assert (time.of, time.spent, time.left) == ("2025-10", 180, 20)
    assert (money.spent, money.left) == (6, Decimal("0.50"))
    assert found.month_unknown == {"minutes": 1, "ai": 2, "engineer": 3, "gpu": 2}
    assert found.stop == (NOW + timedelta(minutes=10), money)
    assert status(sessions, [months[0]], NOW).month_budgets == []


def test_unknown_costs_and_times_are_not_counted_as_zero():
    budgets = {"budget_money": "5 USD", "budget_time": "1 h"}
    month = [MonthLimits("2025-10", "600", "50", "USD")]
    burning = session(started="2025-10-12T10:00", costs=[gpu(rate="30 USD/h")], **budgets)
    without = session(started="2025-10-12T11:00Z", **budgets)
    for one in (burning, without):
        found = status([one], month, NOW)
        money = found.going[0].budgets[1]
        assert (money.spent, money.left, money.full_at(NOW)) == (None, None, None)
        assert (found.month_budgets[1].spent, found.month_budgets[1].full_at(NOW)) == (None, None)
    assert status([burning], month, NOW).month_budgets[0].spent is None
    assert status([burning], month, NOW).month_unknown["minutes"] == 1
    # What is known counts; but without its time nobody knows when a budget is used up.
    known = {"kind": "ai", "basis": "billed", "amount": "6.00"}
    both = session(
        started="2025-10-12T10:00", budget_money="9 USD", costs=[gpu(rate="30 USD/h"), known]
    )
    found = status([both], month, NOW)
    assert found.going[0].budgets[0].left == 3
    assert found.stop is None


def test_a_month_without_a_session_has_spent_nothing():
    planned = session("2025-10-20-p", status="planned")
    found = status([planned], [MonthLimits("2025-10", "60", "5", "USD")], NOW)
    assert [budget.spent for budget in found.month_budgets] == [0, 0]
    assert found.month_unknown == {}


def test_a_session_that_starts_in_the_future_costs_nothing_yet():
    ahead = session(
        started="2025-10-12T18:00Z", budget_time="1 h", budget_money="5 USD",
        costs=[gpu(rate="3 USD/h")],
    )  # fmt: skip
    found = status([ahead], [MonthLimits("2025-10", "60", "5", "USD")], NOW)
    assert found.going[0].per_hour == {}
    assert [budget.spent for budget in found.budgets] == [0, 0, 0, 0]
    assert found.stop is None


def test_two_running_sessions_use_up_the_monthly_budget_twice_as_fast():
    two = [session(f"2025-10-12-{name}", stretches=STRETCHES) for name in "ab"]
    found = status(two, [MonthLimits("2025-10", "180", None, None)], NOW)
    assert found.stop == (NOW + timedelta(minutes=10), found.month_budgets[0])


def test_without_a_running_session_there_is_nothing_to_stop():
    done = session(status="complete", duration="300 min")
    found = status([done], [MonthLimits("2025-10", "200", None, None)], NOW)
    assert (found.going, found.stop) == ([], None)
    assert [budget.exceeded for budget in found.month_budgets] == [True]


@given(
    st.lists(st.integers(0, 10_000), min_size=1, max_size=6),
    st.integers(1, 1000),
    st.decimals(min_value=0, max_value=100, places=2),
)
def test_spent_and_left_add_up_to_the_budget(cuts, limit, rate):
    """Stretches cut out of the hours before now; money grows with them and nothing else."""
    begin = NOW - timedelta(seconds=sum(cuts))
    stretches, at, worked = [], begin, 0
    for n, seconds in enumerate(cuts):
        if n % 2 == 0:
            end = at + timedelta(seconds=seconds)
            stretches.append({"started": at.isoformat(), "ended": end.isoformat()})
            worked += seconds
        at += timedelta(seconds=seconds)
    stretches[-1].pop("ended")
    worked += int((NOW - datetime.fromisoformat(stretches[-1]["started"])).total_seconds())
    worked -= cuts[2 * (len(stretches) - 1)]
    one = session(
        stretches=stretches, budget_money=f"{limit} USD", costs=[gpu(rate=f"{rate} USD/h")]
    )
    found = status([one], [], NOW)
    budget = found.going[0].budgets[0]
    exact = Fraction(rate) * worked / 3600
    assert abs(Fraction(budget.spent) - exact) <= Fraction(1, 200)
    assert budget.spent + budget.left == limit
    assert budget.exceeded == (budget.left < 0)
    full = budget.full_at(NOW)
    if budget.left <= 0:
        assert full == NOW
    elif rate == 0:
        assert full is None
    elif full is not None:
        burnt = Fraction(rate) * Fraction((full - NOW).total_seconds()) / 3600
        assert abs(burnt - Fraction(budget.left)) < Fraction(1, 1000)


RUNNING = "budget_time: 2 h\ncosts: [{kind: gpu, basis: estimated, rate: 3 USD/h}]\n"
LEDGER_LINE = "# yaml-language-server: $schema=../schemas/ledger.json\n"


def test_what_the_cache_keeps_is_what_is_read(base, monkeypatch):
    base.session("2025-01-01-a", RUNNING + "stretches: [{started: '2025-01-01T10:00Z'}]\n")
    base.session("2025-01-02-b", "nonsense: 1\n")
    base.write(
        "sessions/ledger.yaml",
        LEDGER_LINE + "budgets: [{month: 2025-01, money: 5 USD, time: 1 h}]\n",
    )
    first = read_session_costs(base.root)
    assert [one.id for one in first.sessions] == ["2025-01-01-a"]
    assert first.months == [MonthLimits("2025-01", "60", "5", "USD")]
    assert [finding.path for finding in first.findings] == ["sessions/2025-01-02-b/session.yaml"]
    later = derived.now_ns() + 10_000_000_000
    monkeypatch.setattr(derived, "now_ns", lambda: later)
    assert read_session_costs(base.root) == first  # written to the cache now
    monkeypatch.setattr(derived, "_make_part", lambda *_: pytest.fail("read again"))
    assert read_session_costs(base.root) == first
    monkeypatch.undo()
    base.session("2025-01-01-a", "budget_time: 3 h\n")
    assert read_session_costs(base.root).sessions[0].budget_minutes == "180"
