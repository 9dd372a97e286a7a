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

#include "../common/block.cuh"
#include "merge_kernel.cuh"
#include "tma.cuh"
#include "warpgroup.cuh"

namespace kbtool::cuda {

// SMALL_RING: two blocks share a multiprocessor, so that one reads while the other starts or ends.
// PAIRED: two query tiles of the same split form a cluster of two blocks. Each block requests half of the TMA
// boxes and multicasts them to both blocks.
// PACKED: the call has packed queries.
template <class Element_, int D_, int WARPGROUPS_, bool SMALL_RING_ = false, bool PAIRED_ = false,
          bool PACKED_ = false>
struct WgmmaConfig {
  using Element = Element_;
  using Traits = ElementTraits<Element>;
  static constexpr int D = D_;  // compiled head dimension; the actual one may be smaller
  static constexpr int WARPGROUPS = WARPGROUPS_;
  static constexpr bool INTERLEAVED_KEYS = false;
  static constexpr bool OPTIONS = false;
  static constexpr bool PACKED = PACKED_;
  static constexpr bool TREES = PACKED && WARPGROUPS == 1;  // with two, registers would spill
  static constexpr bool SMALL_RING = SMALL_RING_;
  static constexpr bool PAIRED = PAIRED_;
  static constexpr int BLOCKS = SMALL_RING ? 2 : 1;  // per multiprocessor

  static constexpr int BLOCK_M = 64 * WARPGROUPS;
  static constexpr int BLOCK_KV = D == 256 || SMALL_RING ? 64 : 128;
  // Keys of a TMA box, which has 64 columns. Small boxes, so that the producer soon requests the other columns of
  // the same keys, which lie beside them in global memory.
  static constexpr int TMA_BOX_KEYS = 32;
  static constexpr int STAGES = D == 64 ? 4 : D == 256 && WARPGROUPS == 2 ? 2 : 3;

  static constexpr int CONSUMER_WARPS = 4 * WARPGROUPS;
  static constexpr int PRODUCER_WARPS = 4;
  static constexpr int THREADS = 32 * CONSUMER_WARPS;  // the consumers
  static constexpr int LAUNCH_THREADS = THREADS + 32 * PRODUCER_WARPS;
  // With three or four warpgroups on a multiprocessor, registers move from producers to consumers:
  // 2 x 232 + 40 = 3 x 168, 208 + 48 = 2 x 128. One register more would deadlock.
  static constexpr bool UNEVEN_REGISTERS = WARPGROUPS == 2 || SMALL_RING;
  static constexpr int LAUNCH_REGISTERS = 65536 / (BLOCKS * LAUNCH_THREADS) / 8 * 8;
  static constexpr int CONSUMER_REGISTERS = SMALL_RING ? 208 : 232;
  static constexpr int PRODUCER_REGISTERS = SMALL_RING ? 48 : 40;
  static_assert(!UNEVEN_REGISTERS || WARPGROUPS * CONSUMER_REGISTERS + PRODUCER_REGISTERS <=
                                         (WARPGROUPS + 1) * LAUNCH_REGISTERS,
                "after setmaxnreg a block has no more registers than the launch gave it");
  // One producer warp requests the TMA copies, the others scan v for NaN and infinity.
  static constexpr int SCAN_THREADS = 32 * (PRODUCER_WARPS - 1);
  using Kv = Element;
  static constexpr bool SCALED = false;
  static constexpr int CHUNKS = D / 8;        // of 16 bytes, in a row of k or v
  static constexpr int STATE_CHUNKS = D / 4;  // of 4 floats, in a row of o

