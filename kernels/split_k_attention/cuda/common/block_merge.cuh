// Epilogue: merges partial states and stores the output. First those in the block's shared memory, then
// those of its cluster, then, by the last block to arrive, those in the workspace.
#pragma once

#include "async_copy.cuh"
#include "work_unit.cuh"
#include "cluster.cuh"
#include "finished_row.cuh"
#include "mma.cuh"
#include "softmax.cuh"

namespace kbtool::cuda {

// Barrier of the whole block. Diverged lanes must reconverge first, because it counts warps.
__device__ __forceinline__ void block_sync() {
  __syncwarp();
  __syncthreads();
}

// The same; whether `value` is true for any thread.
__device__ __forceinline__ bool block_sync_or(bool value) {
  __syncwarp();
  return __syncthreads_or(value) != 0;
}

template <class Element>
__device__ __forceinline__ Element* output_at(const FusedParams& fp, const RowIndex& index,
                                              int column) {
  const Strides4& stride = fp.p.out_stride;
  return static_cast<Element*>(fp.p.out) + index.batch * stride.batch + index.head * stride.head +
         index.query * stride.seq + column * stride.dim;
}

// Four columns of a finished row.
template <class Element>
__device__ __forceinline__ void store_output(const FusedParams& fp, const RowIndex& index,
                                             int column, const StateChunk& state) {
  using Traits = ElementTraits<Element>;
  const Strides4& stride = fp.p.out_stride;
  Element* out = output_at<Element>(fp, index, column);
  const Quotient by_sum(fp, index.head, state.m, state.l);
  const float values[4] = {by_sum(state.o.x), by_sum(state.o.y), by_sum(state.o.z),
                           by_sum(state.o.w)};
  const int left = static_cast<int>(fp.p.Dv) - column;
  if (stride.dim == 1 && left >= 4 && (reinterpret_cast<uintptr_t>(out) & 7) == 0) {
    *reinterpret_cast<uint2*>(out) =
        make_uint2(Traits::pack(values[0], values[1]), Traits::pack(values[2], values[3]));
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i < left) out[i * stride.dim] = Traits::from_float(values[i]);
    }
  }
}

__device__ __forceinline__ void store_lse(const FusedParams& fp, const RowIndex& index,
                                          const StateChunk& state) {
  const Strides3& stride = fp.p.lse_stride;
  fp.p.lse[index.batch * stride.batch + index.head * stride.head + index.query * stride.seq] =
      lse_of_row(fp, index.head, state.m, state.l);
}

// Workspace: o [clusters_per_tile, B, H, Sq, Dv], m and l [num_splits, B, H, Sq]. Each block of a cluster
// stores its own copy of m and l. A block then reads only what blocks of its rank stored, and the counter
// of that rank is enough to order it.
__device__ __forceinline__ int64_t state_slot(const FusedParams& fp, int64_t layer,
                                              const RowIndex& index) {
  return ((layer * fp.p.B + index.batch) * fp.p.H + index.head) * fp.p.Sq + index.query;
}

template <class Unit>
__device__ __forceinline__ void store_partial(const FusedParams& fp, const Unit& at,
                                              uint32_t group, uint32_t rank, int row, int column,
                                              bool first_of_row, const StateChunk& state) {
  const RowIndex index = row_index(fp, at, row);
  if (first_of_row) {
    const int64_t slot = state_slot(fp, static_cast<int64_t>(group) * fp.cluster_size + rank, index);
    fp.p.partial_m[slot] = state.m;
    fp.p.partial_l[slot] = state.l;
  }
  float* o = fp.p.partial_o + state_slot(fp, group, index) * fp.p.Dv + column;
  const int left = static_cast<int>(fp.p.Dv) - column;
  if (fp.p.Dv % 4 == 0) {
    *reinterpret_cast<float4*>(o) = state.o;
  } else {
    const float values[4] = {state.o.x, state.o.y, state.o.z, state.o.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i < left) o[i] = values[i];
    }
  }
}

// Partial states that a thread merges.
struct StateRange {
  int first;
  int count;
};

