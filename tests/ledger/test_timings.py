"""The rule of ``kbtool compare``: spreads, chances, cases that pair, verdicts, names of sides."""

from __future__ import annotations

import math
from typing import Any

import pytest
from test_measured import WRONG, benchmark, case

from kbtool.ledger.timings.conditions import Timed, timed, unlike
from kbtool.ledger.timings.sides import newest_first, sides
from kbtool.ledger.timings.spread import OWN, PEER, Spread, Spreads, chance, limit, pooled
from kbtool.ledger.timings.verdict import Comparison, Side, compare, told
from kbtool.model.errors import NotFoundError, UsageError
from kbtool.model.run import MachineInfo, RepositoryState, Run, StepRecord


def run(
    id_: str,
    commit: str,
    *cases: dict[str, Any],
    card: str | None = "Card X1",
    dirty: bool = False,
    torch: str = "2",
    **more: Any,
) -> Run:
    """A run as far as its times go."""
    machine = {"python": "3", "kbtool": "0", "os": "L", "cpu": "C", "cores": 1, "torch": torch}
    result = benchmark(*cases, **{"device": "cuda" if card else "cpu", **more})
    step: dict[str, Any] = {"result": result}
    fields: dict[str, Any] = {
        "id": id_,
        "kernel": "add",
        "machine": MachineInfo.model_validate({**machine, "card": card}),
        "repository": RepositoryState(commit=commit, dirty=dirty, changed_during_run=False),
        "steps": [StepRecord.model_construct(**step)],
    }
    return Run.model_construct(**fields)


def times(ours: float, name: str = "a", **more: Any) -> dict[str, Any]:
    return case(name, ours=ours, base=more.pop("base", 40.0), **more)


def every(*runs: Run) -> list[Timed]:
    """Newest first; runs are given so."""
    return newest_first(reversed(runs))


def held(first: list[Run], second: list[Run], others: list[Run] | None = None) -> Comparison:
    a, b = ([one for one in map(timed, side) if one] for side in (first, second))
    known = every(*second, *first, *(others or []))
    return compare(Side("a", a), Side("b", b), Spreads(known))


@pytest.mark.parametrize(
    ("t", "freedom"), [(12.7062, 1), (4.30265, 2), (3.18245, 3), (2.77645, 4), (2.22814, 10)]
)
def test_the_chance_is_that_of_students_t(t: float, freedom: int) -> None:
    """The values of every table at 5 %, two-sided."""
    assert chance(t * 0.01, 0.01**2, freedom) == pytest.approx(0.05, abs=1e-6)
    assert chance(-t * 0.01, 0.01**2, freedom) == pytest.approx(0.05, abs=1e-6)


def test_without_spread_any_difference_is_significant() -> None:
    assert (chance(0.1, 0.0, 5), chance(0.0, 0.0, 5)) == (0, 1)


def test_many_cases_make_each_harder_to_call() -> None:
    assert limit([0.009]) == 0.009
    assert limit([0.009, *[0.5] * 9]) == 0
    # Five of ten at half of 1 % each: the fifth is allowed 5/10 of 1 %.
    assert limit([0.005] * 5 + [0.5] * 5) == 0.005
    assert limit([0.005] * 5 + [0.5] * 5, tries=2) == 0
    assert limit([]) == 0


def test_measured_spread_outweighs_the_assumed_spread() -> None:
    assumed = Spread(0.01**2, 4)
    assert pooled(assumed, []) == pytest.approx(assumed)
    assert pooled(None, [[1.0]]) is None
    # Two runs 0.08 apart: squares of 2 · 0.04², one more degree of freedom.
    found = pooled(assumed, [[1.0, 1.08], [5.0]])
    assert found == (pytest.approx((4 * 0.01**2 + 2 * 0.04**2) / 5), 5)
    # Runs that agree make it better known, and not smaller.
    assert pooled(assumed, [[1.0, 1.0, 1.0]]) == (pytest.approx(0.01**2), 6)


def spread_of(every_: list[Timed], arm: str) -> Spread | None:
    one = every_[0]
    return Spreads(every_).of(one, one.results[0], one.results[0].cases[0], arm, "chain")


