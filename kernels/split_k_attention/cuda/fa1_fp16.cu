#include "fa1.cuh"

namespace kbtool::cuda {

cudaError_t launch_fa1_fp16(const TileParams& tp, cudaStream_t stream) {
  return launch_fa1<__half>(tp, stream);
}

}  // namespace kbtool::cuda
