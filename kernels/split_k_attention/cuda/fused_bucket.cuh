// Which instance of the fused kernel, or of the ragged one, runs a call of one type and bucket of
// the head dimension.
#pragma once

#include "fused.cuh"
#include "ragged.cuh"

namespace kbtool::cuda {

template <class C>
cudaError_t launch_config(const FusedParams& fp, cudaStream_t stream) {
  if (fp.ragged_blocks > 0) return launch_ragged<C>(fp, stream);
  return launch_blocks<C, fused_kernel<C>>(fp, stream);
}

template <class Element, int D, int ROW_WARPS>
cudaError_t launch_rows(const FusedParams& fp, cudaStream_t stream) {
  return fp.copy_width == 16 ? launch_config<FusedConfig<Element, D, ROW_WARPS, true>>(fp, stream)
                             : launch_config<FusedConfig<Element, D, ROW_WARPS, false>>(fp, stream);
}

template <class Element, int D>
cudaError_t launch_bucket(const FusedParams& fp, int row_warps, cudaStream_t stream) {
  switch (row_warps) {
    case 1:
      return launch_rows<Element, D, 1>(fp, stream);
    case 2:
      return launch_rows<Element, D, 2>(fp, stream);
    default:
      return launch_rows<Element, D, 4>(fp, stream);
  }
}

}  // namespace kbtool::cuda
