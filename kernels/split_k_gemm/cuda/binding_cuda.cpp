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

int multiprocessors_of(int device) {
  constexpr int MAX_DEVICES = 64;
  static std::array<std::once_flag, MAX_DEVICES> once;
  static std::array<int, MAX_DEVICES> count;
  if (device >= MAX_DEVICES) fail("more than " + std::to_string(MAX_DEVICES) + " devices");
  std::call_once(once[device], [&] {
    int major = 0;
    check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "reading the card");
    if (major < 9) fail("needs thread block clusters: compute capability 9.0 or later");
    check_cuda(cudaDeviceGetAttribute(&count[device], cudaDevAttrMultiProcessorCount, device),
               "reading the card");
  });
  return count[device];
}

Tensor on_cuda(const Tensor& x, const Tensor& w, std::optional<int64_t> num_splits) {
  using namespace split_k_gemm::cuda;
  Tensor out = x;
  const split_k_gemm::Params p = split_k_gemm::checked(x, w, num_splits, {MAX_SPLITS, MAX_ROWS}, &out);
  if (p.M == 0 || p.N == 0) return out;
  const int device = x.get_device_index();
  torch::stable::accelerator::DeviceGuard guard(device);
  Cut cut = choose_cut(p, multiprocessors_of(device));
  if (num_splits) cut.splits = static_cast<int>(*num_splits);
  void* stream = nullptr;
  if (aoti_torch_get_current_cuda_stream(device, &stream) != 0) fail("no current CUDA stream");
  const auto launch = x.scalar_type() == ScalarType::Half ? launch_fp16 : launch_bf16;
  check_cuda(launch(p, cut, static_cast<cudaStream_t>(stream)), "launching the kernel");
  return out;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(split_k_gemm, CUDA, m) { m.impl("split_k_gemm", TORCH_BOX(&on_cuda)); }
