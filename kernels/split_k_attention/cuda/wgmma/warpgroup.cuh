// What sm_90a adds for warp-specialised kernels: mbarriers that copies arrive at, register reallocation, and
// wgmma.
//
// A product's accumulator C [64, N] is spread as 16 rows a warp, and within a warp as in mma.cuh:
// c[tile][0], c[tile][1] are row g, columns 8 tile + 2t and + 1; c[tile][2], c[tile][3] row g + 8.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "../common/mma.cuh"

namespace kbtool::cuda {

// ---- barriers in shared memory ----

__device__ __forceinline__ void barrier_init(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

__device__ __forceinline__ void barrier_arrive(uint32_t barrier, uint32_t arrivals = 1) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Arrives at a barrier of any block of the cluster. Relaxed is enough: only wgmma has read the tile, and this
// thread has waited for it. A release at cluster scope would cost a third of the speed of 64 queries (H200).
__device__ __forceinline__ void barrier_arrive_remote(uint32_t remote) {
  asm volatile("mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%0];" ::"r"(remote) : "memory");
}

// Waits for the phase of this parity to end.
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "wait:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra wait;\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// Shared memory written by ordinary stores or cp.async is visible to the wgmma that follow, which read
// through the async proxy.
__device__ __forceinline__ void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// ---- registers ----

// All warps of a warpgroup lower (release) or raise (acquire) their registers per thread to COUNT. Raising
// waits until other warpgroups have released enough.
template <int COUNT>
__device__ __forceinline__ void release_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

template <int COUNT>
__device__ __forceinline__ void acquire_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

// ---- operands ----

// Tiles are stored as panels of 64 columns (128 bytes), row after row, in the hardware's 128-byte swizzle:
// chunk ^ (row % 8) for the eight chunks of 16 bytes of a row. Panels start at multiples of 1024 bytes.
__device__ __forceinline__ uint32_t panel_offset(int row, int chunk, int panel_rows) {
  return static_cast<uint32_t>((chunk / 8 * panel_rows + row) * 128 +
                               (((chunk % 8) ^ (row & 7)) << 4));
}

// Descriptor of a K-major operand (Q and K): eight rows are 1024 bytes.
__device__ __forceinline__ uint64_t k_major_descriptor(uint32_t address) {
  constexpr uint64_t SWIZZLE_128 = uint64_t{1} << 62;
  constexpr uint64_t EIGHT_ROWS = uint64_t{1024 >> 4} << 32;
  return SWIZZLE_128 | EIGHT_ROWS | (uint64_t{1} << 16) | ((address & 0x3ffff) >> 4);
}

// Descriptor of an MN-major operand (V): panels of 64 columns lie panel_bytes apart.
__device__ __forceinline__ uint64_t mn_major_descriptor(uint32_t address, uint32_t panel_bytes) {
  constexpr uint64_t SWIZZLE_128 = uint64_t{1} << 62;
  constexpr uint64_t EIGHT_ROWS = uint64_t{1024 >> 4} << 32;
  return SWIZZLE_128 | EIGHT_ROWS | (uint64_t{panel_bytes >> 4} << 16) |
         ((address & 0x3ffff) >> 4);
}

// ---- products ----

// Accumulator registers written before are visible to the wgmma that follow.
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until at most PENDING of the youngest groups are pending; `c` belongs to an older one. The empty asm
// statements keep the compiler from reading `c` before the wait.
template <int PENDING, int TILES>
__device__ __forceinline__ void wgmma_wait(float (&c)[TILES][4]) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
#pragma unroll
  for (int tile = 0; tile < TILES; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) asm volatile("" : "+f"(c[tile][i])::"memory");
  }
}

// Operand lists of the instructions below: 16 accumulators each.
#define KBTOOL_C16(c, t)                                                                    \
  "+f"(c[t][0]), "+f"(c[t][1]), "+f"(c[t][2]), "+f"(c[t][3]), "+f"(c[t + 1][0]),            \
      "+f"(c[t + 1][1]), "+f"(c[t + 1][2]), "+f"(c[t + 1][3]), "+f"(c[t + 2][0]),           \
      "+f"(c[t + 2][1]), "+f"(c[t + 2][2]), "+f"(c[t + 2][3]), "+f"(c[t + 3][0]),           \
      "+f"(c[t + 3][1]), "+f"(c[t + 3][2]), "+f"(c[t + 3][3])
