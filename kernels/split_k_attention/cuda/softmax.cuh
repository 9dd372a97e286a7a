// The states of attention_state.h as the kernels keep them that finish in one launch: m before it is
// scaled, so that it is exact, and with c = |scale| * log2(e) a weight is one multiply-add and one
// exponential in base 2. The merge is otherwise the same algebra.
//
//   m  the maximum of q.k (of -q.k for a negative scale)
//   l  the sum of exp2(q.k * c - scaled(m))
//   o  the sum of exp2(q.k * c - scaled(m)) * v
//
// scaled(m) is m * c rounded: one number, the same in every weight and in the LSE, so its rounding
// cancels.
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

// What logits are taken relative to. An empty state's -inf - -inf would be NaN; -inf - 0 weighs 0.
__device__ __forceinline__ float finite_base(float m) { return m == -CUDART_INF_F ? 0.0f : m; }

// Rounded here and now: not fused into what it is subtracted from.
__device__ __forceinline__ float scaled(float m, float c) { return __fmul_rn(m, c); }

// The state of one row over four columns.
struct StateChunk {
  float m;
  float l;
  float4 o;
};

// Merges `count` states in the order of their numbers. m_of, l_of and o_of give the parts of one.
template <int UNROLL = 4, class M, class L, class O>
__device__ __forceinline__ StateChunk merge_states(int count, float c, const M& m_of, const L& l_of,
                                                   const O& o_of) {
  StateChunk merged{-CUDART_INF_F, 0.0f, make_float4(0.0f, 0.0f, 0.0f, 0.0f)};
#pragma unroll UNROLL
  for (int i = 0; i < count; ++i) merged.m = max_nan(merged.m, m_of(i));
  const float base = scaled(finite_base(merged.m), c);
#pragma unroll UNROLL
  for (int i = 0; i < count; ++i) {
    const float weight = exp2_fast(scaled(m_of(i), c) - base);
    const float4 o = o_of(i);
    merged.l = fmaf(weight, l_of(i), merged.l);
    merged.o.x = fmaf(weight, o.x, merged.o.x);
    merged.o.y = fmaf(weight, o.y, merged.o.y);
    merged.o.z = fmaf(weight, o.z, merged.o.z);
    merged.o.w = fmaf(weight, o.w, merged.o.w);
  }
  return merged;
}

// The same where the parts are far: those of AHEAD states are asked for at once, and the merge of one
// such batch goes into the next.
template <int AHEAD, class M, class L, class O>
__device__ __forceinline__ StateChunk merge_far_states(int count, float c, const M& m_of,
                                                       const L& l_of, const O& o_of) {
  StateChunk merged{-CUDART_INF_F, 0.0f, make_float4(0.0f, 0.0f, 0.0f, 0.0f)};
#pragma unroll 1
  for (int first = 0; first < count; first += AHEAD) {
    StateChunk states[AHEAD + 1];
    states[0] = merged;
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) {
      states[i + 1] = {-CUDART_INF_F, 0.0f, make_float4(0.0f, 0.0f, 0.0f, 0.0f)};
      if (first + i < count) states[i + 1] = {m_of(first + i), l_of(first + i), o_of(first + i)};
    }
    merged = merge_states<AHEAD + 1>(
        AHEAD + 1, c, [&](int i) { return states[i].m; }, [&](int i) { return states[i].l; },
        [&](int i) { return states[i].o; });
  }
  return merged;
}

// ln of the sum of exp(logit). The sum is in double: a logit of 10^4 leaves a float no digits for
// ln(l). Of l the exponent is taken apart and the fraction is near 1, where logf errs by 1e-8.
__device__ __forceinline__ float log_sum_exp_scaled(float m, float l, float c, double scale) {
  if (m == CUDART_INF_F) return m;  // its l is NaN, from inf - inf
  if (l == 0.0f) return -CUDART_INF_F;
  if (l != l) return l;
  constexpr int SQRT_HALF = 0x3f3504f3;
  const int bits = __float_as_int(l);
  const int exponent = (bits - SQRT_HALF) & ~0x7fffff;
  const float fraction = __int_as_float(bits - exponent);  // in [sqrt(1/2), sqrt(2))
  constexpr double LN_2 = 0.69314718055994530942;
  // l is relative to scaled(m), which is not quite m * c.
  const double rounding = static_cast<double>(scaled(m, c)) - static_cast<double>(m) * c;
  return static_cast<float>(static_cast<double>(m) * scale +
                            ((static_cast<double>(exponent >> 23) + rounding) * LN_2 +
                             static_cast<double>(logf(fraction))));
}

}  // namespace kbtool::cuda
