// Split-K attention in one launch (variant `fused`), for sm_80 and later.
//
// A block takes one work unit: a split of the keys of one (batch entry, KV head, query tile). The query
// heads that share a KV head are packed into the rows of the tile, row = query * heads_per_kv + head. The
// block's warps form KEY_WARPS groups that take the split's key blocks in turn. Each group has its own ring
// buffer of STAGES cp.async stages and its own online softmax. The ROW_WARPS warps of a group take 16 rows
// each. Groups of one warp do not wait for each other; larger groups do (group_sync).
//
// Partial states merge in up to three steps, always in the same order, so results repeat to the bit:
//   1. the warp groups of a block, through shared memory;
//   2. the splits of a cluster, through DSMEM: each block merges its share of the tile;
//   3. if a tile has several clusters: their states, through the workspace. The last block to arrive merges.
#pragma once

#include <type_traits>

#include "../common/block.cuh"

namespace kbtool::cuda {

// A tuning build may set these. With the values here every block fits the 99 KB of shared memory of sm_86 and
// sm_89, and two blocks of 16 rows fit one multiprocessor of sm_90 and sm_100.
#if !defined(KBTOOL_FUSED_STAGES)
#define KBTOOL_FUSED_STAGES 3
#endif
#if !defined(KBTOOL_FUSED_KEY_WARPS)
#define KBTOOL_FUSED_KEY_WARPS 4
#endif

// How k and v lie: rows that copy 16 bytes at a time, or not; pages of such rows.
enum class KvLayout { aligned, unaligned, paged };

template <class Element_, int D_, int ROW_WARPS_, KvLayout LAYOUT, bool OPTIONS_, class Kv_ = Element_,
          bool PACKED_ = false>
struct FusedConfig {
  using Element = Element_;
  using Kv = Kv_;  // of the tiles of k and v in shared memory
  using Traits = ElementTraits<Element>;
  // Of the operands of products. 8 bits widen to fp16 by one instruction, and the queries go with them (load_queries).
  using Operand = std::conditional_t<IS_FP8<Kv>, fp16, Element>;
  using Products = ElementTraits<Operand>;
  static constexpr bool Q_NORMALISED = !std::is_same_v<Operand, Element>;
  static constexpr int D = D_;   // compiled head dimension; the actual one may be smaller
  static constexpr int Dv = D_;  // of v
  static constexpr int ROW_WARPS = ROW_WARPS_;
  static constexpr bool ALIGNED = LAYOUT != KvLayout::unaligned;  // rows of k and v copy 16 bytes at a time
  static constexpr bool PAGED = LAYOUT == KvLayout::paged;
  static constexpr bool OPTIONS = OPTIONS_;  // the call may have a window or softcap
  static constexpr bool TREES = OPTIONS;     // the call may have a tree mask
  static constexpr bool PACKED = PACKED_;    // the call has packed queries
  // The call may have k_scale and v_scale: 8 bits, which unaligned rows may have too, but not those of the ragged kernel,
  // the only one that is compiled for such rows without options.
  static constexpr bool SCALED = IS_FP8<Kv> || (!ALIGNED && OPTIONS);
  // Of the weights beside 8-bit values: fp16 then has a weight down to 2^-29 of the largest in full, as bf16 nearly has.
  static constexpr float WEIGHT_FACTOR = IS_FP8<Kv> ? 32768.0f : 1.0f;
  // Key blocks go to the splits in turn, so that all splits read neighbouring keys at the same time: 1 to 1.5 %
  // faster if keys and values have 64 MB or more (H200).
  static constexpr bool INTERLEAVED_KEYS = true;
  static constexpr bool PAIRED = false;

