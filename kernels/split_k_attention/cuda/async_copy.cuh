// Copies from device memory into shared memory that run while the warp computes (sm_80 and later).
#pragma once

#include <cstdint>

namespace kbtool::cuda {

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Copies BYTES (4, 8 or 16) past the first-level cache where the hardware can; both addresses are
// multiples of BYTES. Of them `read` are read and the rest are written as 0; with read == 0 no
// memory is touched.
template <int BYTES>
__device__ __forceinline__ void copy_async(uint32_t to, const void* from, int read) {
  static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "the sizes that cp.async takes");
  if constexpr (BYTES == 16) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(read)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(BYTES),
                 "r"(read)
                 : "memory");
  }
}

__device__ __forceinline__ void copy_async_16(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

// Closes the group of the copies that this thread has started since the last one.
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most PENDING of this thread's youngest groups are still under way.
template <int PENDING>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

}  // namespace kbtool::cuda
