// One block of keys against a few query rows: logits, online softmax, weighted values.
//
// ROWS (1, 2 or 4) query rows share every load of a key and of a value. Logits and weights of a
// block lie as [key][row], so a vector holds LANES / ROWS keys of all rows, and each step below is
// the same code for every ROWS.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels.h"
#include "simd.h"

namespace kbtool::cpu {

static_assert(BLOCK_KV % LANES == 0, "the logits of a block are stored in whole vectors");

// What an online softmax carries for ROWS rows from block to block.
template <int ROWS>
struct RowStates {
  float* m;           // [ROWS]
  float* l;           // [ROWS]
  float* o;           // [ROWS, Dv_pad]
  float alpha[ROWS];  // the weight of what was accumulated before the present block
};

// The rows of a block of keys, [keys, D_pad], or of values, [keys, Dv_pad]. `next` is the block after it, or null: it is
// prefetched row by row while this block is computed, so that the memory is never idle.
template <class T>
struct BlockRows {
  using Element = T;
  const Element* rows;
  int64_t stride;
  const Element* next;

  const Element* row(int64_t key) const { return rows + key * stride; }
  const Element* next_row(int64_t key) const { return next + key * stride; }
  BlockRows after(int64_t keys) const { return {row(keys), stride, nullptr}; }
};

// The same for rows that lie in pages.
template <class T>
struct PagedRows {
  using Element = T;
  const Element* const* rows;  // [keys]
  const Element* const* next;  // [BLOCK_KV]

