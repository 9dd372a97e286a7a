#include "two_pass.cuh"

namespace kbtool::cuda {

cudaError_t launch_partial_bf16(const TileParams& tp, cudaStream_t stream) {
  return launch_partial<__nv_bfloat16>(tp, stream);
}

cudaError_t launch_reduce_bf16(const SplitKParams& p, cudaStream_t stream) {
  return launch_reduce<__nv_bfloat16>(p, stream);
}

}  // namespace kbtool::cuda
