// The merge of the splits' states in the workspace by a kernel of its own, right behind the one
// that made them. For tiles of more than 16 rows or 128 columns: every multiprocessor takes part, where a cluster has
// its own blocks and the last block to arrive is alone.
#pragma once

#include "block_merge.cuh"
#include "dependent_launch.cuh"
#include "lane_state.cuh"

namespace kbtool::cuda {

constexpr int MERGE_THREADS = 256;

// A block's only state, from the registers that it is in, to the workspace.
template <class C>
__device__ __forceinline__ void store_split_state(const FusedParams& fp, const BlockItem& at,
                                                  int row_tile, int lane,
                                                  const LaneState<C>& state) {
  static_assert(C::STATES == 1, "nothing to merge before");
  const int D = static_cast<int>(fp.p.D);
  for_each_row(at, row_tile, lane, state, [&](int row, int half, float l) {
    const int64_t slot = state_slot(fp, at.split, place_of(fp, at, row));
    if (lane % 4 == 0) {
      fp.p.partial_m[slot] = state.m[half];
      fp.p.partial_l[slot] = l;
    }
    float* o = fp.p.partial_o + slot * D;
#pragma unroll
    for (int tile = 0; tile < C::D / 8; ++tile) {
      const int column = tile * 8 + lane % 4 * 2;
      const float* two = state.o[tile] + half * 2;
      if (D % 2 == 0) {
        if (column < D) *reinterpret_cast<float2*>(o + column) = make_float2(two[0], two[1]);
      } else {
        if (column < D) o[column] = two[0];
        if (column + 1 < D) o[column + 1] = two[1];
      }
    }
  });
}

// A thread finishes four columns of a row.
template <class Element>
__global__ void __launch_bounds__(MERGE_THREADS)
    merge_kernel(const __grid_constant__ FusedParams fp) {
  const int64_t chunks = ceil_div(fp.p.D, 4);
  const int64_t e = static_cast<int64_t>(blockIdx.x) * MERGE_THREADS + threadIdx.x;
  const int64_t row = e / chunks;  // of [B, H, Sq]
  const int64_t head = row / fp.p.Sq;
  const int64_t batch = head / fp.p.H;
  const RowPlace place = {static_cast<uint32_t>(batch),
                          static_cast<uint32_t>(head - batch * fp.p.H),
                          static_cast<uint32_t>(row - head * fp.p.Sq)};
  const int column = static_cast<int>(e - row * chunks) * 4;
  wait_for_earlier_kernel();
  admit_next_kernel(fp);
  if (batch >= fp.p.B) return;
  const StateChunk state = merge_partials(fp, place, 0, column);
  store_output<Element>(fp, place, column, state);
  if (column == 0) store_lse(fp, place, state);
}

template <class Element>
cudaError_t launch_merge(const FusedParams& fp, cudaStream_t stream) {
  const int64_t threads = fp.p.B * fp.p.H * fp.p.Sq * ceil_div(fp.p.D, 4);
  return launch_overlapped(merge_kernel<Element>,
                           static_cast<uint32_t>(ceil_div(threads, MERGE_THREADS)), MERGE_THREADS,
                           0, 1, stream, fp);
}

}  // namespace kbtool::cuda