  // In shared memory: Q [D / 64, BLOCK_M, 64], then STAGES times K and V [D / 64, BLOCK_KV, 64], then the barriers.
  // A tile is stored in panels of 64 columns (128 bytes), the width of the swizzle.
  static constexpr int QUERY_BYTES = BLOCK_M * D * 2;
  static constexpr int TILE_BYTES = BLOCK_KV * D * 2;
  static constexpr int BARRIER_OFFSET = QUERY_BYTES + STAGES * 2 * TILE_BYTES;
  static constexpr int BARRIERS = 6 * STAGES + 1;
  static constexpr int ZEROED_OFFSET = BARRIER_OFFSET + 8 * BARRIERS;  // int64_t [STAGES]
  static constexpr int LENGTH_OFFSET = ZEROED_OFFSET + 8 * STAGES;  // int64_t, or a PackedTile
  static constexpr int SHARED_BYTES = LENGTH_OFFSET + (PACKED ? sizeof(PackedTile) : sizeof(int64_t));
  static_assert(BLOCKS * (SHARED_BYTES + 1024) <= 228 * 1024,
                "sm_90 has 228 KB of shared memory per multiprocessor and keeps 1 KB of it per block");
  static_assert(!PAIRED || BLOCK_KV / TMA_BOX_KEYS % 2 == 0, "each block of a pair requests half of the TMA boxes");
  static_assert(QUERY_BYTES % 1024 == 0 && TILE_BYTES % 1024 == 0,
                "the 128-byte swizzle needs panels that start at multiples of 1024 bytes");

  // The key of a 16-byte chunk. Chunks are numbered in the order of shared memory: panel by panel, in a panel key by
  // key, eight chunks to a key.
  static __device__ __forceinline__ int key_of(int chunk) { return chunk / 8 % BLOCK_KV; }
  static int shared_bytes(int) { return SHARED_BYTES; }
};

// The ring buffer's barriers and tiles. Keys and values of a stage have barriers of their own.
// `smem`, here and below: the block's shared memory, [SHARED_BYTES], laid out as in WgmmaConfig.
template <class C>
struct Ring {
  uint32_t base;  // of shared memory

  __device__ __forceinline__ uint32_t keys(int stage) const {
    return base + C::QUERY_BYTES + stage * 2 * C::TILE_BYTES;
  }
  __device__ __forceinline__ uint32_t values(int stage) const { return keys(stage) + C::TILE_BYTES; }
  __device__ __forceinline__ uint32_t barrier(int kind, int stage) const {
    return base + C::BARRIER_OFFSET + (kind * C::STAGES + stage) * 8;
  }
  __device__ __forceinline__ uint32_t keys_full(int stage) const { return barrier(0, stage); }
  __device__ __forceinline__ uint32_t values_full(int stage) const { return barrier(1, stage); }
  __device__ __forceinline__ uint32_t keys_free(int stage) const { return barrier(2, stage); }
  __device__ __forceinline__ uint32_t values_free(int stage) const { return barrier(3, stage); }
  // These two replace values_full if values are scanned first: values_landed means that the copies have arrived,
  // values_scanned that all scanning threads are done.
  __device__ __forceinline__ uint32_t values_landed(int stage) const { return barrier(4, stage); }
  __device__ __forceinline__ uint32_t values_scanned(int stage) const { return barrier(5, stage); }
  __device__ __forceinline__ uint32_t queries_full() const { return barrier(6, 0); }

  // For each stage: the first key, counted from key_begin, of the last key block in which non-finite values were
  // zeroed; -1 before.
  __device__ __forceinline__ volatile int64_t* zeroed(unsigned char* smem) const {
    return reinterpret_cast<volatile int64_t*>(smem + C::ZEROED_OFFSET);
  }

