// What both element types instantiate.
#pragma once

#include "gemm.cuh"
#include "launch.h"
#include "ring.cuh"

namespace split_k_gemm::cuda {

template <class Element, int WARPS>
cudaError_t launch_for(const Params& p, int splits, cudaStream_t stream) {
  if (!is_aligned(p)) return launch<Config<Element, 2, WARPS, false>>(p, splits, stream);
  if (p.M <= 8) return launch<Config<Element, 1, WARPS, true>>(p, splits, stream);
  return launch<Config<Element, 2, WARPS, true>>(p, splits, stream);
}

template <class Element>
cudaError_t launch_for(const Params& p, const Cut& cut, cudaStream_t stream) {
  return cut.warps == 16 ? launch_for<Element, 16>(p, cut.splits, stream)
                         : launch_for<Element, 8>(p, cut.splits, stream);
}

template <class Element, int COLUMN_TILES>
cudaError_t launch_ring_for(const Params& p, const Card& card, cudaStream_t stream) {
  // The shortest tile of which one wave of blocks covers w, and tiles of 64 rows where that takes more waves.
  const int64_t rows = (p.N + card.multiprocessors - 1) / card.multiprocessors;
  if (rows <= 16) return launch_ring<RingConfig<Element, 1, COLUMN_TILES>>(p, card, stream);
  if (rows <= 32) return launch_ring<RingConfig<Element, 2, COLUMN_TILES>>(p, card, stream);
  if (rows <= 64 || rows > 128) return launch_ring<RingConfig<Element, 4, COLUMN_TILES>>(p, card, stream);
  return launch_ring<RingConfig<Element, 8, COLUMN_TILES>>(p, card, stream);
}

template <class Element>
cudaError_t launch_ring_for(const Params& p, const Card& card, cudaStream_t stream) {
  return p.M <= 8 ? launch_ring_for<Element, 1>(p, card, stream) : launch_ring_for<Element, 2>(p, card, stream);
}

}  // namespace split_k_gemm::cuda
