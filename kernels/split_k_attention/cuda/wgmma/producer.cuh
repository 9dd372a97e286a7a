// The producer warps: one requests key blocks by TMA, the others scan values for NaN and infinity.
#pragma once

#include "ring.cuh"

namespace kbtool::cuda {

// The key blocks of a work unit, and from which on values are scanned.
template <class C>
struct KeyBlocks {
  int64_t keys;
  int64_t count;
  int64_t first_scanned;

  __device__ __forceinline__ KeyBlocks(const FusedParams& fp, const WorkUnitOf<C>& at)
      : keys(at.key_end - at.key_begin),
        count((keys + C::BLOCK_KV - 1) / C::BLOCK_KV),
        first_scanned(min(count, max(int64_t{0}, keys_seen_by_all<C>(fp, at)) / C::BLOCK_KV)) {}
};

// The barrier that copies of values complete. If no thread scans them, all that would arrive at values_full but one do so
// here; the last arrival is that of the thread that expects the bytes.
template <class C>
__device__ __forceinline__ uint32_t copies_of_values(const Ring<C>& ring, int stage, bool scanned, bool arrive) {
  if (scanned) return ring.values_landed(stage);
  if (arrive) barrier_arrive(ring.values_full(stage), C::SCAN_THREADS - 1);
  return ring.values_full(stage);
}

// Requests the key blocks of a work unit that lie in pages: each lane requests one TMA box of a key block. A box is no
// taller than a page. Lanes look up the pages of a key block while the one before it is copied.
template <class C>
__device__ __forceinline__ void request_pages(const FusedParams& fp, const TensorMaps& maps, const WorkUnit& at,
                                              const Ring<C>& ring, int lane, const KeyBlocks<C>& blocks,
                                              RingPosition<C>& position) {
  if constexpr (!C::PAIRED) {
    constexpr int PANELS = C::D / 64;  // those of v are the first of them
    const Pages pages(fp, at.batch);
    const int box_keys = min(C::TMA_BOX_KEYS, pages.size());
    const int requests = C::BLOCK_KV / box_keys * PANELS;
    const int panel = lane % PANELS;
    const int first = lane / PANELS * box_keys;  // key of the lane's box, counted from the block's first
    const auto look_up = [&](int64_t block) {
      const int64_t key = at.key_begin + block * C::BLOCK_KV + first;
      // After the last page lies nothing, and TMA copies zeros: keys past the end need no page.
      return key < at.key_end ? pages.of(key) : static_cast<int>(fp.p.num_pages);
    };
    int page = look_up(0);
#pragma unroll 1
    for (int64_t block = 0; block < blocks.count; ++block) {
      const int stage = position.stage;
      const int inside = pages.inside(at.key_begin + block * C::BLOCK_KV + first);
      const auto copy_tile = [&](const CUtensorMap& map, const Strides4& stride, uint32_t tile, int columns,
                                 uint32_t full) {
        if (lane == 0) barrier_arrive_expect_bytes(full, C::BLOCK_KV * columns * 2);
        __syncwarp();  // the barrier expects the bytes before any arrive
        const int head = stride.head == 0 ? 0 : static_cast<int>(at.head_kv);
        const uint32_t to = tile + (panel * C::BLOCK_KV + first) * 128;
        if (lane < requests && (C::D == C::Dv || panel * 64 < columns)) tma_copy(to, map, panel * 64, inside, head, page, full);
      };
      barrier_wait(ring.keys_free(stage), position.parity ^ 1);
      copy_tile(maps.k, fp.p.k_stride, ring.keys(stage), C::D, ring.keys_full(stage));
      barrier_wait(ring.values_free(stage), position.parity ^ 1);
      copy_tile(maps.v, fp.p.v_stride, ring.values(stage), C::Dv,
                copies_of_values<C>(ring, stage, block >= blocks.first_scanned, lane == 0));
      page = block + 1 < blocks.count ? look_up(block + 1) : 0;
      position.advance();
    }
  }
}

// Requests the key blocks of a work unit, by one thread.
template <class C>
__device__ __forceinline__ void request_keys(const FusedParams& fp, const TensorMaps& maps, const WorkUnit& at,
                                             const Ring<C>& ring, const KeyBlocks<C>& blocks, RingPosition<C>& position) {
  // TMA allows no stride of 0. Where k or v has one, the tensor map has a single batch entry or head.
  const auto tma_index = [](int64_t stride, uint32_t index) { return stride == 0 ? 0 : static_cast<int>(index); };
  const auto copy_tile = [&](const CUtensorMap& map, const Strides4& stride, uint32_t tile, int64_t block,
                             auto columns, uint32_t full) {
    const int head = tma_index(stride.head, at.head_kv);
    const int batch = tma_index(stride.batch, at.batch);
    barrier_arrive_expect_bytes(full, C::BLOCK_KV * columns * 2);
    const int key0 = static_cast<int>(at.key_begin + block * C::BLOCK_KV);
#pragma unroll
    for (int i = 0; i < C::BLOCK_KV / C::TMA_BOX_KEYS / (C::PAIRED ? 2 : 1); ++i) {
      const int box = C::PAIRED ? i * 2 + static_cast<int>(at.rank) : i;
#pragma unroll
      for (int panel = 0; panel < columns / 64; ++panel) {
        const uint32_t to = tile + (panel * C::BLOCK_KV + box * C::TMA_BOX_KEYS) * 128;
        const int key = key0 + box * C::TMA_BOX_KEYS;
        if constexpr (C::PAIRED) {
          tma_copy_multicast(to, map, panel * 64, key, head, batch, full);
        } else {
          tma_copy(to, map, panel * 64, key, head, batch, full);
        }
      }
    }
  };
#pragma unroll 1
  for (int64_t block = 0; block < blocks.count; ++block) {
    const int stage = position.stage;
    // In the first round this does not wait: on a new barrier the phase before the first counts as complete.
    barrier_wait(ring.keys_free(stage), position.parity ^ 1);
    copy_tile(maps.k, fp.p.k_stride, ring.keys(stage), block, std::integral_constant<int, C::D>{}, ring.keys_full(stage));
    barrier_wait(ring.values_free(stage), position.parity ^ 1);
    copy_tile(maps.v, fp.p.v_stride, ring.values(stage), block, std::integral_constant<int, C::Dv>{},
              copies_of_values<C>(ring, stage, block >= blocks.first_scanned, true));
    position.advance();
  }
  // Do not exit while the peer block can still arrive on our mbarriers: drain the free barriers.
  if constexpr (C::PAIRED) {
#pragma unroll 1
    for (int i = 0; i < C::STAGES; ++i) {
      barrier_wait(ring.keys_free(position.stage), position.parity ^ 1);
      barrier_wait(ring.values_free(position.stage), position.parity ^ 1);
      position.advance();
    }
  }
}

// The warp that requests copies: one thread of it or, with pages, all.
template <class C>
__device__ __forceinline__ void request(const FusedParams& fp, const TensorMaps& maps, WorkUnitOf<C> at,
                                        const Ring<C>& ring, unsigned char* smem, int lane) {
  TileScheduler<C> scheduler(fp, ring, smem);
  RingPosition<C> position;
  wait_for_earlier_kernel();
  trigger_dependent_launch(fp);
  for (;;) {
    const KeyBlocks<C> blocks(fp, at);
    if (fp.p.block_table != nullptr) {
      request_pages<C>(fp, maps, at, ring, lane, blocks, position);
    } else if (lane == 0) {
      request_keys<C>(fp, maps, at, ring, blocks, position);
    }
    __syncwarp();
    const uint32_t unit = scheduler.take(lane);
    if (unit == TileScheduler<C>::END) return;
    at = locate<C>(fp, unit, smem);
  }
}

// The warps that scan values for NaN and infinity.
template <class C>
__device__ __forceinline__ void scan_values(const FusedParams& fp, WorkUnitOf<C> at, const Ring<C>& ring,
                                            unsigned char* smem, int thread) {
  TileScheduler<C> scheduler(fp, ring, smem);
  uint32_t landed = 0;  // the parity of values_landed at each stage, a bit each: not every key block uses it
  for (int64_t before = 0;;) {  // key blocks of earlier tiles
    const KeyBlocks<C> blocks(fp, at);
#pragma unroll 1
    for (int64_t block = blocks.first_scanned; block < blocks.count; ++block) {
      const int number = static_cast<int>(before + block);
      const int stage = number % C::STAGES;
      barrier_wait(ring.values_landed(stage), landed >> stage & 1);
      landed ^= 1u << stage;
      unsigned char* tile = smem + (ring.values(stage) - ring.base);
      const int seen = static_cast<int>(min(int64_t{C::BLOCK_KV}, blocks.keys - block * C::BLOCK_KV));
      if (!all_finite<C>(tile, thread, C::SCAN_THREADS) && zero_non_finite<C>(tile, seen, thread, C::SCAN_THREADS)) {
        ring.zeroed(smem)[stage] = number;
      }
      fence_async_proxy();
      barrier_arrive(ring.values_full(stage));
    }
    const uint32_t unit = scheduler.next(thread % 32);
    if (unit == TileScheduler<C>::END) return;
    before += blocks.count;
    at = locate<C>(fp, unit, smem);
  }
}

}  // namespace kbtool::cuda
