"""Times of a session that are refused, because costs are computed from them."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from kbtool.ledger.export.focus import focus
from kbtool.ledger.rollup import roll_up
from kbtool.model.session import Session


def session(**keys: object) -> Session:
    data = {"id": "2025-01-01-a", "label": "A", "title": "T", "origin": "person"}
    return Session.model_validate({"status": "complete", **data, **keys})


def stretch(started: str, ended: str | None = None) -> dict[str, str]:
    day = "2025-01-01T"
    return {"started": day + started} | ({} if ended is None else {"ended": day + ended})


@pytest.mark.parametrize(
    "stretches",
    [
        [stretch("09:00Z", "10:00Z"), stretch("09:30Z", "11:00Z")],
        [stretch("09:30Z", "11:00Z"), stretch("09:00Z", "10:00Z")],
        [stretch("09:00Z", "10:00Z"), stretch("09:00Z", "10:00Z")],
        [stretch("09:00Z", "12:00Z"), stretch("10:00Z", "11:00Z")],
        [stretch("09:00", "10:00"), stretch("09:30", "11:00")],
        [stretch("09:00Z"), stretch("10:00Z", "11:00Z")],
        [stretch("09:00Z", "10:00Z"), stretch("10:30+01:00", "12:00+01:00")],
    ],
)
def test_stretches_that_overlap_are_refused_by_name(stretches):
    with pytest.raises(ValidationError, match="overlap, and that time would count twice") as found:
        session(stretches=stretches)
    for one in stretches:
        assert one["started"] in str(found.value)


def test_stretches_apart_are_added_up():
    one = session(
        started="2025-01-01T09:00Z", ended="2025-01-01T12:00Z",
        stretches=[stretch("09:00Z", "10:00Z"), stretch("10:00Z", "10:30Z"),
                   stretch("12:00+01:00", "13:00+01:00")],
    )  # fmt: skip
    assert one.minutes == 150


@pytest.mark.parametrize("times", [("08:00Z", "10:00Z"), ("09:00Z", "12:01Z")])
def test_stretches_are_within_the_session(times):
    with pytest.raises(ValidationError, match="is not within the session"):
        session(started="2025-01-01T09:00Z", ended="2025-01-01T12:00Z", stretches=[stretch(*times)])


@pytest.mark.parametrize("day", ["2026-13-45", "2026-02-30", "0000-01-01"])
def test_a_day_that_the_calendar_does_not_have_is_refused(day):
    with pytest.raises(ValidationError, match=f"the calendar has no {day}"):
        session(id=f"{day}-x")


def test_a_day_without_a_month_after_it_is_refused():
    with pytest.raises(ValidationError, match="9999-12-31 is too late"):
        session(id="9999-12-31-x")
    last = session(id="9998-12-31-x", costs=[{"kind": "ai", "basis": "billed", "amount": "1"}])
    assert b"9999-01-01" in focus([last]).data
    assert roll_up([last], "week").rows[0].key == "9998-W53"


HUGE = ["1e999999", "1e300", "1e400", "0.1e-999999", "0e999999", "1" * 30, "1000000000"]


TOO_LARGE = r"takes .*; it (is|has) .*more|has more than 100 digits"


@pytest.mark.parametrize("figure", HUGE)
def test_an_absurdly_large_figure_is_refused(figure):
    for key, unit in (("duration", "min"), ("budget_time", "h"), ("budget_money", "USD")):
        with pytest.raises(ValidationError, match=TOO_LARGE):
            session(**{key: f"{figure} {unit}"})
        with pytest.raises(ValidationError, match=TOO_LARGE):
            session(**{key: f"0..{figure} {unit}"})
    with pytest.raises(ValidationError, match=TOO_LARGE):
        session(costs=[{"kind": "gpu", "basis": "claimed", "rate": f"{figure} USD/h"}])


def test_plausibly_large_figures_are_accepted():
    one = session(duration="2e5 h", budget_money="999999999 USD")
    assert one.minutes == 12_000_000


@pytest.mark.parametrize("time", ["< 80 min", "40..60 min", "80+ min", "~80 min"])
def test_an_open_estimate_needs_one_time(time):
    line = {"kind": "gpu", "basis": "estimated", "rate": "3 USD/h"}
    with pytest.raises(ValidationError, match=r"one exact rate and one exact duration; it has 3"):
        session(duration=time, costs=[line])
    assert session(duration="80 min", costs=[line]).costs[0].amount == 4


def test_a_bound_or_a_range_is_not_added_up_as_minutes():
    for time in ("< 80 min", "40..60 min", "80+ min"):
        assert session(duration=time).minutes is None
        row = roll_up([session(duration=time)], "session").rows[0]
        assert (row.minutes, row.unknown["minutes"]) == (None, 1)
        lines = [{"kind": "gpu", "basis": "claimed", "amount": "1", "duration": time}]
        assert roll_up([session(costs=lines)], "kind").rows[0].minutes is None
    assert session(duration="~80 min").minutes == 80


@pytest.mark.parametrize("amount", ["1_000", "١٢", "1e3", "1.", ".5", " 1", "+1", "NaN"])
def test_amounts_are_plain_digits(amount):
    with pytest.raises(ValidationError, match="is no amount; write its digits"):
        session(costs=[{"kind": "gpu", "basis": "claimed", "amount": amount}])


def test_quantities_have_plain_digits():
    with pytest.raises(ValidationError, match="is not a quantity"):
        session(duration="١٢ min")


@pytest.mark.parametrize("mark", ["\x07", "\x7f", "\x9b", "\n", "\u202e", "\u2066", "\u200f"])
def test_a_label_that_a_terminal_would_obey_is_refused(mark):
    with pytest.raises(ValidationError, match=rf"holds the character U\+{ord(mark):04X}"):
        session(label=f"N{mark}8")
    assert session(label="Übung N+8 \u6e2c\u8a66").label
