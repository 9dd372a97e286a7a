// The CUDA implementation of the operator that binding.cpp defines.
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>

#include <array>
#include <mutex>

#include "../arguments.h"
#include "launch.h"

// Declared by torch's shim only where it was built with CUDA headers; every CUDA build exports it.
extern "C" int32_t aoti_torch_get_current_cuda_stream(int32_t device_index, void** stream);

namespace {

using split_k_gemm::fail;
using split_k_gemm::ScalarType;
using split_k_gemm::Tensor;

void check_cuda(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  throw std::runtime_error(std::string("split_k_gemm: ") + what + ": " + cudaGetErrorString(error) + " (" +
                           cudaGetErrorName(error) + ")");
}

split_k_gemm::cuda::Card card_of(int device) {
  constexpr int MAX_DEVICES = 64;
  static std::array<std::once_flag, MAX_DEVICES> once;
  static std::array<split_k_gemm::cuda::Card, MAX_DEVICES> cards;
  if (device >= MAX_DEVICES) fail("more than " + std::to_string(MAX_DEVICES) + " devices");
  std::call_once(once[device], [&] {
    const auto attribute = [&](cudaDeviceAttr name) {
      int value = 0;
      check_cuda(cudaDeviceGetAttribute(&value, name, device), "reading the card");
      return value;
    };
    if (attribute(cudaDevAttrComputeCapabilityMajor) < 9) {
      fail("needs thread block clusters: compute capability 9.0 or later");
    }
    cards[device] = {device, attribute(cudaDevAttrMultiProcessorCount),
                     attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin)};
  });
  return cards[device];
}

Tensor on_cuda(const Tensor& x, const Tensor& w, std::optional<int64_t> num_splits) {
  using namespace split_k_gemm::cuda;
  Tensor out = x;
  const split_k_gemm::Params p = split_k_gemm::checked(x, w, num_splits, {MAX_SPLITS, MAX_ROWS}, &out);
  if (p.M == 0 || p.N == 0) return out;
  const int device = x.get_device_index();
  torch::stable::accelerator::DeviceGuard guard(device);
  const split_k_gemm::cuda::Card card = card_of(device);
  void* of_torch = nullptr;
  if (aoti_torch_get_current_cuda_stream(device, &of_torch) != 0) fail("no current CUDA stream");
  const auto stream = static_cast<cudaStream_t>(of_torch);
  const bool half = x.scalar_type() == ScalarType::Half;
  if (!num_splits && ring_reads(p)) {
    const cudaError_t error = (half ? launch_ring_fp16 : launch_ring_bf16)(p, card, stream);
    if (error == cudaSuccess) return out;
    if (error != cudaErrorNotSupported) check_cuda(error, "launching the kernel");
  }
  Cut cut = choose_cut(p, card.multiprocessors);
  if (num_splits) cut.splits = static_cast<int>(*num_splits);
  check_cuda((half ? launch_fp16 : launch_bf16)(p, cut, stream), "launching the kernel");
  return out;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(split_k_gemm, CUDA, m) { m.impl("split_k_gemm", TORCH_BOX(&on_cuda)); }
