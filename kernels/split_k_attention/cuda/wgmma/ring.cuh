// What the warps of a wgmma block share: the configuration of an instance, the ring buffer, and which keys all rows see.
#pragma once

#include "../common/block.cuh"
#include "tma.cuh"
#include "warpgroup.cuh"

namespace kbtool::cuda {

// SMALL_RING: two blocks share a multiprocessor, so that one reads while the other starts or ends.
// PAIRED: two query tiles of the same split form a cluster of two blocks. Each block requests half of the TMA
// boxes and multicasts them to both blocks.
// PACKED: the call has packed queries.
// Dv: of v, which may have fewer columns than k.
template <class Element_, int D_, int WARPGROUPS_, bool SMALL_RING_ = false, bool PAIRED_ = false,
          bool PACKED_ = false, int Dv_ = D_>
struct WgmmaConfig {
  using Element = Element_;
  using Traits = ElementTraits<Element>;
  static constexpr int D = D_;  // compiled head dimension; the actual one may be smaller
  static constexpr int Dv = Dv_;
  static constexpr int WARPGROUPS = WARPGROUPS_;
  static constexpr bool INTERLEAVED_KEYS = false;
  static constexpr bool OPTIONS = false;
  static constexpr bool PACKED = PACKED_;
  static constexpr bool TREES = PACKED && WARPGROUPS == 1;  // with two, registers would spill
  static constexpr bool PERSISTENT = WARPGROUPS == 2 && !PAIRED_ && !PACKED;  // where the plan says so
  static constexpr bool SMALL_RING = SMALL_RING_;
  static constexpr bool PAIRED = PAIRED_;
  static constexpr int BLOCKS = SMALL_RING ? 2 : 1;  // per multiprocessor

  static constexpr int BLOCK_M = 64 * WARPGROUPS;
  static constexpr int BLOCK_KV = D == 256 || SMALL_RING ? 64 : 128;
  // Keys of a TMA box, which has 64 columns. Small boxes, so that the producer soon requests the other columns of
  // the same keys, which lie beside them in global memory.
  static constexpr int TMA_BOX_KEYS = 32;
  static constexpr int STAGES = D == 64 ? 4 : D == 192 ? 2 : 3;

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
  static constexpr int CHUNKS = D / 8;         // of 16 bytes, in a row of q or k
  static constexpr int VALUE_CHUNKS = Dv / 8;  // the same of v and the output
  static constexpr int STATE_CHUNKS = Dv / 4;  // of 4 floats, in a row of o

  // In shared memory: Q [D / 64, BLOCK_M, 64], then STAGES times K [D / 64, BLOCK_KV, 64] and V
  // [Dv / 64, BLOCK_KV, 64], then the barriers.
  // A tile is stored in panels of 64 columns (128 bytes), the width of the swizzle.
  static constexpr int QUERY_BYTES = BLOCK_M * D * 2;
  static constexpr int KEY_TILE_BYTES = BLOCK_KV * D * 2;
  static constexpr int VALUE_TILE_BYTES = BLOCK_KV * Dv * 2;
  static constexpr int STAGE_BYTES = KEY_TILE_BYTES + VALUE_TILE_BYTES;
  static constexpr int BARRIER_OFFSET = QUERY_BYTES + STAGES * STAGE_BYTES;
  static constexpr int BARRIERS = 5 * STAGES + 4;
  static constexpr int ZEROED_OFFSET = BARRIER_OFFSET + 8 * BARRIERS;  // int [STAGES]
  static constexpr int UNITS_OFFSET = ZEROED_OFFSET + 4 * STAGES;  // uint32_t [2]
  static constexpr int LENGTH_OFFSET = (UNITS_OFFSET + 8 + 7) / 8 * 8;  // int64_t, or a PackedTile
  static constexpr int SHARED_BYTES = LENGTH_OFFSET + (PACKED ? sizeof(PackedTile) : sizeof(int64_t));
  static_assert(BLOCKS * (SHARED_BYTES + 1024) <= 228 * 1024,
                "sm_90 has 228 KB of shared memory per multiprocessor and keeps 1 KB of it per block");
  static_assert(!PAIRED || BLOCK_KV / TMA_BOX_KEYS % 2 == 0, "each block of a pair requests half of the TMA boxes");
  static_assert(QUERY_BYTES % 1024 == 0 && KEY_TILE_BYTES % 1024 == 0 && VALUE_TILE_BYTES % 1024 == 0,
                "the 128-byte swizzle needs panels that start at multiples of 1024 bytes");

  // The key of a 16-byte chunk. Chunks are numbered in the order of shared memory: panel by panel, in a panel key by
  // key, eight chunks to a key.
  static __device__ __forceinline__ int key_of(int chunk) { return chunk / 8 % BLOCK_KV; }
  static int shared_bytes(int) { return SHARED_BYTES; }
};

// The ring buffer's barriers and tiles. Keys and values of a stage have barriers of their own. Key blocks are numbered
// through all tiles of a block.
// `smem`, here and below: the block's shared memory, [SHARED_BYTES], laid out as in WgmmaConfig.
template <class C>
struct Ring {
  uint32_t base;  // of shared memory

