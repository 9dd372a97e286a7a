// The fused kernel for batches with unlike lengths that only the device knows: every block gets the same
// amount of work.
//
// The output tiles (batch entry, KV head) lie end to end on a line whose unit is a key block. A tile takes
// TILE_COST units for its fixed cost, then one for each of its key blocks. The line is cut into equal ranges,
// one for each thread block, which works on the pieces of tiles in its range one by one. A tile in several
// ranges is merged by the last of their blocks to arrive, in the order of its pieces.
#pragma once

#include "fused.cuh"

namespace kbtool::cuda {

// The fixed cost of a tile, in key blocks. While all blocks read, a tile's first keys take some 10 us to arrive; a
// block reads 16 key blocks in that time (H100).
constexpr uint32_t TILE_COST = 16;
constexpr uint32_t LEAST_RANGE = 32;  // the minimum range of a block, in key blocks

// A batch entry on the line, which is shorter than 2^31.
struct RaggedEntry {
  uint32_t end;    // of its last output tile, on the line
  uint32_t valid;  // keys
};

// The pieces of the output tile that a block works on.
struct RaggedPiece {
  uint32_t first;  // block that has the tile's first piece
  uint32_t count;  // pieces of the tile, each in the next block
};

// Lays every entry out on the line, by a prefix sum of costs; `entries` [B] lies in shared memory.
template <class C>
__device__ __forceinline__ void find_entry_ends(const FusedParams& fp, RaggedEntry* entries) {
  const int B = static_cast<int>(fp.p.B);
  for (int b = threadIdx.x; b < B; b += C::THREADS) {
    const uint32_t valid = static_cast<uint32_t>(valid_keys(fp.lengths, fp.p.Skv, b));
    const uint32_t cost = TILE_COST + (valid + C::BLOCK_KV - 1) / C::BLOCK_KV;
    entries[b] = {cost * fp.kv_heads.divisor, valid};
  }
  block_sync();
  if (threadIdx.x < 32) {
    const int lane = static_cast<int>(threadIdx.x);
    uint32_t before = 0;
    for (int b = lane; b - lane < B; b += 32) {
      uint32_t end = b < B ? entries[b].end : 0;
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {
        const uint32_t lower = __shfl_up_sync(~0u, end, step);
        if (lane >= step) end += lower;
      }
      end += before;
      if (b < B) entries[b].end = end;
      before = __shfl_sync(~0u, end, 31);
    }
  }
  block_sync();
}

// Workspace: two slots a block, for the tile that it continues and the tile that it leaves unfinished.
// o [slots, rows, Dv rounded up to a multiple of 4], then m and l [slots, rows].
struct RaggedSlots {
  float4* o;
  float2* ml;
  uint32_t rows;
  uint32_t row;  // float4 from row to row

  __device__ __forceinline__ explicit RaggedSlots(const FusedParams& fp)
      : o(reinterpret_cast<float4*>(fp.p.partial_o)),
        ml(reinterpret_cast<float2*>(fp.p.partial_m)),
        rows(fp.rows),
        row(static_cast<uint32_t>(ceil_div(fp.p.Dv, 4))) {}

