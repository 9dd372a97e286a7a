"""Keep an idle card or stop it: totals, break-even, and the inputs that turn the advice."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kbtool.ledger.keep_or_stop import NAMES, Span, figure, money_text, span_text, totals, weigh


def inputs(**given: object) -> dict:
    """Inputs: a figure, or a range as a pair; 0 where not given."""

    def span(value: object) -> Span:
        low, high = value if isinstance(value, tuple) else (value, value)
        return Span(Fraction(str(low)), Fraction(str(high)))

    return {name: span(given.get(name, 0)) for name in NAMES}


def turn(answer, name):
    return next(one for one in answer.turns if one.name == name)


def test_totals_follow_the_documented_formula():
    """12 h at 0.20; 10 min for two at 60 USD/h and the card; 3 USD; 25 % of 8 USD more."""
    both = totals(
        {
            name: span.low
            for name, span in inputs(
                idle=12, rate="0.2", restart=10, people=120,
                restart_cost=3, preemption=25, preemption_cost=8,
            ).items()
        }
    )  # fmt: skip
    restart = 20 + Fraction("0.2") / 6 + 3
    assert both.stop == restart
    assert both.keep == Fraction("2.4") + (restart + 8) / 4


def test_no_break_even_is_given_below_zero():
    certain = weigh(inputs(idle=2, rate=1, restart_cost=5, preemption=100))
    assert (certain.advice, certain.break_even.at) == ("stop", None)
    some = weigh(inputs(idle=2, rate=1, restart_cost=5, preemption=(50, 100)))
    assert (some.break_even.at, some.break_even.always) == (
        Span(Fraction("2.5"), Fraction("2.5")),
        False,
    )
    nothing = weigh(inputs(idle=2, rate=1))
    assert (nothing.advice, nothing.break_even.at) == ("stop", None)


def test_the_figures_of_n7a_give_the_opposite_of_its_decision():
    """12 h × 0.20 USD/h against 0.80 to 1.20 USD of lost context; the log keeps the card."""
    answer = weigh(inputs(idle=12, rate="0.20", restart_cost=("0.80", "1.20")))
    assert answer.advice == "stop"
    assert money_text(answer.keep, "USD") == "2.40 USD"
    assert money_text(answer.stop, "USD") == "0.80 to 1.20 USD"
    assert money_text(answer.saved, "USD") == "1.20 to 1.60 USD"
    assert answer.break_even.at == Span(Fraction(4), Fraction(6))
    assert turn(answer, "rate").at == Span(Fraction("0.8") / 12, Fraction("0.1"))
    cost = turn(answer, "restart_cost")
    assert (cost.at, cost.keep_is, cost.always) == (
        Span(Fraction("2.4"), Fraction("2.4")),
        "above",
        True,
    )
    assert turn(answer, "people").at is None  # nobody waits while a restart takes no time


def test_ranges_that_hold_the_break_even_give_no_advice():
    answer = weigh(inputs(idle=(2, 8), rate=1, restart_cost=5))
    assert (answer.advice, answer.saved) == ("either", Span(Fraction(-3), Fraction(3)))
    assert weigh(inputs(idle=5, rate=1, restart_cost=5)).advice == "either"
    assert weigh(inputs(idle=(2, 4), rate=1, restart_cost=5)).advice == "keep"


def test_a_break_even_for_only_a_part_of_the_range_says_so():
    """With the certainty of a pre-emption no restart is dear enough to keep the card."""
    answer = weigh(inputs(idle=1, rate=1, restart_cost=5, preemption=(50, 100)))
    cost = turn(answer, "restart_cost")
    assert (cost.at, cost.always, cost.keep_is) == (Span(Fraction(2), Fraction(2)), False, "above")


def test_figures_as_people_read_them():
    assert figure(Fraction(2, 3)) == "0.6667"
    assert figure(Fraction(200, 3)) == "66.67"
    assert figure(Fraction(1, 300)) == "0.003333"
    assert figure(Fraction(123456, 7)) == "17637"
    assert (figure(Fraction(10)), figure(Fraction("1234.5678"))) == ("10", "1234.5678")
    assert span_text(Span(Fraction(4), Fraction(6)), "h") == "4 to 6 h"
    assert span_text(Span(Fraction(4), Fraction(4)), "h") == "4 h"


NUMBER = st.decimals(0, 200, places=2)
SPAN = st.tuples(NUMBER, NUMBER).map(lambda ends: Span(*sorted(Fraction(end) for end in ends)))
INPUTS = st.fixed_dictionaries({name: SPAN for name in NAMES if name != "preemption"}).flatmap(
    lambda given: st.tuples(st.integers(0, 100), st.integers(0, 100)).map(
        lambda ends: {**given, "preemption": Span(*sorted(Fraction(end) for end in ends))}
    )
)


@pytest.mark.slow
@given(INPUTS, st.lists(st.integers(0, 4), min_size=len(NAMES), max_size=len(NAMES)))
def test_every_point_within_the_input_ranges_lies_within_the_totals(given_inputs, quarters):
    """The ends are enough: any point between them is within the totals and the saving."""
    answer = weigh(given_inputs)
    point = {
        name: span.low + (span.high - span.low) * quarter / 4
        for (name, span), quarter in zip(given_inputs.items(), quarters, strict=True)
    }
    both = totals(point)
    assert answer.keep.low <= both.keep <= answer.keep.high
    assert answer.stop.low <= both.stop <= answer.stop.high
    assert answer.saved.low <= both.keep - both.stop <= answer.saved.high
    if answer.advice == "stop":
        assert both.keep > both.stop
    elif answer.advice == "keep":
        assert both.keep < both.stop


@given(INPUTS, st.sampled_from(list(NAMES)))
def test_the_advice_turns_where_it_says(given_inputs, name):
    """Without ranges: both cost the same there, and keeping is cheaper on the side named."""
    exact = {key: Span(span.low, span.low) for key, span in given_inputs.items()}
    found = turn(weigh(exact), name)
    point = {key: span.low for key, span in exact.items()}

    def saved(value: Fraction) -> Fraction:
        both = totals({**point, name: value})
        return both.keep - both.stop

    if found.at is None:  # the sign stays from one end of the values to the other
        ends = [
            saved(Fraction(0)),
            saved(Fraction(100) if name == "preemption" else Fraction(10**12)),
        ]
        # Where both cost the same at nothing, and keeping costs more from there, nothing turns it.
        assert min(ends) > 0 or max(ends) < 0 or ends[0] == 0 <= ends[1]
        return
    at = found.at.low
    assert saved(at) == 0
    assert name != "preemption" or at <= 100
    assert found.always
    below, above = saved(at / 2), saved(at * 2 + 1)
    assume(at > 0)
    assert (below < 0 < above) if found.keep_is == "below" else (above < 0 < below)


@pytest.mark.parametrize("hours", [1, 3, "4.9"])
def test_the_break_even_splits_the_advice(hours):
    given_inputs = inputs(idle=hours, rate=2, restart=12, people=48)
    answer = weigh(given_inputs)  # 12 min of 48 + 2 USD/h are 10 USD, five hours of the card
    assert answer.break_even.at == Span(Fraction(5), Fraction(5))
    assert answer.advice == "keep"
    assert weigh(inputs(idle="5.1", rate=2, restart=12, people=48)).advice == "stop"