  static constexpr int BLOCK_M = 16 * ROW_WARPS;
  // The rings of a block hold as many bytes of 8-bit keys as of others, so twice as many keys: of twice as many warps,
  // because a warp has more to do for each byte, or else of longer key blocks or more stages. Registers allow no longer
  // blocks with 32 rows and D of 256.
  static constexpr int BLOCK_OF_16_BITS = D == 64 || (D == 128 && ROW_WARPS == 4) ? 32 : 16;
  static constexpr bool MORE_WARPS = IS_FP8<Kv> && ROW_WARPS == 1;
  static constexpr bool MORE_STAGES = IS_FP8<Kv> && ROW_WARPS > 1 && BLOCK_OF_16_BITS == 32;
  static constexpr bool LONGER_BLOCKS =
      IS_FP8<Kv> && ROW_WARPS > 1 && BLOCK_OF_16_BITS == 16 && !(D == 256 && ROW_WARPS == 2);
  static constexpr int KEY_WARPS_OF_16_BITS =
      ROW_WARPS == 4 ? (D == 256 ? 1 : 2)
                     : (D == 256 ? KBTOOL_FUSED_KEY_WARPS / 2 : KBTOOL_FUSED_KEY_WARPS);
  static constexpr int KEY_WARPS = KEY_WARPS_OF_16_BITS * (MORE_WARPS ? 2 : 1);
  static constexpr int STAGES = KBTOOL_FUSED_STAGES * (MORE_STAGES ? 2 : 1);
  static constexpr int BLOCK_KV = BLOCK_OF_16_BITS * (LONGER_BLOCKS ? 2 : 1);

  static constexpr int WARPS = ROW_WARPS * KEY_WARPS;
  static constexpr int THREADS = 32 * WARPS;
  static constexpr int LAUNCH_THREADS = THREADS;
  static constexpr int ROW_BYTES = D * sizeof(Kv);
  static constexpr int CHUNKS = ROW_BYTES / 16;  // of 16 bytes, in a row of k or v
  // Threads that fill one tile together: of a group all, but not more than copy the rows of a piece at a time.
  static constexpr int GROUP_THREADS = 32 * ROW_WARPS;
  static constexpr int COPY_THREADS = GROUP_THREADS > PIECE_KEYS * CHUNKS ? PIECE_KEYS * CHUNKS : GROUP_THREADS;
  static constexpr int STATE_CHUNKS = Dv / 4;  // of 4 floats, in a row of o

  static constexpr int TILE_BYTES = BLOCK_KV * ROW_BYTES;
  static constexpr int VALUE_TILE_BYTES = TILE_BYTES;
  static constexpr int STAGE_BYTES = 2 * TILE_BYTES;
  static constexpr int QUERY_STAGES = (BLOCK_M * D * 2 + STAGE_BYTES - 1) / STAGE_BYTES;
  static_assert(QUERY_STAGES < STAGES, "a stage is free for the first keys while the queries are copied");
  // 8 floats of padding per row, so that the lanes of one fragment column access different banks.
  static constexpr int STATE_STRIDE = D + 8;
  static constexpr int STATE_BYTES = BLOCK_M * STATE_STRIDE * 4;
  static constexpr int RING_BYTES = STAGES * STAGE_BYTES;
  // A warp group's ring buffer. After its last key the group's partial state takes the same place.
  static constexpr int REGION_BYTES = RING_BYTES > STATE_BYTES ? RING_BYTES : STATE_BYTES;

  static constexpr int STATES = KEY_WARPS;
  static constexpr int STATE_STEP = REGION_BYTES;
  static constexpr int ML_OFFSET = KEY_WARPS * REGION_BYTES;  // float2 [KEY_WARPS, BLOCK_M]
  static constexpr int EXCHANGE_OFFSET = ML_OFFSET + KEY_WARPS * BLOCK_M * 8;  // a barrier
  static constexpr int LENGTH_OFFSET = EXCHANGE_OFFSET + 8;                    // int64_t, or a PackedTile
  static constexpr int LENGTH_BYTES = PACKED ? sizeof(PackedTile) : sizeof(int64_t);
  static constexpr int RECEIVED_ML_OFFSET = LENGTH_OFFSET + LENGTH_BYTES;  // float2 [cluster, BLOCK_M]

