"""The case sets and the card tests reach each code path that a plan can choose."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from attention_rule import MANIFEST, Place
from hypothesis import given, settings
from plans import Make, Plan, plans_of
from test_attention_cuda import CALLS
from test_attention_properties import ragged_cases


def bucket(case: dict[str, Any]) -> int:
    """The head dimension that the case's kernel is compiled for."""
    return next(D for D in (64, 128, 256) if case["D"] <= D)


def read_by_tma(case: dict[str, Any]) -> bool:
    """Whether TMA can read k and v; wgmma leaves other cases to fused."""
    if case["B"] * case["Hkv"] * case["Skv"] == 0:
        return False
    return case["layout"] == "padded_rows" or (
        case["layout"] in {"bhsd", "bshd", "expanded"} and case["D"] % 8 == 0
    )


def is_short(case: dict[str, Any]) -> bool:
    """Whether something that is not a key lies behind an entry's last key."""
    return any(0 < length < case["Skv"] for length in case.get("kv_lengths") or [])


INSTANCES = {
    (64, 1, ""), (64, 2, ""), (64, 2, "paired"),
    (128, 1, ""), (128, 1, "small ring"), (128, 2, ""), (128, 2, "paired"), (256, 1, ""),
}  # fmt: skip
"""Of wgmma: head dimension, warpgroups, and what else it is compiled for."""


def instance(case: dict[str, Any], made: Plan) -> tuple[int, int, str]:
    """That runs the case by wgmma."""
    how = "paired" if made.paired else "small ring" * made.small_ring
    return bucket(case), made.row_units, how


@settings(deadline=None)
@given(case=ragged_cases(Place("cuda")))
def test_random_ragged_batches_reach_the_ragged_kernel(plan: Make, case: dict[str, Any]) -> None:
    assert plans_of(plan, case)[0].ragged_blocks > 0


@pytest.mark.parametrize("case_set", ["edges", "sanitise"])
def test_the_cases_reach_every_number_of_merge_lanes(plan: Make, case_set: str) -> None:
    made = [plans_of(plan, case)[1] for case in MANIFEST.cases(case_set)]
    assert {one.merge_lanes for one in made} - {0} == {1, 2, 4, 8, 16}


def test_the_sanitise_cases_reach_every_way_to_split_and_merge(plan: Make) -> None:
    cases = [case for case in MANIFEST.cases("sanitise") if case["B"] * case["Skv"] > 0]
    fused, wgmma = [], []
    for case in cases:
        of_fused, of_wgmma = plans_of(plan, case)
        fused.append((case, of_fused))
        if read_by_tma(case):
            wgmma.append((case, of_wgmma))

    # The ragged kernel, and in it entries of several pieces beside others that are empty.
    ragged = [(case, made) for case, made in fused if made.ragged_blocks > 0]
    assert {bucket(case) for case, made in ragged if made.row_units == 1} == {64, 128, 256}
    assert {made.row_units for _, made in ragged} >= {1, 4}
    assert any(case["D"] % 8 != 0 for case, _ in ragged)  # rows that are not aligned
    assert any(0 in case["kv_lengths"] for case, _ in ragged)
    # The kernel that merges apart.
    apart = [case for case, made in wgmma if made.merge_lanes > 0]
    assert {bucket(case) for case in apart} == {64, 128, 256}
    assert any(case["D"] % 2 == 1 for case in apart)  # columns stored one by one
    assert any(made.merge_lanes > 0 and made.small_ring for _, made in wgmma)
    # Merges in a cluster, through the workspace, and in both.
    cut = [made for _, made in fused if not made.ragged_blocks]
    assert any(made.cluster_size > 1 and made.num_splits == made.cluster_size for made in cut)
    assert any(made.num_splits > made.cluster_size > 1 for made in cut)
    assert {made.row_units for _, made in wgmma if made.num_splits == 1} == {1, 2}
    assert {(bucket(case), made.row_units) for case, made in fused if not made.ragged_blocks} >= {
        (D, warps) for D in (64, 128) for warps in (1, 2, 4)
    }
    assert {made.row_units for _, made in fused if made.num_splits == 1} >= {1, 2}
    # Each instance of wgmma, with hidden values behind the keys.
    assert {instance(case, made) for case, made in wgmma if is_short(case)} == INSTANCES
    assert any(case["D"] not in (64, 128, 256) for case, _ in wgmma)  # past the row's end


def test_the_cases_of_8_bits_reuse_the_ring_buffers_of_each_instance(plan: Make) -> None:
    reached = set()
    for case in MANIFEST.cases("fp8"):
        made = plans_of(plan, case)[0]
        of_ring = (96 << 10) // (2 * bucket(case))  # keys in all ring buffers of a block
        aligned = case["layout"] == "bhsd" and case["D"] % 16 == 0
        if aligned and case["Skv"] > made.num_splits * of_ring:
            paged = case.get("page_size") is not None
            reached.add((case["kv_dtype"], case["dtype"], bucket(case), made.row_units, paged))
    assert reached == set(
        product(
            ("float8_e4m3fn", "float8_e5m2"), ("float16", "bfloat16"), (64, 128, 256), (1, 2, 4),
            (False, True),
        )
    )  # fmt: skip


@pytest.mark.parametrize("case_set", ["edges", "sanitise"])
def test_the_cases_make_paired_blocks_reuse_each_ring_buffer_stage(
    plan: Make, case_set: str
) -> None:
    """Only then a stage is waited for until both blocks have freed it; with hidden values too."""
    reached = set()
    for case in MANIFEST.cases(case_set):
        made = plans_of(plan, case)[1]
        if made.paired and read_by_tma(case):
            blocks = min(case.get("kv_lengths") or [case["Skv"]]) // 128 // made.num_splits
            stages = {64: 4, 128: 3}[bucket(case)]
            if blocks > stages:
                reached.add((bucket(case), case["causal"], is_short(case)))
    assert {(64, True, True), (128, True, True)} <= reached


def test_each_call_of_the_card_tests_reaches_its_own_code_path(plan: Make) -> None:
    for kind, call in CALLS.items():
        replayed = call.case | {"kv_lengths": call.whole}
        for case in (call.case, replayed, call.case | call.many):
            fused, wgmma = plans_of(plan, case)
            assert bool(fused.ragged_blocks) == (kind == "ragged")
            two_warpgroups = wgmma.row_units == 2 and wgmma.merge_lanes > 0
            assert bool(two_warpgroups) == (kind in ("tma", "pairs"))
            assert wgmma.paired == (kind == "pairs")
            if kind == "splits":
                assert fused.workspace_numel > 0


@pytest.mark.parametrize("B", [1100, 4700])
def test_some_cases_need_more_counters_than_a_stream_starts_with(plan: Make, B: int) -> None:
    assert plan((B, 2, 2, 1, 40, 16), 40).num_counters == 16 * B > 16384


def test_tma_cases_cover_every_content_past_the_keys(plan: Make) -> None:
    cases = [case for case in MANIFEST.cases("edges") if case["B"] * case["H"] * case["Skv"] > 0]
    made = [(case, plans_of(plan, case)[1]) for case in cases]
    for fill in ("random", "inf_beyond"):
        reached = {
            instance(case, one)
            for case, one in made
            if read_by_tma(case) and is_short(case) and case["fill"] == fill
        }
        assert reached == INSTANCES
