"""Runs that were asked to solve different problems are never ranked together."""

from __future__ import annotations

from typing import Any

import pytest
from test_headline import at, mean, told, typed
from test_timings import every, held, run, times

from kbtool.ledger.gain import sped_up
from kbtool.ledger.measured import of_one_problem
from kbtool.ledger.timings.series import series
from kbtool.ledger.timings.sides import sides
from kbtool.model.errors import NotFoundError
from kbtool.model.identity import Identity
from kbtool.model.run import Run, another_problem

HARNESS = "kernels/add/harness.py"


def solving(problem: str | None, made: Run, **files: str) -> Run:
    """A run with a problem, told by a letter; ``None`` is a record of before."""
    if problem is None:
        return made
    known = {HARNESS: problem * 64, **files}
    return made.model_copy(update={"identity": Identity(problem=known)})


def timed_as(problem: str | None, id_: str, commit: str, us: float, **more: Any) -> Run:
    return solving(problem, run(id_, commit, times(us), **more))


def test_sources_and_flags_in_the_manifest_are_no_problem_and_the_harness_is() -> None:
    one, other = (
        solving("a", run("r", "c", times(1.0)), **{"kernels/add/kernel.yaml": of * 64})
        for of in "12"
    )
    assert not another_problem(one, other)
    assert another_problem(one, solving("b", run("r", "c", times(1.0))))
    more = {"kernels/add/shapes.py": "c" * 64}
    assert another_problem(one, solving("a", run("r", "c", times(1.0)), **more))
    unknown = run("r", "c", times(1.0))
    assert not another_problem(one, unknown) and not another_problem(unknown, unknown)


@pytest.mark.parametrize(
    ("problems", "verdict"),
    [(("a", "a"), "slower"), (("a", "b"), "unlike"), ((None, "b"), "slower")],
)
def test_a_comparison_of_two_problems_has_no_verdict_and_says_why(
    problems: tuple[str | None, str], verdict: str
) -> None:
    first, second = problems
    compared = held(
        [timed_as(first, f"a{n}", "c1", 10.0) for n in range(3)],
        [timed_as(second, f"b{n}", "c2", 20.0) for n in range(3)],
    )
    (row,) = compared.rows
    assert row.verdict == verdict
    assert (row.why == "another problem") == (verdict == "unlike")
    said = [note for note in compared.notes if "another problem" in note]
    assert bool(said) == (verdict == "unlike")
    if said:
        assert said[0].startswith("nothing is ranked, another problem: A ")
        assert compared.is_past(1000), "a gate that proves nothing has not passed"


def test_both_of_two_different_conditions_are_named() -> None:
    compared = held([timed_as("a", "a", "c1", 10.0)], [timed_as("b", "b", "c2", 10.0, torch="3")])
    assert compared.rows[0].why == "another problem; different torch"


def test_the_best_is_the_best_at_the_same_problem() -> None:
    runs = every(
        timed_as("b", "r4", "c4", 20.0), timed_as("b", "r3", "c3", 15.0),
        timed_as("a", "r2", "c2", 1.0), timed_as("a", "r1", "c1", 2.0),
    )  # fmt: skip
    last, best = sides(("last", "best"), runs, lambda _: None)
    assert (last.newest.run.id, best.newest.run.id, best.left_out) == ("r4", "r3", 2)
    compared = held([one.run for one in last.runs], [one.run for one in best.runs])
    assert compared.rows[0].verdict != "unlike"
    with pytest.raises(NotFoundError, match="2 runs left out, another problem"):
        sides(("last", "best"), [runs[0], *runs[2:]], lambda _: None)


def test_a_series_ends_where_the_problem_was_another() -> None:
    found = series(
        every(
            timed_as("b", "r4", "c4", 4.0), timed_as(None, "r3", "c3", 3.0),
            timed_as("a", "r2", "c2", 2.0), timed_as("b", "r1", "c1", 1.0),
        )
    )  # fmt: skip
    (one,) = found
    assert [each.run.id for each in one.runs] == ["r1", "r3", "r4"]
    assert one.left_out == 1


def test_a_headline_pools_no_run_of_another_problem() -> None:
    """One commit can have two problems: a harness may read a file that no commit has."""
    newest = solving("b", at("c1", typed("bf16", ours=1.0, base=2.0)))
    other = solving("a", at("c1", typed("bf16", ours=1.0, base=2.0, fa3=0.5)))
    one = told(newest, other)["bf16"]
    assert mean(one) == 2 and [group.run.id for group in one.pooled] == [newest.id]
    assert one.against == "only base; fa3 not timed on this build"
    same = told(newest, solving("b", other))["bf16"]
    assert mean(same) == 0.5


def test_runs_of_another_problem_give_no_speedup() -> None:
    def gained(*problems: str) -> float:
        runs = [
            timed_as(problem, f"r{n}", f"c{n}", us).model_copy(
                update={"session": "2025-01-01-a", "started": n}
            )
            for n, (problem, us) in enumerate(zip(problems, (8.0, 4.0), strict=True))
        ]
        speed = sped_up([], runs).get("2025-01-01-a")
        return sum(speed.doublings.values()) if speed else 0.0

    assert gained("a", "a") == pytest.approx(1)
    assert gained("a", "b") == 0


def test_the_runs_that_a_chart_leaves_out_are_counted() -> None:
    groups = [
        told(solving(problem, at("c1", typed("bf16", ours=1.0, base=2.0))))["bf16"].newest
        for problem in ("b", "a", None, "b")
    ]
    for number, group in enumerate(groups):
        group.run.__dict__.update(started=-number, id=f"r{number}")
    kept, left_out = of_one_problem(groups, groups[0])
    assert [groups.index(group) for group in kept] == [0, 2, 3] and left_out == 1
    # Without a problem of its own the newest run that states one says which.
    kept, left_out = of_one_problem(groups, groups[2])
    assert [groups.index(group) for group in kept] == [0, 2, 3] and left_out == 1