  __device__ __forceinline__ uint32_t keys(int stage) const {
    return base + C::QUERY_BYTES + stage * C::STAGE_BYTES;
  }
  __device__ __forceinline__ uint32_t values(int stage) const { return keys(stage) + C::KEY_TILE_BYTES; }
  __device__ __forceinline__ uint32_t barrier(int kind, int stage) const {
    return base + C::BARRIER_OFFSET + (kind * C::STAGES + stage) * 8;
  }
  __device__ __forceinline__ uint32_t keys_full(int stage) const { return barrier(0, stage); }
  __device__ __forceinline__ uint32_t values_full(int stage) const { return barrier(1, stage); }
  __device__ __forceinline__ uint32_t keys_free(int stage) const { return barrier(2, stage); }
  __device__ __forceinline__ uint32_t values_free(int stage) const { return barrier(3, stage); }
  // Of values that are scanned first: the copies have arrived. Then values_full means that they are scanned too.
  __device__ __forceinline__ uint32_t values_landed(int stage) const { return barrier(4, stage); }
  __device__ __forceinline__ uint32_t unit_full(int slot) const { return barrier(5, slot); }
  __device__ __forceinline__ uint32_t unit_free(int slot) const { return barrier(5, 2 + slot); }

  // For each stage: the number of the last key block in which non-finite values were zeroed; -1 before.
  __device__ __forceinline__ volatile int* zeroed(unsigned char* smem) const {
    return reinterpret_cast<volatile int*>(smem + C::ZEROED_OFFSET);
  }
  __device__ __forceinline__ volatile uint32_t* units(unsigned char* smem) const {
    return reinterpret_cast<volatile uint32_t*>(smem + C::UNITS_OFFSET);
  }

  __device__ void init(unsigned char* smem) const {
    for (int stage = 0; stage < C::STAGES; ++stage) {
      zeroed(smem)[stage] = -1;
      barrier_init(keys_full(stage), 1);
      barrier_init(values_full(stage), C::SCAN_THREADS);
      barrier_init(values_landed(stage), 1);
      constexpr int READERS = C::CONSUMER_WARPS * (C::PAIRED ? 2 : 1);
      barrier_init(keys_free(stage), READERS);
      barrier_init(values_free(stage), READERS);
    }
    for (int slot = 0; slot < 2; ++slot) {
      barrier_init(unit_full(slot), 1);
      barrier_init(unit_free(slot), C::CONSUMER_WARPS + C::PRODUCER_WARPS - 1);
    }
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

// Which work unit a persistent block goes on to: the next one that no block has taken. Other blocks have one unit alone.
// The warp that copies takes it while the others still work, and hands it to them through two slots.
template <class C>
class TileScheduler {
 public:
  __device__ __forceinline__ TileScheduler(const FusedParams& fp, const Ring<C>& ring, unsigned char* smem)
      : fp_(fp), ring_(ring), smem_(smem) {}

  // By the lanes of the copying warp together: the next unit, or END.
  __device__ __forceinline__ uint32_t take(int lane) {
    if (!C::PERSISTENT || !fp_.persistent) return END;
    uint32_t unit = 0;
    if (lane == 0) {
      const uint32_t all = fp_.output_tiles;  // of as many calls of atomicInc the last one makes the counter 0 again
      const uint32_t taken = atomicInc(fp_.counters, all - 1) + gridDim.x;
      unit = taken < all ? taken : END;
      barrier_wait(ring_.unit_free(slot_), parity_ ^ 1);
      ring_.units(smem_)[slot_] = unit;
      barrier_arrive(ring_.unit_full(slot_));
    }
    advance();
    return __shfl_sync(~0u, unit, 0);
  }

  // By the lanes of every other warp.
  __device__ __forceinline__ uint32_t next(int lane) {
    if (!C::PERSISTENT || !fp_.persistent) return END;
    barrier_wait(ring_.unit_full(slot_), parity_);
    const uint32_t unit = ring_.units(smem_)[slot_];
    __syncwarp();
    if (lane == 0) barrier_arrive(ring_.unit_free(slot_));
    advance();
    return unit;
  }

  static constexpr uint32_t END = ~0u;

 private:
  __device__ __forceinline__ void advance() {
    slot_ ^= 1;
    if (slot_ == 0) parity_ ^= 1;
  }

  const FusedParams& fp_;
  Ring<C> ring_;
  unsigned char* smem_;
  int slot_ = 0;
  uint32_t parity_ = 0;
};

// Keys below this index, counted from key_begin, are visible to every row of the tile or pair of tiles. A V tile
// past it may meet weight 0, and 0 * NaN is NaN, so it is scanned first.
template <class C>
__device__ __forceinline__ int64_t keys_seen_by_all(const FusedParams& fp, const WorkUnitOf<C>& at) {
  constexpr int64_t ALL = int64_t{1} << 62;
  const int64_t seen = seen_from_row_on<C>(fp, at, first_row_of_pair<C>(at));
  return seen == fp.p.Skv ? ALL : seen - at.key_begin;
}

}  // namespace kbtool::cuda
