#include "ragged.cuh"

namespace kbtool::cuda {

cudaError_t launch_ragged_bf16_d128_unaligned(const FusedParams& fp, int row_warps,
                                              cudaStream_t stream) {
  return launch_ragged_bucket<__nv_bfloat16, 128, false>(fp, row_warps, stream);
}

}  // namespace kbtool::cuda
