"""Nothing later may rely on a superseded pattern or run its recipe."""

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


def test_a_superseded_pattern_that_no_record_cites_is_no_finding(replaced):
    assert replaced.findings() == []


def test_records_up_to_the_replacing_session_may_cite_a_superseded_pattern(replaced):
    replaced.session("2025-01-01-a", applied())
    replaced.session("2025-01-02-b", "follows: 2025-01-01-a\n" + applied())
    put_run(replaced, "2025-01-02-b")
    assert replaced.findings() == []


def test_a_later_session_that_applied_a_superseded_pattern_is_a_finding(replaced):
    path = replaced.session("undated-c", "follows: 2025-01-02-b\n" + applied())
    (found,) = replaced.findings()
    assert (found.path, found.rule) == ("sessions/undated-c/session.yaml", "superseded")
    assert found.line == line_of(path, "verdict: applied")
    assert "P01, which P02 superseded in 2025-01-02-b" in found.message


def test_a_session_of_a_later_day_counts_as_later_without_follows(replaced):
    replaced.session("2025-01-03-d", applied())
    replaced.session("undated-e", "follows: 2025-01-03-d\n" + applied(), label="E")
    found = [(f.path, f.rule) for f in replaced.findings()]
    assert found == [
        ("sessions/2025-01-03-d/session.yaml", "superseded"),
        ("sessions/undated-e/session.yaml", "superseded"),
    ]


def test_an_undated_session_that_follows_none_is_not_called_later(replaced):
    replaced.session("undated-e", applied(), label="E")
    replaced.session("2025-01-02-f", applied(), label="F")
    assert replaced.findings() == []


def test_follows_decides_the_order_before_the_day(replaced):
    """A session of a later day that came before, as one zone's midnight is another's morning."""
    replaced.session("2025-01-04-d", applied())
    replaced.session("2025-01-02-b", "follows: 2025-01-04-d\n")
    assert replaced.findings() == []


def test_a_later_step_done_by_a_superseded_pattern_is_a_finding(replaced):
    path = replaced.session(
        "undated-c",
        "follows: 2025-01-02-b\nsteps:\n  - {id: s, title: T, pattern: P01}\n",
    )
    assert [(f.rule, f.line) for f in replaced.findings()] == [
        ("superseded", line_of(path, "pattern: P01"))
    ]


def test_a_later_session_that_could_not_reproduce_the_pattern_is_no_finding(replaced):
    replaced.session("undated-c", "follows: 2025-01-02-b\n" + applied(verdict="not_reproduced"))
    put_run(replaced, "undated-c")
    assert replaced.findings() == []


def test_a_later_run_of_a_superseded_patterns_recipe_is_a_finding(replaced):
    path = put_run(replaced, "undated-c")
    (found,) = replaced.findings()
    assert (found.path, found.line, found.rule) == (path, 1, "superseded")
    assert "ran 'look'" in found.message


def test_a_later_pattern_related_to_a_superseded_one_is_a_finding(replaced):
    path = replaced.pattern("P04", "related: [P01]\nstated_in: [undated-c]\n")
    replaced.pattern("P05", "related: [P01]\nstated_in: [2025-01-01-a]\n")
    replaced.pattern("P06", "related: [P01]\n")
    found = [(f.path, f.rule, f.line) for f in replaced.findings()]
    assert found == [("patterns/P04.yaml", "superseded", line_of(path, "related"))]


def test_a_supersedes_entry_that_names_a_missing_session_is_a_finding(replaced):
    path = replaced.pattern("P02", "supersedes:\n  - {pattern: P01, since: 2025-01-09-z}\n")
    assert [(f.rule, f.line) for f in replaced.findings()] == [("link", line_of(path, "since"))]
