#include "wgmma.cuh"

namespace kbtool::cuda {

cudaError_t launch_wgmma_bf16_d128(const FusedParams& fp, int row_units, cudaStream_t stream) {
  return launch_wgmma_bucket<__nv_bfloat16, 128>(fp, row_units, stream);
}

}  // namespace kbtool::cuda