  __device__ void init(unsigned char* smem) const {
    for (int stage = 0; stage < C::STAGES; ++stage) {
      zeroed(smem)[stage] = -1;
      barrier_init(keys_full(stage), 1);
      barrier_init(values_full(stage), 1);
      barrier_init(values_landed(stage), 1);
      barrier_init(values_scanned(stage), C::SCAN_THREADS);
      constexpr int READERS = C::CONSUMER_WARPS * (C::PAIRED ? 2 : 1);
      barrier_init(keys_free(stage), READERS);
      barrier_init(values_free(stage), READERS);
    }
    barrier_init(queries_full(), C::THREADS);
    fence_barrier_init();
  }
};

// A stage of the ring buffer, and the parity of its barriers' phase.
template <class C>
struct RingPosition {
  int stage = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ void advance() {
    if (++stage == C::STAGES) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// Barrier of the 128 threads of one consumer warpgroup.
__device__ __forceinline__ void warpgroup_sync(int warpgroup) {
  asm volatile("barrier.sync %0, 128;" ::"r"(4 + warpgroup) : "memory");
}

// The keys before this one, counted in the entry, are visible to every row of the tile or pair of tiles.
template <class C>
__device__ __forceinline__ int64_t seen_by_each_row(const FusedParams& fp, const WorkUnitOf<C>& at) {
  const int64_t seen = seen_keys(fp, at, first_row_of_pair<C>(at));
  if (!C::TREES || fp.p.tree_mask == nullptr) return seen;
  return max(int64_t{0}, min(seen, first_tree_key(fp.p, at.valid)));
}

// Keys below this index, counted from key_begin, are visible to every row of the tile or pair of tiles. A V tile
// past it may meet weight 0, and 0 * NaN is NaN, so it is scanned first.
template <class C>
__device__ __forceinline__ int64_t keys_seen_by_all(const FusedParams& fp, const WorkUnitOf<C>& at) {
  constexpr int64_t ALL = int64_t{1} << 62;
  const int64_t seen = seen_by_each_row<C>(fp, at);
  return seen == fp.p.Skv ? ALL : seen - at.key_begin;
}

// The producer warp's requests if k and v lie in pages: each lane requests one TMA box of a key block. A box is no
// taller than a page. Lanes look up the pages of a key block while the one before it is copied.
template <class C>
__device__ __forceinline__ void request_pages(const FusedParams& fp, const TensorMaps& maps, const WorkUnit& at,
                                              const Ring<C>& ring, int lane, int64_t blocks, int64_t first_scanned) {
  if constexpr (!C::PAIRED) {
    constexpr int PANELS = C::D / 64;
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
    RingPosition<C> position;
    wait_for_earlier_kernel();
    trigger_dependent_launch(fp);
    int page = look_up(0);
#pragma unroll 1
    for (int64_t block = 0; block < blocks; ++block) {
      const int stage = position.stage;
      const int inside = pages.inside(at.key_begin + block * C::BLOCK_KV + first);
      const auto copy_tile = [&](const CUtensorMap& map, const Strides4& stride, uint32_t tile, uint32_t full) {
        if (lane == 0) barrier_arrive_expect_bytes(full, C::TILE_BYTES);
        __syncwarp();  // the barrier expects the bytes before any arrive
        const int head = stride.head == 0 ? 0 : static_cast<int>(at.head_kv);
        const uint32_t to = tile + (panel * C::BLOCK_KV + first) * 128;
        if (lane < requests) tma_copy(to, map, panel * 64, inside, head, page, full);
      };
      barrier_wait(ring.keys_free(stage), position.parity ^ 1);
      copy_tile(maps.k, fp.p.k_stride, ring.keys(stage), ring.keys_full(stage));
      barrier_wait(ring.values_free(stage), position.parity ^ 1);
      copy_tile(maps.v, fp.p.v_stride, ring.values(stage),
                block < first_scanned ? ring.values_full(stage) : ring.values_landed(stage));
      page = block + 1 < blocks ? look_up(block + 1) : 0;
      position.advance();
    }
  }
}

// Producer: one thread (with pages, one warp) requests the copies, the other warps scan values for NaN and infinity.
template <class C>
__device__ __forceinline__ void produce(const FusedParams& fp, const TensorMaps& maps,
                                        const WorkUnitOf<C>& at, const Ring<C>& ring,
                                        unsigned char* smem, int thread) {
  constexpr int64_t BLOCK_KV = C::BLOCK_KV;
  const int64_t seen_by_all = keys_seen_by_all<C>(fp, at);
  const int64_t keys = at.key_end - at.key_begin;
  const int64_t blocks = (keys + BLOCK_KV - 1) / BLOCK_KV;
  const int64_t first_scanned = min(blocks, max(int64_t{0}, seen_by_all) / BLOCK_KV);

  if (thread >= 32) {
#pragma unroll 1
    for (int64_t block = first_scanned; block < blocks; ++block) {
      const int stage = static_cast<int>(block % C::STAGES);
      barrier_wait(ring.values_landed(stage), (block - first_scanned) / C::STAGES & 1);
      unsigned char* tile = smem + (ring.values(stage) - ring.base);
      const int seen = static_cast<int>(min(BLOCK_KV, keys - block * BLOCK_KV));
      if (zero_non_finite<C>(tile, seen, thread - 32, C::SCAN_THREADS)) {
        ring.zeroed(smem)[stage] = block * BLOCK_KV;
      }
      fence_async_proxy();
      barrier_arrive(ring.values_scanned(stage));
    }
    return;
  }
  if (fp.p.block_table != nullptr) {
    request_pages<C>(fp, maps, at, ring, thread, blocks, first_scanned);
    return;
  }
  if (thread > 0) return;
  // TMA allows no stride of 0. Where k or v has one, the tensor map has a single batch entry or head.
  const auto tma_index = [](int64_t stride, uint32_t index) { return stride == 0 ? 0 : static_cast<int>(index); };
  const auto copy_tile = [&](const CUtensorMap& map, const Strides4& stride, uint32_t tile, int64_t block,
                             uint32_t full) {
    const int head = tma_index(stride.head, at.head_kv);
    const int batch = tma_index(stride.batch, at.batch);
    barrier_arrive_expect_bytes(full, C::TILE_BYTES);
    const int key0 = static_cast<int>(at.key_begin + block * BLOCK_KV);
#pragma unroll
    for (int i = 0; i < C::BLOCK_KV / C::TMA_BOX_KEYS / (C::PAIRED ? 2 : 1); ++i) {
      const int box = C::PAIRED ? i * 2 + static_cast<int>(at.rank) : i;
#pragma unroll
      for (int panel = 0; panel < C::D / 64; ++panel) {
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
  RingPosition<C> position;
  wait_for_earlier_kernel();
  trigger_dependent_launch(fp);
#pragma unroll 1
  for (int64_t block = 0; block < blocks; ++block) {
    const int stage = position.stage;
    // In the first round this does not wait: on a new barrier the phase before the first counts as complete.
    barrier_wait(ring.keys_free(stage), position.parity ^ 1);
    copy_tile(maps.k, fp.p.k_stride, ring.keys(stage), block, ring.keys_full(stage));
    barrier_wait(ring.values_free(stage), position.parity ^ 1);
    copy_tile(maps.v, fp.p.v_stride, ring.values(stage), block,
              block < first_scanned ? ring.values_full(stage) : ring.values_landed(stage));
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

// Loads the query tile, by all consumers.
template <class C>
__device__ __forceinline__ void load_query_tile(const FusedParams& fp, const WorkUnitOf<C>& at,
                                              const Ring<C>& ring, unsigned char* smem,
                                              int thread) {
  using Element = typename C::Element;
  using Traits = typename C::Traits;
  wait_for_earlier_kernel();
  trigger_dependent_launch(fp);
  copy_queries<C, false>(fp, at, thread, C::THREADS, [&](int row, int chunk) {
    return ring.base + panel_offset(row, chunk, C::BLOCK_M);
  });
  wait_copies<0>();
  if (fp.q_factor != 1.0f) {  // -1 for a negative scale, 0 for a scale of 0: multiplying by it is exact
    const int chunk = thread % C::CHUNKS;  // the chunks that this thread has copied and waited for
#pragma unroll 1
    for (int row = thread / C::CHUNKS; row < at.rows; row += C::THREADS / C::CHUNKS) {
      Element* q = reinterpret_cast<Element*>(smem + panel_offset(row, chunk, C::BLOCK_M));
      for (int i = 0; i < 8; ++i) q[i] = Traits::from_float(Traits::to_float(q[i]) * fp.q_factor);
    }
  }
  fence_async_proxy();
  barrier_arrive(ring.queries_full());
  barrier_wait(ring.queries_full(), 0);
}

// Starts s [64, BLOCK_KV] = Q [64, D] K^T.
template <class C>
__device__ __forceinline__ void start_qk(uint32_t q, uint32_t k,
                                             float (&s)[C::BLOCK_KV / 8][4]) {
  const uint64_t a = k_major_descriptor(q);
  const uint64_t b = k_major_descriptor(k);
#pragma unroll
  for (int step = 0; step < C::D / 16; ++step) {
    // A panel holds four steps of 32 bytes. Descriptors count in units of 16 bytes.
    const uint64_t inside = step % 4 * 2;
    wgmma_shared<typename C::Element>(s, a + (step / 4 * C::BLOCK_M * 8 + inside),
                                         b + (step / 4 * C::BLOCK_KV * 8 + inside), step > 0);
  }
  wgmma_commit();
}

// Starts o [64, D] += P [64, BLOCK_KV] V.
template <class C>
__device__ __forceinline__ void start_pv(const uint32_t (&weights)[C::BLOCK_KV / 16][4],
                                             uint32_t v, float (&o)[C::D / 8][4]) {
  const uint64_t b = mn_major_descriptor(v, C::BLOCK_KV * 128);
#pragma unroll
  for (int step = 0; step < C::BLOCK_KV / 16; ++step) {
    wgmma_registers<typename C::Element>(o, weights[step], b + step * (16 * 128 / 16));
  }
  wgmma_commit();
}

// Whether the tile has no rows for the second warpgroup, which then computes nothing. Tiles of packed queries are as
// tall as the longest entry needs, and in most batches one or a few queries of each other entry are decoded.
template <class C>
__device__ __forceinline__ bool first_warpgroup_alone(const WorkUnitOf<C>& at) {
  return C::PACKED && C::WARPGROUPS == 2 && at.rows <= 64;
}

// Ping-pong scheduling: two warpgroups start their wgmma in turn, and one computes its softmax meanwhile.
template <class C>
class PingPong {
 public:
  __device__ __forceinline__ PingPong(int warpgroup, bool alone) : warpgroup_(warpgroup), alone_(alone) {
    if (C::WARPGROUPS == 2 && warpgroup == 1) end();  // lets warpgroup 0 begin
  }
  __device__ __forceinline__ void begin() const {
    if constexpr (C::WARPGROUPS == 2) {
      if (alone_) return;
      asm volatile("barrier.sync %0, %1;" ::"r"(1 + warpgroup_), "n"(C::THREADS) : "memory");
    }
  }
  __device__ __forceinline__ void end() const {
    if constexpr (C::WARPGROUPS == 2) {
      if (alone_) return;
      asm volatile("barrier.arrive %0, %1;" ::"r"(2 - warpgroup_), "n"(C::THREADS) : "memory");
    }
  }

 private:
  int warpgroup_;
  bool alone_;
};

// Scheduling barrier. Without it, ptxas moves the next wgmma wait ahead of the softmax, and nothing
// overlaps. This store is never taken, since sums of weights are not negative; it depends on the softmax and
// pins the wait.
__device__ __forceinline__ void scheduling_barrier(const float (&sums)[2], uint32_t shared) {
  asm volatile(
      "{\n"
      ".reg .pred never;\n"
      "setp.lt.f32 never, %0, 0f00000000;\n"
      "@never st.shared.f32 [%1], %0;\n"
      "}\n" ::"f"(fminf(sums[0], sums[1])),
      "r"(shared)
      : "memory");
}

// A consumer warp without rows: frees each stage as it is filled.
template <class C>
__device__ __forceinline__ void free_stages(const FusedParams& fp, const WorkUnitOf<C>& at, const Ring<C>& ring,
                                            int lane) {
  const int64_t keys = at.key_end - at.key_begin;
  const int64_t seen_by_tile = keys_seen_by_all<C>(fp, at);
  RingPosition<C> position;
  RingPosition<C> scanned;  // counts only key blocks whose values are scanned
#pragma unroll 1
  for (int64_t key0 = 0; key0 < keys; key0 += C::BLOCK_KV) {
    barrier_wait(ring.keys_full(position.stage), position.parity);
    __syncwarp();
    if (lane == 0) barrier_arrive(ring.keys_free(position.stage));
    if (key0 + C::BLOCK_KV > seen_by_tile) {
      barrier_wait(ring.values_scanned(position.stage), scanned.parity);
      scanned.advance();
    } else {
      barrier_wait(ring.values_full(position.stage), position.parity);
    }
    __syncwarp();
    if (lane == 0) barrier_arrive(ring.values_free(position.stage));
    position.advance();
  }
}

// A consumer warp: its rows against every key block of the split.
template <class C>
__device__ __forceinline__ void consume(const FusedParams& fp, const WorkUnitOf<C>& at,
                                        const Ring<C>& ring, unsigned char* smem, int warp,
                                        int lane, LaneState<C>& state) {
  using Traits = typename C::Traits;
  constexpr int TILES = C::BLOCK_KV / 8;
  constexpr std::true_type PLAIN;
  constexpr std::false_type ANY;
  const int64_t keys = at.key_end - at.key_begin;
  const uint32_t q = ring.base + warp / 4 * (64 * 128);  // this warpgroup's rows of each panel
  const int first_row = warp * 16;

  SeenKeys<int64_t> seen_by_row;
  bool exists[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first_row + half * 8 + lane / 4;
    exists[half] = row < at.rows;
    seen_by_row.end[half] =
        min(seen_keys(fp, at, min(row, at.rows - 1)), at.key_end) - at.key_begin;
  }
  int64_t seen_by_all =
      min(seen_keys(fp, at, min(first_row, at.rows - 1)), at.key_end) - at.key_begin;
  if constexpr (C::TREES) {
    if (fp.p.tree_mask != nullptr) seen_by_all = min(seen_by_all, first_tree_key(fp.p, at.valid) - at.key_begin);
  }

  float s[TILES][4];
  uint32_t weights[C::BLOCK_KV / 16][4];
  float alpha[2];

  // `plain`: every row sees all of this key block and of the one before it; of paired blocks, every row of both tiles.
  const auto block_softmax = [&](int64_t key0, auto plain) {
    if (!plain && key0 + C::BLOCK_KV > seen_by_all) {
      SeenKeys<int> seen;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        seen.end[half] = static_cast<int>(
            max(int64_t{0}, min(static_cast<int64_t>(C::BLOCK_KV), seen_by_row.end[half] - key0)));
      }
      mask_logits<false>(s, seen, lane);
      if constexpr (C::TREES) {
        if (fp.p.tree_mask != nullptr) mask_logits_by_tree(s, fp, at, first_row + lane / 4, at.key_begin + key0, lane);
      }
    }
    online_softmax<true>(s, fp.c, state, alpha);
  };
  const int64_t seen_by_tile = keys_seen_by_all<C>(fp, at);
  // After P V of a key block: adds the non-finite values that were zeroed.
  const auto finish_values = [&](int64_t key0, int stage, auto plain) {
    if (plain || key0 + C::BLOCK_KV <= seen_by_tile) return;
    const bool zeroed = ring.zeroed(smem)[stage] == key0;
    __syncwarp();  // every lane has read `zeroed` before the stage is freed
    if (zeroed) add_non_finite<C>(fp, at, key0, seen_by_row, first_row + lane / 4, lane, state);
  };
  const auto pack_weights = [&] {
#pragma unroll
    for (int step = 0; step < C::BLOCK_KV / 16; ++step) {
      weights[step][0] = Traits::pack(s[step * 2][0], s[step * 2][1]);
      weights[step][1] = Traits::pack(s[step * 2][2], s[step * 2][3]);
      weights[step][2] = Traits::pack(s[step * 2 + 1][0], s[step * 2 + 1][1]);
      weights[step][3] = Traits::pack(s[step * 2 + 1][2], s[step * 2 + 1][3]);
    }
  };
  const auto await = [&](uint32_t full, uint32_t parity) {
    barrier_wait(full, parity);
    __syncwarp();
  };
  RingPosition<C> scanned;  // counts only key blocks whose values are scanned
  const auto await_values = [&](int64_t key0, const RingPosition<C>& last, auto plain) {
    if (!plain && key0 + C::BLOCK_KV > seen_by_tile) {
      await(ring.values_scanned(last.stage), scanned.parity);
      scanned.advance();
    } else {
      await(ring.values_full(last.stage), last.parity);
    }
  };
  const auto release = [&](uint32_t free) {
    if constexpr (C::PAIRED) {
      if (lane < 2) barrier_arrive_remote(remote_address(free, lane));
    } else {
      if (lane == 0) barrier_arrive(free);
    }
    __syncwarp();
  };

  if (keys <= 0) return;  // the tile sees no key of this split
  const PingPong<C> ping_pong(warp / 4, first_warpgroup_alone<C>(at));
  RingPosition<C> next;  // stage of the key block that Q K^T takes next
  RingPosition<C> last;  // stage of the key block that P V takes next: one block behind `next`
  await(ring.keys_full(0), 0);
  wgmma_fence();
  start_qk<C>(q, ring.keys(0), s);
  wgmma_wait<0>(s);
  release(ring.keys_free(0));
  next.advance();
  block_softmax(0, ANY);
  pack_weights();

  const auto next_block = [&](int64_t key0, auto plain) {
    await(ring.keys_full(next.stage), next.parity);
    ping_pong.begin();
    wgmma_fence();
    start_qk<C>(q, ring.keys(next.stage), s);
    await_values(key0 - C::BLOCK_KV, last, plain);
    wgmma_fence();
    start_pv<C>(weights, ring.values(last.stage), state.o);
    ping_pong.end();
    wgmma_wait<1>(s);
    release(ring.keys_free(next.stage));
    block_softmax(key0, plain);
    scheduling_barrier(state.l, q);
    wgmma_wait<0>(state.o);
    finish_values(key0 - C::BLOCK_KV, last.stage, plain);
    release(ring.values_free(last.stage));
    rescale_output(state, alpha, exists);
    pack_weights();
    next.advance();
    last.advance();
  };
  int64_t key0 = C::BLOCK_KV;
  // A loop without mask and scan: 1 to 2 % faster for 64 and more queries, no difference for fewer (H200).
  if constexpr (C::WARPGROUPS == 2) {
    const int64_t seen = seen_by_each_row<C>(fp, at) - at.key_begin;
    const int64_t last_plain = min(seen, keys) - C::BLOCK_KV;
#pragma unroll 1
    for (; key0 <= last_plain; key0 += C::BLOCK_KV) next_block(key0, PLAIN);
  }
#pragma unroll 1
  for (; key0 < keys; key0 += C::BLOCK_KV) next_block(key0, ANY);

  const int64_t last_key0 = (keys - 1) / C::BLOCK_KV * C::BLOCK_KV;
  await_values(last_key0, last, ANY);
  wgmma_fence();
  start_pv<C>(weights, ring.values(last.stage), state.o);
  wgmma_wait<0>(state.o);
  finish_values(last_key0, last.stage, ANY);
  if constexpr (C::PAIRED) release(ring.values_free(last.stage));  // the producer waits for this before it exits
}

// Stores output and LSE of a warp's rows if there is one split. The output passes through shared memory, in the
// place of this warpgroup's rows of Q, which no other warpgroup reads. The other rows of Q must stay: the other
// warpgroup may still read them.
template <class C>
__device__ __forceinline__ void store_finished_rows(const FusedParams& fp, const WorkUnitOf<C>& at,
                                                    unsigned char* smem, int warp, int lane,
                                                    const LaneState<C>& state) {
  using Element = typename C::Element;
  const auto place_in_q = [&](int row, int chunk) {
    return smem + panel_offset(row, chunk, C::BLOCK_M);
  };
  warpgroup_sync(warp / 4);
  for_each_row(at, warp, lane, state, [&](int row, int half, float l) {
    const RowIndex index = row_index(fp, at, row);
    const Quotient by_sum(fp, index.head, state.m[half], l);
    if (lane % 4 == 0) store_lse(fp, index, {state.m[half], l, {}});
#pragma unroll
    for (int tile = 0; tile < C::D / 8; ++tile) {
      const float* o = state.o[tile] + half * 2;
      *reinterpret_cast<uint32_t*>(place_in_q(row, tile) + lane % 4 * 4) =
          C::Traits::pack(by_sum(o[0]), by_sum(o[1]));
    }
  });
  __syncwarp();

  const Strides4& stride = fp.p.out_stride;
  const int D = static_cast<int>(fp.p.D);
  const int chunk = lane % C::CHUNKS;
  const int left = D - chunk * 8;
  if (left <= 0) return;
  const int end = min(warp * 16 + 16, at.rows);
#pragma unroll 1
  for (int row = warp * 16 + lane / C::CHUNKS; row < end; row += 32 / C::CHUNKS) {
    Element* out = output_at<Element>(fp, row_index(fp, at, row), chunk * 8);
    const uint4 values = *reinterpret_cast<const uint4*>(place_in_q(row, chunk));
    if (stride.dim == 1 && left >= 8 && (reinterpret_cast<uintptr_t>(out) & 15) == 0) {
      *reinterpret_cast<uint4*>(out) = values;
    } else {
      const Element* from = reinterpret_cast<const Element*>(&values);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        if (i < left) out[i * stride.dim] = from[i];
      }
    }
  }
}

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
  const WorkUnitOf<C> at = locate<C>(fp, wgmma_smem);
  block_sync();
  if (C::PACKED && at.rows == 0) return;  // a spare tile

  if (warp >= C::CONSUMER_WARPS) {
    if constexpr (C::UNEVEN_REGISTERS) release_registers<C::PRODUCER_REGISTERS>();
    produce<C>(fp, maps, at, ring, wgmma_smem, static_cast<int>(threadIdx.x) - C::THREADS);
  } else {
    if constexpr (C::UNEVEN_REGISTERS) acquire_registers<C::CONSUMER_REGISTERS>();
    LaneState<C> state;
    state.clear();
    load_query_tile<C>(fp, at, ring, wgmma_smem, static_cast<int>(threadIdx.x));
    if (first_warpgroup_alone<C>(at) && warp >= 4) {
      free_stages<C>(fp, at, ring, lane);
      return;
    }
    consume<C>(fp, at, ring, wgmma_smem, warp, lane, state);
    if (C::PAIRED || fp.merge_lanes > 0) {
      store_partial_state<C>(fp, at, warp, lane, state);
    } else {
      store_finished_rows<C>(fp, at, wgmma_smem, warp, lane, state);
    }
  }
#endif
}

template <class C>
cudaError_t launch_wgmma_config(const FusedParams& fp, cudaStream_t stream) {
  constexpr ElementType TYPE =
      std::is_same_v<typename C::Element, __half> ? ElementType::fp16 : ElementType::bf16;
  TensorMaps maps{};
  if (!make_tensor_maps(fp.p, TYPE, C::TMA_BOX_KEYS, &maps)) return cudaErrorNotSupported;
  if constexpr (C::WARPGROUPS == 2 && !C::PAIRED && !C::PACKED) {
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

template <class Element, int D>
cudaError_t launch_wgmma_packed(const FusedParams& fp, int warpgroups, cudaStream_t stream) {
  return launch_wgmma<Element, D, true>(fp, warpgroups, stream);
}

}  // namespace kbtool::cuda
