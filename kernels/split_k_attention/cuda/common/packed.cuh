// The entry of a tile of packed queries, which only the device can know.
#pragma once

#include "async_copy.cuh"
#include "cluster.cuh"
#include "dependent_launch.cuh"
#include "fused_params.h"
#include "kv_lengths.h"

namespace kbtool::cuda {

// Where a tile of packed queries lies.
struct PackedTile {
  int64_t valid;  // keys of the entry
  uint32_t entry;
  uint32_t first_query;  // of the entry, in q
  uint32_t queries;      // of the entry
  uint32_t row0;         // of the entry

  // 0 of a spare tile.
  __device__ __forceinline__ int rows(uint32_t heads, uint32_t tile_rows) const {
    return static_cast<int>(min(max(row0, heads * queries) - row0, tile_rows));
  }
};

// By the 32 threads of a warp. Each of cu_seqlens_q is clamped to [0, total_q]: whatever they are, the tile's rows lie
// in q.
__device__ __forceinline__ PackedTile find_packed_tile(const FusedParams& fp, uint32_t tile, uint32_t tile_rows) {
  const int64_t entries = fp.p.entries;
  const uint32_t heads = fp.heads_per_kv.divisor;
  const auto bound = [&](int64_t entry) {
    const int first = __ldcg(fp.p.cu_seqlens_q + entry);
    return static_cast<uint32_t>(max(0, min(first, static_cast<int>(fp.p.Sq))));
  };
  const auto first_tile = [&](uint32_t first_query, int64_t entry) {
    return first_packed_tile(heads * first_query, entry, tile_rows);
  };
  uint32_t started = 0;  // entries that have this tile or begin before it
  for (int64_t entry0 = 0; entry0 <= entries; entry0 += 32) {
    const int64_t entry = entry0 + threadIdx.x % 32;
    const bool starts = entry <= entries && first_tile(bound(entry), entry) <= tile;
    started += __popc(__ballot_sync(~0u, starts));
  }
  PackedTile at;
  at.entry = max(started, 1u) - 1;
  const bool is_entry = at.entry < entries;  // or the queries after those of the last
  at.first_query = bound(at.entry);
  const uint32_t end = is_entry ? bound(at.entry + 1) : static_cast<uint32_t>(fp.p.Sq);
  at.queries = max(end, at.first_query) - at.first_query;
  at.row0 = static_cast<uint32_t>((tile - first_tile(at.first_query, at.entry)) * tile_rows);
  at.valid = is_entry ? valid_keys(fp.lengths, fp.p.Skv, at.entry) : 0;
  return at;
}

// The same for all blocks of a cluster, by its first one: another stream may overwrite the bounds during the call,
// and blocks that saw unlike ones would wait for each other for ever. All threads call it, after the arrival at the
// cluster barrier that merge_and_store waits for. `slot` lies in shared memory.
__device__ __forceinline__ PackedTile packed_tile_of_cluster(const FusedParams& fp, uint32_t tile, uint32_t tile_rows,
                                                             unsigned char* slot) {
  constexpr int WORDS = sizeof(PackedTile) / sizeof(int64_t);
  static_assert(WORDS * sizeof(int64_t) == sizeof(PackedTile), "it is sent in whole words");
  PackedTile& shared = *reinterpret_cast<PackedTile*>(slot);
  wait_for_earlier_kernel();
  const bool clustered = fp.cluster_size > 1;
  if (clustered) cluster_wait();
  if (threadIdx.x < 32 && (!clustered || cluster_rank() == 0)) {
    const PackedTile found = find_packed_tile(fp, tile, tile_rows);
    if (!clustered) {
      if (threadIdx.x == 0) shared = found;
    } else if (threadIdx.x < fp.cluster_size) {
      int64_t words[WORDS];
      memcpy(words, &found, sizeof(found));
      const uint32_t to = remote_address(shared_address(slot), threadIdx.x);
#pragma unroll
      for (int i = 0; i < WORDS; ++i) store_remote(to + i * 8, words[i]);
    }
  }
  __syncwarp();
  if (clustered) {
    cluster_arrive();
    cluster_wait();
    cluster_arrive_relaxed();
  } else {
    __syncthreads();
  }
  return shared;
}

}  // namespace kbtool::cuda
