// What both element types instantiate.
#pragma once

#include "gemm.cuh"
#include "launch.h"

namespace split_k_gemm::cuda {

template <class Element, int WARPS>
cudaError_t launch_for(const Params& p, const Cut& cut, cudaStream_t stream) {
  if (!cut.aligned) return launch<Config<Element, 1, 2, 1, WARPS, false>>(p, cut.splits, stream);
  if constexpr (WARPS == 8) {
    if (p.M <= 8 && cut.chunks == 2) {
      return launch<Config<Element, 1, 1, 2, WARPS, true>>(p, cut.splits, stream);
    }
    if (p.M > 8 && cut.row_tiles == 2) {
      return launch<Config<Element, 2, 2, 1, WARPS, true>>(p, cut.splits, stream);
    }
  }
  if (p.M <= 8) return launch<Config<Element, 1, 1, 1, WARPS, true>>(p, cut.splits, stream);
  return launch<Config<Element, 1, 2, 1, WARPS, true>>(p, cut.splits, stream);
}

template <class Element>
cudaError_t launch_for(const Params& p, const Cut& cut, cudaStream_t stream) {
  return cut.warps == 16 ? launch_for<Element, 16>(p, cut, stream) : launch_for<Element, 8>(p, cut, stream);
}

}  // namespace split_k_gemm::cuda
