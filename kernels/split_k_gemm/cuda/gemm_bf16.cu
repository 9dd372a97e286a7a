#include "instances.cuh"

namespace split_k_gemm::cuda {

cudaError_t launch_bf16(const Params& p, const Cut& cut, cudaStream_t stream) {
  return launch_for<__nv_bfloat16>(p, cut, stream);
}

cudaError_t launch_ring_bf16(const Params& p, const Card& card, cudaStream_t stream) {
  return launch_ring_for<__nv_bfloat16>(p, card, stream);
}

}  // namespace split_k_gemm::cuda
