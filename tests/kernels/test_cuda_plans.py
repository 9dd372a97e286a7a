"""How fused and wgmma cut up a call, on the host: pure functions of sizes and card need no card."""

from __future__ import annotations

import ctypes
import json
import shutil
import statistics
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from attention_rule import FOLDER, MANIFEST, Place
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from test_attention_cuda import CALLS
from test_attention_properties import ragged_cases

from kbtool.gpu.toolchain import cuda_home, find_nvcc
from kbtool.model.errors import MachineError

SOURCE = """
#include <vector>

#include "cuda/plan/plan.cpp"
#include "cuda/fused/launch_fused.cpp"

// Each instance says that it was launched.
namespace kbtool::cuda {
static std::vector<FusedParams> launched;
static const char* last_instance;
#define INSTANCE(kernel, type, width) \\
  cudaError_t launch_##kernel##_##type##_d##width(const FusedParams& fp, int, cudaStream_t) { \\
    launched.push_back(fp); \\
    last_instance = #kernel "_" #type "_d" #width; \\
    return cudaSuccess; \\
  }
KBTOOL_INSTANCES(INSTANCE)
}  // namespace kbtool::cuda

extern "C" void plan(int wgmma, int lengths, int tma, int by_element, const int64_t* s,
                     int64_t splits, const int* c, int64_t* out) {
  using namespace kbtool::cuda;
  const Sizes sizes{s[0], s[1], s[2], s[3], s[4], s[5], lengths != 0, tma != 0, by_element != 0};
  Card card{c[0], c[1], c[2], c[3], {}};
  for (int blocks = 0; blocks <= MAX_CLUSTER; ++blocks) card.clusters[blocks] = c[4 + blocks];
  const FusedPlan plan =
      wgmma ? plan_wgmma(sizes, splits, card) : plan_fused(sizes, splits, card);
  out[0] = plan.num_splits;
  out[1] = plan.cluster_size;
  out[2] = plan.tiles_per_head;
  out[3] = plan.output_tiles;
  out[4] = plan.row_units;
  out[5] = plan.merge_lanes;
  out[6] = plan.num_counters();
  out[7] = plan.workspace_numel(sizes);
  out[8] = plan.ragged_blocks;
  out[9] = plan.early_launch;
  out[10] = plan.small_ring;
  out[11] = plan.paired;
  out[12] = wgmma_is_faster(sizes, splits, card);
  out[13] = plan.heads_inner;
}

// Contiguous but for the keys, whose rows are `row` elements apart. Never read.
static float* const base = reinterpret_cast<float*>(uintptr_t{1} << 20);
static kbtool::SplitKParams operands(const kbtool::cuda::Sizes& sizes, int64_t row) {
  kbtool::SplitKParams p{};
  p.B = sizes.B, p.H = sizes.H, p.Hkv = sizes.Hkv, p.Sq = sizes.Sq, p.Skv = sizes.Skv;
  p.D = sizes.D;
  p.q_stride = p.out_stride = {p.H * p.Sq * p.D, p.Sq * p.D, p.D, 1};
  p.k_stride = p.v_stride = {p.Hkv * p.Skv * row, p.Skv * row, row, 1};
  p.lse_stride.batch = p.H * p.Sq;
  p.q = p.k = p.v = base, p.out = p.lse = base;
  return p;
}

// The launch function that a call takes.
extern "C" const char* instance_of(const int64_t* s, int lengths, int bf16, int64_t row,
                                   int64_t offset, int64_t q_row, int64_t q_offset, const int* c) {
  using namespace kbtool::cuda;
  const Sizes sizes{s[0], s[1], s[2], s[3], s[4], s[5], lengths != 0, true, false};
  const Card card{c[0], c[1], c[2], c[3], {}};
  last_instance = "none";
  kbtool::SplitKParams p = operands(sizes, row);
  p.q_stride = {p.H * p.Sq * q_row, p.Sq * q_row, q_row, 1};
  p.q = reinterpret_cast<const char*>(base) + 2 * q_offset;
  p.k = reinterpret_cast<const char*>(base) + 2 * offset;
  launch_fused(p, bf16 ? ElementType::bf16 : ElementType::fp16,
               lengths ? KvLengths{base, 1, true} : KvLengths{}, plan_fused(sizes, 0, card),
               nullptr, nullptr, nullptr);
  return last_instance;
}

// Of a call with these strides of q, k and v (4 each, then the offsets of the three, all in
// elements): the widest copy of k and v, whether q is copied 16 bytes at a time, whether TMA can
// read k and v.
extern "C" void layout_of(const int64_t* s, const int64_t* at, int64_t* out) {
  kbtool::SplitKParams p{};
  p.B = s[0], p.H = s[1], p.Hkv = s[2], p.Sq = s[3], p.Skv = s[4], p.D = s[5];
  const auto stride = [&](int i) {
    return kbtool::Strides4{at[i], at[i + 1], at[i + 2], at[i + 3]};
  };
  const auto start = [&](int i) { return reinterpret_cast<const char*>(base) + 2 * at[12 + i]; };
  p.q_stride = stride(0), p.k_stride = stride(4), p.v_stride = stride(8);
  p.q = start(0), p.k = start(1), p.v = start(2);
  out[0] = kbtool::cuda::copy_width(p);
  out[1] = kbtool::cuda::q_is_aligned(p);
  out[2] = kbtool::cuda::tma_reads(p);
}

// The elements from one key to the next that a kernel is told, of rows `row` elements apart.
extern "C" int64_t key_stride(const int64_t* s, int64_t row, const int* c) {
  using namespace kbtool::cuda;
  const Sizes sizes{s[0], s[1], s[2], s[3], s[4], s[5], false, true, false};
  const Card card{c[0], c[1], c[2], c[3], {}};
  launched.clear();
  launch_fused(operands(sizes, row), ElementType::bf16, KvLengths{}, plan_fused(sizes, 0, card),
               nullptr, nullptr, nullptr);
  return launched.back().p.k_stride.seq | launched.back().p.v_stride.seq;
}

// The parts that a batch of contiguous entries is launched in; -1 if it is refused. Addresses are
// those of the parts' first entries.
extern "C" int64_t parts(const int64_t* s, int64_t splits, const int* c, int64_t* out) {
  using namespace kbtool::cuda;
  const Sizes sizes{s[0], s[1], s[2], s[3], s[4], s[5], false, true, false};
  const Card card{c[0], c[1], c[2], c[3], {}};
  const FusedPlan plan = plan_fused(sizes, splits, card);
  kbtool::SplitKParams p = operands(sizes, sizes.D);
  p.num_splits = plan.num_splits;
  launched.clear();
  const KvLengths lengths{base, 3, true};
  if (launch_fused(p, ElementType::fp16, lengths, plan, nullptr, nullptr, nullptr) != cudaSuccess) {
    return -1;
  }
  const auto from = [&](const void* to) {
    return static_cast<const char*>(to) - reinterpret_cast<const char*>(base);
  };
  int64_t* at = out;
  for (const FusedParams& fp : launched) {
    *at++ = fp.p.B;
    *at++ = fp.output_tiles * int64_t{fp.splits.divisor};
    *at++ = from(fp.p.q);
    *at++ = from(fp.p.k);
    *at++ = from(fp.p.out);
    *at++ = from(fp.p.lse);
    *at++ = from(fp.lengths.data);
  }
  return static_cast<int64_t>(launched.size());
}
"""
# Clusters of 0, 1, 2 … blocks that an H100 or H200 of 132 multiprocessors runs at a time, as its
# driver says, where each block takes a whole one.
CLUSTERS = (0, 132, 66, 39, 30, 22, 17, 15, 15)
H100 = (90, 132, 3352, 8, *CLUSTERS)
H200 = (90, 132, 4814, 8, *CLUSTERS)
A100 = (80, 108, 1555, 1, *[0] * 9)
B200 = (100, 148, 8000, 8, *[0] * 9)
PART = (90, 16, 600, 8, 0, 16, 8, 5, 4, 3, 2, 2, 2)  # of a card
SILENT = (90, 132, 0, 8, *CLUSTERS)  # does not tell how fast its memory is
CARDS = st.sampled_from((H100, H200, PART, SILENT, B200, A100))