  static_assert(RECEIVED_ML_OFFSET % 16 == 0, "received states are float4");
  static_assert(BLOCK_KV % 16 == 0, "the product with v takes 16 keys at a time");
  static_assert((BLOCK_KV * CHUNKS) % COPY_THREADS == 0, "every thread copies the same number of chunks");
  static_assert(COPY_THREADS % CHUNKS == 0 || CHUNKS % COPY_THREADS == 0,
                "a thread keeps its column from copy to copy");
  static_assert(STAGE_BYTES % 128 == 0 && STATE_BYTES % 128 == 0,
                "every stage and state starts at a multiple of 128 bytes");

  static __device__ __forceinline__ uint32_t tile_offset(int row, int chunk) {
    return cuda::tile_offset<ROW_BYTES>(row, chunk);
  }
  static __device__ __forceinline__ uint32_t query_offset(int row, int chunk) {
    return cuda::tile_offset<D * 2>(row, chunk);
  }
  // The key of a 16-byte chunk. Chunks are numbered as they lie in shared memory.
  static __device__ __forceinline__ int key_of(int chunk) { return chunk / CHUNKS; }
  static __host__ __device__ constexpr int received_o_offset(int cluster) {  // float4
    return RECEIVED_ML_OFFSET + cluster * BLOCK_M * 8;
  }
  static int shared_bytes(int cluster) {
    if (cluster == 1) return RECEIVED_ML_OFFSET;
    const int share = share_of(BLOCK_M * STATE_CHUNKS, cluster);
    return received_o_offset(cluster) + cluster * share * 16;
  }
};

// Barrier of a warp group, which shares a ring buffer. If groups have several warps it is the barrier of the whole
// block, which saves named barriers. Every group must then run the same number of rounds, even if it has no keys
// left.
template <class C>
__device__ __forceinline__ void group_sync() {
  if constexpr (C::ROW_WARPS == 1) {
    __syncwarp();
  } else {
    block_sync();
  }
}

// The same; returns whether `value` is true for any thread that waits at the barrier.
template <class C>
__device__ __forceinline__ bool group_sync_or(bool value) {
  if constexpr (C::ROW_WARPS == 1) {
    __syncwarp();
    return __any_sync(~0u, value);
  } else {
    return block_sync_or(value);
  }
}

// The power of two that brings a number of this size to [2^14, 2^15), but at most 2^127, the largest of float32: smaller
// numbers than 2^-113 and 0 stay below 2^14.
__device__ __forceinline__ float normaliser(float size) {
  constexpr int BIAS = 127;
  const int exponent = static_cast<int>(__float_as_uint(size) >> 23);  // of 2^(exponent - BIAS); 0 of 0 and subnormals
  return __uint_as_float(static_cast<uint32_t>(min(2 * BIAS, 2 * BIAS + 14 - exponent)) << 23);
}

// bf16 queries as fp16, each row times a power of two that makes its largest finite number one of [2^14, 2^15): what is
// lost is less than 2^-38 of that number, far below the rounding of a logit. Returns the powers of two that undo it in
// the lane's rows.
template <class C>
__device__ __forceinline__ void normalise_queries(uint32_t (&q)[C::D / 16][4], float (&undo)[2]) {
  using Traits = typename C::Traits;
  const auto unpacked = [](uint32_t two) {
    typename C::Element elements[2];
    memcpy(elements, &two, 4);
    return make_float2(Traits::to_float(elements[0]), Traits::to_float(elements[1]));
  };
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float most = 0.0f;
#pragma unroll
    for (int step = 0; step < C::D / 16; ++step) {
#pragma unroll
      for (int i = half; i < 4; i += 2) {
        const float2 x = unpacked(q[step][i]);
        if (isfinite(x.x)) most = fmaxf(most, fabsf(x.x));
        if (isfinite(x.y)) most = fmaxf(most, fabsf(x.y));
      }
    }
    most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
    most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
    const float factor = normaliser(most);
#pragma unroll
    for (int step = 0; step < C::D / 16; ++step) {
#pragma unroll
      for (int i = half; i < 4; i += 2) {
        const float2 x = unpacked(q[step][i]);
        q[step][i] = C::Products::pack(x.x * factor, x.y * factor);
      }
    }
    undo[half] = 1.0f / factor;
  }
}