  const Element* row(int64_t key) const { return rows[key]; }
  const Element* next_row(int64_t key) const { return next[key]; }
  PagedRows after(int64_t keys) const { return {rows + keys, nullptr}; }
};

// Prefetches into the L2 cache: the few miss buffers of L1 would limit a core to a third of its
// bandwidth. An address past the end of the tensor is harmless.
template <class Element>
inline void prefetch_row(const Element* row, int64_t D_pad) {
  constexpr int64_t LINE = 64 / sizeof(Element);
  for (int64_t d = 0; d < D_pad; d += LINE) __builtin_prefetch(row + d, 0, 2);
}

// Keys of a block that each row sees: [first, end). Rows are query-major, so neither decreases.
template <int ROWS>
struct SeenKeys {
  int32_t first[ROWS];
  int32_t end[ROWS];
};

// logits[key][row] = q[row] . k[key] * scale. D_pad is D rounded up to LANES. Columns past D are 0 in
// q and k; k is read in place only if D needs no padding.
template <int ROWS, class Rows>
void compute_logits(const float* q,  // [ROWS, D_pad]
                    const Rows& k, int64_t keys, int64_t D_pad, float scale,
                    float* logits) {  // [BLOCK_KV, ROWS]
  constexpr int KEYS = LANES / ROWS;
  for (int64_t key0 = 0; key0 < keys; key0 += KEYS) {
    if (k.next != nullptr) {
      for (int j = 0; j < KEYS; ++j) prefetch_row(k.next_row(key0 + j), D_pad);
    }
    const typename Rows::Element* k_row[KEYS];
#pragma GCC unroll 16
    for (int j = 0; j < KEYS; ++j) {
      // Past the end the last key is read again; the softmax drops those lanes.
      k_row[j] = k.row(std::min(key0 + j, keys - 1));
    }
    Vec acc[LANES] = {};
    for (int64_t d = 0; d < D_pad; d += LANES) {
      Vec q_rmem[ROWS];
#pragma GCC unroll 4
      for (int r = 0; r < ROWS; ++r) q_rmem[r] = load(q + r * D_pad + d);
#pragma GCC unroll 16
      for (int j = 0; j < KEYS; ++j) {
        const Vec k_rmem = load(k_row[j] + d);
#pragma GCC unroll 4
        for (int r = 0; r < ROWS; ++r) acc[j * ROWS + r] += q_rmem[r] * k_rmem;
      }
    }
    store(logits + key0 * ROWS, sum_lanes(acc) * scale);
  }
}

template <int ROWS>
void cap_logits(float* logits, int64_t keys, float softcap) {  // [BLOCK_KV, ROWS]
  for (int64_t i = 0; i < keys * ROWS; i += LANES) {
    store(logits + i, tanh(load(logits + i) / softcap) * softcap);
  }
}

template <int STRIDE, int ROWS>
inline Vec max_over_keys(Vec x) {
  if constexpr (STRIDE >= ROWS) {
    return max_over_keys<STRIDE / 2, ROWS>(max_logit(x, swap_lanes<STRIDE>(x)));
  } else {
    return x;
  }
}

// Turns logits into weights exp(logit - m) against the new maximum; a key that a row does not see
// weighs 0 whatever its logit was.
template <int ROWS>
void online_softmax(float* logits,  // [BLOCK_KV, ROWS], weights on return
                    const SeenKeys<ROWS>& seen, int64_t keys, RowStates<ROWS>& state) {
  constexpr int KEYS = LANES / ROWS;
  const Vec hidden = splat(-__builtin_inff());
  IntVec first_of_lane, end_of_lane, key_of_lane;
  Vec m_old;
  for (int i = 0; i < LANES; ++i) {
    first_of_lane[i] = seen.first[i % ROWS];
    end_of_lane[i] = seen.end[i % ROWS];
    key_of_lane[i] = i / ROWS;
    m_old[i] = state.m[i % ROWS];
  }

  Vec m_new = m_old;
  for (int64_t key0 = 0; key0 < keys; key0 += KEYS) {
    Vec x = load(logits + key0 * ROWS);
    const IntVec key = key_of_lane + static_cast<int32_t>(key0);
    x = ((key >= first_of_lane) & (key < end_of_lane)) ? x : hidden;
    store(logits + key0 * ROWS, x);
    m_new = max_logit(m_new, x);
  }
  m_new = max_over_keys<LANES / 2, ROWS>(m_new);

  // A row that has seen nothing yet: -inf - -inf would be NaN, -inf - 0 weighs 0.
  const Vec base = (m_new == hidden) ? Vec{} : m_new;
  for (int64_t key0 = 0; key0 < keys; key0 += KEYS) {
    store(logits + key0 * ROWS, exp_nonpositive(load(logits + key0 * ROWS) - base));
  }
  const Vec alpha = exp_nonpositive(m_old - base);
  for (int r = 0; r < ROWS; ++r) {
    state.m[r] = m_new[r];
    state.alpha[r] = alpha[r];
  }
}

// What a block adds to o: weights [keys, ROWS] and values.
template <class Rows>
struct Weighted {
  const float* weights;
  int64_t weight_stride;
  Rows v;
  int64_t keys;
};

// VECS vectors of columns from d: o = o * alpha + weights . v, the keys in order.
template <int ROWS, int VECS, class Rows>
inline void accumulate_columns(const Weighted<Rows>& block, int64_t d, int64_t Dv_pad,
                               const float* alpha,  // [ROWS]
                               float* o) {          // [ROWS, Dv_pad]
  Vec acc[ROWS][VECS] = {};
  for (int64_t key = 0; key < block.keys; ++key) {
    if (d == 0 && block.v.next != nullptr) {
      prefetch_row(block.v.next_row(key), Dv_pad);
    }
    const auto* v_row = block.v.row(key) + d;
    Vec v_rmem[VECS];
#pragma GCC unroll 8
    for (int i = 0; i < VECS; ++i) {
      v_rmem[i] = load(v_row + i * LANES);
    }
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; ++r) {
      const Vec weight = splat(block.weights[key * block.weight_stride + r]);
#pragma GCC unroll 8
      for (int i = 0; i < VECS; ++i) acc[r][i] += weight * v_rmem[i];
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < ROWS; ++r) {
#pragma GCC unroll 8
    for (int i = 0; i < VECS; ++i) {
      float* target = o + r * Dv_pad + d + i * LANES;
      store(target, load(target) * alpha[r] + acc[r][i]);
    }
  }
}

// The columns from d on, as many vectors at a time as there are registers for.
template <int ROWS, int VECS, class Rows>
inline void accumulate_from(const Weighted<Rows>& block, int64_t d, int64_t Dv_pad,
                            const float* alpha,  // [ROWS]
                            float* o) {          // [ROWS, Dv_pad]
  for (; d + VECS * LANES <= Dv_pad; d += VECS * LANES) {
    accumulate_columns<ROWS, VECS>(block, d, Dv_pad, alpha, o);
  }
  if constexpr (VECS > 1) accumulate_from<ROWS, VECS / 2>(block, d, Dv_pad, alpha, o);
}

// Adds a block to l and o. l is summed as if it were a column of ones, in the order of o: over
// V = 1 the two are equal to the last bit.
template <int ROWS, class Rows>
void accumulate(const Weighted<Rows>& block, int64_t Dv_pad,
                const float* alpha,  // [ROWS]
                float* l,            // [ROWS]
                float* o) {          // [ROWS, Dv_pad]
  float sum[ROWS] = {};
  for (int64_t key = 0; key < block.keys; ++key) {
    for (int r = 0; r < ROWS; ++r) sum[r] += block.weights[key * block.weight_stride + r];
  }
  for (int r = 0; r < ROWS; ++r) l[r] = l[r] * alpha[r] + sum[r];

  // 16 accumulators fill half of the vector registers where there are 32.
  constexpr int VECS = ROWS == 1 ? 8 : LANES / ROWS;
  accumulate_from<ROWS, VECS>(block, 0, Dv_pad, alpha, o);
}

// The values of one block. Rows of a tile see a common run of keys. On a causal diagonal some see a few
// more after it, and at the start of a window before it; those are added row by row, so a value that a row
// does not see cannot reach it even as 0 * NaN.
template <int ROWS, class Rows>
void accumulate_seen(const float* weights,  // [BLOCK_KV, ROWS]
                     const SeenKeys<ROWS>& seen, const Rows& v, int64_t Dv_pad,
                     RowStates<ROWS>& state) {
  const int32_t first = seen.first[ROWS - 1];
  const int32_t end = std::max(first, seen.end[0]);
  const Weighted<Rows> common{weights + first * ROWS, ROWS, first == 0 ? v : v.after(first), end - first};
  accumulate<ROWS>(common, Dv_pad, state.alpha, state.l, state.o);
  const float unchanged = 1.0f;
  const auto add = [&](int r, int32_t from, int32_t to) {
    if (from >= to) return;
    const Weighted<Rows> block{weights + from * ROWS + r, ROWS, v.after(from), to - from};
    accumulate<1>(block, Dv_pad, &unchanged, state.l + r, state.o + r * Dv_pad);
  };
  for (int r = 0; r < ROWS; ++r) {
    add(r, seen.first[r], std::min(first, seen.end[r]));
    add(r, end, seen.end[r]);
  }
}

}  // namespace kbtool::cpu
