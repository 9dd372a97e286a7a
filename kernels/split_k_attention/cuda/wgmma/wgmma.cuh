// Split-K attention by wgmma (sm_90a), for query tiles of 64 or 128 rows: several queries, or one query of
// many heads that share a KV head.
//
// Warp-specialised: producer warps copy key blocks into a ring buffer, by TMA. Each consumer
// warpgroup takes 64 rows. wgmma reads a byte of k or v from shared memory once for 64 rows; the fused kernel
// reads it once for 16. wgmma is asynchronous: a consumer starts Q K^T of key block j, then P V of block j - 1,
// and computes the softmax of block j while P V runs.
//
// With one split a block stores the output. With several it stores its partial state, and a separate kernel
// merges the partial states.
#pragma once

#include "consumer.cuh"
#include "merge_kernel.cuh"
#include "producer.cuh"

namespace kbtool::cuda {

template <class C>
__global__ void __launch_bounds__(C::LAUNCH_THREADS, C::BLOCKS)
    wgmma_kernel(const __grid_constant__ FusedParams fp, const __grid_constant__ TensorMaps maps) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char wgmma_smem[];
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x / 32), 0);  // tells the compiler that it is uniform
  const int lane = threadIdx.x % 32;
  const Ring<C> ring{shared_address(wgmma_smem)};
  if (threadIdx.x == 0) {
    ring.init(wgmma_smem);
    prefetch_tensor_map(maps.k);
    prefetch_tensor_map(maps.v);
  }
  if constexpr (C::PAIRED) {  // wait until the peer block has initialised its barriers
    __syncwarp();
    cluster_arrive_relaxed();
    cluster_wait();
  }
  WorkUnitOf<C> at = locate<C>(fp, blockIdx.x, wgmma_smem);
  block_sync();
  if (C::PACKED && at.rows == 0) return;  // a spare tile

  if (warp >= C::CONSUMER_WARPS) {
    if constexpr (C::UNEVEN_REGISTERS) release_registers<C::PRODUCER_REGISTERS>();
    if (warp == C::CONSUMER_WARPS) {
      request<C>(fp, maps, at, ring, wgmma_smem, lane);
    } else {
      scan_values<C>(fp, at, ring, wgmma_smem, static_cast<int>(threadIdx.x) - C::THREADS - 32);
    }
    return;
  }
  if constexpr (C::UNEVEN_REGISTERS) acquire_registers<C::CONSUMER_REGISTERS>();
  const bool alone = first_warpgroup_alone<C>(at);
  if (alone && warp >= 4) {
    free_stages<C>(fp, at, ring, lane);
    return;
  }
  TileScheduler<C> scheduler(fp, ring, wgmma_smem);
  ConsumerPosition<C> position;
  const PingPong<C> ping_pong(warp / 4, alone);
  const Queries<C> queries(fp, ring, wgmma_smem, static_cast<int>(threadIdx.x));
  wait_for_earlier_kernel();
  trigger_dependent_launch(fp);
  queries.start(at);
  for (;;) {
    queries.finish(at);
    LaneState<C> state;
    state.clear();
    WorkUnitOf<C> next;
    uint32_t unit = TileScheduler<C>::END;
    consume<C>(fp, at, ring, wgmma_smem, warp, lane, ping_pong, position, state, [&] {
      unit = scheduler.next(lane);
      if (unit == TileScheduler<C>::END) return;
      next = locate<C>(fp, unit, wgmma_smem);
      warpgroup_sync(warp / 4);  // all of it has read the queries
      queries.start(next);
    });
    if (C::PAIRED || fp.merge_lanes > 0) {
      store_partial_state<C>(fp, at, warp, lane, state);
    } else {
      store_finished_rows<C>(fp, at, warp, lane, state);
    }
    if (unit == TileScheduler<C>::END) return;
    at = next;
  }
#endif
}

template <class C>
cudaError_t launch_wgmma_config(const FusedParams& fp, cudaStream_t stream) {
  constexpr ElementType TYPE =
      std::is_same_v<typename C::Element, __half> ? ElementType::fp16 : ElementType::bf16;
  TensorMaps maps{};
  if (!make_tensor_maps(fp.p, TYPE, C::TMA_BOX_KEYS, &maps)) return cudaErrorNotSupported;
  if constexpr (C::WARPGROUPS == 2 && !C::PAIRED && !C::PACKED && C::D == C::Dv) {
    if (fp.paired) {
      using Paired = WgmmaConfig<typename C::Element, C::D, 2, false, true>;
      return launch_blocks<Paired, wgmma_kernel<Paired>>(fp, stream, maps);
    }
  }
  return launch_blocks<C, wgmma_kernel<C>>(fp, stream, maps);
}

template <class Element, int D, bool PACKED = false>
cudaError_t launch_wgmma(const FusedParams& fp, int warpgroups, cudaStream_t stream) {
  const auto launch = [&] {
    if constexpr (D < 256) {
      if (warpgroups == 2) return launch_wgmma_config<WgmmaConfig<Element, D, 2, false, false, PACKED>>(fp, stream);
    }
    if constexpr (D == 128 && !PACKED) {
      if (fp.small_ring) return launch_wgmma_config<WgmmaConfig<Element, D, 1, true>>(fp, stream);
    }
    return launch_wgmma_config<WgmmaConfig<Element, D, 1, false, false, PACKED>>(fp, stream);
  };
  const cudaError_t error = launch();
  return error == cudaSuccess && fp.merge_lanes > 0 ? launch_merge<Element>(fp, stream) : error;
}

// For keys of 129 to 192 columns beside values of up to 128.
template <class Element, int D>
cudaError_t launch_wgmma_v128(const FusedParams& fp, int warpgroups, cudaStream_t stream) {
  const cudaError_t error =
      warpgroups == 2 ? launch_wgmma_config<WgmmaConfig<Element, D, 2, false, false, false, 128>>(fp, stream)
                      : launch_wgmma_config<WgmmaConfig<Element, D, 1, false, false, false, 128>>(fp, stream);
  return error == cudaSuccess && fp.merge_lanes > 0 ? launch_merge<Element>(fp, stream) : error;
}

template <class Element, int D>
cudaError_t launch_wgmma_packed(const FusedParams& fp, int warpgroups, cudaStream_t stream) {
  return launch_wgmma<Element, D, true>(fp, warpgroups, stream);
}

}  // namespace kbtool::cuda