// One warp's 16 rows of the query tile, as A fragments for all of D. Beside 8-bit keys a lane has four neighbouring
// columns of each 16, as it has of a key (attend_block).
template <class C>
__device__ __forceinline__ void load_queries(uint32_t tile, int row_warp, int lane,
                                             uint32_t (&q)[C::D / 16][4]) {
#pragma unroll
  for (int step = 0; step < C::D / 16; ++step) {
    if constexpr (IS_FP8<typename C::Kv>) {
      const int row = row_warp * 16 + lane / 4;
      const int chunk = step * 2 + lane % 4 / 2;
      load_pair(q[step][0], q[step][2], tile + C::query_offset(row, chunk) + lane % 2 * 8);
      load_pair(q[step][1], q[step][3], tile + C::query_offset(row + 8, chunk) + lane % 2 * 8);
    } else {
      load_matrices(q[step], tile + C::query_offset(row_warp * 16 + lane % 16, step * 2 + lane / 16));
    }
  }
}

template <class C>
__device__ __forceinline__ void apply_query_factor(const FusedParams& fp,
                                                   uint32_t (&q)[C::D / 16][4]) {
  using Element = typename C::Operand;
  using Traits = typename C::Products;
  if (fp.q_factor != 1.0f) {  // -1 for a negative scale, 0 for a scale of 0: multiplying by it is exact
#pragma unroll
    for (int step = 0; step < C::D / 16; ++step) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        Element two[2];
        memcpy(two, &q[step][i], 4);
        q[step][i] = Traits::pack(Traits::to_float(two[0]) * fp.q_factor,
                                  Traits::to_float(two[1]) * fp.q_factor);
      }
    }
  }
}

// The tensor core truncates when it adds to its accumulator, which biases a long sum toward 0. So each mma
// (k16) starts from 0, and its result is added by an ordinary fp32 addition, which rounds. It also makes the mma
// instructions independent of each other.
template <class Traits>
__device__ __forceinline__ void add_product(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0,
                                            uint32_t b1) {
  float product[4] = {};
  Traits::mma(product, a, b0, b1);
#pragma unroll
  for (int i = 0; i < 4; ++i) sum[i] += product[i];
}

// mask(s) hides the keys that a row does not see.
template <class C, bool FALLBACK, class Mask>
__device__ __forceinline__ void attend_block(const uint32_t (&q)[C::D / 16][4], uint32_t k_tile,
                                             uint32_t v_tile, const Mask& mask,
                                             const bool (&exists)[2], const FusedParams& fp,
                                             const float (&logit_scale)[2], int lane, LaneState<C>& state) {
  using Traits = typename C::Products;
  using Operand = typename C::Operand;
  using Kv = typename C::Kv;
  constexpr int TILES = C::BLOCK_KV / 8;

  float s[TILES][4] = {};
#pragma unroll
  for (int step = 0; step < C::CHUNKS / 2; ++step) {
#pragma unroll
    for (int pair = 0; pair < TILES / 2; ++pair) {
      uint32_t k[4];
      const int key = pair * 16 + lane / 16 * 8 + lane % 8;
      load_matrices(k, k_tile + C::tile_offset(key, step * 2 + lane / 8 % 2));
      if constexpr (IS_FP8<Kv>) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          uint32_t b0, b1;
          widen<Kv, Operand>(k[i], b0, b1);
          add_product<Traits>(s[pair * 2 + i / 2], q[step * 2 + i % 2], b0, b1);
        }
      } else {
        add_product<Traits>(s[pair * 2], q[step], k[0], k[1]);
        add_product<Traits>(s[pair * 2 + 1], q[step], k[2], k[3]);
      }
    }
  }
  if constexpr (C::SCALED) {
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) s[tile][i] *= logit_scale[i / 2];
    }
  }
  if constexpr (C::OPTIONS) {
    if (fp.p.softcap > 0) {
#pragma unroll
      for (int tile = 0; tile < TILES; ++tile) {
#pragma unroll
        for (int i = 0; i < 4; ++i) s[tile][i] = tanhf(s[tile][i] * fp.tanh_factor);
      }
    }
  }
  mask(s);

  float alpha[2];
  online_softmax<FALLBACK>(s, fp.c, state, alpha);
  rescale_output(state, alpha, exists);

