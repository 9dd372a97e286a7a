// What fa1 and two_pass share: attention of 64 query rows over a range of keys, 64 at a time, in float32
// without tensor cores.
//
// 256 threads, 16 for each 4 rows. A key block is loaded into shared memory; each thread computes 4 x 4
// logits and stores exp(logit - maximum of the block) in shared memory. The values then take the keys' place,
// and each thread accumulates the block's partial state of its 4 rows over D / 16 columns, and merges it
// into the state of the blocks before by attention_state.h.
#pragma once

#include <cuda_runtime.h>

#include <cstring>
#include <type_traits>

#include "../../attention_state.h"
#include "../common/kernel_limits.h"
#include "../common/mma.cuh"
#include "tile_params.h"

namespace kbtool::cuda {

template <class Element_, int D_>
struct TileConfig {
  using Element = Element_;
  using Traits = ElementTraits<Element>;
  static constexpr int D = D_;  // compiled head dimension; the actual one may be smaller

  static constexpr int BLOCK_M = 64;
  static constexpr int BLOCK_KV = 64;
  static constexpr int THREADS = 256;
  static constexpr int ROW_THREADS = 16;                             // that share their rows
  static constexpr int ROWS = BLOCK_M / (THREADS / ROW_THREADS);     // rows of a thread
  static constexpr int KEYS = BLOCK_KV / ROW_THREADS;                // logits of a thread and row
  static constexpr int COLUMNS = D / ROW_THREADS;                    // columns of a thread
  static constexpr int VEC = COLUMNS < 8 ? COLUMNS : 8;              // columns side by side
  static constexpr int CHUNKS = D / 8;                               // of 16 bytes, in a row
  static_assert(THREADS % 32 == 0 && 32 % ROW_THREADS == 0, "the threads of a row are in one warp");
  static_assert(COLUMNS % VEC == 0 && (VEC == 4 || VEC == 8), "values load 8 or 16 bytes at a time");

  // 16 bytes of padding per row. With 16 bytes per thread, shared memory serves 8 rows at a time: they then
  // lie in different banks. Rows stay multiples of 16 bytes.
  static constexpr int ROW_STRIDE = D + 8;                 // elements
  static constexpr int WEIGHT_STRIDE = BLOCK_KV + 4;       // floats
  static constexpr int TILE_BYTES = BLOCK_M * ROW_STRIDE * 2;
  static constexpr int KV_OFFSET = TILE_BYTES;             // Element [BLOCK_KV, ROW_STRIDE]
  static constexpr int WEIGHT_OFFSET = 2 * TILE_BYTES;     // float [BLOCK_M, WEIGHT_STRIDE]
  static constexpr int LENGTH_OFFSET = WEIGHT_OFFSET + BLOCK_M * WEIGHT_STRIDE * 4;  // int64_t
  static constexpr int SHARED_BYTES = LENGTH_OFFSET + 8;
  static_assert(BLOCK_M == BLOCK_KV, "one loader and one size for tiles of q, k and v");
  static_assert(TILE_BYTES % 16 == 0 && WEIGHT_STRIDE % 4 == 0, "loads of 16 bytes are aligned");
  static_assert(SHARED_BYTES <= 99 * 1024, "what a block of sm_86 and sm_89 may have");
};

// A query tile of one head and the keys that it takes.
struct TileWork {
  int64_t batch;
  int64_t head;
  int64_t row0;       // first query
  int rows;           // queries of this tile, at least 1
  int64_t valid;      // keys of the batch entry
  int64_t key_begin;
  int64_t key_end;    // no row of the tile sees a key from here on
};

// Work unit number `work_unit` of B * H * tiles. Its keys are all that any of its rows sees.
template <class C>
__device__ __forceinline__ TileWork locate_tile(const TileParams& tp, int64_t work_unit,
                                                unsigned char* smem) {
  TileWork at;
  const int64_t head = work_unit / tp.tiles;
  at.row0 = (tp.tiles - 1 - work_unit % tp.tiles) * C::BLOCK_M;  // causal: the longest start first
  at.head = head % tp.p.H;
  at.batch = head / tp.p.H;
  const int64_t left = tp.p.Sq - at.row0;
  at.rows = static_cast<int>(left < C::BLOCK_M ? left : C::BLOCK_M);
  __syncthreads();  // all threads have the length of the work unit before this one
  at.valid = valid_keys_of_block(tp.lengths, tp.p.Skv, at.batch, smem + C::LENGTH_OFFSET);
  at.key_begin = 0;
  at.key_end = visible_keys(tp.p.causal, at.row0 + at.rows - 1, tp.p.Sq, at.valid);
  return at;
}

// Loads rows [row0, row0 + rows) of one head into a tile. What lies past `rows` or past D becomes 0: whatever
// is in memory there could reach a result as 0 * NaN.
template <class C>
__device__ __forceinline__ void load_tile(
    const TileParams& tp,
    const void* base,  // [B, H or Hkv, Sq or Skv, D] by strides
    const Strides4& stride, int64_t batch, int64_t head, int64_t row0, int rows,
    typename C::Element* tile) {  // [64, ROW_STRIDE]
  const int D = static_cast<int>(tp.p.D);
  const unsigned short* source = static_cast<const unsigned short*>(base) + batch * stride.batch +
                                 head * stride.head + row0 * stride.seq;
  for (int i = threadIdx.x; i < C::BLOCK_M * C::CHUNKS; i += C::THREADS) {
    const int row = i / C::CHUNKS;
    const int column = i % C::CHUNKS * 8;
    const unsigned short* from = source + row * stride.seq + column * stride.dim;
    uint4 chunk = make_uint4(0, 0, 0, 0);
    if (row < rows && column + 8 <= D && tp.aligned_16) {
      chunk = __ldg(reinterpret_cast<const uint4*>(from));
    } else if (row < rows) {
      uint32_t pairs[4] = {};
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        if (column + e < D) {
          pairs[e / 2] |= static_cast<uint32_t>(from[e * stride.dim]) << (16 * (e % 2));
        }
      }
      chunk = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    }
    *reinterpret_cast<uint4*>(tile + row * C::ROW_STRIDE + column) = chunk;
  }
}

