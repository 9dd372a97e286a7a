// The separate merge kernel runs right after wgmma and merges the partial states that wgmma's splits left in the
// workspace. It uses every multiprocessor; a merge in a cluster has only the cluster's blocks.
#pragma once

#include "../common/block_merge.cuh"
#include "../common/dependent_launch.cuh"
#include "../common/lane_state.cuh"

namespace kbtool::cuda {

constexpr int MERGE_THREADS = 256;

// Stores a block's only partial state from registers to the workspace.
template <class C>
__device__ __forceinline__ void store_partial_state(const FusedParams& fp, const WorkUnitOf<C>& at,
                                                  int row_tile, int lane,
                                                  const LaneState<C>& state) {
  const int Dv = static_cast<int>(fp.p.Dv);
  for_each_row(at, row_tile, lane, state, [&](int row, int half, float l) {
    const int64_t slot = state_slot(fp, at.split, row_index(fp, at, row));
    if (lane % 4 == 0) {
      fp.p.partial_m[slot] = state.m[half];
      fp.p.partial_l[slot] = l;
    }
    float* o = fp.p.partial_o + slot * Dv;
#pragma unroll
    for (int tile = 0; tile < C::Dv / 8; ++tile) {
      const int column = tile * 8 + lane % 4 * 2;
      const float* two = state.o[tile] + half * 2;
      if (Dv % 2 == 0) {
        if (column < Dv) *reinterpret_cast<float2*>(o + column) = make_float2(two[0], two[1]);
      } else {
        if (column < Dv) o[column] = two[0];
        if (column + 1 < Dv) o[column + 1] = two[1];
      }
    }
  });
}

// Limited by memory latency. LANES lanes of a warp share the splits of one chunk (four columns of a row). Each
// lane has the loads of AHEAD partial states in flight.
template <class Element, int LANES, int AHEAD>
__global__ void __launch_bounds__(MERGE_THREADS)
    merge_kernel(const __grid_constant__ FusedParams fp) {
  constexpr int CHUNKS = 32 / LANES;  // of four columns, that a warp stores
  const int64_t chunks = ceil_div(fp.p.Dv, 4);
  const int64_t rows = fp.p.B * fp.p.H * fp.p.Sq;
  const int lane = threadIdx.x % 32;
  const int64_t warp = (static_cast<int64_t>(blockIdx.x) * MERGE_THREADS + threadIdx.x) / 32;
  const int64_t e = warp * CHUNKS + lane % CHUNKS;
  const bool exists = e < rows * chunks;
  const int64_t row = exists ? e / chunks : 0;  // of [B, H, Sq]
  const int64_t head = row / fp.p.Sq;
  const int64_t batch = head / fp.p.H;
  const RowIndex index = {static_cast<uint32_t>(batch),
                          static_cast<uint32_t>(head - batch * fp.p.H),
                          static_cast<uint32_t>(row - head * fp.p.Sq)};
  const int column = exists ? static_cast<int>(e - row * chunks) * 4 : 0;
  const int splits = static_cast<int>(fp.clusters_per_tile);
  const int share = ceil_div(splits, LANES);
  const int first = min(lane / CHUNKS * share, splits);
  const auto over_lanes = [](float value, const auto& of_two) {
#pragma unroll
    for (int apart = CHUNKS; apart < 32; apart *= 2) {
      value = of_two(value, __shfl_xor_sync(~0u, value, apart));
    }
    return value;
  };
  wait_for_earlier_kernel();
  trigger_dependent_launch(fp);
  StateChunk state =
      merge_partials<AHEAD>(fp, index, 0, column, {first, min(share, splits - first)},
                            [&](float m) { return over_lanes(m, max_nan); });
  const auto add = [](float a, float b) { return a + b; };
  state = {state.m, over_lanes(state.l, add),
           make_float4(over_lanes(state.o.x, add), over_lanes(state.o.y, add),
                       over_lanes(state.o.z, add), over_lanes(state.o.w, add))};
  if (!exists || lane >= CHUNKS) return;
  store_output<Element>(fp, index, column, state);
  if (column == 0) store_lse(fp, index, state);
}

template <class Element, int LANES, int AHEAD>
cudaError_t launch_merge_by(const FusedParams& fp, cudaStream_t stream) {
  const int64_t threads = fp.p.B * fp.p.H * fp.p.Sq * ceil_div(fp.p.Dv, 4) * LANES;
  return launch_kernel(merge_kernel<Element, LANES, AHEAD>,
                           static_cast<uint32_t>(ceil_div(threads, MERGE_THREADS)), MERGE_THREADS,
                           0, 1, stream, fp);
}

template <class Element>
cudaError_t launch_merge(FusedParams fp, cudaStream_t stream) {
  fp.early_launch = true;  // always: our own kernel is ahead of it, and triggers it
  switch (fp.merge_lanes) {
    case 16:
      return launch_merge_by<Element, 16, 4>(fp, stream);
    case 8:
      return launch_merge_by<Element, 8, 8>(fp, stream);
    case 4:
      return launch_merge_by<Element, 4, 8>(fp, stream);
    case 2:
      return launch_merge_by<Element, 2, 8>(fp, stream);
    default:
      return launch_merge_by<Element, 1, 8>(fp, stream);
  }
}

}  // namespace kbtool::cuda