#pragma unroll
  for (int step = 0; step < C::BLOCK_KV / 16; ++step) {
    const auto weights_of = [&](int tile, int i) {
      return Traits::pack(s[tile][i] * C::WEIGHT_FACTOR, s[tile][i + 1] * C::WEIGHT_FACTOR);
    };
    const uint32_t weights[4] = {weights_of(step * 2, 0), weights_of(step * 2, 2), weights_of(step * 2 + 1, 0),
                                 weights_of(step * 2 + 1, 2)};
#pragma unroll
    for (int pair = 0; pair < C::CHUNKS / 2; ++pair) {
      uint32_t v[4];
      const int key = step * 16 + lane / 8 % 2 * 8 + lane % 8;
      load_matrices_transposed(v, v_tile + C::tile_offset(key, pair * 2 + lane / 16));
      if constexpr (IS_FP8<Kv>) {
#pragma unroll
        for (int chunk = 0; chunk < 2; ++chunk) {
          uint32_t even[2];
          uint32_t odd[2];
#pragma unroll
          for (int i = 0; i < 2; ++i) widen<Kv, Operand>(columns_apart(v[chunk * 2 + i]), even[i], odd[i]);
          Traits::mma(state.o[pair * 4 + chunk * 2], weights, even[0], even[1]);
          Traits::mma(state.o[pair * 4 + chunk * 2 + 1], weights, odd[0], odd[1]);
        }
      } else {
        Traits::mma(state.o[pair * 2], weights, v[0], v[1]);
        Traits::mma(state.o[pair * 2 + 1], weights, v[2], v[3]);
      }
    }
  }
}