// COUNT elements that lie side by side, as floats.
template <class C, int COUNT>
__device__ __forceinline__ void load_floats(const typename C::Element* from, float (&to)[COUNT]) {
  static_assert(COUNT == 4 || COUNT == 8, "8 or 16 bytes, and aligned to as many");
  using Word = typename std::conditional<COUNT == 8, uint4, uint2>::type;
  const Word word = *reinterpret_cast<const Word*>(from);
  typename C::Element elements[COUNT];
  memcpy(elements, &word, sizeof(word));
#pragma unroll
  for (int i = 0; i < COUNT; ++i) to[i] = C::Traits::to_float(elements[i]);
}

// What a thread holds of one of its rows.
template <class C>
using RowState = AttentionState<C::COLUMNS>;

// The column of a thread's element number i.
template <class C>
__device__ __forceinline__ int column_of(int column_thread, int i) {
  return i / C::VEC * (C::ROW_THREADS * C::VEC) + column_thread * C::VEC + i % C::VEC;
}

// Logits of a thread: its rows against keys column_thread, column_thread + 16, ….
template <class C>
__device__ __forceinline__ void tile_logits(const typename C::Element* q,  // [64, ROW_STRIDE]
                                            const typename C::Element* k,  // [64, ROW_STRIDE]
                                            float scale, int first_row, int column_thread,
                                            float (&s)[C::ROWS][C::KEYS]) {
#pragma unroll
  for (int r = 0; r < C::ROWS; ++r) {
#pragma unroll
    for (int j = 0; j < C::KEYS; ++j) s[r][j] = 0.0f;
  }
#pragma unroll 2
  for (int column = 0; column < C::D; column += 8) {
    float q_row[C::ROWS][8];
#pragma unroll
    for (int r = 0; r < C::ROWS; ++r) {
      load_floats<C>(q + (first_row + r) * C::ROW_STRIDE + column, q_row[r]);
    }
#pragma unroll
    for (int j = 0; j < C::KEYS; ++j) {
      float k_row[8];
      load_floats<C>(k + (column_thread + j * C::ROW_THREADS) * C::ROW_STRIDE + column, k_row);
#pragma unroll
      for (int r = 0; r < C::ROWS; ++r) {
#pragma unroll
        for (int i = 0; i < 8; ++i) s[r][j] = fmaf(q_row[r][i], k_row[i], s[r][j]);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < C::ROWS; ++r) {
#pragma unroll
    for (int j = 0; j < C::KEYS; ++j) s[r][j] *= scale;
  }
}

// Masks the logits, finds each row's maximum and leaves the weights of its keys in shared memory.
// A row sees a key only if it is among the first `seen` of the block.
template <class C>
__device__ __forceinline__ void tile_weights(const float (&s)[C::ROWS][C::KEYS],
                                             const int (&seen)[C::ROWS], int first_row,
                                             int column_thread,
                                             float* weights,  // [64, WEIGHT_STRIDE]
                                             RowState<C> (&state)[C::ROWS]) {
#pragma unroll
  for (int r = 0; r < C::ROWS; ++r) {
    float logit[C::KEYS];
    float m = negative_infinity();
#pragma unroll
    for (int j = 0; j < C::KEYS; ++j) {
      logit[j] = column_thread + j * C::ROW_THREADS < seen[r] ? s[r][j] : negative_infinity();
      m = max_logit(m, logit[j]);
    }
#pragma unroll
    for (int lane = 1; lane < C::ROW_THREADS; lane *= 2) {
      m = max_logit(m, __shfl_xor_sync(~0u, m, lane));
    }
    state[r].m = m;
    const float base = m == negative_infinity() ? 0.0f : m;  // -inf - -inf would be NaN
#pragma unroll
    for (int j = 0; j < C::KEYS; ++j) {
      weights[(first_row + r) * C::WEIGHT_STRIDE + column_thread + j * C::ROW_THREADS] =
          expf(logit[j] - base);
    }
  }
}

// Sums weights and weighted values of the block's keys, in order: l and o by the same operation, so that
// values of 1 give exactly 1. MASKED: keys that a row does not see are skipped, since 0 * NaN is NaN.
template <class C, bool MASKED>
__device__ __forceinline__ void tile_values(const typename C::Element* v,  // [64, ROW_STRIDE]
                                            const float* weights,          // [64, WEIGHT_STRIDE]
                                            const int (&seen)[C::ROWS], int first_row,
                                            int column_thread, RowState<C> (&state)[C::ROWS]) {
#pragma unroll
  for (int r = 0; r < C::ROWS; ++r) {
    state[r].l = 0.0f;
#pragma unroll
    for (int i = 0; i < C::COLUMNS; ++i) state[r].o[i] = 0.0f;
  }
#pragma unroll 1
  for (int key0 = 0; key0 < C::BLOCK_KV; key0 += 4) {
    float weight[C::ROWS][4];
#pragma unroll
    for (int r = 0; r < C::ROWS; ++r) {
      const float4 four = *reinterpret_cast<const float4*>(
          weights + (first_row + r) * C::WEIGHT_STRIDE + key0);
      weight[r][0] = four.x;
      weight[r][1] = four.y;
      weight[r][2] = four.z;
      weight[r][3] = four.w;
    }
#pragma unroll
    for (int key = 0; key < 4; ++key) {
#pragma unroll
      for (int first = 0; first < C::COLUMNS; first += C::VEC) {
        float value[C::VEC];
        load_floats<C>(v + (key0 + key) * C::ROW_STRIDE + column_of<C>(column_thread, first),
                       value);
#pragma unroll
        for (int r = 0; r < C::ROWS; ++r) {
          if (MASKED && key0 + key >= seen[r]) continue;
#pragma unroll
          for (int i = 0; i < C::VEC; ++i) {
            state[r].o[first + i] = fmaf(weight[r][key], value[i], state[r].o[first + i]);
          }
          if (first == 0) state[r].l += weight[r][key];
        }
      }
    }
  }
}

// The states of a thread's rows over the keys of `at`. All threads of the block call this together.
template <class C>
__device__ __forceinline__ void attend_tile(const TileParams& tp, const TileWork& at,
                                            unsigned char* smem,  // [SHARED_BYTES], see TileConfig
                                            int first_row, int column_thread,
                                            RowState<C> (&state)[C::ROWS]) {
  using Element = typename C::Element;
  Element* q = reinterpret_cast<Element*>(smem);                  // [BLOCK_M, ROW_STRIDE]
  Element* kv = reinterpret_cast<Element*>(smem + C::KV_OFFSET);  // [BLOCK_KV, ROW_STRIDE]
  float* weights = reinterpret_cast<float*>(smem + C::WEIGHT_OFFSET);  // [BLOCK_M, WEIGHT_STRIDE]
  const SplitKParams& p = tp.p;
  const int64_t head_kv = at.head / (p.H / p.Hkv);

  int64_t seen_by_row[C::ROWS];  // keys that the row sees; a row past the tile sees none
#pragma unroll
  for (int r = 0; r < C::ROWS; ++r) {
    state[r] = RowState<C>::empty();
    const int64_t seen = visible_keys(p.causal, at.row0 + first_row + r, p.Sq, at.valid);
    seen_by_row[r] = first_row + r >= at.rows ? 0 : (seen < at.key_end ? seen : at.key_end);
  }
  // Whether any row of this warp exists. The same for all threads of a warp.
  const bool busy = static_cast<int>(threadIdx.x / 32 * 32 / C::ROW_THREADS) * C::ROWS < at.rows;

  if (at.key_begin >= at.key_end) return;
  __syncthreads();  // the work unit before this one is done with the tiles
  load_tile<C>(tp, p.q, p.q_stride, at.batch, at.head, at.row0, at.rows, q);
  for (int64_t key0 = at.key_begin; key0 < at.key_end; key0 += C::BLOCK_KV) {
    const int64_t left = at.key_end - key0;
    const int keys = static_cast<int>(left < C::BLOCK_KV ? left : C::BLOCK_KV);
    int seen[C::ROWS];
    bool masked = false;
#pragma unroll
    for (int r = 0; r < C::ROWS; ++r) {
      const int64_t of_row = seen_by_row[r] - key0;
      seen[r] = of_row < 0 ? 0 : (of_row > keys ? keys : static_cast<int>(of_row));
      masked = masked || seen[r] < C::BLOCK_KV;
    }
    RowState<C> of_block[C::ROWS];

    load_tile<C>(tp, p.k, p.k_stride, at.batch, head_kv, key0, keys, kv);
    __syncthreads();
    if (busy) {
      float s[C::ROWS][C::KEYS];
      tile_logits<C>(q, kv, p.scale, first_row, column_thread, s);
      tile_weights<C>(s, seen, first_row, column_thread, weights, of_block);
    }
    __syncthreads();
    load_tile<C>(tp, p.v, p.v_stride, at.batch, head_kv, key0, keys, kv);
    __syncthreads();
    if (busy) {
      if (masked) {
        tile_values<C, true>(kv, weights, seen, first_row, column_thread, of_block);
      } else {
        tile_values<C, false>(kv, weights, seen, first_row, column_thread, of_block);
      }
#pragma unroll
      for (int r = 0; r < C::ROWS; ++r) state[r].merge(of_block[r]);
    }
    __syncthreads();
  }
}

// Output and LSE of a thread's rows.
template <class C>
__device__ __forceinline__ void store_rows(const TileParams& tp, const TileWork& at, int first_row,
                                           int column_thread,
                                           const RowState<C> (&state)[C::ROWS]) {
  using Element = typename C::Element;
  const SplitKParams& p = tp.p;
  const int D = static_cast<int>(p.D);
#pragma unroll
  for (int r = 0; r < C::ROWS; ++r) {
    if (first_row + r >= at.rows) break;
    const int64_t query = at.row0 + first_row + r;
    Element* out = static_cast<Element*>(p.out) + at.batch * p.out_stride.batch +
                   at.head * p.out_stride.head + query * p.out_stride.seq;
#pragma unroll
    for (int i = 0; i < C::COLUMNS; ++i) {
      const int column = column_of<C>(column_thread, i);
      if (column < D) {
        out[column * p.out_stride.dim] =
            C::Traits::from_float(normalised(state[r].o[i], state[r].l));
      }
    }
    if (column_thread == 0) {
      p.lse[at.batch * p.lse_stride.batch + at.head * p.lse_stride.head +
            query * p.lse_stride.seq] = state[r].lse();
    }
  }
}

// Blocks for `work_units`; beyond the limit of a grid each block takes several in turn.
inline unsigned grid_of(int64_t work_units) {
  constexpr int64_t MAX_BLOCKS = (int64_t{1} << 31) - 1;
  return static_cast<unsigned>(work_units < MAX_BLOCKS ? work_units : MAX_BLOCKS);
}

// The error of this launch alone: cudaGetLastError would also give one that another library left.
template <class Params>
cudaError_t launch_kernel(void (*kernel)(Params), unsigned blocks, unsigned threads, size_t shared_bytes,
                          cudaStream_t stream, const Params& params) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, params);
}

template <class C, auto kernel>
cudaError_t launch_tiles(const TileParams& tp, int64_t work_units, cudaStream_t stream) {
  const cudaError_t error = raise_limits<kernel>();
  if (error != cudaSuccess) return error;
  return launch_kernel(kernel, grid_of(work_units), C::THREADS, C::SHARED_BYTES, stream, tp);
}

}  // namespace kbtool::cuda
