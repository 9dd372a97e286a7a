"""The evidence for patterns: counts, claimed savings, step times, standings, ranks."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from knowledge import RUN

from kbtool.ledger.patterns import (
    STANDINGS,
    Account,
    Span,
    accounts,
    saving_text,
    shown,
    time_text,
)
from kbtool.model.base import Quantity
from kbtool.model.pattern import Pattern
from kbtool.model.run import Run
from kbtool.model.session import Session
from kbtool.store.tree import KnowledgeBase

REPOSITORY = Path(__file__).parents[2]


def pattern(id_: str = "P01", **more: object) -> Pattern:
    return Pattern.model_validate(
        {
            "id": id_, "number": int(id_[1:3]), "title": "T", "summary": "S",
            "stated_status": "operational", "problem": "P", "solution": "S",
            "when_to_use": ["w"], "when_not": ["w"], **more,
        }
    )  # fmt: skip


def session(name: str = "a", **more: object) -> Session:
    return Session.model_validate(
        {
            "id": f"2025-01-01-{name}", "label": name, "title": "T", "origin": "person",
            "status": "complete", "duration": "1 h", **more,
        }
    )  # fmt: skip


def says(verdict: str, pattern: str = "P01", **more: object) -> dict[str, object]:
    shown = {"shown_by": ["#duration"]} if verdict == "proved" else {}
    return {"pattern": pattern, "verdict": verdict, "note": "N", **shown, **more}


def account(
    *sessions: Session, runs: list[Run] | None = None, of: Pattern | None = None
) -> Account:
    (only,) = accounts([of or pattern()], sessions, runs or [])
    return only


@pytest.mark.parametrize(
    ("verdicts", "standing"),
    [
        ([], "untested"),
        (["discovered"], "untested"),
        (["discovered", "applied"], "applied"),
        (["applied", "proved"], "proved"),
        (["proved", "contradicted"], "disputed"),
        (["applied", "not_reproduced"], "disputed"),
        (["discovered", "contradicted"], "contradicted"),
        (["not_reproduced"], "contradicted"),
    ],
)
def test_the_standing_follows_from_the_evidence(verdicts, standing):
    sessions = [session(str(n), evidence=[says(v)]) for n, v in enumerate(verdicts)]
    assert account(*sessions).standing == standing
    assert standing in STANDINGS


def test_a_superseded_pattern_is_ranked_as_superseded_even_if_proved():
    newer = pattern("P02", supersedes=[{"pattern": "P01", "since": "2025-01-01-a"}])
    ranked = accounts([pattern(), newer], [session(evidence=[says("proved")])], [])
    assert [(one.pattern.id, one.standing) for one in ranked] == [
        ("P02", "untested"),
        ("P01", "superseded"),
    ]
    assert ranked[1].superseded_by == ["P02"]


def test_a_verdict_counts_once_a_session():
    twice = session("a", evidence=[says("applied"), says("applied"), says("discovered")])
    found = account(twice, session("b", evidence=[says("applied"), says("proved", "P09")]))
    assert found.count("applied") == 2
    assert found.count("discovered") == 1
    assert found.count("proved") == 0


@pytest.mark.parametrize(
    ("stated", "told"),
    [
        ("64 min", "64"),
        ("1.5 h", "90"),
        ("90 s", "1.5"),
        ("5..10 min", "5–10"),
        ("80+ min", "80+"),
        ("< 5 min", "0–5"),
        ("~0.5 h", "~30"),
        ("0 min", "0"),
    ],
)
def test_claimed_savings_keep_the_precision_of_their_statement(stated, told):
    found = account(session(evidence=[says("applied", saved=stated)]))
    assert str(found.claimed("saved")) == told
    assert found.claimed("lost") is None


def test_claims_add_up_end_by_end_and_expectations_stay_apart():
    found = account(
        session("a", evidence=[says("applied", saved="5..10 min", money="1..2 USD")]),
        session("b", evidence=[says("proved", saved="64 min", money="3 EUR", lost="2 min")]),
        session("c", evidence=[says("discovered", saved="1 h", money="7 USD", expected="true")]),
    )
    assert found.claimed("saved") == Span(Decimal(69), Decimal(74))
    assert found.claimed("lost") == Span(Decimal(2), Decimal(2))
    assert found.claimed("saved", expected=True) == Span(Decimal(60), Decimal(60))
    assert found.claimed_money() == {
        "USD": Span(Decimal(1), Decimal(2)),
        "EUR": Span(Decimal(3), Decimal(3)),
    }
    assert found.claimed_money(expected=True) == {"USD": Span(Decimal(7), Decimal(7))}


@given(st.lists(st.tuples(st.integers(0, 9999), st.integers(0, 99)), min_size=1, max_size=9))
def test_a_sum_of_spans_holds_every_sum_of_what_is_in_them(pairs):
    spans = [Span.of(Quantity(f"{low}..{low + width} min")) for low, width in pairs]
    total = spans[0]
    for span in spans[1:]:
        total += span
    assert total.low == sum(low for low, _ in pairs)
    assert total.high == sum(low + width for low, width in pairs)


def step(**more: object) -> dict[str, object]:
    return {
        "id": "build", "title": "T", "status": "done", "pattern": "P01", "target": "10 min",
        "actual": "8 min", **more,
    }  # fmt: skip


def test_step_times_are_planned_less_taken():
    fast = session("a", steps=[step(), step(id="other", pattern=None, actual="1 min")])
    slow = session("b", steps=[step(target="5 min", actual="100 min")])
    assert account(fast).timed() == 2
    assert account(fast, slow).timed() == -93
    assert account(session("c")).timed() is None


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"status": "failed"}, "failed, not done"),
        ({"status": "unknown"}, "unknown, not done"),
        ({"target": None}, "no time was planned"),
        ({"actual": None}, "not recorded"),
        ({"actual": "5..8 min"}, "no single figures"),
        ({"target": "~10 min"}, "no single figures"),
        ({"actual": "8+ min"}, "no single figures"),
    ],
)
def test_a_step_without_single_planned_and_actual_times_is_left_out(change, why):
    found = account(session(steps=[step(**change)]))
    assert found.timed() is None
    assert why in str(found.steps[0].left_out)


def test_minutes_cost_what_a_minute_of_the_session_cost():
    costs = [
        {"kind": "gpu", "amount": "0.08", "basis": "claimed", "rate": "0.20 USD/h"},
        {"kind": "ai", "amount": "0.50", "basis": "claimed"},
        {"kind": "engineer", "amount": None, "basis": "claimed"},
    ]
    found = account(session(duration="25 min", costs=costs, steps=[step(target="38 min")]))
    # 30 minutes: 0.20 an hour by the rate, and 0.50 for 25 minutes.
    assert found.timed_money() == {"USD": Decimal("0.70")}
    assert found.unpriced() == ["engineer"]
    assert account(session(steps=[step()])).timed_money() == {}
    unsure = [{**costs[1], "duration": "20..30 min"}]  # nobody knows what a minute of it cost
    assert account(session(costs=unsure, steps=[step(target="38 min")])).timed_money() == {}
    priced = session("a", duration="25 min", costs=costs, steps=[step(target="38 min")])
    both = account(priced, session("b", steps=[step()]))
    assert both.timed_money_text() == (
        "0.70 USD without engineer and 1 step of sessions that state no cost"
    )


PARAMETERS = {"size": {"type": "int", "default": "3", "help": "h"}}
RECIPE = {
    "name": "look", "title": "L", "parameters": PARAMETERS,
    "steps": [{"id": "look", "kind": "environment", "title": "L", "expected": "1 s",
               "timeout": "9 s"}],
}  # fmt: skip


def run(attempt: int = 1, /, parameters: dict[str, str] | None = None, **step: object) -> Run:
    raw = dict(RUN, attempt=attempt, parameters=parameters or {"size": "3"})
    raw["steps"] = [{**RUN["steps"][0], "seconds": 30, "expected_seconds": 90, **step}]
    raw["status"] = {"passed": "passed"}.get(str(step.get("status", "passed")), "failed")
    return Run.model_validate(raw)


def test_runs_of_its_recipes_count_against_the_recipes_own_times():
    found = account(session(), runs=[run()], of=pattern(recipes=[RECIPE]))
    assert found.timed() == found.timed(of_runs=True) == 1
    assert found.timed(of_runs=False) is None


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (run(status="failed"), "ended as failed"),
        (run(seconds=None), "not recorded"),
        (run(expected_from="history"), "earlier runs"),
        (run(parameters={"size": "4"}), "parameters"),
        (run(parameters={"gone": "1"}), "parameters"),
    ],
)
def test_a_run_whose_times_say_nothing_counts_for_nothing(made, why):
    found = account(session(), runs=[made], of=pattern(recipes=[RECIPE]))
    assert found.timed() is None
    assert why in str(found.steps[0].left_out)


def test_a_step_of_an_earlier_attempt_counts_once():
    attempts = [run(1), run(2, attempt=1)]
    found = account(session(), runs=attempts, of=pattern(recipes=[RECIPE]))
    assert [one.run.attempt for one in found.steps if one.run] == [1]


def test_a_library_that_was_there_already_saved_nothing():
    build = {
        "type": "build", "kernel": "k", "target": "cpu", "key": "k", "artifact": "a.so",
        "sha256": "0" * 64, "bytes": 1, "warm": True, "compiler": "c", "flags": [], "sources": {},
    }  # fmt: skip
    warm = account(session(), runs=[run(result=build)], of=pattern(recipes=[RECIPE]))
    assert "there already" in str(warm.steps[0].left_out)
    cold = run(result={**build, "warm": False})
    assert account(session(), runs=[cold], of=pattern(recipes=[RECIPE])).timed() == 1


def test_ranks_go_by_standing_then_by_how_often_then_by_minutes():
    sessions = [
        session("a", evidence=[says("proved", "P09"), says("proved", "P03")]),
        session("b", evidence=[says("proved", "P09"), says("applied", "P03")]),
        session("c", evidence=[says("applied", "P03"), says("applied", "P08")]),
        session("d", evidence=[says("applied", "P08"), says("contradicted", "P01")]),
        session("e", evidence=[says("applied", "P07", saved="9 min"), says("discovered", "P02")]),
        session("f", evidence=[says("applied", "P04", saved="90 min", expected="true")]),
        session("g", evidence=[says("applied", "P05")], steps=[step(pattern="P05")]),
    ]
    patterns = [pattern(f"P0{n}") for n in (1, 2, 3, 4, 5, 7, 8, 9)]
    ranked = accounts(patterns, sessions, [])
    order = [one.pattern.id for one in ranked]
    assert order == ["P09", "P03", "P08", "P07", "P05", "P04", "P02", "P01"]
    assert accounts(reversed(patterns), sessions, []) == ranked


def test_times_are_shown_in_minutes_or_seconds():
    times = ("8", "0.25", "-0.5", "1.5", "1", "96.04")
    assert [time_text(Decimal(x)) for x in times] == [
        "8 min", "15 s", "-30 s", "90 s", "1 min", "96 min"
    ]  # fmt: skip
    assert saving_text(Decimal(-96)) == "96 min lost"
    assert saving_text(Decimal("0.25")) == "15 s saved"
    assert saving_text(None) == time_text(None) == "–"


def test_figures_are_shown_without_noughts():
    figures = ("2.0", "-0.04", "1234.56", "0")
    assert [shown(Decimal(x)) for x in figures] == ["2", "0", "1,234.6", "0"]


def test_each_pattern_of_this_repository_says_all_that_a_stranger_needs():
    """Problem, solution, when and when not, what one sees, code, and where it stands."""
    base = KnowledgeBase(REPOSITORY)
    named = {
        id_ for known in base.catalogue.values() for one in known.symptoms for id_ in one.patterns
    }
    lacking = {
        f"{one.id} {what}"
        for one in (entry.record for entry in base.patterns.values())
        for what, there in {
            "problem": one.problem,
            "solution": one.solution,
            "when_to_use": one.when_to_use,
            "when_not": one.when_not,
            "signs or symptoms": one.signs or one.symptoms or one.id in named,
            "code": one.code or one.places or one.recipes,
            "places or no_places": one.places or one.no_places,
            "ablations or not_ablated": one.number <= 16 or one.ablations or one.not_ablated,
        }.items()
        if not there
    }
    assert lacking == set()


def test_the_transcribed_logs_give_the_figures_computed_by_hand():
    """What the transcribed logs come to, by hand from the logs."""
    base = KnowledgeBase(REPOSITORY)
    logs = [e.record for e in base.sessions.values() if e.record.origin in {"log", "mention"}]
    stated = [entry.record for entry in base.patterns.values() if entry.record.number <= 16]
    found = {one.pattern.id: one for one in accounts(stated, logs, [])}
    assert {id_: one.standing for id_, one in found.items()} == {
        "P06": "superseded", "P07": "disputed", "P08": "proved", "P09": "proved",
        "P10": "untested", "P11": "applied", "P12": "applied", "P15a": "untested",
        "P15b": "applied", "P16": "untested",
    }  # fmt: skip
    assert [id_ for id_, one in found.items() if one.standing == "proved"] == ["P08", "P09"]
    assert str(found["P09"].claimed("saved")) == "64"
    assert found["P09"].timed() == 7  # 10 min planned, 3 taken
    assert found["P08"].timed() == 2  # 10 and 8
    assert str(found["P08"].claimed("saved", expected=True)) == "80+"
    assert found["P08"].claimed("saved") is None
    assert str(found["P06"].claimed("lost")) == "95"
    assert found["P06"].timed() == -96  # 1 and 5 planned, 2 and 100 taken
    assert str(found["P07"].claimed("saved")) == "0"
    assert str(found["P07"].claimed_money(expected=True)["USD"]) == "150–225"
    assert found["P07"].claimed_money() == {}