// Accumulates a warp group's keys of the split into each lane's partial state. FALLBACK: logits of any size,
// and non-finite values reach only the rows that see them. Each stage of the ring buffer in `region` holds
// K [BLOCK_KV, D], then V.
template <class C, bool FALLBACK>
__device__ __forceinline__ void attend_split(const FusedParams& fp, const WorkUnitOf<C>& at,
                                             unsigned char* region,  // [REGION_BYTES]
                                             int key_warp, int row_warp, int lane,
                                             LaneState<C>& state) {
  const uint32_t ring = shared_address(region);
  const int thread = row_warp * 32 + lane;
  const int64_t keys = at.key_end - at.key_begin;
  const int64_t step = static_cast<int64_t>(at.key_step) * C::BLOCK_KV;  // to the next group's block
  const int64_t stride = C::KEY_WARPS * step;                            // to this group's next

  state.clear();
  int64_t key0 = key_warp * step;
  std::conditional_t<C::PAGED, PagedCopier<C>, ContiguousCopier<C>> copier(fp, at, thread, key0, stride);
  const auto start_copy = [&](int64_t key0, int stage) {
    if (key0 < keys && (C::COPY_THREADS == C::GROUP_THREADS || thread < C::COPY_THREADS)) {
      const int count = static_cast<int>(min(static_cast<int64_t>(C::BLOCK_KV), keys - key0));
      copier.copy(ring + stage * C::STAGE_BYTES, key0, count);
    }
    commit_copies();
  };

  // The queries pass through the ring's last stages, which get their first keys after that.
  constexpr int FIRST_STAGES = C::STAGES - C::QUERY_STAGES;
  const uint32_t q_tile = ring + FIRST_STAGES * C::STAGE_BYTES;
  if constexpr (!FALLBACK) {
    wait_for_earlier_kernel();
    trigger_dependent_launch(fp);
  }
  copy_queries<C, true>(fp, at, 0, at.rows, thread, C::GROUP_THREADS,
                        [=](int row, int chunk) { return q_tile + C::query_offset(row, chunk); });
  float k_scale = 1.0f;
  if (C::SCALED && fp.p.k_scale != nullptr) k_scale = __ldcg(fp.p.k_scale + at.head_kv * fp.p.k_scale_stride);
  float logit_scale[2] = {k_scale, k_scale};  // of the lane's rows
#pragma unroll 1
  for (int stage = 0; stage < FIRST_STAGES; ++stage) start_copy(key0 + stage * stride, stage);
  wait_copies<FIRST_STAGES>();
  group_sync<C>();
  uint32_t q[C::D / 16][4];
  load_queries<C>(q_tile, row_warp, lane, q);
  group_sync<C>();
#pragma unroll 1
  for (int stage = FIRST_STAGES; stage < C::STAGES; ++stage) {
    start_copy(key0 + stage * stride, stage);
  }
  if constexpr (C::Q_NORMALISED) {
    float undo[2];
    normalise_queries<C>(q, undo);
    logit_scale[0] *= undo[0];
    logit_scale[1] *= undo[1];
  }
  apply_query_factor<C>(fp, q);
  const int first_row = row_warp * 16 + lane / 4;  // of the lane's two
  const bool exists[2] = {first_row < at.rows, first_row + 8 < at.rows};

  // The keys, counted from key_begin, that each of the lane's two rows sees; and those that all rows of the warp see,
  // [first_of_all, seen_by_all). Rows past the tile's end are computed too and dropped.
  SeenKeys<int64_t> seen_by_row;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = min(first_row + half * 8, at.rows - 1);
    seen_by_row.end[half] = min(seen_keys(fp, at, row), at.key_end) - at.key_begin;
    if constexpr (C::OPTIONS) seen_by_row.first[half] = first_seen_key(fp, at, row) - at.key_begin;
  }
  const int64_t seen_by_all =
      min(seen_from_row_on<C>(fp, at, min(row_warp * 16, at.rows - 1)), at.key_end) - at.key_begin;
  int64_t first_of_all = 0;
  if constexpr (C::OPTIONS) {
    first_of_all = first_seen_key(fp, at, min(row_warp * 16 + 15, at.rows - 1)) - at.key_begin;
  }

  int stage = 0;
  // A group of one warp stops after its own keys. Larger groups all run the same number of rounds (group_sync).
  const int64_t rounds_from = C::ROW_WARPS == 1 ? key0 : 0;
#pragma unroll 1
  for (int64_t round = rounds_from; round < keys; round += stride, key0 += stride) {
    wait_copies<C::STAGES - 1>();
    group_sync<C>();
    bool zeroed = false;
    if constexpr (FALLBACK) {
      unsigned char* v_tile = region + stage * C::STAGE_BYTES + C::TILE_BYTES;
      if (key0 < keys) zeroed = zero_non_finite<C>(v_tile, C::BLOCK_KV, thread, C::GROUP_THREADS);
      zeroed = group_sync_or<C>(zeroed);
    }
    if (key0 < keys) {
      const uint32_t tile = ring + stage * C::STAGE_BYTES;
      const bool masked = key0 + C::BLOCK_KV > seen_by_all || (C::OPTIONS && key0 < first_of_all);
      SeenKeys<int> seen = {{0, 0}, {C::BLOCK_KV, C::BLOCK_KV}};
      if (masked) {
        const auto in_block = [&](int64_t key) {
          return static_cast<int>(max(int64_t{0}, min(static_cast<int64_t>(C::BLOCK_KV), key - key0)));
        };
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          seen.end[half] = in_block(seen_by_row.end[half]);
          if constexpr (C::OPTIONS) seen.first[half] = in_block(seen_by_row.first[half]);
        }
      }
      const auto mask = [&](auto& s) {
        if (!masked) return;
        mask_logits<C::OPTIONS>(s, seen, lane);
        if constexpr (C::TREES) {
          if (fp.p.tree_mask != nullptr) mask_logits_by_tree(s, fp, at, first_row, at.key_begin + key0, lane);
        }
      };
      attend_block<C, FALLBACK>(q, tile, tile + C::TILE_BYTES, mask, exists, fp, logit_scale, lane, state);
      if constexpr (FALLBACK) {
        if (zeroed) add_non_finite<C>(fp, at, key0, seen_by_row, first_row, lane, state);
      }
    }
    group_sync<C>();
    start_copy(key0 + C::STAGES * stride, stage);
    stage = stage + 1 == C::STAGES ? 0 : stage + 1;
  }
  // Copy groups still pending are empty.
  wait_copies<0>();
  group_sync<C>();
}

