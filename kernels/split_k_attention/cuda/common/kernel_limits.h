// Opt-in limits of a kernel: dynamic shared memory above 48 KB, non-portable cluster sizes.
#pragma once

#include <cuda_runtime_api.h>

namespace kbtool::cuda {

// The most shared memory that a block can have on `device`, in bytes.
inline cudaError_t most_shared_bytes(int device, int* bytes) {
  return cudaDeviceGetAttribute(bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
}

// Raises the kernel's limits of shared memory and of blocks in a cluster, once a device; the
// attributes stay.
template <auto KERNEL>
cudaError_t raise_limits() {
  constexpr int MAX_DEVICES = 64;
  static bool raised[MAX_DEVICES] = {};
  int device = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return error;
  if (device < MAX_DEVICES && __atomic_load_n(&raised[device], __ATOMIC_ACQUIRE)) {
    return cudaSuccess;
  }
  int bytes = 0;
  error = most_shared_bytes(device, &bytes);
  if (error != cudaSuccess) return error;
  error = cudaFuncSetAttribute(KERNEL, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error != cudaSuccess) return error;
  int major = 0;
  error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (error != cudaSuccess) return error;
  if (major >= 9) {
    error = cudaFuncSetAttribute(KERNEL, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    if (error != cudaSuccess) return error;
  }
  if (device < MAX_DEVICES) __atomic_store_n(&raised[device], true, __ATOMIC_RELEASE);
  return cudaSuccess;
}

}  // namespace kbtool::cuda