def test_spread_of_the_library_comes_from_runs_of_one_commit_of_peers_from_all() -> None:
    runs = every(
        run("r3", "c2", times(20.0)), run("r2", "c1", times(10.5)), run("r1", "c1", times(10.0))
    )
    own, peer = spread_of(runs, "ours"), spread_of(runs, "base")
    assert own is not None and peer is not None
    assert (own.freedom, peer.freedom) == (OWN.freedom + 1, PEER.freedom + 2)
    squares = OWN.variance * OWN.freedom + math.log(1.05) ** 2 / 2
    assert own.variance == pytest.approx(squares / own.freedom)


@pytest.mark.parametrize(
    "other",
    [
        run("r2", "c1", times(11.0), others_busy=0.9),
        run("r2", "c1", times(11.0), dirty=True),
        run("r2", "c1", times(11.0), torch="3"),
        run("r2", "c1", times(11.0), card="Card X2"),
        run("r2", "c1", {**times(11.0), "refused": "too fast"}),
    ],
    ids=["noisy", "dirty", "other torch", "other card", "refused"],
)
def test_runs_of_different_code_give_no_spread(other: Run) -> None:
    assert spread_of(every(run("r1", "c1", times(10.0)), other), "ours") == pytest.approx(OWN)


@pytest.mark.parametrize(
    ("b", "verdict"),
    [(10.0, "same"), (10.19, "same"), (10.25, "too_noisy"), (12.0, "slower"), (8.0, "faster")],
)
def test_a_case_is_called_by_more_than_its_spread(b: float, verdict: str) -> None:
    (row,) = held([run("r1", "c1", times(10.0))], [run("r2", "c2", times(b))]).rows
    assert (row.verdict, row.metric) == (verdict, "chain")
    assert (row.a, row.b) == (pytest.approx(10), pytest.approx(b))
    assert row.ratio == pytest.approx(b / 10)


def test_more_runs_see_a_smaller_step() -> None:
    def side(commit: str, us: float, runs: int) -> list[Run]:
        return [run(f"{commit}{n}", commit, times(us * 1.004 ** (n % 2))) for n in range(runs)]

    def answer(us: float, runs: int) -> str:
        return held(side("c1", 10.0, runs), side("c2", us, runs)).answer

    assert answer(10.3, 1) == "no verdict; 1 too noisy to tell"
    assert answer(10.3, 6) == "B is slower in 1 of 1 case, by 3.0 %"
    assert answer(10.19, 20) == "no change in 1 case"


def test_between_plain_kernels_leads_where_both_have_it() -> None:
    def both(us: float, between: float | None) -> dict[str, Any]:
        made = times(us)
        made["arms"]["ours"]["between_us"] = between
        return made

    first = [run("r1", "c1", both(10.0, 20.0))]
    (row,) = held(first, [run("r2", "c2", both(10.0, 30.0))]).rows
    assert (row.metric, row.a, row.b) == ("between", pytest.approx(20), pytest.approx(30))
    (row,) = held(first, [run("r2", "c2", both(10.0, None))]).rows
    assert (row.metric, row.verdict) == ("chain", "same")


def test_a_processor_without_a_second_run_of_a_commit_has_no_verdict() -> None:
    first, second = run("r1", "c1", times(10.0), card=None), run("r2", "c2", times(90.0), card=None)
    (row,) = held([first], [second]).rows
    assert (row.verdict, row.ratio) == ("too_noisy", pytest.approx(9))
    assert row.why == "no two quiet runs of one commit on this machine tell how far runs lie apart"
    others = [run(f"o{n}", "c0", times(10.0 + n / 100), card=None) for n in range(9)]
    assert held([first], [second], others).rows[0].verdict == "slower"


def test_cases_with_different_fields_get_no_verdict() -> None:
    a = [
        times(10.0, "fields"), times(10.0, "gone"), times(10.0, "wrong"),
        {**times(10.0, "refused"), "refused": "above the ceiling"},
        {**times(10.0, "old"), "case_set": None},
    ]  # fmt: skip
    b = [
        times(99.0, "fields", n=2), times(10.0, "new"), times(99.0, "wrong"),
        times(99.0, "refused"), times(10.0, "old"),
    ]  # fmt: skip
    b[2]["peers"] = {"ours": WRONG}
    comparison = held([run("r1", "c1", *a)], [run("r2", "c2", *b)])
    assert {row.case: (row.verdict, row.why) for row in comparison.rows} == {
        "small/fields": ("unlike", "different n"),
        "small/gone": ("missing", "only in A"),
        "small/wrong": ("missing", "the output of ours is wrong"),
        "small/refused": ("missing", "above the ceiling"),
        "small/old": ("same", None),
        "small/new": ("missing", "only in B"),
    }
    assert comparison.answer == "no change in 1 case; 1 not comparable; 4 missing"
    assert [row.case for row in told(comparison.rows)] == ["small/old", "small/fields"]


