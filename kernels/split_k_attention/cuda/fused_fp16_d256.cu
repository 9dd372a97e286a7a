#include "fused_bucket.cuh"

namespace kbtool::cuda {

cudaError_t launch_fused_fp16_d256(const FusedParams& fp, int row_warps, cudaStream_t stream) {
  return launch_fused_bucket<__half, 256, true>(fp, row_warps, stream);
}

}  // namespace kbtool::cuda
