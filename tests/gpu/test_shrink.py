"""The search for the smallest failing case, on made-up operators; nothing is computed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kbtool.gpu.shrink import Case, Shrinker, State
from kbtool.model.kernel import CaseField, CaseValue
from kbtool.model.kinds.minimise import Axis, AxisProbe

FIELDS = {
    "B": CaseField(type="int", default="1", help="h"),
    "S": CaseField(type="int", default="1", help="h"),
    "K": CaseField(type="int", default="1", help="h"),
    "D": CaseField(type="int", default="64", help="h"),
    "lengths": CaseField(type="ints", help="h"),
    "splits": CaseField(type="int", help="h"),
    "causal": CaseField(type="bool", default="false", help="h"),
    "kind": CaseField(type="str", default="a", choices=["a", "b", "c"], help="h"),
}
START = {
    "name": "start", "B": 3, "S": 192, "K": 192, "D": 64, "lengths": None, "splits": 7,
    "causal": True, "kind": "c",
}  # fmt: skip


def found(
    fails: Callable[..., bool], refused: Callable[..., bool] = lambda **_: False, **start: object
) -> tuple[Shrinker, list[Case]]:
    """A finished search, and the cases that it tried."""
    tried: list[Case] = []

    def probe(case: Case) -> State:
        tried.append(dict(case))
        if refused(**case):
            return "refused"
        return "fails" if fails(**case) else "passes"

    first = {**START, **start}
    assert probe(first) == "fails"
    shrinker = Shrinker(FIELDS, probe, first)
    shrinker.shrink()
    return shrinker, tried


def axis(shrinker: Shrinker, field: str) -> Axis:
    return next(axis for axis in shrinker.axes() if axis.field == field)


def test_irrelevant_fields_shrink_to_the_least_and_relevant_ones_to_their_boundary():
    shrinker, tried = found(lambda K, causal, **_: K >= 65 and causal)
    assert shrinker.smallest == {
        "name": "start", "B": 1, "S": 1, "K": 65, "D": 1, "lengths": None, "splits": None,
        "causal": True, "kind": "a",
    }  # fmt: skip
    along = axis(shrinker, "K")
    assert along.boundary == (64, 65)
    assert along.sentence.startswith("K fails from 65 on, passes up to 64; tried: fails at 65–68")
    # No value is claimed that was not tried, with everything else as it is in the smallest.
    assert all({**shrinker.smallest, "K": probe.value} in tried for probe in along.probes)
    assert axis(shrinker, "causal").sentence == "causal fails at true; passes at false"
    assert axis(shrinker, "kind").sentence == "kind fails at a, b, c"
    assert axis(shrinker, "B").boundary is None


@pytest.mark.parametrize("least", [2, 3, 5, 31, 33, 34, 63, 64, 65, 100, 191, 192])
def test_every_boundary_is_found(least):
    shrinker, _ = found(lambda K, **_: least <= K)
    assert shrinker.smallest["K"] == least
    assert axis(shrinker, "K").boundary == (least - 1, least)


def test_a_failure_at_multiples_has_no_boundary_and_lists_the_values():
    shrinker, _ = found(lambda K, **_: K % 64 == 0)
    assert shrinker.smallest["K"] == 64
    along = axis(shrinker, "K")
    assert along.boundary is None
    assert along.sentence == ("K fails at 64, 128, 192; passes at 1–2, 4, 8, 16, 32, 61–63, 65–67")


def test_values_that_are_refused_are_stepped_over_and_never_pass():
    shrinker, _ = found(
        lambda D, **_: D >= 8, refused=lambda D, **_: D % 4 != 0, D=100
    )  # fmt: skip
    assert shrinker.smallest["D"] == 8
    along = axis(shrinker, "D")
    assert along.boundary == (4, 8)
    assert "refused 1–3, 5–7" in along.sentence


def widened(
    shrinker: Shrinker,
    hints: dict[str, list[CaseValue]],
    affordable: Callable[[Case], bool] = lambda case: True,
    deadly: Callable[[Case], bool] = lambda case: False,
) -> dict[str, str]:
    """Field → what is said of it after values that are not beside its own were tried too."""
    axes = list(shrinker.axes())
    shrinker.widen(axes, hints, affordable=affordable, deadly=deadly)
    return {axis.field: axis.sentence for axis in axes}


def test_passing_multiples_are_found_among_powers_of_two_and_halves():
    shrinker, tried = found(lambda K, **_: K % 24 != 0, K=3)
    assert shrinker.smallest["K"] == 1
    axes = list(shrinker.axes())
    assert all(probe.state == "fails" for axis in axes for probe in axis.probes)
    said = widened(shrinker, {"K": [96]})
    assert said["K"] == (
        "K fails at 1–4, 8, 16, 32, 64, 80, 88, 92, 94–95, 97, 128, 256, 512, 1024; passes at 96"
    )
    for axis in shrinker.axes():
        assert all({**shrinker.smallest, axis.field: p.value} in tried for p in axis.probes)


def test_a_boundary_above_is_found_to_the_number():
    shrinker, _ = found(lambda S, **_: S < 45, S=7)
    assert widened(shrinker, {})["S"] == (
        "S fails at 1–4, 7–8, 16, 32, 40, 44; passes at 45–46, 48, 64, 128, 256, 512, 1024"
    )


def test_of_an_absent_number_and_a_factor_too_the_values_that_pass_elsewhere_are_tried():
    fields = {**FIELDS, "scale": CaseField(type="float", default="1.0", help="h")}
    fails = lambda splits, scale, **_: splits != 6 and scale != 0.5  # noqa: E731
    probe = lambda case: "fails" if fails(**case) else "passes"  # noqa: E731
    shrinker = Shrinker(fields, probe, {**START, "scale": 1.0})
    shrinker.shrink()
    assert shrinker.smallest["splits"] is None
    said = widened(shrinker, {"splits": [None, 6], "scale": [0.5, 0.25], "lengths": [[3]]})
    assert said["splits"] == (
        "splits fails at 1–2, 4–5, 7–8, 16, 32, 64, 128, 256, 512, 1024, absent; passes at 6"
    )
    assert said["scale"] == "scale fails at 1.0, 0.25; passes at 0.5"
    assert "lengths" not in said  # what it can hold hangs on other fields


def test_a_number_that_takes_some_values_only_goes_down_among_them_and_lists_them():
    """Other values would be refused by the harness, and texts are no numbers."""
    fields = {**FIELDS, "page": CaseField(type="int", choices=["1", "4", "16", "64"], help="h")}
    tried: list[object] = []

    def probe(case: Case) -> State:
        tried.append(case["page"])
        return "fails" if case["page"] in {4, 16, 64} else "passes"

    shrinker = Shrinker(fields, probe, {**START, "page": 64})
    shrinker.shrink()
    assert shrinker.smallest["page"] == 4
    along = axis(shrinker, "page")
    assert along.boundary == (1, 4)
    assert along.sentence.endswith("fails at 4, 16, 64; passes at 1")
    assert set(tried) <= {None, 1, 4, 16, 64}


def test_values_that_cost_too_much_are_neither_tried_nor_listed():
    shrinker, tried = found(lambda K, **_: K < 300, K=3)
    said = widened(shrinker, {"K": [9999]}, affordable=lambda case: case["K"] <= 64)
    assert said["K"] == "K fails at 1–4, 8, 16, 32, 64"
    assert {case["K"] for case in tried} == {1, 2, 3, 4, 8, 16, 32, 64}


def test_a_field_is_left_when_a_value_takes_the_process_and_the_others_are_not():
    shrinker, _ = found(lambda **_: True)
    said = widened(shrinker, {"K": [700, 16, 5]}, deadly=lambda case: case["K"] == 700)
    assert said["K"] == "K fails at 1–4, 8, 16, 32, 64, 128, 192, 700"  # neither 5 nor 1024
    assert "1024" in said["B"]


def test_equal_numbers_shrink_together_where_one_alone_would_not_fail():
    shrinker, _ = found(lambda S, K, **_: S == K >= 12)
    assert (shrinker.smallest["S"], shrinker.smallest["K"]) == (12, 12)
    assert axis(shrinker, "S=K").boundary == (11, 12)
    assert axis(shrinker, "S").boundary is None


def test_a_list_follows_the_number_that_counts_it_and_the_number_that_bounds_it():
    def refused(B, K, lengths, **_):
        return lengths is not None and (len(lengths) != B or max(lengths) > K)

    shrinker, _ = found(
        lambda lengths, **_: lengths is not None and any(length > 4 for length in lengths),
        refused, lengths=[0, 130, 192],
    )  # fmt: skip
    smallest = shrinker.smallest
    assert (smallest["B"], smallest["K"], smallest["lengths"]) == (1, 5, [5])


def test_an_interrupted_search_keeps_the_smallest_case_so_far():
    tries = 0

    def probe(case: Case) -> State:
        nonlocal tries
        tries += 1
        if tries > 3:
            raise TimeoutError
        return "fails"

    shrinker = Shrinker(FIELDS, probe, START)
    with pytest.raises(TimeoutError):
        shrinker.shrink()
    assert shrinker.smallest != START
    assert shrinker.smallest["B"] == 1


def test_the_search_goes_the_same_way_each_time():
    fails = lambda K, S, **_: K * S > 77  # noqa: E731
    assert found(fails)[1] == found(fails)[1]


def test_a_boundary_is_claimed_only_of_numbers_that_were_tried_in_order():
    def along(**states: str) -> Axis:
        probes = [AxisProbe(value=int(k[1:]), state=v) for k, v in states.items()]
        return Axis(field="K", value=2, probes=probes)

    assert along(n1="passes", n2="fails").boundary == (1, 2)
    assert along(n1="passes", n2="fails", n3="passes").boundary is None
    assert along(n1="fails", n2="fails").boundary is None
    flags = [AxisProbe(value=True, state="fails"), AxisProbe(value=False, state="passes")]
    assert Axis(field="causal", value=True, probes=flags).boundary is None