// Four columns of a row; AHEAD and max_over_all: see merge_global_states.
template <int AHEAD = 8, class Max = ThisThreadOnly>
__device__ __forceinline__ StateChunk merge_partials(const FusedParams& fp, const RowIndex& index,
                                                     uint32_t rank, int column,
                                                     const StateRange& groups,
                                                     const Max& max_over_all = {}) {
  const int64_t rows = fp.p.B * fp.p.H * fp.p.Sq;
  const int64_t slot = state_slot(fp, 0, index);
  const int64_t ml_step = fp.cluster_size * rows;
  const int64_t o_step = rows * fp.p.Dv;
  const float* m = fp.p.partial_m + groups.first * ml_step + rank * rows + slot;
  const float* l = fp.p.partial_l + groups.first * ml_step + rank * rows + slot;
  const float* o = fp.p.partial_o + groups.first * o_step + slot * fp.p.Dv + column;
  const int left = static_cast<int>(fp.p.Dv) - column;
  const bool vector = fp.p.Dv % 4 == 0;
  return merge_global_states<AHEAD>(
      groups.count, fp.c, [&](int i) { return __ldcg(m + i * ml_step); },
      [&](int i) { return __ldcg(l + i * ml_step); },
      [&](int i) {
        const float* from = o + i * o_step;
        if (vector) return __ldcg(reinterpret_cast<const float4*>(from));
        float4 value = make_float4(__ldcg(from), 0.0f, 0.0f, 0.0f);
        if (left > 1) value.y = __ldcg(from + 1);
        if (left > 2) value.z = __ldcg(from + 2);
        if (left > 3) value.w = __ldcg(from + 3);
        return value;
      },
      max_over_all);
}

// Whether this thread is the last of `count` to arrive; the counter wraps back to 0.
__device__ __forceinline__ bool thread_arrives_last(unsigned* counter, unsigned count) {
  unsigned before;
  asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(counter), "r"(count - 1)
               : "memory");
  return before == count - 1;
}

// The same for blocks. The last one can read what the epilogues of the others stored before.
__device__ __forceinline__ bool arrives_last(unsigned* counter, unsigned count) {
  block_sync();
  return block_sync_or(threadIdx.x == 0 && thread_arrives_last(counter, count));
}

// Partial states of the tile's rows, evenly spaced in shared memory.
struct SharedStates {
  const float2* ml;        // m and l of row 0 of the first
  int ml_step;             // rows from one state to the next
  const unsigned char* o;  // four columns of the first
  int o_step;              // bytes from one state to the next
  int count;
  float c;

  __device__ __forceinline__ StateChunk merge(int row, int o_offset) const {
    const float2* ml_row = ml + row;
    return merge_states(
        count, c, [&](int i) { return ml_row[i * ml_step].x; },
        [&](int i) { return ml_row[i * ml_step].y; },
        [&](int i) { return *reinterpret_cast<const float4*>(o + i * o_step + o_offset); });
  }
};