// Runs the keys again by the slow path, and stores the partial state. noinline keeps it out of the
// registers and the instruction cache of the fast path.
template <class C>
__device__ __noinline__ void attend_fallback(const FusedParams& fp, const WorkUnitOf<C>& at,
                                              unsigned char* region,  // [REGION_BYTES]
                                              float2* ml,             // [BLOCK_M]
                                              int key_warp, int row_warp, int lane) {
  LaneState<C> state;
  attend_split<C, true>(fp, at, region, key_warp, row_warp, lane, state);
  store_group_state<C>(fp, at, region, ml, row_warp, lane, state);
}

// Whether a row of the warp has had large logits or, where a row may not see all keys, has a non-finite output, which may
// come from a key that the row does not see.
template <class C>
__device__ __forceinline__ bool warp_needs_fallback(const FusedParams& fp, const WorkUnit& at,
                                           int row_warp, int lane, const LaneState<C>& state) {
  bool needed[2] = {state.needs_fallback[0], state.needs_fallback[1]};
  if (fp.p.causal && (fp.p.Sq > 1 || (C::OPTIONS && fp.p.window > 0) || (C::TREES && fp.p.tree_mask != nullptr))) {
    float zero[2] = {0.0f, 0.0f};  // NaN once a non-finite value is multiplied by 0
#pragma unroll
    for (int tile = 0; tile < C::D / 8; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) zero[i / 2] = fmaf(state.o[tile][i], 0.0f, zero[i / 2]);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) needed[half] = needed[half] || zero[half] != 0.0f;
  }
  const int row = row_warp * 16 + lane / 4;
  return (row < at.rows && needed[0]) || (row + 8 < at.rows && needed[1]);
}

// Runs every warp group over its keys of the split and stores their partial states in shared memory.
template <class C>
__device__ __forceinline__ void attend(
    const FusedParams& fp, const WorkUnitOf<C>& at,
    unsigned char* smem) {  // [KEY_WARPS, REGION_BYTES], then m and l: see FusedConfig
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x / 32), 0);  // tells the compiler that it is uniform
  const int lane = threadIdx.x % 32;
  const int key_warp = warp / C::ROW_WARPS;
  const int row_warp = warp % C::ROW_WARPS;
  unsigned char* region = smem + key_warp * C::REGION_BYTES;
  float2* ml_smem = reinterpret_cast<float2*>(smem + C::ML_OFFSET);  // [KEY_WARPS, BLOCK_M]
  float2* ml = ml_smem + key_warp * C::BLOCK_M;
  bool fallback;
  {
    LaneState<C> state;
    attend_split<C, false>(fp, at, region, key_warp, row_warp, lane, state);
    store_group_state<C>(fp, at, region, ml, row_warp, lane, state);
    fallback = warp_needs_fallback<C>(fp, at, row_warp, lane, state);
  }
  if (block_sync_or(fallback)) {
    attend_fallback<C>(fp, at, region, ml, key_warp, row_warp, lane);
    block_sync();
  }
}

template <class C>
__global__ void __launch_bounds__(C::THREADS) fused_kernel(const __grid_constant__ FusedParams fp) {
  extern __shared__ __align__(128) unsigned char smem[];
  if (fp.cluster_size > 1) {
    if (threadIdx.x == 0) exchange_init(shared_address(smem + C::EXCHANGE_OFFSET));
    __syncwarp();
    // merge_and_store waits before it stores into other blocks: they must have started.
    cluster_arrive_relaxed();
  }
  const WorkUnitOf<C> at = locate<C>(fp, blockIdx.x, smem);
  if (!C::PACKED || at.rows > 0) attend<C>(fp, at, smem);
  merge_and_store<C>(fp, at, smem);
}