@pytest.mark.parametrize(
    ("more", "name"),
    [({"card": "Card X2"}, "card"), ({"torch": "3"}, "torch"), ({"card": None}, "card"),
     ({"protocol": "q"}, "measurement settings"), ({"sm_clocks_mhz": [1500, 1500]}, "SM clock")],
)  # fmt: skip
def test_runs_under_different_conditions_get_no_verdict_and_a_reason(
    more: dict[str, Any], name: str
) -> None:
    first = run("r1", "c1", times(10.0), sm_clocks_mhz=[1980, 1980])
    second = run("r2", "c2", times(20.0), **{"sm_clocks_mhz": [1980, 1980], **more})
    comparison = held([first], [second])
    (row,) = comparison.rows
    assert (row.verdict, row.ratio) == ("unlike", pytest.approx(2))
    assert row.why is not None and name in row.why
    assert any(f"different {name}: A" in note for note in comparison.notes)
    assert comparison.answer == "no verdict; 1 not comparable"
    assert comparison.is_past(3)


def test_more_samples_and_a_warmer_card_are_no_other_conditions() -> None:
    one, other = (
        timed(
            run("r", "c", times(1.0), protocol=f"{n} samples an arm in turn", sm_clocks_mhz=[mhz])
        )
        for n, mhz in ((5, 1980), (20, 1965))
    )
    assert one is not None and other is not None
    assert unlike(one, other) == []


def test_of_a_noisy_run_there_is_neither_ratio_nor_verdict() -> None:
    loud = run("r2", "c2", times(20.0), others_busy=0.5)
    (row,) = held([run("r1", "c1", times(10.0))], [loud]).rows
    assert (row.verdict, row.ratio) == ("too_noisy", None)
    assert row.why == "noisy: other processes used 50% of the cores meanwhile"


def test_the_first_line_counts_slower_and_faster_cases() -> None:
    names = [f"n{n}" for n in range(12)]
    first = run("r1", "c1", *(times(10.0, name) for name in names))
    taken = dict.fromkeys(names, 10.0) | {"n1": 11.0, "n2": 13.5, "n3": 7.0}
    comparison = held([first], [run("r2", "c2", *(times(us, name) for name, us in taken.items()))])
    slower, faster = "slower in 2 of 12 cases, by 10 to 35 %", "faster in 1 of 12 cases, by 30 %"
    assert comparison.answer == f"B is {slower}; {faster}"
    assert (comparison.is_past(30), comparison.is_past(36)) == (True, False)
    assert [row.case for row in told(comparison.rows)][:3] == ["small/n2", "small/n1", "small/n3"]


@pytest.mark.parametrize(
    "fault",
    [{"refused": "keeps results"}, {"peers": {"ours": {"passed": False, "error": 2, "bound": 1,
                                                       "torch_error": 1}}}],
    ids=["refused", "wrong"],
)  # fmt: skip
def test_a_limit_does_not_hold_if_the_second_side_is_wrong_in_a_case(fault: dict) -> None:
    sound = [run(f"r{n}", "c1", times(10.0), times(10.0, "b")) for n in range(2)]
    right = run("r3", "c2", times(10.0), times(10.0, "b"))
    faulty = run("r4", "c2", times(10.0), {**times(5.0, "b"), **fault})
    assert not held(sound, [right]).is_past(3)
    assert held(sound, [faulty]).is_past(3)
    assert held(sound, [right, faulty]).is_past(3), "one of two runs was wrong"
    assert not held([faulty], [right]).is_past(3), "it was mended"


RUNS = every(
    run("20260105T000000Z-x-0005", "dddd1111", times(10.0), dirty=True),
    run("20260104T000000Z-x-0004", "cccc1111", times(12.0, v1=13.0), card="Card X2"),
    run("20260103T000000Z-x-0003", "bbbb1111", times(11.0), others_busy=0.9),
    run("20260103T000000Z-x-0002", "bbbb1111", times(11.1, v1=9.0)),
    run("20260102T000000Z-x-0001", "bbbb1111", times(11.2)),
    run("20260101T000000Z-x-0000", "aaaa1111", times(9.0)),
)


