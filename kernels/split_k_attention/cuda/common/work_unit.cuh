// The work unit of a block: one split of one output tile (batch entry, KV head, query tile). The query
// heads that share a KV head are packed into the rows of the tile, row = query * heads_per_kv + head.
#pragma once

#include <type_traits>

#include "async_copy.cuh"
#include "dependent_launch.cuh"
#include "fused_params.h"
#include "packed.cuh"

namespace kbtool::cuda {

// Chunks of four columns of the tile that each block of a cluster merges and stores. At least 2, so that
// 2^32 / share fits 32 bits.
__host__ __device__ __forceinline__ int share_of(int chunks, int cluster) {
  const int share = (chunks + cluster - 1) / cluster;
  return share > 2 ? share : 2;
}

// Key blocks go to the splits in turn (INTERLEAVED_KEYS), or each split has a contiguous range. Inside
// the kernels keys are counted from key_begin.
struct WorkUnit {
  uint32_t output_tile;    // of paired blocks, the pair's
  uint32_t split;
  uint32_t batch;          // entry of k and v
  uint32_t head_kv;
  uint32_t row0;
  int rows;                // rows of this tile; 0 of a spare tile of packed queries
  int share;               // chunks of the tile that a block of the cluster merges and stores
  uint32_t share_inverse;  // 2^32 / share, rounded up
  int64_t valid;           // keys of this batch entry
  int64_t key_begin;       // first key of the split
  int64_t key_end;         // one past the last key that the split may have
  uint32_t key_step;       // from one key block of the split to its next, in key blocks
  uint32_t rank;           // in the pair of blocks that multicast to each other
};

struct PackedWorkUnit : WorkUnit {
  uint32_t queries;      // of the batch entry
  uint32_t first_query;  // of them, in q and in the outputs
};

template <class C>
using WorkUnitOf = std::conditional_t<C::PACKED, PackedWorkUnit, WorkUnit>;

__device__ __forceinline__ int64_t queries_of(const FusedParams& fp, const WorkUnit&) { return fp.p.Sq; }
__device__ __forceinline__ int64_t queries_of(const FusedParams&, const PackedWorkUnit& at) { return at.queries; }

// A row of q and of the output.
struct RowIndex {
  uint32_t batch;
  uint32_t head;
  uint32_t query;
};

__device__ __forceinline__ RowIndex index_in_outputs(const WorkUnit& at, uint32_t head, uint32_t query) {
  return {at.batch, head, query};
}
__device__ __forceinline__ RowIndex index_in_outputs(const PackedWorkUnit& at, uint32_t head, uint32_t query) {
  return {0, head, at.first_query + query};  // packed queries are one batch entry there
}

template <class Unit>
__device__ __forceinline__ RowIndex row_index(const FusedParams& fp, const Unit& at, int row) {
  const uint32_t packed = at.row0 + row;
  const uint32_t query = fp.heads_per_kv.divide(packed);
  const uint32_t head =
      at.head_kv * fp.heads_per_kv.divisor + (packed - query * fp.heads_per_kv.divisor);
  return index_in_outputs(at, head, query);
}

// Keys of the batch entry that a row of the tile sees.
template <class Unit>
__device__ __forceinline__ int64_t seen_keys(const FusedParams& fp, const Unit& at, int row) {
  return visible_keys(fp.p.causal, fp.heads_per_kv.divide(at.row0 + row), queries_of(fp, at), at.valid);
}

// Keys before this one, counted in the entry, are visible to `row` and all rows after it, if no window hides any. It is
// negative if a tree mask has more bits than there are keys.
template <class C, class Unit>
__device__ __forceinline__ int64_t seen_from_row_on(const FusedParams& fp, const Unit& at, int row) {
  const int64_t seen = seen_keys(fp, at, row);
  if (!C::TREES || fp.p.tree_mask == nullptr) return seen;
  return min(seen, first_tree_key(fp.p, at.valid));
}

// The first of them, which a window may hide keys before.
template <class Unit>
__device__ __forceinline__ int64_t first_seen_key(const FusedParams& fp, const Unit& at, int row) {
  return first_visible_key(fp.p.window, fp.heads_per_kv.divide(at.row0 + row), queries_of(fp, at), at.valid);
}

// First and last row that the block's key copies serve, relative to its own first row. The copies of paired
// blocks serve both tiles; block 0 of a pair has the later one.
template <class C>
__device__ __forceinline__ int first_row_of_pair(const WorkUnit& at) {
  return C::PAIRED && at.rank == 0 ? -C::BLOCK_M : 0;
}

template <class C>
__device__ __forceinline__ int last_row_of_pair(const FusedParams& fp, const WorkUnit& at) {
  if (!C::PAIRED || at.rank == 0) return at.rows - 1;
  return static_cast<int>(min(static_cast<uint32_t>(2 * C::BLOCK_M), fp.rows - at.row0)) - 1;
}

// The same for paired blocks, which wait for each other's copies: the first one reads the length for both. Both have
// started.
__device__ __forceinline__ int64_t valid_keys_of_pair(const FusedParams& fp, const WorkUnit& at,
                                                      unsigned char* slot) {
  if (fp.lengths.data == nullptr) return fp.p.Skv;
  if (at.rank == 0 && threadIdx.x == 0) {
    const int64_t valid = valid_keys(fp.lengths, fp.p.Skv, at.batch);
    for (uint32_t rank = 0; rank < 2; ++rank) store_remote(remote_address(shared_address(slot), rank), valid);
  }
  __syncwarp();
  cluster_arrive();
  cluster_wait();
  return *reinterpret_cast<int64_t*>(slot);
}

// The work unit of this number; of one block for each, of this block. All threads of a block call it together if there
// are lengths or packed queries. smem: [C::LENGTH_OFFSET] is for the length or, with packed queries, for a PackedTile.
template <class C>
__device__ __forceinline__ WorkUnitOf<C> locate(const FusedParams& fp, uint32_t unit, unsigned char* smem) {
  constexpr uint32_t PAIR_SIZE = C::PAIRED ? 2 : 1;
  WorkUnitOf<C> at;
  at.rank = unit % PAIR_SIZE;
  const uint32_t pair = unit / PAIR_SIZE;
  at.output_tile = fp.splits.divide(pair);
  at.split = pair - at.output_tile * fp.splits.divisor;
  const uint32_t heads = fp.tiles_at_a_time.divide(at.output_tile);  // those before: heads * heads_at_a_time
  const uint32_t among = at.output_tile - heads * fp.tiles_at_a_time.divisor;
  const uint32_t from_last = fp.heads_at_a_time.divide(among);
  const uint32_t head = (heads - from_last) * fp.heads_at_a_time.divisor + among;
  // Causal: the tile that sees most keys starts first.
  const uint32_t tile = fp.last_tile - from_last * PAIR_SIZE - at.rank;
  at.batch = fp.kv_heads.divide(head);
  at.head_kv = head - at.batch * fp.kv_heads.divisor;
  unsigned char* slot = smem + C::LENGTH_OFFSET;
  if constexpr (C::PACKED) {
    const PackedTile found = packed_tile_of_cluster(fp, tile, C::BLOCK_M, slot);
    at.batch = found.entry;
    at.queries = found.queries;
    at.first_query = found.first_query;
    at.row0 = found.row0;
    at.rows = found.rows(fp.heads_per_kv.divisor, C::BLOCK_M);
    at.valid = found.valid;
  } else {
    at.row0 = tile * C::BLOCK_M;
    at.rows = static_cast<int>(min(static_cast<uint32_t>(C::BLOCK_M), fp.rows - at.row0));
  }
  at.share = share_of(at.rows * C::STATE_CHUNKS, static_cast<int>(fp.cluster_size));
  at.share_inverse = ~0u / static_cast<uint32_t>(at.share) + 1;
  if (fp.lengths.data != nullptr) wait_for_earlier_kernel();
  if constexpr (C::PAIRED) {
    at.valid = valid_keys_of_pair(fp, at, slot);
  } else if constexpr (!C::PACKED) {
    at.valid = valid_keys_of_block(fp.lengths, fp.p.Skv, at.batch, slot);
  }

  // The keys that any row of the tile sees are cut evenly, in whole key blocks.
  const int64_t seen = seen_keys(fp, at, last_row_of_pair<C>(fp, at));
  if constexpr (C::INTERLEAVED_KEYS) {
    int64_t first = 0;
    // Not before the page of the first key that any row sees: the block table need not have a page there.
    if constexpr (C::OPTIONS) first = first_seen_key(fp, at, 0) & -int64_t{fp.piece_keys};
    at.key_begin = first + static_cast<int64_t>(at.split) * C::BLOCK_KV;
    at.key_end = seen;
    at.key_step = fp.splits.divisor;
    return at;
  }
  const uint32_t blocks = static_cast<uint32_t>((seen + C::BLOCK_KV - 1) / C::BLOCK_KV);
  const uint32_t each = fp.splits.divide(blocks);
  const uint32_t more = blocks - each * fp.splits.divisor;  // splits that take one block more
  const uint32_t first = at.split * each + min(at.split, more);
  const uint32_t count = each + (at.split < more ? 1 : 0);
  at.key_begin = static_cast<int64_t>(first) * C::BLOCK_KV;
  at.key_end = min(static_cast<int64_t>(first + count) * C::BLOCK_KV, seen);
  at.key_step = 1;
  return at;
}

}  // namespace kbtool::cuda
