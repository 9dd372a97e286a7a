"""Rates: costs from rate and time, to the cent; estimates that must agree; the ledger."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from kbtool.ledger.rates import figure, find_figure, find_rate
from kbtool.model.base import Duration, Quantity, Rate
from kbtool.model.cost import CostLine
from kbtool.model.errors import NotFoundError, UsageError
from kbtool.model.ledger import Ledger
from kbtool.model.money import to_cent
from kbtool.model.price import per_hour, price_of
from kbtool.model.session import Session
from kbtool.store.tree import KnowledgeBase

LEDGER = {
    "rates": [
        {"id": "l4", "kind": "gpu", "rate": "0.20 USD/h", "day": "2025-10-12", "card": "L4"},
        {"id": "engineer", "kind": "engineer", "rate": "400 USD/day", "day": "2025-10-12"},
    ]
}


def estimate(**keys: str | None) -> CostLine:
    return CostLine.model_validate({"kind": "gpu", "basis": "estimated", **keys})


@pytest.mark.parametrize(
    ("rate", "time", "cost"),
    [
        ("0.20 USD/h", "107 min", "0.36"),  # 0.35666…
        ("0.20 USD/h", "25 min", "0.08"),
        ("0.80 USD/h", "25 min", "0.33"),
        ("0.9 USD/h", "20 s", "0.01"),  # half a cent is a cent, though 20 s are no decimal
        ("0.9 USD/h", "19 s", "0.00"),
        ("24 EUR/day", "30 min", "0.50"),
        ("1 USD/s", "250 ms", "0.25"),
        ("0.01 USD/min", "2 h", "1.20"),
    ],
)
def test_rate_times_time_to_the_cent(rate, time, cost):
    currency = rate.split()[1][:3]
    assert str(estimate(rate=rate, duration=time, currency=currency).amount) == cost


@given(st.decimals(0, 500, places=2), st.integers(0, 10_000_000))
def test_a_price_is_within_half_a_cent_of_the_exact_one(rate, seconds):
    found = price_of(Quantity(f"{rate} USD/h"), Decimal(seconds) / 60)
    exact = Fraction(rate) * seconds / 3600
    assert abs(Fraction(found) - exact) <= Fraction(1, 200)
    assert found == round(found, 2)


def test_a_loss_rounds_like_a_gain():
    assert to_cent(Fraction(-5, 1000)) == Decimal("-0.01")
    assert per_hour(Quantity("1..2 USD/min")) == 90


@pytest.mark.parametrize(
    ("amount", "rate", "time"),
    [
        ("0.36", "0.20 USD/h", "107 min"),
        ("0.357", "0.20 USD/h", "107 min"),
        ("0.4", "0.20 USD/h", "107 min"),  # stated to one digit, held at one digit
        ("37.50", "50 USD/h", "45..60 min"),
        ("50.00", "50 USD/h", "45..60 min"),
        ("9", "0.20 USD/h", "~107 min"),  # of about, nothing follows
        ("9", "0.20 USD/h", "1+ h"),
    ],
)
def test_an_estimate_that_agrees_with_its_rate_is_kept(amount, rate, time):
    assert str(estimate(amount=amount, rate=rate, duration=time).amount) == amount


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (
            {"amount": "0.35", "rate": "0.20 USD/h", "duration": "107 min"},
            "107 min = 0.36; correct",
        ),
        ({"amount": "50.01", "rate": "50 USD/h", "duration": "45..60 min"}, "37.50 to 50.00"),
        ({}, "needs an amount, or a rate"),
        ({"rate": "0.20 USD/h", "duration": "~107 min"}, "one exact rate and one exact duration"),
        ({"rate": "1..2 USD/h"}, "one exact rate"),
        ({"rate": "0.20 EUR/h", "duration": "1 h"}, "is not in USD; set currency"),
        ({"amount": "1", "rate_id": "l4"}, "write the rate itself too"),
    ],
)
def test_an_estimate_that_does_not_follow_is_refused(keys, said):
    with pytest.raises(ValidationError, match=said):
        estimate(**keys)


def test_claimed_and_billed_amounts_are_kept_even_if_the_rate_differs():
    for basis in ("claimed", "billed"):
        line = {"kind": "gpu", "basis": basis, "rate": "0.20 USD/h", "duration": "107 min"}
        kept = CostLine.model_validate({**line, "amount": "0.35"})
        assert kept.amount == Decimal("0.35")
        assert CostLine.model_validate(line).amount is None


def test_an_amount_said_to_be_unknown_is_not_derived():
    assert estimate(amount=None, rate="0.20 USD/h", duration="1 h").amount is None


def session_with(**keys: object) -> Session:
    line = {"kind": "gpu", "basis": "estimated", "rate": "0.20 USD/h"}
    data = {"id": "2025-01-01-a", "label": "A", "title": "T", "origin": "person"}
    return Session.model_validate({**data, "status": "complete", "costs": [line], **keys})


def test_an_estimate_without_a_time_is_of_the_sessions_own():
    stretches = [
        {"started": "2025-01-01T10:00Z", "ended": "2025-01-01T11:00Z"},
        {"started": "2025-01-01T15:00Z", "ended": "2025-01-01T15:30Z"},
    ]
    assert session_with(duration="107 min").costs[0].amount == Decimal("0.36")
    assert session_with(stretches=stretches).costs[0].amount == Decimal("0.30")
    open_line = session_with().costs[0]
    assert open_line.is_open and open_line.amount is None
    going = session_with(
        status="running", stretches=[stretches[0], {"started": "2025-01-01T15:00Z"}]
    )
    assert going.costs[0].amount is None


def test_a_line_that_a_session_settles_is_another_one():
    line = estimate(rate="0.20 USD/h")
    settled = session_with(costs=[line], duration="107 min").costs[0]
    assert (settled.amount, line.amount) == (Decimal("0.36"), None)
    assert settled.is_open and settled.model_fields_set == line.model_fields_set


def test_the_ledger_refuses_what_is_no_price():
    price = LEDGER["rates"][0]
    for rates, said in (
        ([{**price, "rate": "0.20..0.30 USD/h"}], "no single price"),
        ([{**price, "rate": "0.20 USD"}], "money per s, min, h or day"),
        ([{**price, "day": "2025-02-30"}], "is no day"),
        ([{**price, "until": "2025-10-11"}], "is before 2025-10-12"),
    ):
        with pytest.raises(ValidationError, match=said):
            Ledger.model_validate({"rates": rates})
    for more, said in (
        ({"budgets": [{"month": "2025-13", "time": "1 h"}]}, "pattern"),
        ({"budgets": [{"month": "2025-12"}]}, "neither money nor time"),
        ({"budgets": [{"month": "2025-12", "time": "1 h"}] * 2}, "2025-12 has two"),
        ({"keep_or_stop": {"rate": "h100"}}, "there is no rate 'h100'"),
        ({"keep_or_stop": {"people": ["cursor"]}}, "there is no rate 'cursor'"),
        ({"keep_or_stop": {"rate": "engineer"}}, "rate takes .* a card .* engineer is one of eng"),
        ({"keep_or_stop": {"people": ["l4"]}}, "people takes no card .* l4 is one of gpu"),
    ):
        with pytest.raises(ValidationError, match=said):
            Ledger.model_validate({**LEDGER, **more})


def test_a_rate_goes_by_its_id_or_as_a_price():
    ledger = Ledger.model_validate(LEDGER)
    found = find_rate(ledger, "--rate", "l4")
    assert (found.rate.text, found.price and found.price.card) == ("0.20 USD/h", "L4")
    assert find_rate(ledger, "--rate", "3 USD/h") == (Quantity("3 USD/h"), None)
    with pytest.raises(UsageError, match=r"--rate: 'h100' is neither .*\(l4, engineer\)"):
        find_rate(ledger, "--rate", "h100")
    assert find_rate(ledger, "--rate", "l4", "gpu") == found
    with pytest.raises(UsageError, match="is a rate of engineer, not of gpu; of gpu there is l4"):
        find_rate(ledger, "--rate", "engineer", "gpu")
    with pytest.raises(ValueError, match="money per s, min, h or day"):
        figure(Rate, "3 USD")


def test_a_figure_may_be_one_that_a_record_states(base):
    base.session(more="duration: 12 min\nsteps: [{id: s, title: t, target: '>= 5 min'}]\n")
    knowledge = KnowledgeBase(base.root)
    for name in ("A", "2025-01-01-a"):
        found = find_figure(knowledge, "--idle", Duration, f"{name}#duration")
        assert found == Quantity("12 min")
    for text, error, said in (
        ("A#nothing", UsageError, "--idle: there is no 'nothing'"),
        ("A#title", UsageError, "--idle"),
        ("#duration", UsageError, "names no record"),
        ("B#duration", NotFoundError, "there is no session 'B'"),
        ("A#steps.s.target", UsageError, "is a bound"),
        ("soon", UsageError, "is not a quantity"),
        ("12 USD", UsageError, "takes a time"),
    ):
        with pytest.raises(error, match=said):
            find_figure(knowledge, "--idle", Duration, text)


def test_the_rates_of_this_repository_are_those_that_the_logs_state():
    base = KnowledgeBase(Path(__file__).parents[2])
    said = {price.id: (price.rate.text, price.source) for price in base.ledger.rates}
    assert said == {
        "l4": ("0.20 USD/h", "n2-log:63,73,341"),
        "h100": ("1.00 USD/h", "n7g-log:180"),
        "cursor": ("0.80 USD/h", "n4-log:244"),
    }