def ids(*names: str) -> list[list[str]]:
    first, second = names
    found = sides((first, second), RUNS, {"HEAD": "bbbb1111"}.get)
    return [[f"{one.run.id[-1]}{'/' + s.arm if s.arm else ''}" for one in s.runs] for s in found]


@pytest.mark.parametrize(
    ("a", "b", "a_is", "b_is"),
    [
        ("20260101", "last", ["0"], ["5"]),
        ("bbbb", "20260105T000000Z-x-0005/base", ["2", "1"], ["5/base"]),
        ("HEAD", "aaaa1111", ["2", "1"], ["0"]),
        ("best", "HEAD", ["0"], ["2", "1"]),
        ("x2", "X1", ["4"], ["2", "1"]),
        ("bbbb", "Card X1", ["2", "1"], ["2", "1"]),
        ("v1", "base", ["4/v1"], ["4/base"]),
        ("v1", "HEAD", ["2/v1"], ["2", "1"]),
        ("bbbb/v1", "last", ["2/v1"], ["5"]),
        ("20260103T000000Z-x-0002", "bbbb", ["2"], ["1"]),
    ],
)
def test_names_of_runs_commits_cards_and_arms_are_resolved(
    a: str, b: str, a_is: list[str], b_is: list[str]
) -> None:
    if a_is == b_is:
        with pytest.raises(UsageError, match="are the same: ours at bbbb1111, Card X1"):
            ids(a, b)
    else:
        assert ids(a, b) == [a_is, b_is]


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        ("nothing", "last", "'nothing': there is no benchmark; the newest is 20260105T0000"),
        ("last/v9", "last", "no benchmark of v9"),
        ("20260103", "last", "means 2 runs: 20260103T000000Z-x-0003, 20260103T000000Z-x-0002"),
        ("best", "x2", "no quiet run of another commit was timed under the conditions of x2"),
    ],
)
def test_a_name_that_fits_nothing_is_an_error(a: str, b: str, said: str) -> None:
    with pytest.raises(NotFoundError) as raised:
        ids(a, b)
    assert said in str(raised.value)


def test_a_name_that_ends_a_run_and_begins_a_commit_is_refused() -> None:
    runs = every(
        run("20260101T000000Z-x-bbbb", "aaaa1111", times(9.0)),
        run("other", "bbbb1111", times(9.0)),
    )
    with pytest.raises(NotFoundError, match=r"'bbbb' ends run .*-x-bbbb and begins a commit"):
        sides(("bbbb", "last"), runs, lambda _: None)
    a, _ = sides(("x-bbbb", "other"), runs, lambda _: None)
    assert a.runs[0].run.id.endswith("-x-bbbb")


def test_of_a_commit_that_timed_two_kernels_those_of_the_other_side_are_compared() -> None:
    """`compare A B` took A's newest run, of another kernel: "no verdict; 192 missing"."""
    other = run("r2", "aaaa", times(3.0, "of another")).model_copy(update={"kernel": "multiply"})
    runs = every(run("r3", "bbbb", times(9.0)), other, run("r1", "aaaa", times(9.0)))
    for a, b in (("aaaa", "bbbb"), ("bbbb", "aaaa")):
        first, second = sides((a, b), runs, lambda _: None)
        assert {one.run.id for side in (first, second) for one in side.runs} == {"r1", "r3"}


def test_choosing_the_best_of_many_is_corrected_for() -> None:
    runs = every(
        run("r9", "last", times(10.72)),
        *(run(f"r{n}", f"c{n}", times(10.0 + n / 100)) for n in range(8)),
    )
    a, b = sides(("best", "last"), runs, lambda _: None)
    assert (a.runs[0].run.id, a.tries) == ("r0", 8)
    assert compare(a, b, Spreads(runs)).rows[0].verdict == "slower"
    assert compare(a._replace(tries=800), b, Spreads(runs)).rows[0].verdict == "too_noisy"


def test_comparing_best_with_best_is_refused() -> None:
    with pytest.raises(UsageError, match="both are `best`"):
        ids("best", "best")
