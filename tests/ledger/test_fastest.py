"""The rule that finds the measured cases nearest to a shape, and what is told of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import test_headline
from test_headline import typed
from test_measured import WRONG, time

from kbtool.ledger.fastest import Found, as_json, fields, measured, nearest, why_none
from kbtool.model.kernel import Kernel
from kbtool.model.kinds.tune import TuneResult
from kbtool.model.run import Run, StepRecord
from kbtool.model.twin import MeasuredSet

KERNEL = Kernel.model_validate(
    {
        "id": "add", "title": "Add", "summary": "It adds.", "namespace": "add",
        "harness": "harness.py", "targets": {"cpu": {"sources": ["add.cpp"]}},
        "case_fields": {
            "n": {"type": "int", "default": "1", "help": "how many"},
            "m": {"type": "int", "default": "1", "help": "how wide"},
            "page": {"type": "int", "help": "of a page"},
            "lengths": {"type": "ints", "help": "of each"},
            "dtype": {"type": "str", "default": "bf16", "help": "type"},
        },
        "case_sets": {"small": {"title": "Small ones", "cases": [{"n": "1"}]},
                      "large": {"title": "Large ones", "cases": [{"n": "64"}]}},
    }
)  # fmt: skip


TUNED = "20260101T000000Z-tuned"


DAY = datetime(2026, 1, 1, tzinfo=UTC)


def at(commit: str, *cases: dict[str, Any], days: int = 0) -> Run:
    """A quiet run of a commit, so many days later."""
    made = test_headline.at(commit, *cases)
    more = {"id": f"20260101T000000Z-{made.id}", "started": DAY + timedelta(days)}
    return made.model_copy(update={**more, "recipe": "peers"})


def shaped(case: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """The case with these fields, and a name that says them."""
    name = " ".join(f"{key}={value}" for key, value in fields.items())
    return {**case, "name": name, "case": {**case["case"], **fields}}


def sets(*runs: Run) -> list[MeasuredSet]:
    return measured(KERNEL, runs, "page.html", lambda one: [f"repeat {one.id}"])


def found(results: list[MeasuredSet], **asked: Any) -> list[Found]:
    known = fields(KERNEL, results)
    (machine,) = {of.machine for of in results}
    return nearest(known, results, machine, asked)


def test_the_same_case_is_at_distance_1_and_the_distance_is_a_product():
    case = typed("bf16", ours=10.0, base=20.0)
    results = sets(at("c1", shaped(case, n=8, m=4), shaped(case, n=2, m=1), shaped(case, n=8, m=2)))
    every = found(results, n=8, m=4)
    assert [(one.case.name, one.distance, one.apart) for one in every] == [
        ("n=8 m=4", 1.0, []), ("n=8 m=2", 2.0, ["m"]), ("n=2 m=1", 16.0, ["n", "m"]),
    ]  # fmt: skip


def test_a_field_that_a_case_or_a_question_lacks_has_its_default():
    results = sets(at("c1", shaped(typed("bf16", ours=1.0), n=1)))
    assert [one.distance for one in found(results)] == [1.0]
    assert [one.apart for one in found(results, m=3)] == [["m"]]


@pytest.mark.parametrize(
    "asked", [{"dtype": "fp16"}, {"lengths": [1, 2]}, {"page": 16}, {"n": 0}, {"n": None}]
)
def test_text_lists_null_and_zero_have_to_be_the_same(asked):
    results = sets(at("c1", shaped(typed("bf16", ours=1.0), n=4)))
    assert found(results, **asked) == []
    known = fields(KERNEL, results)
    ((name, value),) = asked.items()
    shown = "absent" if value is None else "1/2" if name == "lengths" else value
    assert why_none(known, results, results[0].machine, asked) == f"no case with {name}={shown}"


def test_lists_and_pages_that_are_the_same_answer():
    case = shaped(typed("bf16", ours=1.0), n=4, lengths=[3, 4], page=16)
    results = sets(at("c1", case))
    (one,) = found(results, n=4, lengths=[3, 4], page=32)
    assert (one.distance, one.apart) == (2.0, ["page"])


def test_what_each_field_has_but_no_case_together_is_said():
    case = typed("bf16", ours=1.0)
    results = sets(at("c1", shaped(case, n=4, page=16), shaped(case, n=4, lengths=[1])))
    asked = {"n": 4, "page": 16, "lengths": [1]}
    known = fields(KERNEL, results)
    assert found(results, **asked) == []
    assert why_none(known, results, results[0].machine, asked) == (
        "no case with these fields together"
    )


def test_at_the_same_distance_the_least_time_comes_first_and_three_are_told():
    cases = [
        shaped(typed("bf16", ours=us), n=n)
        for n, us in ((16, 30.0), (4, 20.0), (64, 40.0), (1, 10.0))
    ]
    every = found(sets(at("c1", *cases)), n=8)
    assert [one.case.name for one in every] == ["n=4", "n=16", "n=1"]


def test_of_a_case_timed_twice_the_one_between_plain_kernels_answers_then_the_newest():
    old = at("c1", shaped(typed("bf16", ours=(9.0, 12.0), base=(9.0, 24.0)), n=4))
    chain = shaped(typed("bf16", ours=5.0, base=6.0), n=4) | {"case_set": "large"}
    new = at("c2", chain, days=1)
    results = sets(new, old)
    assert {(of.case_set, case.current) for of in results for case in of.cases} == {
        ("small", True), ("large", False),
    }  # fmt: skip
    (one,) = found(results, n=4)
    assert (one.us("ours"), one.us("base")) == (12.0, 24.0)
    twice = at("c3", chain | {"case_set": "small"}, days=1)
    again = chain | {"case_set": "large", "arms": typed("bf16", ours=4.0, base=6.0)["arms"]}
    newest = at("c4", again, days=2)
    (one,) = found(sets(newest, twice), n=4)
    assert one.of.commit == "c4"


def test_the_fastest_is_a_peer_or_a_variant_and_a_wrong_one_is_neither():
    case = typed("bf16", ours=10.0, v1=9.0, base=8.0, wrong=1.0) | {"peers": {"wrong": WRONG}}
    (one,) = found(sets(at("c1", shaped(case, n=4))), n=4)
    assert (one.fastest, one.own, set(one.case.arms)) == ("base", "v1", {"ours", "v1", "base"})
    off = case | {"timed": {"v1": WRONG}, "rechecked": False}
    (one,) = found(sets(at("c1", shaped(off, n=4))), n=4)
    assert (one.own, "v1" in one.case.arms) == ("ours", False)


def test_ratios_are_of_all_runs_and_have_the_range_of_the_quartiles():
    spread = typed("bf16", ours=1.0, base=1.0)
    spread["arms"] = {"ours": time(9.0, 10.0, 11.0), "base": time(18.0, 20.0, 22.0)}
    first = at("c1", shaped(spread, n=4))
    (one,) = found(sets(first), n=4)
    base = one.case.arms["base"]
    assert (base.ratio, one.case.ratio) == (pytest.approx(2), pytest.approx(2))
    assert (base.ratio_low, base.ratio_high) == (pytest.approx(18 / 11), pytest.approx(22 / 9))
    assert one.case.arms["ours"].ratio is None


def test_between_plain_kernels_a_ratio_without_quartiles_has_no_range():
    (one,) = found(sets(at("c1", shaped(typed("bf16", ours=(9.0, 10.0), base=(9.0, 30.0)), n=4))))
    base = one.case.arms["base"]
    assert (base.ratio, base.ratio_low, base.ratio_high) == (pytest.approx(3), None, None)


def test_the_command_repeats_the_run_that_timed_the_best_peer():
    case = shaped(typed("bf16", ours=10.0, base=40.0), n=4)
    beside = shaped(typed("bf16", ours=10.0, fa3=20.0), n=4)
    newest = at("c1", case)
    older = at("c1", beside, beside | {"name": "other"})
    results = sets(newest, older)
    (one, *_) = found(results, n=4)
    assert one.case.best_peer == "fa3" and one.commands == [f"repeat {older.id}"]
    assert results[0].commands == [f"repeat {newest.id}"]


def test_the_setting_that_a_quiet_run_tuned_is_told():
    case = shaped(typed("bf16", ours=1.0), n=4)
    tune = {
        "sha256": "0" * 64, "device": "cpu", "threads": 4, "setting": "splits", "protocol": "p",
        "cases": [{"name": "x", "case_set": "small", "case": {"n": 4, "dtype": "bf16"},
                   "variant": "v1", "own": "2", "best": "2",
                   "settings": {"2": case["arms"]["ours"]}}],
    }  # fmt: skip
    timed = at("c1", case)

    def with_tune(**more: Any) -> Run:
        made = at("c1", case)
        step = made.steps[-1].model_copy(
            update={"id": "tune", "kind": "tune", "result": TuneResult.model_validate(tune | more)}
        )
        assert isinstance(step, StepRecord)
        return made.model_copy(update={"id": TUNED, "steps": [*made.steps[:-1], step]})

    (one,) = found(sets(timed, with_tune()), n=4)
    assert one.case.tuned is not None
    assert (one.case.tuned.setting, one.case.tuned.own, one.case.tuned.run) == (
        "splits", "2", TUNED,
    )  # fmt: skip
    (one,) = found(sets(timed, with_tune(others_busy=0.9)), n=4)
    assert one.case.tuned is None


def test_the_fields_have_what_the_measured_cases_have_in_order():
    case = typed("bf16", ours=1.0)
    results = sets(at("c1", shaped(case, n=64), shaped(case, n=8, page=16)))
    known = {field.name: field.values for field in fields(KERNEL, results)}
    assert known == {
        "n": [8, 64], "m": [1], "page": [None, 16], "lengths": [None], "dtype": ["bf16"],
    }  # fmt: skip


def test_as_json_has_the_case_asked_for_the_rule_and_each_found():
    results = sets(at("c1", shaped(typed("bf16", ours=10.0, base=20.0), n=4)))
    asked = KERNEL.case_from("n=8")
    every = nearest(fields(KERNEL, results), results, results[0].machine, asked)
    told = as_json(KERNEL, asked, {results[0].machine: every})
    assert told["case"]["n"] == 8 and "name" not in told["case"] and "2 has one" in told["rule"]
    (one,) = told["machines"][0]["nearest"]
    assert (one["distance"], one["apart"], one["fastest"], one["commit"]) == (
        2.0,
        ["n"],
        "ours",
        "c1",
    )
