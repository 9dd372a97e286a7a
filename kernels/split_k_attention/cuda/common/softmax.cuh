// Partial states as fused, ragged and wgmma keep them: as in attention_state.h, but m is the unscaled and
// so exact maximum. With c = |scale| * log2(e) a weight is one multiply-add and one base-2 exponential.
//
//   m  the maximum of q.k (of -q.k for a negative scale)
//   l  the sum of exp2(q.k * c - scaled(m))
//   o  the sum of exp2(q.k * c - scaled(m)) * v
//
// scaled(m) is m * c, rounded once. Every weight and the LSE use the same rounded value, so that its error
// cancels. The error grows with |scaled(m)| and must stay small as an exponent: above 2^12 a weight is
// exp2((q.k - m) * c) instead.
#pragma once

#include <math_constants.h>

namespace kbtool::cuda {

// 2^x to 2 units in the last place; 2^-inf is 0 and NaN stays NaN.
__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// The larger; a NaN wins.
__device__ __forceinline__ float max_nan(float a, float b) {
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}

// __fmul_rn: must not be fused into the subtraction that follows.
__device__ __forceinline__ float scaled(float m, float c) { return __fmul_rn(m, c); }

// What weights are relative to.
struct Base {
  float before;  // subtracted from q.k before it is scaled; 0 unless scaled(m) is large
  float after;   // subtracted from q.k * c
};

// Whether the rounding error of scaled(m) is too large for an exponent. If one of two states is above LARGE and the
// other is not, the error does not cancel in their merge. It is at most 2^-12 in the exponent, half the distance of floats
// from 2^12 on: 1.7e-4 of the weight, a third of an fp16 ulp. A branch that kept it exact, from 2^20 on, made calls 2.4 %
// longer in the mean, and those under 10 us 5 % (H100).
__device__ __forceinline__ bool is_large(float scaled_m) {
  constexpr float LARGE = 1 << 12;
  return fabsf(scaled_m) > LARGE;
}

// For an empty state: -inf - -inf would be NaN, -inf - 0 gives weight 0.
__device__ __forceinline__ float finite_base(float m) { return m == -CUDART_INF_F ? 0.0f : m; }

__device__ __forceinline__ Base base_of(float m, float c) {
  const float base = finite_base(m);
  const float after = scaled(base, c);
  return is_large(after) ? Base{base, 0.0f} : Base{0.0f, after};
}

// The factor that rescales sums from maximum `m` to `base`.
__device__ __forceinline__ float weight_of(float m, float c, const Base& base) {
  return exp2_fast(scaled(m - base.before, c) - base.after);
}

// The state of one row over four columns.
struct StateChunk {
  float m;
  float l;
  float4 o;
};

// Adds a state to sums that are relative to `base`.
__device__ __forceinline__ void add_state(StateChunk& sums, const StateChunk& state, float c,
                                          const Base& base) {
  const float weight = weight_of(state.m, c, base);
  sums.l = fmaf(weight, state.l, sums.l);
  sums.o.x = fmaf(weight, state.o.x, sums.o.x);
  sums.o.y = fmaf(weight, state.o.y, sums.o.y);
  sums.o.z = fmaf(weight, state.o.z, sums.o.z);
  sums.o.w = fmaf(weight, state.o.w, sums.o.w);
}

// Merges `count` partial states in order. m_of, l_of and o_of load the parts of one.
template <int UNROLL = 4, class M, class L, class O>
__device__ __forceinline__ StateChunk merge_states(int count, float c, const M& m_of, const L& l_of,
                                                   const O& o_of) {
  StateChunk merged{-CUDART_INF_F, 0.0f, make_float4(0.0f, 0.0f, 0.0f, 0.0f)};
#pragma unroll UNROLL
  for (int i = 0; i < count; ++i) merged.m = max_nan(merged.m, m_of(i));
  const Base base = base_of(merged.m, c);
#pragma unroll UNROLL
  for (int i = 0; i < count; ++i) {
    add_state(merged, {m_of(i), l_of(i), o_of(i)}, c, base);
  }
  return merged;
}

// One thread has all states.
struct ThisThreadOnly {
  __device__ __forceinline__ float operator()(float m) const { return m; }
};

// The same for partial states in global memory: AHEAD of them are loaded at once. Where several threads merge
// some of the states each, max_over_all(m) is the maximum over all threads, and their sums add up.
template <int AHEAD, class M, class L, class O, class Max = ThisThreadOnly>
__device__ __forceinline__ StateChunk merge_global_states(int count, float c, const M& m_of,
                                                       const L& l_of, const O& o_of,
                                                       const Max& max_over_all = {}) {
  StateChunk states[AHEAD];
  const auto load = [&](int first) {
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) {
      states[i] = {-CUDART_INF_F, 0.0f, make_float4(0.0f, 0.0f, 0.0f, 0.0f)};
      if (first + i < count) states[i] = {m_of(first + i), l_of(first + i), o_of(first + i)};
    }
  };
  StateChunk merged{-CUDART_INF_F, 0.0f, make_float4(0.0f, 0.0f, 0.0f, 0.0f)};
  load(0);
#pragma unroll
  for (int i = 0; i < AHEAD; ++i) merged.m = max_nan(merged.m, states[i].m);
#pragma unroll 1
  for (int first = AHEAD; first < count; first += AHEAD) {
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) {
      merged.m = max_nan(merged.m, first + i < count ? m_of(first + i) : -CUDART_INF_F);
    }
  }
  merged.m = max_over_all(merged.m);
  // One base for all: rescaling at each new maximum would add up rounding errors.
  const Base base = base_of(merged.m, c);
#pragma unroll 1
  for (int first = 0;;) {
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) add_state(merged, states[i], c, base);
    first += AHEAD;
    if (first >= count) return merged;
    load(first);
  }
}

// ln of the sum of exp(logit), in double: beside a logit of 10^4 a float has no digits left for ln(l). l is
// split into exponent and a fraction near 1, where logf is accurate to 1e-8.
__device__ __forceinline__ double log_sum_exp_scaled(float m, float l, float c, double scale) {
  if (m == CUDART_INF_F) return m;  // its l is NaN, from inf - inf
  if (l == 0.0f) return -CUDART_INF_F;
  if (l != l) return l;
  constexpr int SQRT_HALF = 0x3f3504f3;
  const int bits = __float_as_int(l);
  const int exponent = (bits - SQRT_HALF) & ~0x7fffff;
  const float fraction = __int_as_float(bits - exponent);  // in [sqrt(1/2), sqrt(2))
  constexpr double LN_2 = 0.69314718055994530942;
  // l is relative to scaled(m), whose rounding error is taken out here. If scaled(m) is large, l is relative to m
  // itself, and there is none.
  const Base base = base_of(m, c);
  const double rounding =
      base.before == 0.0f ? static_cast<double>(base.after) - static_cast<double>(m) * c : 0.0;
  return static_cast<double>(m) * scale + ((static_cast<double>(exponent >> 23) + rounding) * LN_2 +
                                           static_cast<double>(logf(fraction)));
}

}  // namespace kbtool::cuda
