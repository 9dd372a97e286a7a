// mma.sync m16n8k16, and loads of its operands from shared memory.
//
// In its fragments lane 4 g + t (g < 8, t < 4) holds
//   A [16, 16]  rows g and g + 8, columns 2t, 2t+1 and 2t+8, 2t+9
//   B [16, 8]   rows 2t, 2t+1 and 2t+8, 2t+9 of column g
//   C [16, 8]   c[0], c[1]: row g, columns 2t, 2t+1;  c[2], c[3]: row g + 8
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace split_k_gemm::cuda {

template <class Element>
struct Math;

template <>
struct Math<__half> {
  static __device__ __forceinline__ __half from_float(float x) { return __float2half_rn(x); }
  static __device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
};

template <>
struct Math<__nv_bfloat16> {
  static __device__ __forceinline__ __nv_bfloat16 from_float(float x) {
    return __float2bfloat16_rn(x);
  }
  static __device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
};

// Four 8x8 matrices of 16-bit elements; lanes 8 i to 8 i + 7 give the row addresses of matrix i.
__device__ __forceinline__ void load_matrices(uint32_t (&m)[4], uint32_t row_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(row_address)
               : "memory");
}

// Where TMA's 128-byte swizzle puts the 16 bytes of index `piece` in a row of 128.
__device__ __forceinline__ uint32_t swizzled(int piece, int row) { return (piece ^ (row & 7)) << 4; }

}  // namespace split_k_gemm::cuda
