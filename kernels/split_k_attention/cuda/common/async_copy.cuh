// cp.async: copies from global into shared memory that run while the warp computes (sm_80 and later).
#pragma once

#include <cstdint>

namespace kbtool::cuda {

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Copies BYTES (4, 8 or 16; 16 bypass L1); both addresses are multiples of BYTES. If not `there`, writes
// zeros and reads no memory, by cp.async's ignore-src predicate. With its src-size operand instead, the
// compiler recomputes each address, and a loop of such copies took up to three times as long (H200).
template <int BYTES>
__device__ __forceinline__ void copy_async(bool there, uint32_t to, const void* from) {
  static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "the sizes that cp.async takes");
  const uint32_t exists = there;
  if constexpr (BYTES == 16) {
    asm volatile(
        "{\n"
        ".reg .pred absent;\n"
        "setp.eq.u32 absent, %2, 0;\n"
        "cp.async.cg.shared.global.L2::128B [%0], [%1], 16, absent;\n"
        "}\n" ::"r"(to),
        "l"(from), "r"(exists)
        : "memory");
  } else {
    asm volatile(
        "{\n"
        ".reg .pred absent;\n"
        "setp.eq.u32 absent, %3, 0;\n"
        "cp.async.ca.shared.global [%0], [%1], %2, absent;\n"
        "}\n" ::"r"(to),
        "l"(from), "n"(BYTES), "r"(exists)
        : "memory");
  }
}

// Closes the group of the copies that this thread has started since the last one.
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most PENDING of this thread's youngest groups are still under way.
template <int PENDING>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

}  // namespace kbtool::cuda
