// Division by a launch constant: a multiplication and a shift.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define KBTOOL_DEVICE_INLINE __device__ __forceinline__
#endif

namespace kbtool::cuda {

// For numerators below 2^31 (Granlund and Montgomery): with 2^shift >= divisor and
// multiplier = ceil(2^(31 + shift) / divisor) the product's high part is exact.
struct FastDivisor {
  uint32_t divisor = 1;
  uint32_t multiplier = 0;
  uint32_t shift = 0;

  FastDivisor() = default;
  explicit FastDivisor(uint32_t d) : divisor(d) {
    while ((uint64_t{1} << shift) < d) ++shift;
    multiplier = static_cast<uint32_t>(((uint64_t{1} << (31 + shift)) + d - 1) / d);
  }

#if defined(__CUDACC__)
  // multiplier < 2^32, so the product of a numerator below 2^31 fits 63 bits.
  KBTOOL_DEVICE_INLINE uint32_t divide(uint32_t n) const {
    return __umulhi(n << 1, multiplier) >> shift;
  }
#endif
};

}  // namespace kbtool::cuda
