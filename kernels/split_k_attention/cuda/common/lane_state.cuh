// Online softmax in registers: what a lane carries from one key block to the next, and how it gets to
// shared memory after the last one.
#pragma once

#include "fp8.cuh"
#include "mma.cuh"
#include "pages.cuh"
#include "softmax.cuh"
#include "work_unit.cuh"

namespace kbtool::cuda {

// What a lane carries for rows g and g + 8 of its warp.
template <class C>
struct LaneState {
  float m[2];  // of the logits before the factor c; k_scale is in them
  float l[2];  // of this lane's keys only
  float o[C::Dv / 8][4];
  bool needs_fallback[2];  // some logit was too large for the fast path

  // The empty state.
  __device__ __forceinline__ void clear() {
    m[0] = m[1] = -CUDART_INF_F;
    l[0] = l[1] = 0.0f;
    needs_fallback[0] = needs_fallback[1] = false;
#pragma unroll
    for (int tile = 0; tile < C::Dv / 8; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) o[tile][i] = 0.0f;
    }
  }
};

// The keys that each of a lane's two rows sees.
template <class Count>
struct SeenKeys {
  Count first[2];  // the window's first key; not used without options
  Count end[2];
};

// A row sees the keys [first, end) of the block.
template <bool WINDOW, int TILES>
__device__ __forceinline__ void mask_logits(float (&s)[TILES][4], const SeenKeys<int>& seen, int lane) {
#pragma unroll
  for (int tile = 0; tile < TILES; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = tile * 8 + lane % 4 * 2 + i % 2;
      if (key >= seen.end[i / 2] || (WINDOW && key < seen.first[i / 2])) s[tile][i] = -CUDART_INF_F;
    }
  }
}

// One step of online softmax: updates maxima and sums and turns the logits into weights; alpha rescales what
// was accumulated before. Unless ANY_LOGITS, rows with large logits come out wrong and are marked
// needs_fallback: the branch for them costs fused 1 to 2 % of a call even if it is never taken (H200).
template <bool ANY_LOGITS, class C, int TILES>
__device__ __forceinline__ void online_softmax(float (&s)[TILES][4], float c, LaneState<C>& state,
                                            float (&alpha)[2]) {
  float old_m[2];
  float old[2];   // scaled
  float base[2];  // scaled
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float m = state.m[half];
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
      m = max_nan(m, max_nan(s[tile][half * 2], s[tile][half * 2 + 1]));
    }
    m = max_nan(m, __shfl_xor_sync(~0u, m, 1));
    m = max_nan(m, __shfl_xor_sync(~0u, m, 2));
    old_m[half] = state.m[half];
    old[half] = scaled(old_m[half], c);
    base[half] = scaled(ANY_LOGITS ? m : finite_base(m), c);
    state.m[half] = m;
    if constexpr (!ANY_LOGITS) state.needs_fallback[half] = state.needs_fallback[half] || is_large(base[half]);
  }
  if constexpr (ANY_LOGITS) {
    // One branch for large logits and for rows that have seen no key yet, whose base is -inf.
    if (is_large(base[0]) || is_large(base[1])) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const Base exact = base_of(state.m[half], c);
        old[half] = scaled(old_m[half] - exact.before, c);
        base[half] = exact.after;
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile) {
          s[tile][half * 2] -= exact.before;
          s[tile][half * 2 + 1] -= exact.before;
        }
      }
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    alpha[half] = exp2_fast(old[half] - base[half]);
    float sum = 0.0f;
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& x = s[tile][half * 2 + i];
        x = exp2_fast(fmaf(x, c, -base[half]));
        sum += x;
      }
    }
    state.l[half] = fmaf(state.l[half], alpha[half], sum);
  }
}

