"""A kernel's newest commit beside earlier ones: only like beside like, and nothing left unsaid."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from test_timings import run, times

from kbtool.ledger.timings.commits import Lines, lines
from kbtool.model.run import Run

SLOWER = [times(20.0 + 10 * (n > 1), name) for n, name in enumerate("abcdef")]
BEFORE = [times(20.0, name) for name in "abcdef"]


def at(minute: int, commit: str, *cases: dict[str, Any], **more: Any) -> Run:
    started = datetime(2025, 1, 1, 9, tzinfo=UTC) + timedelta(minutes=minute)
    one = run(f"r{minute}", commit, *cases, **more)
    return one.model_copy(update={"started": started, "session": "2025-01-01-a"})


def told(found: Lines) -> list[tuple[str, list[str | None]]]:
    return [(line.machine, [one.commit for one in line.commits]) for line in found.found]


def test_the_newest_commit_stands_beside_the_one_before_with_the_verdict_of_compare():
    found = lines([at(1, "c1", *BEFORE), at(2, "c2", *BEFORE), at(3, "c3", *SLOWER)])
    (line,) = found.found
    assert [one.commit for one in line.commits] == ["c3", "c2", "c1"]
    (last,) = line.last
    assert (last.a.newest.commit, last.b.newest.commit) == ("c2", "c3")
    assert last.rows == line.beside[0].rows == line.rows and line.new == 0
    verdicts = {row.case: row.verdict for row in last.rows}
    assert [verdicts[name] for name in sorted(verdicts)] == ["same"] * 2 + ["slower"] * 4
    assert found.alone == {}


def test_a_commit_that_is_timed_again_stays_in_its_place():
    found = lines([at(1, "c1", *BEFORE), at(2, "c2", *SLOWER), at(3, "c1", *BEFORE)])
    assert told(found) == [("Card X1", ["c2", "c1"])]
    (line,) = found.found
    assert [one.run.id for one in line.beside[0].a.runs] == ["r3", "r1"]  # all runs of the commit


def test_other_conditions_and_other_machines_are_lines_of_their_own():
    found = lines([
        at(1, "c1", *BEFORE), at(2, "c2", *BEFORE, protocol="another"),
        at(3, "c3", *BEFORE, card="Card X2"), at(4, "c4", *BEFORE, protocol="another"),
        at(5, "c5", *BEFORE),
    ])  # fmt: skip
    assert told(found) == [("Card X1", ["c5", "c1"]), ("Card X1", ["c4", "c2"])]
    assert {place: [one.commit for one in timed] for place, timed in found.alone.items()} == {
        ("add", "Card X2"): ["c3"]
    }
    assert all(row.verdict != "unlike" for line in found.found for one in line.beside
               for row in one.rows)  # fmt: skip


def test_noise_changes_without_a_commit_and_runs_of_no_kernel_prove_nothing():
    nothing = at(5, "c5", *SLOWER).model_copy(update={"kernel": None})
    found = lines([
        at(1, "c1", *BEFORE), at(2, "c2", *SLOWER, others_busy=0.9),
        at(3, "c3", *SLOWER, dirty=True), nothing,
    ])  # fmt: skip
    assert found.found == []
    assert [one.commit for one in found.alone["add", "Card X1"]] == ["c1"]


def test_a_commit_without_a_case_of_the_newest_is_passed_over():
    other = [times(20.0, name) for name in "xyz"]
    found = lines([at(1, "c1", *BEFORE), at(2, "c2", *other), at(3, "c3", *SLOWER)])
    (line,) = found.found
    assert [one.a.newest.commit for one in line.last] == ["c1"]
    (line,) = lines([at(1, "c1", *other), at(2, "c2", *BEFORE)]).found
    assert line.last == [] and line.new == len(BEFORE)


def test_each_case_is_compared_with_the_last_commit_that_timed_it():
    few = [times(20.0, "a")]
    found = lines([at(1, "c1", *BEFORE), at(2, "c2", *few), at(3, "c3", *SLOWER)])
    (line,) = found.found
    told = [(one.a.newest.commit, [row.case for row in one.rows]) for one in line.last]
    assert told == [("c2", ["small/a"]), ("c1", [f"small/{name}" for name in "bcdef"])]
    assert sum(row.verdict == "slower" for row in line.rows) == 4
