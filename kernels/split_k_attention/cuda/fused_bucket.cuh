// Which of the fused kernel's configurations a call has: of one type, one bucket of the head dimension,
// and rows of k and v that copy 16 bytes at a time or not. Each has a source, to be compiled beside
// the others.
#pragma once

#include "fused.cuh"

namespace kbtool::cuda {

// launch(C{}) for the call's configuration C.
template <class Element, int D, bool ALIGNED, class Launch>
cudaError_t with_fused_config(int row_warps, const Launch& launch) {
  switch (row_warps) {
    case 1:
      return launch(FusedConfig<Element, D, 1, ALIGNED>{});
    case 2:
      return launch(FusedConfig<Element, D, 2, ALIGNED>{});
    default:
      return launch(FusedConfig<Element, D, 4, ALIGNED>{});
  }
}

template <class Element, int D, bool ALIGNED>
cudaError_t launch_fused_bucket(const FusedParams& fp, int row_warps, cudaStream_t stream) {
  return with_fused_config<Element, D, ALIGNED>(row_warps, [&](auto config) {
    using C = decltype(config);
    return launch_blocks<C, fused_kernel<C>>(fp, stream);
  });
}

}  // namespace kbtool::cuda