class Plan(NamedTuple):
    num_splits: int
    cluster_size: int
    tiles_per_head: int
    output_tiles: int
    row_units: int
    merge_lanes: int
    num_counters: int
    workspace_numel: int
    ragged_blocks: int
    early_launch: int
    small_ring: int
    paired: int
    wgmma_is_faster: int
    heads_inner: int


Make = Callable[..., Plan]


def built(folder: Path) -> Make:
    """``plan_fused`` and ``plan_wgmma``."""
    try:
        home = cuda_home(find_nvcc()[0])
    except MachineError as error:
        pytest.skip(f"CUDA's headers are needed: {error}")
    shutil.copytree(FOLDER, folder)
    (folder / "plan.cpp").write_text(SOURCE)
    subprocess.run(
        ["c++", "-std=c++17", "-O1", "-fPIC", "-shared", f"-I{folder}",
         f"-isystem{home / 'include'}", str(folder / "plan.cpp"), "-o", str(folder / "plan.so")],
        check=True, timeout=300,
    )  # fmt: skip
    library = ctypes.CDLL(str(folder / "plan.so"))

    def make(
        sizes: tuple[int, ...],
        splits: int = 0,
        card: tuple[int, ...] = H100,
        wgmma: bool = False,
        lengths: bool = False,
        tma: bool = True,
        by_element: bool = False,
    ) -> Plan:
        out = (ctypes.c_int64 * len(Plan._fields))()
        library.plan(
            int(wgmma), int(lengths), int(tma), int(by_element), (ctypes.c_int64 * 6)(*sizes),
            ctypes.c_int64(splits), (ctypes.c_int * 13)(*card), out,
        )  # fmt: skip
        return Plan(*out)

    make.parts = library.parts  # type: ignore[attr-defined]
    library.parts.restype = ctypes.c_int64
    make.key_stride = library.key_stride  # type: ignore[attr-defined]
    library.key_stride.restype = ctypes.c_int64
    make.instance_of = library.instance_of  # type: ignore[attr-defined]
    library.instance_of.restype = ctypes.c_char_p
    make.layout_of = library.layout_of  # type: ignore[attr-defined]
    return make


