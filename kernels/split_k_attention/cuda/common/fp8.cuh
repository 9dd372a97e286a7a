// Keys and values of 8 bits, which stand for numbers that fp16 and bf16 have too: they are widened where they become
// operands of a product.
#pragma once

#include <cuda_fp8.h>

#include <type_traits>

#include "mma.cuh"

namespace kbtool::cuda {

using e4m3 = __nv_fp8_e4m3;
using e5m2 = __nv_fp8_e5m2;

template <class Kv>
constexpr bool IS_FP8 = sizeof(Kv) == 1;

// Two packed elements of 8 bits as two packed ones of 16. NaN stays NaN. To fp16 it is one instruction: e5m2 is the upper
// half of fp16, and sm_89 converts e4m3. To bf16 it is three more.
template <class Kv, class Element>
__device__ __forceinline__ uint32_t widen(uint32_t two) {
  if constexpr (std::is_same_v<Kv, e5m2> && std::is_same_v<Element, fp16>) return __byte_perm(two, 0, 0x1404);
  constexpr __nv_fp8_interpretation_t FORMAT = std::is_same_v<Kv, e4m3> ? __NV_E4M3 : __NV_E5M2;
  const __half2_raw halves = __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(two), FORMAT);  // of the low 16 bits
  if constexpr (std::is_same_v<Element, fp16>) {
    return halves.x | static_cast<uint32_t>(halves.y) << 16;
  } else {
    const float2 floats = __half22float2(halves);
    return ElementTraits<Element>::pack(floats.x, floats.y);
  }
}

// Of the four elements of 8 bits in a register, the first two and the last two.
template <class Kv, class Element>
__device__ __forceinline__ void widen(uint32_t four, uint32_t& first, uint32_t& second) {
  if constexpr (std::is_same_v<Kv, e5m2> && std::is_same_v<Element, fp16>) {
    first = __byte_perm(four, 0, 0x1404);
    second = __byte_perm(four, 0, 0x3424);
    return;
  }
#if __CUDA_ARCH__ >= 890
  if constexpr (std::is_same_v<Kv, e4m3> && std::is_same_v<Element, fp16>) {
    // The halves of a register are operands as they are: no shift.
    asm("{\n"
        ".reg .b16 low, high;\n"
        "mov.b32 {low, high}, %2;\n"
        "cvt.rn.f16x2.e4m3x2 %0, low;\n"
        "cvt.rn.f16x2.e4m3x2 %1, high;\n"
        "}\n"
        : "=r"(first), "=r"(second)
        : "r"(four));
    return;
  }
#endif
  first = widen<Kv, Element>(four);
  second = widen<Kv, Element>(four >> 16);
}

// A register of values that ldmatrix has transposed holds two columns of each of two keys. These are the two keys of the
// even column, then of the odd one.
__device__ __forceinline__ uint32_t columns_apart(uint32_t four) { return __byte_perm(four, 0, 0x3120); }

// Four packed elements with NaN and infinities zeroed.
template <class Kv>
__device__ __forceinline__ uint32_t finite_or_zero_fp8(uint32_t four) {
  constexpr uint32_t LEAST = std::is_same_v<Kv, e4m3> ? 0x7f : 0x7c;  // of those that are not finite, without the sign
#pragma unroll
  for (int byte = 0; byte < 4; ++byte) {
    if ((four >> (8 * byte) & 0x7f) >= LEAST) four &= ~(0xffu << (8 * byte));
  }
  return four;
}

}  // namespace kbtool::cuda
