"""How a block of CUDA finds its tile of packed queries, compiled for the host."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from on_host import kernel_on_host

pytestmark = pytest.mark.slow

SOURCE = """
#include "host_cuda.h"
static unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((static_cast<uint64_t>(a) * b) >> 32);
}
static unsigned __ballot_sync(unsigned, bool value) {
  const int thread = host_cuda::current.running->thread;
  host_cuda::current.lanes[thread] = value;
  __syncwarp();
  unsigned all = 0;
  for (int lane = 0; lane < 32; ++lane) all |= host_cuda::current.lanes[lane] << lane;
  __syncwarp();
  return all;
}
static int __popc(unsigned bits) { return __builtin_popcount(bits); }
static unsigned __cvta_generic_to_shared(const void*) { return 0; }
using std::max;
using std::min;
#include "cuda/common/packed.cuh"
using namespace kbtool::cuda;

struct Call {
  FusedParams fp;
  uint32_t tile, tile_rows;
  PackedTile found[32];
};
static Call call;
static void find(int) {
  call.found[threadIdx.x] = find_packed_tile(call.fp, call.tile, call.tile_rows);
}

// The tile as each lane of a warp finds it; -1 if they disagree.
extern "C" int find_tile(const int32_t* bounds, const int64_t* lengths, int64_t entries,
                         int64_t total, int heads, int64_t Skv, int tile_rows, int64_t tile,
                         int64_t* out) {
  call = {};
  call.fp.p.cu_seqlens_q = bounds;
  call.fp.p.entries = entries;
  call.fp.p.Sq = total;
  call.fp.p.Skv = Skv;
  call.fp.heads_per_kv = FastDivisor(heads);
  call.fp.lengths = {lengths, 1, true};
  call.tile = tile;
  call.tile_rows = tile_rows;
  host_cuda::launch(find, 1, 32, 0, nullptr, 0);
  for (const PackedTile& at : call.found) {
    if (std::memcmp(&at, &call.found[0], sizeof(at)) != 0) return -1;
  }
  const PackedTile& at = call.found[0];
  const int64_t all[] = {at.entry, at.first_query, at.queries, at.row0,
                         at.rows(heads, tile_rows), at.valid};
  std::copy_n(all, 6, out);
  return 0;
}
extern "C" int64_t num_tiles(int64_t rows, int64_t entries, int tile_rows) {
  return kbtool::num_packed_tiles(rows, entries, tile_rows);
}
"""


class Tile(NamedTuple):
    entry: int
    first_query: int
    queries: int
    row0: int
    rows: int
    valid: int


Tiles = Callable[..., list[Tile]]


@pytest.fixture(scope="module")
def tiles(tmp_path_factory: pytest.TempPathFactory) -> Tiles:
    folder = tmp_path_factory.mktemp("packed")
    (folder / "packed.cpp").write_text(SOURCE)
    library = kernel_on_host(folder, folder / "packed.cpp")
    library.num_tiles.restype = ctypes.c_int64

    def find(
        bounds: list[int],
        lengths: list[int],
        total: int,
        heads: int,
        tile_rows: int,
        Skv: int = 900,
    ) -> list[Tile]:
        found = []
        out = (ctypes.c_int64 * 6)()
        of_bounds = (ctypes.c_int32 * len(bounds))(*bounds)
        of_lengths = (ctypes.c_int64 * len(lengths))(*lengths)
        entries = ctypes.c_int64(len(bounds) - 1)
        rows = ctypes.c_int64(total * heads)
        for tile in range(library.num_tiles(rows, entries, tile_rows)):
            status = library.find_tile(
                of_bounds, of_lengths, entries, ctypes.c_int64(total), heads, ctypes.c_int64(Skv),
                tile_rows, ctypes.c_int64(tile), out,
            )  # fmt: skip
            assert status == 0, "the lanes disagree"
            found.append(Tile(*out))
        return found

    return find


@st.composite
def batches(draw: st.DrawFn) -> dict[str, Any]:
    queries = draw(st.lists(st.sampled_from([0, 1, 1, 2, 5]) | st.integers(0, 90), max_size=70))
    bounds = [0, *itertools.accumulate(queries)]
    return {
        "bounds": bounds,
        "lengths": [draw(st.integers(0, 900)) for _ in queries],
        "total": bounds[-1] + draw(st.sampled_from([0, 0, 1, 40])),
        "heads": draw(st.integers(1, 9)),
        "tile_rows": draw(st.sampled_from([16, 32, 64])),
    }


EDGES = {"lengths": [7, 8, 9, 10], "total": 52, "heads": 4, "tile_rows": 16}


@settings(max_examples=150, deadline=None)
@given(batch=batches())
@example(batch={**EDGES, "bounds": [0, 3, 7, 12, 48]})  # ends around those of tiles
@example(batch={**EDGES, "bounds": [0, 0, 0, 0, 0]})
@example(batch={**EDGES, "bounds": [0, 52, 52, 52, 52]})
def test_each_row_is_in_one_tile(tiles: Tiles, batch: dict[str, Any]) -> None:
    bounds, heads, tile_rows = batch["bounds"], batch["heads"], batch["tile_rows"]
    ends = [*bounds[1:], batch["total"]]  # the rows after the last entry are one more
    rows = []
    spare = 0
    for tile in tiles(**batch):
        begin, end = bounds[tile.entry], ends[tile.entry]
        assert (tile.first_query, tile.queries) == (begin, end - begin)
        assert tile.valid == [*batch["lengths"], 0][tile.entry]
        assert 0 <= tile.rows <= tile_rows
        spare += tile.rows == 0
        if tile.rows:
            assert tile.row0 % tile_rows == 0
            assert tile.rows == min(tile_rows, heads * tile.queries - tile.row0)
        rows += [(tile.entry, tile.row0 + i) for i in range(tile.rows)]
    assert sorted(rows) == [
        (entry, row)
        for entry, (begin, end) in enumerate(zip(bounds, ends, strict=True))
        for row in range(heads * (end - begin))
    ]
    assert spare <= len(bounds)


any_bound = st.integers(-(2**31), 2**31 - 1) | st.integers(-3, 60)


@settings(max_examples=150, deadline=None)
@given(
    bounds=st.lists(any_bound, min_size=1, max_size=40),
    total=st.integers(1, 60),
    heads=st.integers(1, 9),
    tile_rows=st.sampled_from([16, 32, 64]),
)
def test_whatever_the_bounds_are_tiles_lie_in_q(
    tiles: Tiles, bounds: list[int], total: int, heads: int, tile_rows: int
) -> None:
    lengths = [5000, -3, *[9] * len(bounds)][: len(bounds) - 1]
    for tile in tiles(bounds, lengths, total, heads, tile_rows):
        assert 0 <= tile.entry < len(bounds) and 0 <= tile.rows <= tile_rows
        assert 0 <= tile.first_query <= tile.first_query + tile.queries <= total
        assert tile.rows == 0 or 0 <= tile.row0 <= heads * tile.queries - tile.rows
        assert 0 <= tile.valid <= 900
        assert tile.valid == 0 or tile.entry < len(bounds) - 1
