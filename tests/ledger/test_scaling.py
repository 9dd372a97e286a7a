"""Measured cases in lines: which share all fields but one, and which field makes the axis."""

from __future__ import annotations

from typing import Any

from test_fastest import KERNEL, at, sets, shaped
from test_headline import typed

from kbtool.ledger.fastest import fields
from kbtool.ledger.scaling import axes, lines


def cases(*shapes: dict[str, Any]) -> Any:
    return sets(at("c1", *(shaped(typed("bf16", ours=1.0), **shape) for shape in shapes)))


def test_a_line_has_the_cases_that_differ_in_the_axis_alone_by_its_value():
    results = cases({"n": 8}, {"n": 2}, {"n": 4, "m": 2}, {"n": 4}, {"n": 4, "page": 16})
    known = fields(KERNEL, results)
    first, *others = lines(known, results, "n")
    assert [(size, case.name) for size, _, case in first.points] == [
        (2, "n=2"), (4, "n=4"), (8, "n=8"),
    ]  # fmt: skip
    assert (first.shape["m"], first.shape["page"], "n" in first.shape) == (1, None, False)
    assert [[case.name for _, _, case in line.points] for line in others] == [
        ["n=4 m=2"], ["n=4 page=16"],
    ]  # fmt: skip


def test_a_case_without_a_size_and_one_that_is_not_current_are_in_no_line():
    old = at("c1", shaped(typed("bf16", ours=1.0), n=8) | {"case_set": "large"}, days=-1)
    new = at("c2", *(shaped(typed("bf16", ours=2.0), n=n) for n in (0, 8)))
    results = sets(new, old)
    (line,) = lines(fields(KERNEL, results), results, "n")
    assert [(size, of.commit) for size, of, _ in line.points] == [(8, "c2")]


def test_the_axis_is_that_of_the_longest_line_and_needs_three_sizes():
    results = cases({"n": 1}, {"n": 2}, *({"n": 1, "m": m} for m in (2, 4)))
    assert axes(fields(KERNEL, results), results) == ["m"]
    more = cases(*({"n": n} for n in (1, 2, 4, 8)), *({"n": 1, "m": m} for m in (2, 4)))
    assert axes(fields(KERNEL, more), more) == ["n", "m"]
    assert axes(fields(KERNEL, cases({"n": 1})), cases({"n": 1})) == []
