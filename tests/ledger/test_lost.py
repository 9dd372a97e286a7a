"""What bugs cost: minutes as stated, and the money of those minutes, exactly."""

from __future__ import annotations

from decimal import Decimal

import pytest
from costed import line, session
from hypothesis import given
from hypothesis import strategies as st

from kbtool.ledger.faults import Meeting
from kbtool.ledger.lost import Lost, lost
from kbtool.model.session import Session
from kbtool.model.session_costs import session_costs_of


def met(id_: str, minutes: str | None, *costs: dict, time: str | None = "60 min") -> Session:
    bug = {"id": "b", "title": "B", "status": "open", "minutes_lost": minutes}
    return session(id_, *costs, bugs=[bug], duration=time)


def of(*sessions: Session) -> Lost:
    costs = {one.id: session_costs_of(one) for one in sessions}
    return lost((Meeting(one, one.bugs[0]) for one in sessions), costs)


def test_money_is_the_share_of_the_sessions_time():
    first = met("2025-01-01-a", "20 min", line("gpu", "1.00"), line("ai", "2.00"))
    second = met("2025-01-02-b", "45 min", line("gpu", "4.00", currency="EUR"))
    assert of(first, second) == Lost(Decimal(65), {"USD": Decimal("1.00"), "EUR": Decimal("3.00")})
    assert of(first, first) == of(first)  # one meeting is one loss


def test_cents_are_rounded_once_and_after_the_sum():
    thirds = [met(f"2025-01-0{n}-a", "20 min", line("gpu", "0.01")) for n in range(1, 4)]
    assert of(*thirds).money == {"USD": Decimal("0.01")}


@pytest.mark.parametrize("minutes", [None, "< 20 min", "10..20 min"])
def test_a_time_that_is_no_figure_is_unknown_and_not_zero(minutes):
    assert of(met("2025-01-01-a", minutes, line("gpu", "1.00"))) == Lost(None, {})


@pytest.mark.parametrize(
    ("costs", "time"), [((), "60 min"), ([line("gpu", None)], "60 min"), ([line("ai", "1")], None)]
)
def test_money_is_unknown_where_the_session_states_none_or_no_time(costs, time):
    assert of(met("2025-01-01-a", "20 min", *costs, time=time)) == Lost(Decimal(20), {})


@given(st.integers(1, 600), st.integers(1, 600), st.decimals(0, 1000, places=2))
def test_no_more_is_lost_than_was_spent(minutes, time, amount):
    one = met("2025-01-01-a", f"{minutes} min", line("gpu", str(amount)), time=f"{time} min")
    assert 0 <= of(one).money["USD"] <= amount