// ---- launches ----

// Calls launch(C{}), where C is the configuration for `row_warps` warps of 16 rows.
template <class Element, int D, KvLayout LAYOUT, bool OPTIONS, class Kv = Element, bool PACKED = false,
          class Launch>
cudaError_t with_fused_config(int row_warps, const Launch& launch) {
  switch (row_warps) {
    case 1:
      return launch(FusedConfig<Element, D, 1, LAYOUT, OPTIONS, Kv, PACKED>{});
    case 2:
      return launch(FusedConfig<Element, D, 2, LAYOUT, OPTIONS, Kv, PACKED>{});
    default:
      return launch(FusedConfig<Element, D, 4, LAYOUT, OPTIONS, Kv, PACKED>{});
  }
}

template <class Element, int D, KvLayout LAYOUT = KvLayout::aligned, bool OPTIONS = false, class Kv = Element,
          bool PACKED = false>
cudaError_t launch_fused(const FusedParams& fp, int row_warps, cudaStream_t stream) {
  return with_fused_config<Element, D, LAYOUT, OPTIONS, Kv, PACKED>(row_warps, [&](auto config) {
    using C = decltype(config);
    return launch_blocks<C, fused_kernel<C>>(fp, stream);
  });
}

template <class Element, int D>
cudaError_t launch_fused_unaligned(const FusedParams& fp, int row_warps, cudaStream_t stream) {
  return launch_fused<Element, D, KvLayout::unaligned, true>(fp, row_warps, stream);
}

template <class Element, int D>
cudaError_t launch_fused_paged(const FusedParams& fp, int row_warps, cudaStream_t stream) {
  return launch_fused<Element, D, KvLayout::paged>(fp, row_warps, stream);
}

template <class Element, int D>
cudaError_t launch_fused_options(const FusedParams& fp, int row_warps, cudaStream_t stream) {
  return launch_fused<Element, D, KvLayout::aligned, true>(fp, row_warps, stream);
}

template <class Element, int D>
cudaError_t launch_fused_paged_options(const FusedParams& fp, int row_warps, cudaStream_t stream) {
  return launch_fused<Element, D, KvLayout::paged, true>(fp, row_warps, stream);
}

template <class Element, int D>
cudaError_t launch_fused_packed(const FusedParams& fp, int row_warps, cudaStream_t stream) {
  return launch_fused<Element, D, KvLayout::aligned, true, Element, true>(fp, row_warps, stream);
}

template <class Element, int D>
cudaError_t launch_fused_unaligned_packed(const FusedParams& fp, int row_warps, cudaStream_t stream) {
  return launch_fused<Element, D, KvLayout::unaligned, true, Element, true>(fp, row_warps, stream);
}

template <class Element, int D>
cudaError_t launch_fused_paged_packed(const FusedParams& fp, int row_warps, cudaStream_t stream) {
  return launch_fused<Element, D, KvLayout::paged, true, Element, true>(fp, row_warps, stream);
}

template <class Element, int D>
cudaError_t launch_fused_e4m3(const FusedParams& fp, int row_warps, cudaStream_t stream) {
  return launch_fused<Element, D, KvLayout::aligned, true, e4m3>(fp, row_warps, stream);
}

template <class Element, int D>
cudaError_t launch_fused_paged_e4m3(const FusedParams& fp, int row_warps, cudaStream_t stream) {
  return launch_fused<Element, D, KvLayout::paged, true, e4m3>(fp, row_warps, stream);
}

template <class Element, int D>
cudaError_t launch_fused_e5m2(const FusedParams& fp, int row_warps, cudaStream_t stream) {
  return launch_fused<Element, D, KvLayout::aligned, true, e5m2>(fp, row_warps, stream);
}

template <class Element, int D>
cudaError_t launch_fused_paged_e5m2(const FusedParams& fp, int row_warps, cudaStream_t stream) {
  return launch_fused<Element, D, KvLayout::paged, true, e5m2>(fp, row_warps, stream);
}

}  // namespace kbtool::cuda
