// Bulk tensor copies (sm_90 and later): one thread asks for a box of a tensor, and the multiprocessor's
// copy engine brings it in the order that products want it, counted by a barrier.
#pragma once

#include <cstdint>

#include "tensor_maps.h"

namespace kbtool::cuda {

__device__ __forceinline__ void prefetch_tensor_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Barriers that this thread has set up can be arrived at by copies.
__device__ __forceinline__ void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Arrives, and has the barrier's phase wait for so many bytes of copies as well.
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

// The same into both blocks of a cluster of two, at the same place in each, counted by a barrier of each.
__device__ __forceinline__ void tma_copy_multicast(uint32_t to, const CUtensorMap& map, int column,
                                                 int key, int head, int batch, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3, %4, %5}], [%6], 3;" ::"r"(to),
      "l"(&map), "r"(column), "r"(key), "r"(head), "r"(batch), "r"(barrier)
      : "memory");
}

}  // namespace kbtool::cuda