// Of the 64 keys from `key` on, counted in the entry, the bits of those that the tree mask does not hide from a row of the
// tile. It has none for keys before its own and past the length.
template <class Unit>
__device__ __forceinline__ uint64_t tree_bits(const FusedParams& fp, const Unit& at, int row, int64_t key) {
  const int64_t words = fp.p.tree_mask_words;
  const RowIndex index = row_index(fp, at, row);
  const auto* mask = reinterpret_cast<const unsigned long long*>(fp.p.tree_mask) +
                     (static_cast<int64_t>(index.batch) * fp.p.Sq + index.query) * words;
  const auto load = [&](int64_t word) { return word >= 0 && word < words ? __ldcg(mask + word) : ~0ull; };
  const int64_t bit = key - first_tree_key(fp.p, at.valid);
  const int64_t word = bit >> 6;
  const int shift = static_cast<int>(bit & 63);
  return shift == 0 ? load(word) : load(word) >> shift | load(word + 1) << (64 - shift);
}

// Hides keys of a block from the lane's rows, first_row and first_row + 8 of the tile. A word has the bits of eight tiles
// of eight keys.
template <class Unit, int TILES>
__device__ __forceinline__ void mask_logits_by_tree(float (&s)[TILES][4], const FusedParams& fp, const Unit& at,
                                                    int first_row, int64_t key0, int lane) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = min(first_row + half * 8, at.rows - 1);
    uint64_t bits = 0;
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
      if (tile % 8 == 0) bits = tree_bits(fp, at, row, key0 + tile * 8) >> (lane % 4 * 2);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if ((bits >> (tile % 8 * 8 + i) & 1) == 0) s[tile][half * 2 + i] = -CUDART_INF_F;
      }
    }
  }
}

template <class C>
__device__ __forceinline__ void rescale_output(LaneState<C>& state, const float (&alpha)[2],
                                               const bool (&exists)[2]) {
  // New maxima get rare as keys go by.
  const bool rescale = (exists[0] && alpha[0] != 1.0f) || (exists[1] && alpha[1] != 1.0f);
  if (__any_sync(~0u, rescale)) {
#pragma unroll
    for (int tile = 0; tile < C::Dv / 8; ++tile) {
      state.o[tile][0] *= alpha[0];
      state.o[tile][1] *= alpha[0];
      state.o[tile][2] *= alpha[1];
      state.o[tile][3] *= alpha[1];
    }
  }
}

// The column of element i of tile `tile` of a lane's accumulator. The products with 8-bit values have the columns of two
// tiles in turn (attend_block).
template <class C>
__device__ __forceinline__ int column_of(int tile, int i, int lane) {
  if constexpr (IS_FP8<typename C::Kv>) return tile / 2 * 16 + lane % 4 * 4 + i * 2 + tile % 2;
  return tile * 8 + lane % 4 * 2 + i;
}

// 0 * NaN is NaN, so a non-finite value would reach rows that do not see its key. Where that may happen,
// such values are zeroed in shared memory, and this adds them to the lane's rows, first_row and first_row + 8, that do see
// them. They are read from global memory again, where they are Stored: it is rare.
template <class Stored, class C>
__device__ __forceinline__ void add_stored_non_finite(const FusedParams& fp, const WorkUnitOf<C>& at,
                                                      int64_t key0, const SeenKeys<int64_t>& seen,
                                                      int first_row, int lane, LaneState<C>& state) {
  const Strides4& stride = fp.p.v_stride;
  const int64_t end = min(key0 + C::BLOCK_KV, at.key_end - at.key_begin);
#pragma unroll 1
  for (int64_t key = key0; key < end; ++key) {
    const Stored* v = kv_row<Stored>(fp, fp.p.v, stride, at.batch, at.head_kv, at.key_begin + key);
#pragma unroll
    for (int column = 0; column < C::Dv / 4; ++column) {
      const int dim = column_of<C>(column / 2, column % 2, lane);
      if (dim >= fp.p.Dv) continue;
      const float x = static_cast<float>(v[dim * stride.dim]);
      if (isfinite(x)) continue;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        bool sees = key < seen.end[half] && (!C::OPTIONS || key >= seen.first[half]);
        if (C::TREES && sees && fp.p.tree_mask != nullptr) {
          sees = (tree_bits(fp, at, min(first_row + half * 8, at.rows - 1), at.key_begin + key) & 1) != 0;
        }
        if (sees) state.o[column / 2][half * 2 + column % 2] += x;
      }
    }
  }
}

