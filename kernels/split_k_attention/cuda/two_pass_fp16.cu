#include "two_pass.cuh"

namespace kbtool::cuda {

cudaError_t launch_partial_fp16(const TileParams& tp, cudaStream_t stream) {
  return launch_partial<__half>(tp, stream);
}

cudaError_t launch_reduce_fp16(const SplitKParams& p, cudaStream_t stream) {
  return launch_reduce<__half>(p, stream);
}

}  // namespace kbtool::cuda
