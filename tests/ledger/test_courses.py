"""Cases commit by commit: what changed, what is not ranked, and what proves nothing."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from test_commits import BEFORE, SLOWER, at
from test_measured import case
from test_timings import times

from kbtool.ledger.timings.courses import Course, History, history
from kbtool.ledger.timings.sides import newest_first
from kbtool.ledger.timings.spread import Spreads
from kbtool.ledger.timings.verdict import compare
from kbtool.model.run import Run


def found(*runs: Run) -> History:
    return history(newest_first(runs))


def of(every: History, case: str) -> Course:
    (course,) = (one for one in every.courses if one.case == case)
    return course


def test_each_commit_stands_beside_the_one_before_it_by_the_verdict_of_compare():
    every = found(at(1, "c1", *BEFORE), at(2, "c2", *SLOWER), at(3, "c3", *SLOWER))
    slower = of(every, "c")
    assert [point.side.newest.commit for point in slower.points] == ["c1", "c2", "c3"]
    assert [point.row and point.row.verdict for point in slower.points] == [None, "slower", "same"]
    assert [point.row and point.row.verdict for point in of(every, "a").points][1] == "same"
    newest, first = every.steps
    assert [len(newest.rows), len(first.rows)] == [6, 6]
    assert sum(row.verdict == "slower" for row in first.rows) == 4
    assert {row.verdict for row in newest.rows} == {"same"}


def test_a_case_is_compared_with_the_last_commit_that_timed_it_and_counts_once():
    other = [times(20.0, name) for name in "xyz"]
    every = found(at(1, "c1", *BEFORE), at(2, "c2", *other), at(3, "c3", *SLOWER, *other))
    assert [point.side.newest.commit for point in of(every, "f").points] == ["c1", "c3"]
    assert [point.side.newest.commit for point in of(every, "x").points] == ["c2", "c3"]
    told = {
        (one.a.newest.commit, one.b.newest.commit): len(one.of("same", "slower", "faster"))
        for one in every.steps
    }
    assert told == {("c1", "c3"): 6, ("c2", "c3"): 3}


def test_across_other_conditions_nothing_is_ranked_and_no_step_is_told():
    every = found(at(1, "c1", *BEFORE), at(2, "c2", *SLOWER, protocol="another"))
    last = of(every, "c").points[-1]
    assert last.row and last.row.verdict == "unlike"
    assert last.row.why == "different measurement settings"
    assert every.steps == []


def test_noise_and_changes_without_a_commit_prove_nothing_and_machines_stay_apart():
    every = found(
        at(1, "c1", *BEFORE), at(2, "c2", *SLOWER, others_busy=0.9),
        at(3, "c3", *SLOWER, dirty=True), at(4, "c4", *BEFORE, card="Card X2"),
    )  # fmt: skip
    assert {(one.machine, len(one.points)) for one in every.courses} == {
        ("Card X1", 1),
        ("Card X2", 1),
    }


def test_runs_of_one_commit_are_one_point_between_their_quartiles():
    first, second = case("a", ours=(19.0, 20.0, 21.0)), case("a", ours=(19.2, 20.2, 21.2))
    (point,) = of(found(at(1, "c1", first), at(2, "c1", second)), "a").points
    assert point.times("ours", "chain") == (pytest.approx((20.0 * 20.2) ** 0.5), 19.0, 21.2)
    assert point.times("ours", "between") is None
    assert point.times("nobody", "chain") is None


def test_a_case_that_older_records_name_no_set_for_stays_one_course():
    older = [{**one, "case_set": None} for one in BEFORE]
    every = found(at(1, "c1", *older), at(2, "c2", *BEFORE))
    assert {(one.case_set, len(one.points)) for one in every.courses} == {("small", 2)}
    assert all(one.points[1].row for one in every.courses)


@pytest.mark.parametrize("seed", range(8))
def test_drawn_histories_have_the_verdicts_of_two_commits_compared_alone(seed: int):
    draw = Random(seed)
    names = "abcdefgh"
    runs = [
        at(
            number, f"c{draw.randrange(5)}",
            *(times(draw.choice([20.0, 20.1, 22.0, 30.0]), name)
              for name in draw.sample(names, draw.randint(1, 8))),
            protocol=draw.choice(["one", "one", "another"]),
        )
        for number in range(12)
    ]  # fmt: skip
    every = newest_first(runs)
    spreads = Spreads(every)
    seen, told = 0, history(every)
    for course in told.courses:
        starts = [point.side.runs[-1].run.started for point in course.points]
        assert starts == sorted(starts)
        assert course.points[0].row is None
        for before, point in pairwise(course.points):
            assert point.before is before.side
            rows = {
                one.case: one
                for one in compare(before.side, point.side, spreads, course.metric).rows
            }
            name = f"{course.case_set}/{course.case}" if course.case_set else course.case
            assert point.row == rows[name]
            seen += 1
    assert seen
    pairs = {
        (point.before.name, point.side.name, point.side.newest.run.id)
        for course in told.courses
        for point in course.points
        if point.before and point.row and point.row.verdict in {"same", "slower", "faster"}
    }
    steps = {(step.a.name, step.b.name, step.b.newest.run.id) for step in told.steps}
    assert pairs <= steps
