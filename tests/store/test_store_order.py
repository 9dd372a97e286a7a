"""The order of sessions: chains of ``follows``, by the earliest day and time of each chain."""

from __future__ import annotations

from knowledge import Knowledge

from kbtool.store.tree import KnowledgeBase


def order(base: Knowledge) -> list[str]:
    return list(KnowledgeBase(base.root).sessions)


def test_an_undated_first_session_stays_with_its_chain(base):
    base.session("undated-n")
    base.session("undated-n1", "follows: undated-n\n")
    base.session("2025-10-12-n2", "follows: undated-n1\n")
    base.session("undated-n3", "follows: 2025-10-12-n2\n")
    base.session("2026-01-05-later")
    base.session("2025-01-05-before")
    base.session("undated-alone")
    assert order(base) == [
        "2025-01-05-before",
        "undated-n",
        "undated-n1",
        "2025-10-12-n2",
        "undated-n3",
        "2026-01-05-later",
        "undated-alone",
    ]


def test_branches_of_a_chain_are_ordered_by_day(base):
    base.session("2025-01-01-a")
    base.session("undated-b", "follows: 2025-01-01-a\n")
    base.session("2025-03-01-c", "follows: undated-b\n")
    base.session("2025-02-01-d", "follows: 2025-01-01-a\n")
    assert order(base) == ["2025-01-01-a", "2025-02-01-d", "undated-b", "2025-03-01-c"]


def test_sessions_that_follow_in_a_cycle_come_last(base):
    base.session("2024-01-01-x", "follows: 2024-01-01-y\n")
    base.session("2024-01-01-y", "follows: 2024-01-01-x\n")
    before = ""
    for number in range(1200):
        base.session(f"2025-01-01-s{number:04}", before)
        before = f"follows: 2025-01-01-s{number:04}\n"
    ids = order(base)
    assert ids[:1200] == sorted(ids[:1200])
    assert ids[1200:] == ["2024-01-01-x", "2024-01-01-y"]


def test_sessions_of_one_day_come_by_their_times(base):
    base.session("2025-01-01-c", "started: 2025-01-01T09:00Z\n")
    base.session("2025-01-01-b", "started: 2025-01-01T11:00Z\n")
    base.session("2025-01-01-a", "started: 2025-01-01T03:30-07:00\n")
    base.session("2025-01-01-d", "started: 2025-01-01T08:00\n")
    # The day is that of the id, whatever the day is elsewhere.
    base.session("2025-01-02-a", "started: 2025-01-01T23:00-08:00\n")
    base.session("2024-12-31-z", "started: 2025-01-01T07:30Z\n")
    assert order(base) == [
        "2024-12-31-z",
        "2025-01-01-d",
        "2025-01-01-c",
        "2025-01-01-a",
        "2025-01-01-b",
        "2025-01-02-a",
    ]


def test_a_session_without_a_time_keeps_its_place_by_id(base):
    base.session("2025-01-01-a")
    base.session("2025-01-01-b", "started: 2025-01-01T12:00Z\n")
    base.session("2025-01-01-c")
    base.session("2025-01-01-d", "started: 2025-01-01T11:00Z\n")
    base.session("2025-01-02-a", "started: 2025-01-02T09:00Z\n")
    base.session("undated-b", "started: 2025-01-01T09:00Z\n")
    base.session("undated-a")
    assert order(base) == [
        "2025-01-01-a",
        "2025-01-01-d",
        "2025-01-01-c",
        "2025-01-01-b",
        "2025-01-02-a",
        "undated-a",
        "undated-b",
    ]


def test_chains_are_ordered_by_the_earliest_time_of_their_day(base):
    base.session("2025-01-01-a", "started: 2025-01-01T12:00Z\n")
    base.session("2025-01-01-b")
    base.session("2025-01-01-c", "follows: 2025-01-01-b\nstarted: 2025-01-01T09:00Z\n")
    base.session("2025-01-02-d", "started: 2025-01-02T08:00Z\nfollows: 2025-01-01-a\n")
    assert order(base) == ["2025-01-01-b", "2025-01-01-c", "2025-01-01-a", "2025-01-02-d"]