// Merges the partial states of the block's warp groups, which lie in shared memory, and stores this block's
// share of the tile. In a cluster the block has arrived at the cluster barrier before (fused_kernel): others
// may store into its receive buffers.
template <class C>
__device__ __forceinline__ void merge_and_store(const FusedParams& fp, const WorkUnitOf<C>& at,
                                             unsigned char* smem) {  // [shared_bytes], as C says
  const bool clustered = fp.cluster_size > 1;
  float2* ml_smem = reinterpret_cast<float2*>(smem + C::ML_OFFSET);  // [STATES, BLOCK_M]
  // The partial states to merge next: first those of this block's warp groups.
  SharedStates states{ml_smem, C::BLOCK_M, smem, C::STATE_STEP, C::STATES, fp.c};

  // Chunks of four columns, row by row; block `rank` of the cluster stores [begin, end).
  const int chunks = at.rows * C::STATE_CHUNKS;
  const int Dv = static_cast<int>(fp.p.Dv);
  uint32_t rank = 0;
  int begin = 0;
  int end = chunks;
  float2* received_ml =
      reinterpret_cast<float2*>(smem + C::RECEIVED_ML_OFFSET);  // [cluster, BLOCK_M]
  float4* received_o =
      reinterpret_cast<float4*>(smem + C::received_o_offset(fp.cluster_size));  // [cluster, share]
  if (clustered) {
    rank = cluster_rank();
    begin = min(static_cast<int>(rank) * at.share, chunks);
    end = min(begin + at.share, chunks);
    __syncwarp();
    cluster_wait();
    const uint32_t arrived = shared_address(smem + C::EXCHANGE_OFFSET);
    if (threadIdx.x == 0) {
      expect_stores(arrived, fp.cluster_size * (at.rows * static_cast<int>(sizeof(float2)) +
                                           (end - begin) * static_cast<int>(sizeof(float4))));
    }
    for (int e = threadIdx.x; e < chunks; e += C::THREADS) {
      const int row = e / C::STATE_CHUNKS;
      const int chunk = e % C::STATE_CHUNKS;
      const StateChunk state =
          states.merge(row, (row * C::STATE_STRIDE + chunk * 4) * static_cast<int>(sizeof(float)));
      const int owner = static_cast<int>(__umulhi(e, at.share_inverse));
      const int position = static_cast<int>(rank) * at.share + (e - owner * at.share);
      store_remote(remote_address(shared_address(received_o + position), owner), state.o,
                   remote_address(arrived, owner));
      // The lanes of a row take turns to send its m and l to every block.
      for (uint32_t to = chunk; to < fp.cluster_size; to += C::STATE_CHUNKS) {
        store_remote(remote_address(shared_address(received_ml + rank * C::BLOCK_M + row), to),
                     make_float2(state.m, state.l), remote_address(arrived, to));
      }
    }
    wait_for_stores(arrived);
    states = {received_ml, C::BLOCK_M, reinterpret_cast<unsigned char*>(received_o),
              at.share * static_cast<int>(sizeof(float4)), static_cast<int>(fp.cluster_size), fp.c};
  }
  const auto merge_here = [&](int e, int row, int column) {
    const int offset = clustered
                           ? (e - begin) * static_cast<int>(sizeof(float4))
                           : (row * C::STATE_STRIDE + column) * static_cast<int>(sizeof(float));
    return states.merge(row, offset);
  };

  // The LSE of rows whose first column is in this block's share. The last threads store it, since they have
  // no columns when the share is small.
  const auto finish_lse = [&](const auto& state_of_row) {
    const int first = (begin + C::STATE_CHUNKS - 1) / C::STATE_CHUNKS;
    for (int row = first + C::THREADS - 1 - static_cast<int>(threadIdx.x);
         row * C::STATE_CHUNKS < end; row += C::THREADS) {
      store_lse(fp, row_index(fp, at, row), state_of_row(row));
    }
  };
  const auto for_each_chunk = [&](const auto& body) {
    for (int e = begin + static_cast<int>(threadIdx.x); e < end; e += C::THREADS) {
      const int row = e / C::STATE_CHUNKS;
      const int column = e % C::STATE_CHUNKS * 4;
      if (column < Dv) body(e, row, column);
    }
  };

  if (fp.clusters_per_tile == 1) {
    for_each_chunk([&](int e, int row, int column) {
      store_output<typename C::Element>(fp, row_index(fp, at, row), column,
                                        merge_here(e, row, column));
    });
    finish_lse([&](int row) { return merge_here(row * C::STATE_CHUNKS, row, 0); });
    return;
  }

  const auto counter = [&] { return fp.counters + at.output_tile * fp.cluster_size + rank; };
  if (begin >= end) {
    // If another stream overwrites cu_seqlens_q during the call, clusters disagree about the rows. The blocks of this rank
    // that have a share count this one too.
    if (C::PACKED && threadIdx.x == 0) thread_arrives_last(counter(), fp.clusters_per_tile);
    return;
  }
  const uint32_t group = at.split / fp.cluster_size;
  for_each_chunk([&](int e, int row, int column) {
    store_partial(fp, at, group, rank, row, column, e == begin || column == 0,
                  merge_here(e, row, column));
  });
  const StateRange all{0, static_cast<int>(fp.clusters_per_tile)};
  if (!arrives_last(counter(), fp.clusters_per_tile)) return;
  for_each_chunk([&](int, int row, int column) {
    const RowIndex index = row_index(fp, at, row);
    store_output<typename C::Element>(fp, index, column,
                                      merge_partials(fp, index, rank, column, all));
  });
  finish_lse([&](int row) { return merge_partials(fp, row_index(fp, at, row), rank, 0, all); });
}

}  // namespace kbtool::cuda
