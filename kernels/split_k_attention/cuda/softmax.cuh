// The states of attention_state.h as the fused kernel keeps them: m in base 2, so that an
// exponential is one instruction. m, l, o and the merge are otherwise the same algebra.
//
//   m  the maximum logit times log2(e)
//   l  the sum of exp2(logit * log2(e) - m)
//   o  the sum of exp2(logit * log2(e) - m) * v
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

// The state of one row over four columns.
struct StateChunk {
  float m;
  float l;
  float4 o;
};

// Merges `count` states in the order of their numbers. m_of, l_of and o_of give the parts of one.
template <class M, class L, class O>
__device__ __forceinline__ StateChunk merge_states(int count, const M& m_of, const L& l_of,
                                                   const O& o_of) {
  StateChunk merged{-CUDART_INF_F, 0.0f, make_float4(0.0f, 0.0f, 0.0f, 0.0f)};
#pragma unroll 8
  for (int i = 0; i < count; ++i) merged.m = max_nan(merged.m, m_of(i));
  const float base = finite_base(merged.m);
#pragma unroll 8
  for (int i = 0; i < count; ++i) {
    const float weight = exp2_fast(m_of(i) - base);
    const float4 o = o_of(i);
    merged.l = fmaf(weight, l_of(i), merged.l);
    merged.o.x = fmaf(weight, o.x, merged.o.x);
    merged.o.y = fmaf(weight, o.y, merged.o.y);
    merged.o.z = fmaf(weight, o.z, merged.o.z);
    merged.o.w = fmaf(weight, o.w, merged.o.w);
  }
  return merged;
}

// ln of the sum of exp(logit). `to_natural` is ln(2) corrected for the rounding of the factor that
// made base-2 logits. In double: a logit of 10^4 leaves a float no digits for ln(l).
__device__ __forceinline__ float log_sum_exp_base2(float m, float l, double to_natural) {
  if (l == 0.0f) return -CUDART_INF_F;
  if (m == CUDART_INF_F) return m;  // its l is NaN, from inf - inf
  return static_cast<float>(static_cast<double>(m) * to_natural + log(static_cast<double>(l)));
}

}  // namespace kbtool::cuda
