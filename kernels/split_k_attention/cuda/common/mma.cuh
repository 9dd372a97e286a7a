// mma.sync m16n8k16, and ldmatrix loads of its operands.
//
// In the fragments of m16n8k16 lane 4 g + t (g < 8, t < 4) holds
//   A [16, 16]  rows g and g + 8, columns 2t, 2t+1 and 2t+8, 2t+9
//   B [16, 8]   rows 2t, 2t+1 and 2t+8, 2t+9 of column g
//   C [16, 8]   c[0], c[1]: row g, columns 2t, 2t+1;  c[2], c[3]: row g + 8
// so two C tiles side by side, rounded and packed in pairs, are one A tile.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace kbtool::cuda {

using fp16 = __half;
using bf16 = __nv_bfloat16;

template <class Element>
struct ElementTraits;

template <>
struct ElementTraits<__half> {
  static constexpr uint32_t EXPONENTS = 0x7c007c00;  // of two packed elements
  static __device__ __forceinline__ float to_float(__half x) { return __half2float(x); }
  static __device__ __forceinline__ __half from_float(float x) { return __float2half_rn(x); }
  static __device__ __forceinline__ uint32_t pack(float low, float high) {
    uint32_t packed;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
  }
  // sum + 0 * pair, of two packed elements
  static __device__ __forceinline__ uint32_t add_zero_times(uint32_t sum, uint32_t pair) {
    asm("fma.rn.f16x2 %0, %1, %2, %0;" : "+r"(sum) : "r"(pair), "r"(0));
    return sum;
  }
  static __device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                             uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
};

template <>
struct ElementTraits<__nv_bfloat16> {
  static constexpr uint32_t EXPONENTS = 0x7f807f80;  // of two packed elements
  static __device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
  static __device__ __forceinline__ __nv_bfloat16 from_float(float x) {
    return __float2bfloat16_rn(x);
  }
  static __device__ __forceinline__ uint32_t pack(float low, float high) {
    uint32_t packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
  }
  static __device__ __forceinline__ uint32_t add_zero_times(uint32_t sum, uint32_t pair) {
    asm("fma.rn.bf16x2 %0, %1, %2, %0;" : "+r"(sum) : "r"(pair), "r"(0));
    return sum;
  }
  static __device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                             uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
};

// Two packed elements with NaN and infinities zeroed.
template <class Traits>
__device__ __forceinline__ uint32_t finite_or_zero(uint32_t pair) {
  constexpr uint32_t LOW = Traits::EXPONENTS & 0xffff;
  constexpr uint32_t HIGH = Traits::EXPONENTS & 0xffff0000;
  if ((pair & LOW) == LOW) pair &= 0xffff0000;
  if ((pair & HIGH) == HIGH) pair &= 0xffff;
  return pair;
}

// Four 8x8 matrices of 16-bit elements; lanes 8 i to 8 i + 7 give the row addresses of matrix i.
__device__ __forceinline__ void load_matrices(uint32_t (&m)[4], uint32_t row_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(row_address)
               : "memory");
}

// Two registers from an address that is a multiple of 8.
__device__ __forceinline__ void load_pair(uint32_t& first, uint32_t& second, uint32_t address) {
  asm volatile("ld.shared.v2.b32 {%0,%1}, [%2];" : "=r"(first), "=r"(second) : "r"(address) : "memory");
}

__device__ __forceinline__ void load_matrices_transposed(uint32_t (&m)[4], uint32_t row_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(row_address)
               : "memory");
}

// Swizzle of rows in chunks of 16 bytes, so that the eight rows that ldmatrix reads at a time lie in different banks:
// eight chunks span the banks, and a row has eight or more, or four, of which two rows share a line.
template <int ROW_BYTES>
__device__ __forceinline__ uint32_t tile_offset(int row, int chunk) {
  static_assert(ROW_BYTES % 128 == 0 || ROW_BYTES == 64, "rows are whole lines of the banks, or a half");
  if constexpr (ROW_BYTES == 64) return static_cast<uint32_t>(row * 64 + ((chunk ^ (row / 2 & 3)) << 4));
  return static_cast<uint32_t>(row * ROW_BYTES + ((chunk ^ (row & 7)) << 4));
}

}  // namespace kbtool::cuda