  static __device__ __forceinline__ uint32_t slot(uint32_t block, bool first) {
    return block * 2 + (first ? 1 : 0);
  }
};

// Merges the partial states of the block's warp groups, and those of all pieces of the tile where this block
// is the last to arrive.
template <class C>
__device__ __forceinline__ void merge_and_store_piece(
    const FusedParams& fp, const WorkUnit& at, const RaggedPiece& piece,
    unsigned char* smem) {  // [KEY_WARPS, REGION_BYTES], then m and l: see FusedConfig
  using Element = typename C::Element;
  const SharedStates states{reinterpret_cast<const float2*>(smem + C::ML_OFFSET), C::BLOCK_M, smem,
                            C::STATE_STEP, C::STATES, fp.c};
  const auto for_each_chunk = [&](const auto& body) {
    for (int e = threadIdx.x; e < at.rows * C::STATE_CHUNKS; e += C::THREADS) {
      const int row = e / C::STATE_CHUNKS;
      const int chunk = e % C::STATE_CHUNKS;
      if (chunk * 4 < static_cast<int>(fp.p.Dv)) body(row, chunk);
    }
  };
  const auto merge_groups = [&](int row, int chunk) {
    return states.merge(row, (row * C::STATE_STRIDE + chunk * 4) * static_cast<int>(sizeof(float)));
  };
  const auto write = [&](int row, int chunk, const StateChunk& state) {
    const RowIndex index = row_index(fp, at, row);
    store_output<Element>(fp, index, chunk * 4, state);
    if (chunk == 0) store_lse(fp, index, state);
  };
  if (piece.count == 1) {
    for_each_chunk([&](int row, int chunk) { write(row, chunk, merge_groups(row, chunk)); });
    return;
  }

  const RaggedSlots slots(fp);
  const uint32_t mine = RaggedSlots::slot(blockIdx.x, blockIdx.x == piece.first);
  for_each_chunk([&](int row, int chunk) {
    const StateChunk state = merge_groups(row, chunk);
    const int64_t at_row = static_cast<int64_t>(mine) * slots.rows + row;
    slots.o[at_row * slots.row + chunk] = state.o;
    if (chunk == 0) slots.ml[at_row] = make_float2(state.m, state.l);
  });
  if (!arrives_last(fp.counters + at.output_tile, piece.count)) return;
  for_each_chunk([&](int row, int chunk) {
    const auto at_row = [&](int i) {
      const uint32_t slot = RaggedSlots::slot(piece.first + i, i == 0);
      return static_cast<int64_t>(slot) * slots.rows + row;
    };
    write(row, chunk,
          merge_global_states<8>(
              static_cast<int>(piece.count), fp.c,
              [&](int i) { return __ldcg(slots.ml + at_row(i)).x; },
              [&](int i) { return __ldcg(slots.ml + at_row(i)).y; },
              [&](int i) { return __ldcg(slots.o + at_row(i) * slots.row + chunk); }));
  });
}

// If another stream overwrites the lengths during the call, blocks disagree about the pieces of a tile, and its
// counter may stay above 0. The last block to end clears all counters for the next launch.
__device__ __forceinline__ void clear_counters(const FusedParams& fp) {
  if (threadIdx.x >= 32) return;
  const bool last = threadIdx.x == 0 && thread_arrives_last(fp.counters + fp.output_tiles, gridDim.x);
  if (!__any_sync(~0u, last)) return;
  for (uint32_t tile = threadIdx.x; tile < fp.output_tiles; tile += 32) fp.counters[tile] = 0;
}

template <class C>
__global__ void __launch_bounds__(C::THREADS)
    ragged_kernel(const __grid_constant__ FusedParams fp) {
  extern __shared__ __align__(128) unsigned char smem[];
  wait_for_earlier_kernel();
  RaggedEntry* entries = reinterpret_cast<RaggedEntry*>(smem + C::RECEIVED_ML_OFFSET);
  find_entry_ends<C>(fp, entries);
  const uint32_t total = entries[fp.p.B - 1].end;
  const uint32_t even = (total + gridDim.x - 1) / gridDim.x;
  const uint32_t range = even > LEAST_RANGE ? even : LEAST_RANGE;
  uint32_t position = blockIdx.x * range;
  const uint32_t end = min(position + range, total);

  uint32_t batch = 0;  // the first entry that ends after `position`, by binary search
  for (uint32_t more = static_cast<uint32_t>(fp.p.B); more > 0;) {
    const uint32_t half = more / 2;
    if (entries[batch + half].end <= position) {
      batch += half + 1;
      more -= half + 1;
    } else {
      more = half;
    }
  }
#pragma unroll 1
  while (position < end) {
    const RaggedEntry entry = entries[batch];
    const uint32_t entry_begin = batch == 0 ? 0 : entries[batch - 1].end;
    const uint32_t blocks = (entry.valid + C::BLOCK_KV - 1) / C::BLOCK_KV;
    const uint32_t cost = TILE_COST + blocks;
    const uint32_t head = (position - entry_begin) / cost;
    const uint32_t tile_begin = entry_begin + head * cost;
    const uint32_t tile_end = tile_begin + cost;
    const uint32_t keys_begin = tile_begin + TILE_COST;
    const uint32_t from = max(position, blocks > 0 ? keys_begin : tile_begin);
    const uint32_t to = min(end, tile_end);
    const RaggedPiece piece = [&]() -> RaggedPiece {
      if (blocks == 0) return {tile_begin / range, 1};
      const uint32_t first = keys_begin / range;
      return {first, (tile_end - 1) / range - first + 1};
    }();
    // A tile without keys belongs to the range that it begins in.
    if (blocks > 0 ? from < to : piece.first == blockIdx.x) {
      WorkUnit at{};
      at.output_tile = batch * fp.kv_heads.divisor + head;
      at.batch = batch;
      at.head_kv = head;
      at.rows = static_cast<int>(fp.rows);
      at.valid = entry.valid;
      if (blocks > 0) {
        at.key_begin = static_cast<int64_t>(from - keys_begin) * C::BLOCK_KV;
        at.key_end = min(static_cast<int64_t>(to - keys_begin) * C::BLOCK_KV, at.valid);
      }
      at.key_step = 1;
      attend<C>(fp, at, smem);
      merge_and_store_piece<C>(fp, at, piece, smem);
      block_sync();  // before the next piece's keys overwrite the states
    }
    position = tile_end;
    if (position >= entry.end) ++batch;
  }
  clear_counters(fp);
}

static_assert(MAX_RAGGED_ENTRIES * sizeof(RaggedEntry) <= 1920, "beside the tiles in 99 KB");

template <class Element, int D, KvLayout LAYOUT = KvLayout::aligned>
cudaError_t launch_ragged(const FusedParams& fp, int row_warps, cudaStream_t stream) {
  return with_fused_config<Element, D, LAYOUT, false>(row_warps, [&](auto config) {
    using C = decltype(config);
    const cudaError_t error = raise_limits<ragged_kernel<C>>();
    if (error != cudaSuccess) return error;
    return launch_kernel(ragged_kernel<C>, fp.ragged_blocks, C::THREADS,
                             C::RECEIVED_ML_OFFSET + fp.p.B * sizeof(RaggedEntry), 1, stream, fp);
  });
}

template <class Element, int D>
cudaError_t launch_ragged_unaligned(const FusedParams& fp, int row_warps, cudaStream_t stream) {
  return launch_ragged<Element, D, KvLayout::unaligned>(fp, row_warps, stream);
}

template <class Element, int D>
cudaError_t launch_ragged_paged(const FusedParams& fp, int row_warps, cudaStream_t stream) {
  return launch_ragged<Element, D, KvLayout::paged>(fp, row_warps, stream);
}

}  // namespace kbtool::cuda
