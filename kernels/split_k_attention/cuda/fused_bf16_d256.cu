#include "fused_bucket.cuh"

namespace kbtool::cuda {

cudaError_t launch_fused_bf16_d256(const FusedParams& fp, int row_warps, cudaStream_t stream) {
  return launch_fused_bucket<__nv_bfloat16, 256, true>(fp, row_warps, stream);
}

}  // namespace kbtool::cuda
