#include "fa1.cuh"

namespace kbtool::cuda {

cudaError_t launch_fa1_bf16(const TileParams& tp, cudaStream_t stream) {
  return launch_fa1<__nv_bfloat16>(tp, stream);
}

}  // namespace kbtool::cuda