#define KBTOOL_C32(c, t) KBTOOL_C16(c, t), KBTOOL_C16(c, t + 4)
#define KBTOOL_C64(c, t) KBTOOL_C32(c, t), KBTOOL_C32(c, t + 8)
#define KBTOOL_C128(c, t) KBTOOL_C64(c, t), KBTOOL_C64(c, t + 16)
#define KBTOOL_NAMES_32 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define KBTOOL_NAMES_64 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define KBTOOL_NAMES_128 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, " \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, " \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

// C [64, N] (+)= A [64, 16] B [16, N]; A and B in shared memory, both K-major.
#define KBTOOL_PRODUCT_SHARED(N, COUNT, A, B, FIRST, TYPE)                                     \
  asm volatile(                                                                             \
      "{\n.reg .pred add;\nsetp.ne.b32 add, %" FIRST ", 0;\n"                                \
      "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE                       \
      " {" KBTOOL_NAMES_##COUNT "}, %" A ", %" B ", add, 1, 1, 0, 0;\n}\n"                   \
      : KBTOOL_C##COUNT(c, 0)                                                               \
      : "l"(a), "l"(b), "r"(add))

// The same with A in registers, laid out as in mma.cuh, and B MN-major.
#define KBTOOL_PRODUCT_REGISTERS(N, COUNT, A0, A1, A2, A3, B, TYPE)                          \
  asm volatile(                                                                             \
      "{\n.reg .pred add;\nsetp.eq.b32 add, 0, 0;\n"                                       \
      "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE                       \
      " {" KBTOOL_NAMES_##COUNT "}, {%" A0 ", %" A1 ", %" A2 ", %" A3 "}, %" B ", add, 1, 1, 1;\n}\n" \
      : KBTOOL_C##COUNT(c, 0)                                                               \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))

template <class Element, int TILES>
__device__ __forceinline__ void wgmma_shared(float (&c)[TILES][4], uint64_t a, uint64_t b,
                                                int add) {
  static_assert(TILES == 8 || TILES == 16, "the blocks of keys that configurations have");
  constexpr bool FP16 = std::is_same_v<Element, __half>;
  if constexpr (TILES == 8 && FP16) {
    KBTOOL_PRODUCT_SHARED(64, 32, "32", "33", "34", "f16");
  } else if constexpr (TILES == 8) {
    KBTOOL_PRODUCT_SHARED(64, 32, "32", "33", "34", "bf16");
  } else if constexpr (FP16) {
    KBTOOL_PRODUCT_SHARED(128, 64, "64", "65", "66", "f16");
  } else {
    KBTOOL_PRODUCT_SHARED(128, 64, "64", "65", "66", "bf16");
  }
}

template <class Element, int TILES>
__device__ __forceinline__ void wgmma_registers(float (&c)[TILES][4], const uint32_t (&a)[4],
                                                   uint64_t b) {
  static_assert(TILES == 8 || TILES == 16 || TILES == 32, "the buckets of head dimensions");
  constexpr bool FP16 = std::is_same_v<Element, __half>;
  if constexpr (TILES == 8 && FP16) {
    KBTOOL_PRODUCT_REGISTERS(64, 32, "32", "33", "34", "35", "36", "f16");
  } else if constexpr (TILES == 8) {
    KBTOOL_PRODUCT_REGISTERS(64, 32, "32", "33", "34", "35", "36", "bf16");
  } else if constexpr (TILES == 16 && FP16) {
    KBTOOL_PRODUCT_REGISTERS(128, 64, "64", "65", "66", "67", "68", "f16");
  } else if constexpr (TILES == 16) {
    KBTOOL_PRODUCT_REGISTERS(128, 64, "64", "65", "66", "67", "68", "bf16");
  } else if constexpr (FP16) {
    KBTOOL_PRODUCT_REGISTERS(256, 128, "128", "129", "130", "131", "132", "f16");
  } else {
    KBTOOL_PRODUCT_REGISTERS(256, 128, "128", "129", "130", "131", "132", "bf16");
  }
}

#undef KBTOOL_PRODUCT_REGISTERS
#undef KBTOOL_PRODUCT_SHARED
#undef KBTOOL_NAMES_128
#undef KBTOOL_NAMES_64
#undef KBTOOL_NAMES_32
#undef KBTOOL_C128
#undef KBTOOL_C64
#undef KBTOOL_C32
#undef KBTOOL_C16

}  // namespace kbtool::cuda
