// Thread block clusters (sm_90 and later): barriers and stores into each other's shared memory (DSMEM). On
// earlier cards clusters have one block, and nothing here is called.
#pragma once

#include <cstdint>

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define KBTOOL_CLUSTERS 1
#else
#define KBTOOL_CLUSTERS 0
#endif

namespace kbtool::cuda {

__device__ __forceinline__ uint32_t cluster_rank() {
#if KBTOOL_CLUSTERS
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
#else
  return 0;
#endif
}

__device__ __forceinline__ void cluster_arrive_relaxed() {
#if KBTOOL_CLUSTERS
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}

// What this thread stored before, in any block of the cluster, can be read after cluster_wait.
__device__ __forceinline__ void cluster_arrive() {
#if KBTOOL_CLUSTERS
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}

__device__ __forceinline__ void cluster_wait() {
#if KBTOOL_CLUSTERS
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// The address, in the shared memory of block `rank` of the cluster, of what lies at `address` here.
__device__ __forceinline__ uint32_t remote_address(uint32_t address, uint32_t rank) {
#if KBTOOL_CLUSTERS
  uint32_t remote;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
  return remote;
#else
  return address;
#endif
}

__device__ __forceinline__ void store_remote(uint32_t remote, int64_t value) {
#if KBTOOL_CLUSTERS
  asm volatile("st.shared::cluster.b64 [%0], %1;" ::"r"(remote), "l"(value) : "memory");
#endif
}

// ---- stores into the shared memory of another block, counted by a barrier there ----

// Initialises an mbarrier with one phase, which ends when as many bytes have been stored as expect_stores
// says. Other blocks may store only after the cluster barrier that follows.
__device__ __forceinline__ void exchange_init(uint32_t barrier) {
#if KBTOOL_CLUSTERS
  asm volatile(
      "mbarrier.init.shared::cta.b64 [%0], 1;\n"
      "fence.mbarrier_init.release.cluster;\n" ::"r"(barrier)
      : "memory");
#endif
}

__device__ __forceinline__ void expect_stores(uint32_t barrier, uint32_t bytes) {
#if KBTOOL_CLUSTERS
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
#endif
}

// What other blocks stored can be read after this.
__device__ __forceinline__ void wait_for_stores(uint32_t barrier) {
#if KBTOOL_CLUSTERS
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "wait:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], 0;\n"
      "@!done bra wait;\n"
      "}\n" ::"r"(barrier)
      : "memory");
#endif
}

__device__ __forceinline__ void store_remote(uint32_t remote, float4 value, uint32_t barrier) {
#if KBTOOL_CLUSTERS
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1,%2,%3,%4}, [%5];" ::"r"(
          remote),
      "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w), "r"(barrier)
      : "memory");
#endif
}

__device__ __forceinline__ void store_remote(uint32_t remote, float2 value, uint32_t barrier) {
#if KBTOOL_CLUSTERS
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1,%2}, [%3];" ::"r"(
          remote),
      "f"(value.x), "f"(value.y), "r"(barrier)
      : "memory");
#endif
}

}  // namespace kbtool::cuda
