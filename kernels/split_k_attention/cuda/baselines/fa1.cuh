// Baseline without splits. A block takes 64 query rows of one head and all of their keys, 64 at a time, so a
// short sequence or a decode step leaves most of the card idle.
#pragma once

#include "tile.cuh"

namespace kbtool::cuda {

template <class C>
__global__ void __launch_bounds__(C::THREADS) fa1_kernel(const __grid_constant__ TileParams tp) {
  extern __shared__ __align__(16) unsigned char smem[];
  const int first_row = static_cast<int>(threadIdx.x) / C::ROW_THREADS * C::ROWS;
  const int column_thread = static_cast<int>(threadIdx.x) % C::ROW_THREADS;
  const int64_t work_units = tp.p.B * tp.p.H * tp.tiles;
  for (int64_t work_unit = blockIdx.x; work_unit < work_units; work_unit += gridDim.x) {
    const TileWork at = locate_tile<C>(tp, work_unit, smem);
    RowState<C> state[C::ROWS];
    attend_tile<C>(tp, at, smem, first_row, column_thread, state);
    store_rows<C>(tp, at, first_row, column_thread, state);
  }
}

template <class Element>
cudaError_t launch_fa1(const TileParams& tp, cudaStream_t stream) {
  using Small = TileConfig<Element, 64>;
  using Middle = TileConfig<Element, 128>;
  using Large = TileConfig<Element, 256>;
  const int64_t work_units = tp.p.B * tp.p.H * tp.tiles;
  if (tp.p.D <= 64) return launch_tiles<Small, fa1_kernel<Small>>(tp, work_units, stream);
  if (tp.p.D <= 128) return launch_tiles<Middle, fa1_kernel<Middle>>(tp, work_units, stream);
  return launch_tiles<Large, fa1_kernel<Large>>(tp, work_units, stream);
}

}  // namespace kbtool::cuda
