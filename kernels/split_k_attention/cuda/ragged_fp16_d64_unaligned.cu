#include "ragged.cuh"

namespace kbtool::cuda {

cudaError_t launch_ragged_fp16_d64_unaligned(const FusedParams& fp, int row_warps,
                                             cudaStream_t stream) {
  return launch_ragged_bucket<__half, 64, false>(fp, row_warps, stream);
}

}  // namespace kbtool::cuda
