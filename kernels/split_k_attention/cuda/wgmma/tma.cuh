// TMA (sm_90 and later): one thread requests a box of a tensor; it arrives in shared memory swizzled as wgmma
// reads it, and an mbarrier counts its bytes.
#pragma once

#include <cstdint>

#include "tensor_maps.h"

namespace kbtool::cuda {

__device__ __forceinline__ void prefetch_tensor_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Makes barriers that this thread has initialised visible to TMA and to the cluster.
__device__ __forceinline__ void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Arrives, and makes the barrier's phase wait for so many bytes of copies as well.
__device__ __forceinline__ void barrier_arrive_expect_bytes(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void tma_copy(uint32_t to, const CUtensorMap& map, int column, int key,
                                         int head, int batch, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(to),
      "l"(&map), "r"(column), "r"(key), "r"(head), "r"(batch), "r"(barrier)
      : "memory");
}

// Multicast into both blocks of a cluster of two, at the same offset in each, counted by a barrier of each.
__device__ __forceinline__ void tma_copy_multicast(uint32_t to, const CUtensorMap& map, int column,
                                                 int key, int head, int batch, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3, %4, %5}], [%6], 3;" ::"r"(to),
      "l"(&map), "r"(column), "r"(key), "r"(head), "r"(batch), "r"(barrier)
      : "memory");
}

}  // namespace kbtool::cuda