def plans_of(make: Make, case: dict[str, Any]) -> tuple[Plan, Plan]:
    """Of fused and of wgmma, for a case of the manifest on an H100."""
    sizes = tuple(int(case[name]) for name in ("B", "H", "Hkv", "Sq", "Skv", "D"))
    splits, lengths = case.get("num_splits") or 0, case.get("kv_lengths") is not None
    fused, wgmma = (make(sizes, splits, wgmma=wgmma, lengths=lengths) for wgmma in (False, True))
    return fused, wgmma


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


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Make:
    return built(tmp_path_factory.mktemp("plan") / "kernel")


@st.composite
def calls(draw: st.DrawFn) -> tuple[int, ...]:
    """(B, H, Hkv, Sq, Skv, D)."""
    heads = draw(st.integers(1, 16))
    group = draw(st.integers(1, 16))
    few = st.integers(0, 4)
    keys = few | st.integers(0, 600) | st.integers(0, 1 << 20)
    return (
        draw(few | st.integers(0, 200)), heads * group, heads, draw(few | st.integers(0, 5000)),
        draw(keys), draw(st.integers(1, 64)) * 4,
    )  # fmt: skip


@settings(max_examples=500, deadline=None)
@given(
    sizes=calls(),
    splits=st.integers(0, 300),
    wgmma=st.booleans(),
    card=CARDS,
)
def test_any_call_is_cut_into_whole_clusters_that_cover_it(
    plan: Make, sizes: tuple[int, ...], splits: int, wgmma: bool, card: tuple[int, ...]
) -> None:
    B, H, Hkv, Sq, Skv, _ = sizes
    wgmma = wgmma and card[0] == 90
    made = plan(sizes, splits, card, wgmma)
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
    card=CARDS,
)
@example(sizes=(4, 6, 2, 5, 700, 64), splits=18, wgmma=True, lengths=False, card=H200)  # lanes
@example(sizes=(64, 32, 8, 1, 1024, 128), splits=1, wgmma=True, lengths=False, card=H200)  # ring
@example(sizes=(64, 32, 8, 1, 4096, 128), splits=16, wgmma=False, lengths=False, card=H200)
def test_given_splits_are_cut_and_merged_alike_whatever_the_batch(
    plan: Make,
    sizes: tuple[int, ...],
    splits: int,
    wgmma: bool,
    lengths: bool,
    card: tuple[int, ...],
) -> None:
    wgmma = wgmma and card[0] == 90
    B, *of_entry = sizes
    whole = plan((max(B, 1), *of_entry), splits, card, wgmma, lengths)
    one = plan((1, *of_entry), splits, card, wgmma, lengths)
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
        assert card[1] // 3 <= blocks <= card[1] * (2 if made.small_ring or small_tile else 1)
        assert made.merge_lanes > 0 or groups <= 4 or (made.cluster_size >= 2 and groups <= 24)


@pytest.mark.parametrize(
    ("sizes", "splits", "cluster", "apart"),
    [
        ((1, 32, 8, 16, 16384, 128), 16, 1, True),  # a cluster of 8 is slow to merge 64 rows
        ((1, 32, 8, 64, 16384, 128), 8, 1, True),  # 16 clusters of 8 would be one too many
        ((1, 32, 8, 32, 16384, 128), 16, 1, True),  # two warpgroups: all multiprocessors
        ((1, 32, 8, 256, 4096, 128), 2, 1, True),
        ((1, 16, 8, 64, 4096, 256), 8, 1, True),
        ((1, 32, 8, 64, 16384, 64), 8, 1, True),
        ((1, 32, 4, 16, 16384, 128), 32, 1, True),  # 33 would merge in no cluster
        ((1, 8, 2, 16, 16384, 128), 64, 1, True),
        ((1, 8, 1, 16, 131072, 128), 128, 1, True),  # 64 of fewer keys
        ((1, 8, 1, 16, 65536, 128), 64, 1, True),
        ((1, 24, 3, 8, 65536, 128), 40, 1, True),
        ((1, 32, 1, 1, 4096, 128), 16, 1, True),  # of 256 keys
        ((1, 32, 8, 64, 300, 128), 1, 1, False),
    ],
)
def test_a_second_kernel_merges_tiles_of_more_rows(
    plan: Make, sizes: tuple[int, ...], splits: int, cluster: int, apart: bool
) -> None:
    made = plan(sizes, wgmma=True)
    assert (made.num_splits, made.cluster_size, made.merge_lanes > 0) == (splits, cluster, apart)


