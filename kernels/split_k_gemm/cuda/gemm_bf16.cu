#include "instances.cuh"

namespace split_k_gemm::cuda {

cudaError_t launch_bf16(const Params& p, const Cut& cut, cudaStream_t stream) {
  return launch_for<__nv_bfloat16>(p, cut, stream);
}

}  // namespace split_k_gemm::cuda