template <class C>
__device__ __forceinline__ void add_non_finite(const FusedParams& fp, const WorkUnitOf<C>& at, int64_t key0,
                                               const SeenKeys<int64_t>& seen, int first_row, int lane,
                                               LaneState<C>& state) {
  using Kv = typename C::Kv;
  if constexpr (C::SCALED && !IS_FP8<Kv>) {  // a tile of 16 bits may hold 8 that were widened
    if (fp.p.kv_type == KvType::e4m3) return add_stored_non_finite<e4m3>(fp, at, key0, seen, first_row, lane, state);
    if (fp.p.kv_type == KvType::e5m2) return add_stored_non_finite<e5m2>(fp, at, key0, seen, first_row, lane, state);
  }
  add_stored_non_finite<Kv>(fp, at, key0, seen, first_row, lane, state);
}

// Calls body(row, half, l) for each of the lane's rows in the tile; l is the sum over the whole row.
template <class C, class Body>
__device__ __forceinline__ void for_each_row(const WorkUnit& at, int row_warp, int lane,
                                             const LaneState<C>& state, const Body& body) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float l = state.l[half];
    l += __shfl_xor_sync(~0u, l, 1);
    l += __shfl_xor_sync(~0u, l, 2);
    const int row = row_warp * 16 + half * 8 + lane / 4;
    if (row < at.rows) body(row, half, l);
  }
}

// What the weighted values of a row with the sum `l` are multiplied by: the scale of the KV head. A row that sees no key
// stays 0 beside any scale.
template <class C>
__device__ __forceinline__ float value_scale(const FusedParams& fp, const WorkUnit& at, float l) {
  constexpr float UNDO = 1.0f / C::WEIGHT_FACTOR;
  if (!C::SCALED || fp.p.v_scale == nullptr || l == 0.0f) return UNDO;
  return UNDO * __ldcg(fp.p.v_scale + at.head_kv * fp.p.v_scale_stride);
}

// Stores the partial state of one warp group to its region of shared memory, and m and l beside it. From here on
// values are scaled.
template <class C>
__device__ __forceinline__ void store_group_state(const FusedParams& fp, const WorkUnit& at,
                                                  unsigned char* region,  // [BLOCK_M, STATE_STRIDE]
                                                  float2* ml_smem,        // [BLOCK_M]
                                                  int row_warp, int lane,
                                                  const LaneState<C>& state) {
  for_each_row(at, row_warp, lane, state, [&](int row, int half, float l) {
    if (lane % 4 == 0) ml_smem[row] = make_float2(state.m[half], l);
    float* o_row = reinterpret_cast<float*>(region) + row * C::STATE_STRIDE;
    const float scale = value_scale<C>(fp, at, l);
    const auto o = [&](int tile, int i) {
      const float sum = state.o[tile][half * 2 + i];
      return C::SCALED ? sum * scale : sum;
    };
    if constexpr (IS_FP8<typename C::Kv>) {
#pragma unroll
      for (int tile = 0; tile < C::Dv / 8; tile += 2) {  // whose columns alternate: see column_of
        *reinterpret_cast<float4*>(o_row + column_of<C>(tile, 0, lane)) =
            make_float4(o(tile, 0), o(tile + 1, 0), o(tile, 1), o(tile + 1, 1));
      }
    } else {
#pragma unroll
      for (int tile = 0; tile < C::Dv / 8; ++tile) {
        *reinterpret_cast<float2*>(o_row + column_of<C>(tile, 0, lane)) = make_float2(o(tile, 0), o(tile, 1));
      }
    }
  });
}

}  // namespace kbtool::cuda