@pytest.mark.parametrize("multiprocessors", [7, 14, 16, 18, 23, 30, 60, 114])
def test_a_part_of_a_card_is_kept_busy_by_few_heads(plan: Make, multiprocessors: int) -> None:
    for heads in (1, 2, 3, 4):
        for clusters in (CLUSTERS, [0] * 9):
            part = (90, multiprocessors, 4814 * multiprocessors // 132, 8, *clusters)
            made = plan((1, 64 * heads, heads, 1, 1 << 20, 128), card=part, wgmma=True)
            blocks = made.output_tiles * made.num_splits
            assert multiprocessors // 2 <= blocks <= max(multiprocessors, heads)


@pytest.mark.parametrize(
    ("sizes", "blocks"),
    [
        ((32, 32, 8, 1, 131072, 128), 264),
        ((2, 32, 8, 1, 16384, 128), 264),
        ((1, 32, 8, 1, 131072, 128), 0),  # one entry: cut by what it has
        ((4, 32, 8, 1, 1024, 128), 0),  # nobody waits long for 1024 keys
        ((241, 32, 8, 1, 8192, 128), 0),  # more entries than fit beside the tiles
        ((32, 32, 8, 8, 32768, 128), 132),  # two row units: one block a multiprocessor
        ((32, 32, 8, 64, 32768, 128), 0),  # several tiles a KV head
        ((200, 32, 32, 1, 1 << 20, 128), 0),  # too many places for 32 bits
    ],
)
def test_unlike_lengths_are_shared_out_where_a_block_could_keep_others_waiting(
    plan: Make, sizes: tuple[int, ...], blocks: int
) -> None:
    made = plan(sizes, lengths=True)
    assert made.ragged_blocks == blocks
    if blocks:
        B, H, Hkv, Sq, _, D = sizes
        assert made.num_counters == B * Hkv
        assert made.workspace_numel == 2 * blocks * (H // Hkv * Sq) * (D + 2)
    assert plan(sizes).ragged_blocks == 0
    assert plan(sizes, splits=3, lengths=True).ragged_blocks == 0


@settings(deadline=None)
@given(case=ragged_cases(Place("cuda")))
def test_the_ragged_batches_that_are_drawn_are_shared_out(plan: Make, case: dict[str, Any]) -> None:
    assert plans_of(plan, case)[0].ragged_blocks > 0


@pytest.mark.parametrize("case_set", ["edges", "sanitise"])
def test_every_number_of_lanes_merges(plan: Make, case_set: str) -> None:
    made = [plans_of(plan, case)[1] for case in MANIFEST.cases(case_set)]
    assert {one.merge_lanes for one in made} - {0} == {1, 2, 4, 8, 16}


def test_the_sanitisers_see_every_way_to_cut_and_to_merge(plan: Make) -> None:
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


@pytest.mark.parametrize("case_set", ["edges", "sanitise"])
def test_paired_blocks_fill_each_stage_of_their_ring_again(plan: Make, case_set: str) -> None:
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


def test_each_call_of_the_card_tests_takes_its_own_way(plan: Make) -> None:
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
def test_counters_of_fused_outgrow_a_stream_s_first_ones(plan: Make, B: int) -> None:
    assert plan((B, 2, 2, 1, 40, 16), 40).num_counters == 16 * B > 16384


def test_tma_meets_all_that_may_lie_behind_the_keys(plan: Make) -> None:
    cases = [case for case in MANIFEST.cases("edges") if case["B"] * case["H"] * case["Skv"] > 0]
    made = [(case, plans_of(plan, case)[1]) for case in cases]
    for fill in ("random", "inf_beyond"):
        reached = {
            instance(case, one)
            for case, one in made
            if read_by_tma(case) and is_short(case) and case["fill"] == fill
        }
        assert reached == INSTANCES


@pytest.mark.parametrize(
    ("B", "heads_kv", "Skv", "splits", "cluster"),
    [
        (1, 1, 1024, 8, 8),  # one cluster merges in no time
        (1, 1, 2048, 8, 8),
        (1, 1, 4096, 32, 8),
        (1, 1, 8192, 64, 8),  # 64 blocks draw all of the memory's bandwidth
        (1, 1, 131072, 64, 8),
        (1, 2, 32768, 32, 8),
        (1, 4, 8192, 16, 8),
        (1, 8, 16384, 8, 8),
        (2, 8, 8192, 4, 4),
        (3, 8, 8192, 4, 4),
        (4, 8, 32768, 2, 2),
        (8, 8, 8192, 2, 2),
        (8, 8, 512, 1, 1),
        (64, 8, 16384, 1, 1),  # 512 items are waves enough
    ],
)
def test_a_query_is_cut_into_about_64_blocks(
    plan: Make, B: int, heads_kv: int, Skv: int, splits: int, cluster: int
) -> None:
    made = plan((B, 4 * heads_kv, heads_kv, 1, Skv, 128))
    assert (made.num_splits, made.cluster_size) == (splits, cluster)


def test_rows_of_256_columns_take_more_blocks(plan: Make) -> None:
    sizes = (4, 16, 8, 1, 16384, 256)
    assert plan(sizes).num_splits == 4  # measured on an H100: 184 us with three, and 243 with two
    assert plan(sizes, wgmma=True).num_splits == 4  # 183 us, and 187 with two


@pytest.mark.parametrize(
    ("B", "heads_kv", "Skv", "splits", "cluster"),
    [
        (1, 8, 4096, 8, 8),  # too few keys for the merge of twelve
        (1, 8, 8192, 12, 6),
        (1, 8, 65536, 12, 6),
        (1, 4, 8192, 24, 8),
        (1, 1, 32768, 64, 8),  # the last to arrive reads eight clusters' states at once
        (1, 1, 131072, 96, 8),
        (2, 8, 8192, 6, 6),
        (4, 8, 16384, 4, 2),  # clusters of three are fed unevenly, and 32 of four do not fit
        (4, 8, 1024, 2, 2),
        (8, 8, 4096, 2, 2),
        (16, 8, 8192, 1, 1),
    ],
)
def test_a_faster_memory_takes_more_blocks(
    plan: Make, B: int, heads_kv: int, Skv: int, splits: int, cluster: int
) -> None:
    made = plan((B, 4 * heads_kv, heads_kv, 1, Skv, 128), card=H200)
    assert (made.num_splits, made.cluster_size) == (splits, cluster)


@pytest.mark.parametrize(
    ("sizes", "splits", "cluster", "faster"),
    [
        ((1, 32, 8, 1, 32768, 128), 16, 1, False),  # fused is, dealt out
        ((1, 32, 8, 1, 65536, 128), 16, 1, True),
        ((1, 32, 8, 1, 262144, 128), 33, 1, True),  # two blocks to a multiprocessor
        ((1, 8, 2, 1, 262144, 128), 64, 1, False),
        ((2, 32, 8, 1, 131072, 128), 8, 1, True),
        ((1, 60, 15, 1, 131072, 128), 17, 1, True),
        ((1, 40, 10, 1, 65536, 128), 13, 1, True),
        ((4, 32, 8, 1, 8192, 128), 4, 1, False),  # too few keys for the merge kernel
        ((4, 32, 8, 1, 16384, 128), 4, 1, True),
        ((16, 32, 8, 1, 8192, 128), 1, 1, True),
        ((64, 32, 8, 1, 1024, 128), 1, 1, True),
        ((1, 32, 8, 16, 2048, 128), 8, 1, True),  # each has 256 keys
        ((1, 32, 8, 16, 4096, 128), 16, 1, True),
        ((1, 32, 8, 16, 65536, 128), 16, 1, True),
        ((1, 24, 6, 16, 8192, 128), 11, 1, True),  # 22 would be many and short
        ((1, 24, 6, 16, 16384, 128), 22, 1, True),
        ((1, 32, 8, 64, 16384, 128), 8, 1, True),
        ((1, 16, 4, 16, 16384, 128), 32, 1, True),
        ((1, 8, 2, 16, 4096, 128), 16, 1, True),
        ((1, 8, 2, 16, 16384, 128), 64, 1, True),  # by the second kernel
        ((1, 8, 1, 16, 131072, 128), 128, 1, True),
        ((1, 32, 1, 1, 65536, 128), 64, 1, False),  # fused makes up for a shorter merge
        ((1, 32, 1, 1, 131072, 128), 128, 1, True),
        ((1, 32, 1, 1, 16384, 256), 64, 1, True),  # of which fused has half as many warps
        ((1, 32, 8, 5, 2048, 128), 8, 1, False),  # 20 rows over few keys
        ((1, 32, 8, 8, 4096, 128), 16, 1, True),
        ((1, 32, 8, 16, 1024, 128), 4, 1, False),
    ],
)
def test_a_faster_memory_takes_more_blocks_of_wgmma(
    plan: Make, sizes: tuple[int, ...], splits: int, cluster: int, faster: bool
) -> None:
    made = plan(sizes, card=H200, wgmma=True)
    assert (made.num_splits, made.cluster_size) == (splits, cluster)
    assert bool(made.wgmma_is_faster) == faster


MEASURED = FOLDER.parents[1] / ("sessions/2026-11-23-the-last-sources-on-a-card/files/tiles.jsonl")
"""A (B, H, Hkv, Sq, Skv, D) a line: us of each cut of it, in a chain and between plain kernels."""


def behind_the_best(plan: Make, keep: Callable[..., bool] = lambda *_: True) -> list[float]:
    """Of the measured shapes that are kept: the plan's time over that of the fastest way to cut,
    where the plan's was measured too; and nearly all were."""
    behind, shapes = [], 0
    for line in MEASURED.read_text().splitlines():
        case = json.loads(line)
        if not keep(*case["shape"]):
            continue
        shapes += 1
        times = {way: chain + between for way, (chain, between) in case["us"].items()}
        made = plan(tuple(case["shape"]), card=H200)
        way = f"{16 * made.row_units} rows, {made.num_splits} splits"
        taken = "wgmma" if made.wgmma_is_faster else way
        if taken in times:
            behind.append(times[taken] / min(times.values()))
    assert len(behind) > 0.9 * shapes > 0
    return behind


def test_plans_are_near_the_best_measured_cut(plan: Make) -> None:
    behind = behind_the_best(plan)
    assert statistics.geometric_mean(behind) < 1.015
    assert max(behind) < 1.25


def test_plans_of_one_kv_head_over_long_keys_are_near_the_best_measured_cut(plan: Make) -> None:
    """Where few output tiles need many splits to fill the card."""
    behind = behind_the_best(plan, lambda B, H, Hkv, Sq, Skv, D: B * Hkv == 1 and Skv >= 4096)
    assert len(behind) >= 10
    assert statistics.geometric_mean(behind) < 1.03
    assert max(behind) < 1.15


@pytest.mark.parametrize(
    ("sizes", "rows", "splits"),
    [
        ((1, 1, 1, 64, 64, 64), 16, 3),
        ((1, 1, 1, 65, 65, 64), 16, 3),
        ((1, 1, 1, 16, 65, 64), 16, 1),  # few rows: by choose_splits
        ((2, 8, 8, 128, 128, 64), 16, 1),
        ((1, 1, 1, 512, 512, 64), 16, 4),  # 32 clusters, two of them on multiprocessors of others
        ((1, 32, 8, 16, 1024, 128), 16, 6),  # 192 blocks
        ((1, 16, 16, 256, 256, 80), 16, 1),  # 256
        ((1, 8, 1, 64, 512, 256), 32, 6),
        ((16, 8, 8, 1024, 64, 100), 64, 1),  # waves of blocks
        ((0, 8, 8, 64, 64, 64), 64, 1),  # nothing
    ],
)
def test_tiles_have_few_rows_where_one_wave_holds_all(
    plan: Make, sizes: tuple[int, ...], rows: int, splits: int
) -> None:
    made = plan(sizes, card=H200)
    assert (16 * made.row_units, made.num_splits) == (rows, splits)
    whole = min(64, max(16, sizes[1] // sizes[2] * sizes[3]))
    assert 16 * plan(sizes, card=A100).row_units == whole  # its times are not known
    assert 16 * plan(sizes, max(1, splits), card=H200).row_units == whole


def test_lengths_that_are_shared_out_keep_tiles_of_all_rows(plan: Make) -> None:
    sizes = (32, 32, 8, 16, 32768, 128)
    shared = plan(sizes, card=H200, lengths=True)
    assert (shared.row_units, shared.tiles_per_head, shared.ragged_blocks) == (4, 1, 132)
    assert not shared.wgmma_is_faster


@pytest.mark.parametrize(
    ("sizes", "card", "paired"),
    [
        ((1, 32, 8, 64, 16384, 128), H200, True),
        ((1, 32, 8, 64, 16384, 64), H200, True),
        ((1, 32, 8, 128, 16384, 128), H200, True),  # two pairs of each head
        ((1, 32, 8, 96, 16384, 128), H200, False),  # three tiles
        ((1, 32, 8, 16, 16384, 128), H200, False),  # one tile
        ((1, 32, 8, 64, 16384, 256), H200, False),  # by one warpgroup each
        ((1, 32, 8, 4096, 4096, 128), H200, False),  # tiles enough without splits
        ((1, 32, 8, 64, 16384, 128), (*H200[:4], *[0] * 9), False),  # a part that fits no pair
    ],
)
def test_two_tiles_of_split_keys_share_their_copies(
    plan: Make, sizes: tuple[int, ...], card: tuple[int, ...], paired: bool
) -> None:
    assert plan(sizes, card=card, wgmma=True).paired == paired


@pytest.mark.parametrize(
    ("sizes", "heads_inner"),
    [
        ((8, 96, 16, 64, 4012, 128), False),  # timed: 176 us, 287 with all heads' tiles in turn
        ((16, 8, 2, 120, 1241, 256), False),  # 57 us, 60
        ((1, 32, 8, 1024, 1024, 128), True),  # 28 us, 35 with a head's tiles together
        ((1, 32, 8, 2048, 2048, 64), True),  # 60 us, 67
        ((1, 32, 8, 8192, 8192, 128), False),  # waves enough to balance the triangle
    ],
)
def test_a_head_s_tiles_run_together_unless_a_triangle_is_to_be_balanced(
    plan: Make, sizes: tuple[int, ...], heads_inner: bool
) -> None:
    """Session planner-switches: all others of a plan are the same, so are the bits."""
    assert plan(sizes, wgmma=True).heads_inner == heads_inner


def test_small_rings_are_for_more_blocks_of_a_query_than_multiprocessors(plan: Make) -> None:
    def small(*sizes: int) -> bool:
        return bool(plan(sizes, wgmma=True).small_ring)

    assert small(64, 32, 8, 1, 1024, 128) and small(17, 32, 8, 1, 100, 72)
    assert not small(16, 32, 8, 1, 1024, 128)  # 128 blocks
    assert not small(64, 32, 8, 5, 1024, 128)  # more than 16 rows
    assert not small(64, 32, 8, 1, 1024, 64) and not small(64, 32, 8, 1, 1024, 256)


@pytest.mark.parametrize(
    ("sizes", "wgmma"),
    [
        ((1, 32, 8, 1, 65536, 128), False),  # fused takes 93.5 us, wgmma 95.7
        ((1, 32, 8, 1, 16384, 128), False),  # too short
        ((1, 32, 32, 1, 16384, 128), False),
        ((4, 16, 8, 1, 16384, 256), True),
        ((16, 32, 8, 1, 8192, 100), True),
        ((1, 16, 8, 64, 4096, 256), True),
        ((16, 32, 8, 1, 8192, 128), True),  # 128 blocks: a full wave
        ((64, 32, 8, 1, 1024, 128), True),
        ((64, 32, 8, 1, 512, 128), False),
        ((12, 32, 8, 1, 8192, 128), False),  # 96 blocks: uneven
        ((16, 32, 8, 1, 8192, 64), False),
        ((1, 32, 1, 1, 65536, 128), False),  # 64 splits
        ((1, 32, 8, 8, 16384, 128), True),
        ((1, 32, 8, 2, 16384, 128), False),
        ((1, 32, 8, 4096, 4096, 128), True),
    ],
)
def test_wgmma_is_taken_where_it_was_measured_to_be_faster(
    plan: Make, sizes: tuple[int, ...], wgmma: bool
) -> None:
    assert bool(plan(sizes).wgmma_is_faster) == wgmma
    assert not plan(sizes, card=A100).wgmma_is_faster
    assert not plan(sizes, tma=False).wgmma_is_faster


@pytest.mark.parametrize(
    ("sizes", "otherwise"),
    [((1, 16, 16, 33, 106983, 256), 6), ((16, 4, 1, 16, 6642, 64), 4)],
)
def test_keys_copied_by_element_take_every_multiprocessor_and_one_tile(
    plan: Make, sizes: tuple[int, ...], otherwise: int
) -> None:
    """H100: 1.66 and 1.20 of the former time with the plan for aligned keys."""
    assert plan(sizes, tma=False).num_splits == otherwise
    made = plan(sizes, tma=False, by_element=True)
    assert (made.num_splits, made.tiles_per_head) == (8, 1)
    few_rows = (1, 32, 8, 1, 16384, 128)
    assert plan(few_rows, tma=False, by_element=True) == plan(few_rows, tma=False)


def test_a_call_of_two_kernels_launches_early_by_default(plan: Make) -> None:
    two, one = (1, 32, 8, 16, 16384, 128), (64, 32, 8, 16, 1024, 128)
    assert plan(two, wgmma=True).early_launch and plan(two, wgmma=True).merge_lanes > 0
    assert not plan(one, wgmma=True).early_launch and not plan(one, wgmma=True).merge_lanes
    assert not plan(two).early_launch


@pytest.mark.parametrize("lengths", [False, True])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize(("D", "width"), [(64, 64), (72, 128), (100, 128), (128, 128), (160, 256)])
@pytest.mark.parametrize("offset", [0, 8, 1])
@pytest.mark.parametrize("beyond", [0, 8, 4, 1])
@pytest.mark.parametrize(("q_beyond", "q_offset"), [(0, 0), (4, 0), (0, 1)])
def test_each_call_has_its_instance(
    plan: Make,
    D: int,
    width: int,
    dtype: str,
    lengths: bool,
    beyond: int,
    offset: int,
    q_beyond: int,
    q_offset: int,
) -> None:
    """By the layout of k and v alone: rows of q that are not aligned slow down nothing but q."""
    sizes = (4, 8, 2, 1, 1 << 17, D)  # long enough that unlike lengths are shared out
    name = plan.instance_of(  # type: ignore[attr-defined]
        (ctypes.c_int64 * 6)(*sizes), int(lengths), int(dtype == "bf16"),
        ctypes.c_int64(D + beyond), ctypes.c_int64(offset), ctypes.c_int64(D + q_beyond),
        ctypes.c_int64(q_offset), (ctypes.c_int * 13)(*H100),
    )  # fmt: skip
    kernel = "ragged" if lengths else "fused"
    aligned = D % 8 == 0 and (D + beyond) % 8 == 0 and offset % 8 == 0  # 16 bytes are 8 elements
    suffix = "" if aligned else "_unaligned"
    assert name.decode() == f"{kernel}{suffix}_{dtype}_d{width}"


@st.composite
def layouts(draw: st.DrawFn) -> tuple[tuple[int, ...], list[int]]:
    """(B, H, Hkv, Sq, Skv, D), the strides of q, k and v, and where each begins."""
    B, Hkv, Sq = (draw(st.integers(1, 3)) for _ in range(3))
    sizes = (B, Hkv * draw(st.integers(1, 3)), Hkv, Sq, draw(st.integers(0, 9)),
             draw(st.integers(1, 256) | st.sampled_from([64, 80, 96, 128, 256])))  # fmt: skip
    beyond = st.sampled_from([0, 0, 0, 8, 16, 4, 2, 1])
    strides: list[int] = []
    for heads, rows in ((sizes[1], Sq), (Hkv, sizes[4]), (Hkv, sizes[4])):
        last = draw(st.sampled_from([1, 1, 1, 1, 2]))
        row = last * sizes[5] + draw(beyond)
        head = max(rows, 1) * row + draw(beyond)
        batch = heads * head + draw(beyond)
        expanded = draw(st.sampled_from([1, 1, 1, 0]))
        strides += [batch * expanded, head, row, last]
    return sizes, [*strides, *(draw(st.sampled_from([0, 0, 0, 8, 4, 2, 1])) for _ in range(3))]


@settings(max_examples=2000, deadline=None)
@given(layout=layouts())
@example(layout=((1, 32, 8, 16, 16384, 128), [0, 132, 2112, 1, 0, 2097152, 128, 1, 0, 2097152, 128,
                                               1, 0, 0, 0]))  # fmt: skip
def test_copies_never_ask_for_more_than_every_row_s_alignment(
    plan: Make, layout: tuple[tuple[int, ...], list[int]]
) -> None:
    (B, H, Hkv, Sq, Skv, D), strides = layout
    out = (ctypes.c_int64 * 3)()
    plan.layout_of(  # type: ignore[attr-defined]
        (ctypes.c_int64 * 6)(B, H, Hkv, Sq, Skv, D), (ctypes.c_int64 * 15)(*strides), out
    )
    width, q_aligned, tma = out

    def starts(which: int, heads: int, rows: int) -> list[int]:
        """Where each row begins, in bytes."""
        batch, head, row, _ = strides[4 * which : 4 * which + 4]
        return [2 * (strides[12 + which] + b * batch + h * head + r * row)
                for b in range(B) for h in range(heads) for r in (0, max(rows - 1, 0))]  # fmt: skip

    def widest(which: int, heads: int, rows: int) -> int:
        if strides[4 * which + 3] != 1 and D > 1:
            return 2
        at = [*starts(which, heads, rows), 2 * D]
        return next(size for size in (16, 8, 4, 2) if all(start % size == 0 for start in at))

    assert bool(q_aligned) == (widest(0, H, min(Sq, 2)) == 16)
    assert width == min(widest(1, Hkv, min(Skv, 2)), widest(2, Hkv, min(Skv, 2)))
    aligned = [start % 16 == 0 for which in (1, 2) for start in starts(which, Hkv, Skv)]
    if tma:
        assert all(aligned) and strides[7] == strides[11] == 1
        assert Skv == 1 or strides[6] * strides[10] > 0  # TMA has no stride of 0 from key to key
    elif width == 16:
        assert Skv == 0 or any(strides[4 * which] % 8 for which in (1, 2))


@pytest.mark.parametrize(
    ("sizes", "splits", "parts"),
    [
        ((2, 32, 8, 1, 4096, 128), 0, 1),
        ((70_000, 32, 32, 1, 64, 8), 1024, 2),  # 2,293,760,000 blocks
        ((1 << 26, 64, 64, 1, 1, 4), 1, 3),
        ((0, 32, 8, 1, 4096, 128), 0, 0),
    ],
)
def test_more_blocks_than_a_grid_has_go_in_parts(
    plan: Make, sizes: tuple[int, ...], splits: int, parts: int
) -> None:
    out = (ctypes.c_int64 * 70)()
    count = plan.parts(  # type: ignore[attr-defined]
        (ctypes.c_int64 * 6)(*sizes), ctypes.c_int64(splits), (ctypes.c_int * 4)(*A100[:4]), out
    )
    assert count == parts
    B, H, Hkv, Sq, Skv, D = sizes
    first = 0
    for part in range(parts):
        entries, blocks, q, k, o, lse, lengths = out[part * 7 : part * 7 + 7]
        assert 0 < blocks < 2**31
        assert q == o == first * H * Sq * D * 2
        assert k == first * Hkv * Skv * D * 2
        assert (lse, lengths) == (first * H * Sq * 4, first * 3 * 8)
        first += entries
    assert first == B


def test_a_single_key_has_no_stride(plan: Make) -> None:
    """Addresses of keys that are not there go by it, and copies of 16 bytes want them aligned."""

    def stride(Skv: int, row: int) -> int:
        return int(
            plan.key_stride(  # type: ignore[attr-defined]
                (ctypes.c_int64 * 6)(1, 2, 2, 3, Skv, 64), ctypes.c_int64(row),
                (ctypes.c_int * 13)(*H100),
            )
        )  # fmt: skip

    assert stride(2, 65) == 65
    assert stride(1, 65) == 0


def test_a_batch_entry_of_more_blocks_than_a_grid_has_is_refused(plan: Make) -> None:
    sizes = (ctypes.c_int64 * 6)(1, 64, 64, 1 << 22, 1, 4)
    out = (ctypes.c_int64 * 7)()
    cut = (sizes, ctypes.c_int64(1024), (ctypes.c_int * 4)(*A100[:4]), out)
    assert plan.parts(*cut) == -1  # type: ignore[attr-defined]
