"""A superseded pattern rests: nothing later relies on it, and its recipe is not run."""

from __future__ import annotations

import pytest
from knowledge import LOOK, RUN, line_of, sealed


@pytest.fixture
def replaced(base):
    """P01, which P02 superseded in the second of three sessions that follow one another."""
    base.pattern("P01", LOOK)
    base.pattern("P02", "supersedes:\n  - {pattern: P01, since: 2025-01-02-b}\n")
    base.session("2025-01-01-a")
    base.session("2025-01-02-b", "follows: 2025-01-01-a\n")
    base.session("undated-c", "follows: 2025-01-02-b\n")
    return base


def applied(pattern: str = "P01", verdict: str = "applied") -> str:
    return f"evidence:\n  - {{pattern: {pattern}, verdict: {verdict}, note: N}}\n"


def put_run(base, session: str) -> str:
    base.write(f"sessions/{session}/runs/{RUN['id']}.json", sealed({**RUN, "session": session}))
    return f"sessions/{session}/runs/{RUN['id']}.json"


def test_nothing_cites_it(replaced):
    assert replaced.findings() == []


def test_earlier_records_and_the_one_that_replaced_it_may_cite_it(replaced):
    replaced.session("2025-01-01-a", applied())
    replaced.session("2025-01-02-b", "follows: 2025-01-01-a\n" + applied())
    put_run(replaced, "2025-01-02-b")
    assert replaced.findings() == []


def test_a_later_session_that_relies_on_it(replaced):
    path = replaced.session("undated-c", "follows: 2025-01-02-b\n" + applied())
    (found,) = replaced.findings()
    assert (found.path, found.rule) == ("sessions/undated-c/session.yaml", "superseded")
    assert found.line == line_of(path, "verdict: applied")
    assert "P01, which P02 superseded in 2025-01-02-b" in found.message


def test_later_by_the_day_alone(replaced):
    replaced.session("2025-01-03-d", applied())
    replaced.session("undated-e", "follows: 2025-01-03-d\n" + applied(), label="E")
    found = [(f.path, f.rule) for f in replaced.findings()]
    assert found == [
        ("sessions/2025-01-03-d/session.yaml", "superseded"),
        ("sessions/undated-e/session.yaml", "superseded"),
    ]


def test_what_nobody_can_date_is_not_called_later(replaced):
    replaced.session("undated-e", applied(), label="E")
    replaced.session("2025-01-02-f", applied(), label="F")
    assert replaced.findings() == []


def test_the_line_of_work_counts_more_than_the_day(replaced):
    """A session of a later day that came before, as one zone's midnight is another's morning."""
    replaced.session("2025-01-04-d", applied())
    replaced.session("2025-01-02-b", "follows: 2025-01-04-d\n")
    assert replaced.findings() == []


def test_a_step_done_by_it(replaced):
    path = replaced.session(
        "undated-c",
        "follows: 2025-01-02-b\nsteps:\n  - {id: s, title: T, pattern: P01}\n",
    )
    assert [(f.rule, f.line) for f in replaced.findings()] == [
        ("superseded", line_of(path, "pattern: P01"))
    ]


def test_a_session_that_tried_it_again_and_speaks_against_it(replaced):
    replaced.session("undated-c", "follows: 2025-01-02-b\n" + applied(verdict="not_reproduced"))
    put_run(replaced, "undated-c")
    assert replaced.findings() == []


def test_its_recipe_is_run_again(replaced):
    path = put_run(replaced, "undated-c")
    (found,) = replaced.findings()
    assert (found.path, found.line, found.rule) == (path, 1, "superseded")
    assert "ran 'look'" in found.message


def test_a_later_pattern_that_leads_to_it(replaced):
    path = replaced.pattern("P04", "related: [P01]\nstated_in: [undated-c]\n")
    replaced.pattern("P05", "related: [P01]\nstated_in: [2025-01-01-a]\n")
    replaced.pattern("P06", "related: [P01]\n")
    found = [(f.path, f.rule, f.line) for f in replaced.findings()]
    assert found == [("patterns/P04.yaml", "superseded", line_of(path, "related"))]


def test_the_session_that_replaced_it_must_be_there(replaced):
    path = replaced.pattern("P02", "supersedes:\n  - {pattern: P01, since: 2025-01-09-z}\n")
    assert [(f.rule, f.line) for f in replaced.findings()] == [("link", line_of(path, "since"))]
