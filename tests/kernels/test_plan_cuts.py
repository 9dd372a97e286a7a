"""How a plan splits a call: it covers all keys, fills the card, and is independent of the batch."""

from __future__ import annotations

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from plans import B200, CARDS, CLUSTERS, H100, H200, SILENT, Make, calls

PART_WITHOUT_PAIRS = (*H200[:4], *[0] * 9)
"""A part of a card that holds no cluster."""


@settings(max_examples=500, deadline=None)
@given(
    sizes=calls(),
    splits=st.integers(0, 300),
    wgmma=st.booleans(),
    fp8=st.booleans(),
    card=CARDS,
)
@example(sizes=(1, 32, 8, 64, 16384, 128), splits=0, wgmma=True, fp8=False, card=PART_WITHOUT_PAIRS)
@example(sizes=(16, 32, 8, 1, 1024, 128), splits=0, wgmma=True, fp8=False, card=H200)
@example(sizes=(100, 32, 8, 1, 0, 128), splits=0, wgmma=False, fp8=True, card=H100)
def test_plans_of_random_calls_cover_all_keys_in_whole_clusters(
    plan: Make, sizes: tuple[int, ...], splits: int, wgmma: bool, fp8: bool, card: tuple[int, ...]
) -> None:
    B, H, Hkv, Sq, Skv, D = sizes
    wgmma = wgmma and not fp8 and card[0] == 90
    made = plan(sizes, splits, card, wgmma, fp8=fp8)
    rows, unit = H // Hkv * Sq, 64 if wgmma else 16
    rows_of_tile = made.row_units * unit
    assert made.tiles_per_head * rows_of_tile >= rows > (made.tiles_per_head - 1) * rows_of_tile - 1
    assert made.output_tiles == B * Hkv * made.tiles_per_head
    assert made.num_splits == splits or splits == 0
    assert 1 <= made.cluster_size <= max(card[3], 1)
    assert made.num_splits % made.cluster_size == 0
    groups = made.num_splits // made.cluster_size
    merged_last = groups > 1 and made.merge_lanes == 0
    assert made.num_counters == (made.output_tiles * made.cluster_size if merged_last else 0)
    assert (made.merge_lanes > 0) == (wgmma and groups > 1)
    assert made.cluster_size == 1 or not wgmma
    assert (made.workspace_numel > 0) == (groups > 1 and B * H * Sq > 0)
    if splits == 0:
        least = 256 if wgmma else 32 if rows <= 16 or card[0] != 90 else 8
        assert 1 <= made.num_splits <= max(Skv // least, 2 if Skv >= 128 else 1, 1)
    # Block times are known of sm_90 alone, and of 16 bits.
    if not wgmma and (splits > 0 or card[0] != 90 or fp8):
        assert rows_of_tile == next(height for height in (16, 32, 64) if height >= min(rows, 64))
    if made.paired:  # both blocks of a cluster of two have a tile of the same keys
        assert wgmma and D <= 128 and made.tiles_per_head % 2 == 0 and card[4 + 2] > 0
    if made.small_ring:  # two blocks on a multiprocessor
        assert wgmma and rows <= 16 and 64 < D <= 128
        assert splits > 0 or made.output_tiles * made.num_splits > card[1]
    assert not made.wgmma_is_faster or card[0] == 90
    assert not plan(sizes, splits, card, wgmma, tma=False).wgmma_is_faster


@settings(max_examples=500, deadline=None)
@given(
    sizes=calls(),
    total_q=st.integers(0, 5000),
    splits=st.integers(0, 300),
    wgmma=st.booleans(),
    lengths=st.booleans(),
    fp8=st.booleans(),
    card=CARDS,
)
@example(sizes=(64, 32, 8, 1, 4096, 128), total_q=64, splits=0, wgmma=False, lengths=True,
         fp8=False, card=H100)  # fmt: skip
@example(sizes=(9, 32, 8, 512, 8192, 128), total_q=520, splits=0, wgmma=True, lengths=True,
         fp8=False, card=H200)  # fmt: skip
def test_plans_of_packed_queries_have_a_tile_for_each_row(
    plan: Make, sizes: tuple[int, ...], total_q: int, splits: int, wgmma: bool, lengths: bool,
    fp8: bool, card: tuple[int, ...],
) -> None:  # fmt: skip
    B, H, Hkv, Sq, Skv, D = sizes
    wgmma = wgmma and not fp8 and card[0] == 90
    made = plan(sizes, splits, card, wgmma, lengths=lengths, fp8=fp8, total_q=total_q)
    heights, heads = ((64, 128) if D <= 128 else (64,)) if wgmma else (16, 32, 64), H // Hkv
    rows_of_tile = (64 if wgmma else 16) * made.row_units
    assert rows_of_tile == next(h for h in heights if h >= min(heads * Sq, heights[-1]))
    # An entry's rows may end inside a tile, and so may those of the rows after the last entry.
    assert made.tiles_per_head == heads * total_q // rows_of_tile + B + 1
    assert made.output_tiles == Hkv * made.tiles_per_head
    assert made.ragged_blocks == made.paired == made.small_ring == 0
    assert not (made.wgmma_is_faster and (heads * Sq <= 16 or card[0] != 90))
    groups = made.num_splits // made.cluster_size
    assert (made.merge_lanes > 0) == (wgmma and groups > 1)
    counters = 0 if wgmma or groups == 1 else made.output_tiles * made.cluster_size
    assert made.num_counters == counters
    assert splits > 0 or not wgmma or made.num_splits <= max(1, Skv // 256)
    assert (made.workspace_numel > 0) == (groups > 1 and H * total_q > 0)
    if splits > 0:
        one = plan((1, *sizes[1:]), splits, card, wgmma, lengths=lengths, fp8=fp8, total_q=7)
        for name in DECIDES_BITS:
            if name != "tiles_per_head":
                assert B == 0 or getattr(one, name) == getattr(made, name), name


def test_one_packed_query_of_each_entry_is_planned_as_a_plain_call(plan: Make) -> None:
    for B in (1, 3, 8, 64, 200):
        sizes = (B, 32, 8, 1, 4096, 128)
        packed, plain = plan(sizes, total_q=B), plan(sizes)
        assert packed.num_splits == plain.num_splits and packed.row_units == plain.row_units


DECIDES_BITS = (
    "num_splits", "cluster_size", "tiles_per_head", "row_units", "merge_lanes", "ragged_blocks",
    "small_ring", "paired", "wgmma_is_faster",
)  # fmt: skip


@settings(max_examples=500, deadline=None)
@given(
    sizes=calls(),
    splits=st.integers(1, 300),
    wgmma=st.booleans(),
    lengths=st.booleans(),
    fp8=st.booleans(),
    card=CARDS,
)
@example(
    sizes=(4, 6, 2, 5, 700, 64), splits=18, wgmma=True, lengths=False, fp8=False, card=H200
)  # lanes
@example(
    sizes=(64, 32, 8, 1, 1024, 128), splits=1, wgmma=True, lengths=False, fp8=False, card=H200
)  # ring
@example(
    sizes=(64, 32, 8, 1, 4096, 128), splits=16, wgmma=False, lengths=False, fp8=False, card=H200
)
def test_with_given_splits_the_plan_does_not_depend_on_the_batch(
    plan: Make,
    sizes: tuple[int, ...],
    splits: int,
    wgmma: bool,
    lengths: bool,
    fp8: bool,
    card: tuple[int, ...],
) -> None:
    wgmma = wgmma and not fp8 and card[0] == 90
    B, *of_entry = sizes
    whole = plan((max(B, 1), *of_entry), splits, card, wgmma, lengths, fp8=fp8)
    one = plan((1, *of_entry), splits, card, wgmma, lengths, fp8=fp8)
    for name in DECIDES_BITS:
        assert getattr(whole, name) == getattr(one, name), name
    assert whole.output_tiles == max(B, 1) * one.output_tiles


@settings(max_examples=500, deadline=None)
@given(sizes=calls(), card=CARDS, wgmma=st.booleans())
@example(sizes=(4, 16, 8, 1, 16384, 256), card=H100, wgmma=True)
@example(sizes=(64, 32, 8, 1, 1024, 128), card=H200, wgmma=True)
def test_a_batch_is_planned_as_its_entries_as_heads_of_one(
    plan: Make, sizes: tuple[int, ...], card: tuple[int, ...], wgmma: bool
) -> None:
    """So the tune step times: a given number of splits cuts each entry by itself."""
    wgmma = wgmma and card[0] == 90
    B, H, Hkv, *rest = sizes
    assume(B > 0)
    chosen = plan(sizes, 0, card, wgmma)
    whole = plan((1, B * H, B * Hkv, *rest), 0, card, wgmma)
    assert whole == chosen  # what the own choice is timed as
    given = plan((1, B * H, B * Hkv, *rest), chosen.num_splits, card, wgmma)
    if given.row_units == chosen.row_units:  # else the plan takes smaller tiles than it is given
        assert given._replace(wgmma_is_faster=0) == chosen._replace(wgmma_is_faster=0)
    else:
        assert not wgmma and given.num_splits == chosen.num_splits


@settings(max_examples=500, deadline=None)
@given(sizes=calls(), card=st.sampled_from((H100, H200, SILENT)), wgmma=st.booleans())
@example(sizes=(1, 32, 8, 1, 262144, 128), card=H200, wgmma=True)  # two blocks to a multiprocessor
def test_clusters_run_at_the_same_time(
    plan: Make, sizes: tuple[int, ...], card: tuple[int, ...], wgmma: bool
) -> None:
    """A sixteenth cluster of 8 would wait for the other fifteen."""
    made = plan(sizes, card=card, wgmma=wgmma)
    if made.num_splits > 1:
        clusters = made.num_splits // made.cluster_size * made.output_tiles
        _, H, Hkv, Sq, _, D = sizes
        small_tile = not wgmma and H // Hkv * Sq > 16 and made.row_units == 1 and D <= 128
        assert clusters <= CLUSTERS[made.cluster_size] * (2 if made.small_ring or small_tile else 1)


@pytest.mark.parametrize("rows", [1, 20, 64, 128])
@pytest.mark.parametrize(
    ("card", "wgmma"),
    [(H100, False), (H200, False), (SILENT, False), (B200, False), (H100, True), (H200, True),
     (SILENT, True)],
)  # fmt: skip
def test_long_keys_keep_a_card_busy_and_no_block_merges_many_splits_alone(
    plan: Make, card: tuple[int, ...], wgmma: bool, rows: int
) -> None:
    for heads in range(1, 67):
        made = plan((1, rows * heads, heads, 1, 1 << 20, 128), card=card, wgmma=wgmma)
        blocks, groups = made.output_tiles * made.num_splits, made.num_splits // made.cluster_size
        small_tile = not wgmma and rows > 16 and made.row_units == 1
        assert (
            card[1] // (2 if wgmma else 3)
            <= blocks
            <= card[1] * (2 if made.small_ring or small_tile else 1)
        )
        assert made.merge_lanes > 0 or groups <= 4 or (made.cluster_size >= 2 and groups <= 24)


@pytest.mark.parametrize("multiprocessors", [7, 14, 16, 18, 23, 30, 60, 114])
def test_few_heads_fill_a_part_of_a_card(plan: Make, multiprocessors: int) -> None:
    for heads in (1, 2, 3, 4):
        for clusters in (CLUSTERS, [0] * 9):
            part = (90, multiprocessors, 4814 * multiprocessors // 132, 8, *clusters)
            made = plan((1, 64 * heads, heads, 1, 1 << 20, 128), card=part, wgmma=True)
            blocks = made.output_tiles * made.num_splits
            assert multiprocessors // 2 <= blocks <= max(multiprocessors, heads)


@pytest.mark.parametrize(
    "sizes", [(1, 16, 16, 33, 106983, 256), (16, 4, 1, 16, 6642, 64)]
)  # fmt: skip
def test_keys_copied_by_element_take_every_multiprocessor_and_one_tile(
    plan: Make, sizes: tuple[int, ...]
) -> None:
    """H100: 1.66 and 1.20 of the former time with the plan for aligned keys."""
    made = plan(sizes, tma=False, by_element=True)
    assert 15 / 16 * H100[1] <= made.output_tiles * made.num_splits <= H100[1]
    assert made.tiles_per_head == 1
    few_rows = (1, 32, 8, 1, 16384, 128)
    assert plan(few_rows, tma=False, by_element=True) == plan(few_rows, tma=False)


@pytest.mark.parametrize(
    ("tiles", "Skv", "blocks"),
    [(8, 32768, 64), (8, 131072, 128), (32, 8192, 64), (32, 32768, 128), (1, 1 << 62, 132)],
)
def test_long_keys_of_8_bits_take_every_multiprocessor(
    plan: Make, tiles: int, Skv: int, blocks: int
) -> None:
    """H100: 64 blocks read 8 tiles of 32k keys in 38 us, 128 in 40; of 128k keys in 114 and 106."""
    made = plan((1, 4 * tiles, tiles, 1, Skv, 128), fp8=True)
    assert made.output_tiles * made.num_splits == blocks
    assert made.tiles_per_head == 1
    unlike = plan((4, 32, 8, 1, 131072, 128), lengths=True, fp8=True)
    assert unlike.ragged_blocks == 0


@pytest.mark.parametrize(
    ("sizes", "divided"),
    [
        ((32, 32, 8, 1, 131072, 128), True),
        ((2, 32, 8, 1, 16384, 128), True),
        ((1, 32, 8, 1, 131072, 128), False),  # one entry: cut by what it has
        ((4, 32, 8, 1, 1024, 128), False),  # nobody waits long for 1024 keys
        ((241, 32, 8, 1, 8192, 128), False),  # more entries than fit beside the tiles
        ((32, 32, 8, 8, 32768, 128), True),
        ((32, 32, 8, 64, 32768, 128), False),  # several tiles a KV head
        ((200, 32, 32, 1, 1 << 20, 128), False),  # too many places for 32 bits
    ],
)
def test_ragged_batches_are_divided_evenly_if_blocks_would_wait(
    plan: Make, sizes: tuple[int, ...], divided: bool
) -> None:
    made = plan(sizes, lengths=True)
    blocks = made.ragged_blocks
    fit = 2 if made.row_units == 1 else 1  # blocks of this size on a multiprocessor
    assert blocks == (fit * H100[1] if divided else 0)
    if divided:
        B, H, Hkv, Sq, _, D = sizes
        assert made.num_counters == B * Hkv + 1
        assert made.workspace_numel == 2 * blocks * (H // Hkv * Sq) * (D + 2)
    assert plan(sizes).ragged_blocks == 0
    assert plan(sizes, splits=3, lengths=True).ragged_blocks == 0


def test_a_ragged_plan_keeps_one_tile_for_all_rows(plan: Make) -> None:
    sizes = (32, 32, 8, 16, 32768, 128)
    shared = plan(sizes, card=H200, lengths=True)
    assert shared.ragged_blocks > 0
    assert (shared.tiles_per_head, 16 * shared.row_units) == (1, 64)
    assert not shared.wgmma_is_faster
