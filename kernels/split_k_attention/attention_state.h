// The algebra of Split-K attention: softmax attention over a set of keys is a state, and the states
// of two disjoint sets merge into the state of their union. CPU and CUDA sources use this header.
//
// Stated once, for every source of this folder:
//   m  the maximum logit, in natural-log units (q.k * scale, not log2)
//   l  the sum of exp(logit - m)
//   o  the sum of exp(logit - m) * v, not yet divided by l
//   The empty state is (m, l, o) = (-inf, 0, 0). It is the identity of merge.
//   Output of a row = o / l; LSE of a row = m + ln(l). An empty row gives output 0 and LSE -inf.
//   A NaN logit makes output and LSE NaN. A logit of +inf makes the output NaN and the LSE +inf,
//   which is what softmax and logsumexp make of it.
#pragma once

#include <cmath>

#if defined(__CUDACC__)
#define KBTOOL_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define KBTOOL_HOST_DEVICE inline
#endif

namespace kbtool {

KBTOOL_HOST_DEVICE float negative_infinity() { return -HUGE_VALF; }

// The larger logit; NaN if either is NaN.
KBTOOL_HOST_DEVICE float max_logit(float a, float b) { return (a > b || a != a) ? a : b; }

// The larger maximum of two states, and the factors that rescale l and o of each state to it.
struct MergeWeights {
  float m;
  float a;
  float b;
};

KBTOOL_HOST_DEVICE MergeWeights merge_weights(float m_a, float m_b) {
  const float m = max_logit(m_a, m_b);
  // Two empty states: -inf - -inf would be NaN. Both weigh 0, and 0 is what they hold.
  const float base = m == negative_infinity() ? 0.0f : m;
  return {m, expf(m_a - base), expf(m_b - base)};
}

// The same operation for l and for each element of o: if all values are 1, o equals l bit for bit,
// and the output is exactly 1 with any splits. The factor of the state with the larger m is exactly
// 1, so one fma is enough, and merge is commutative to the last bit.
KBTOOL_HOST_DEVICE float merge_weighted(const MergeWeights& w, float a, float b) {
  return w.a == 1.0f ? fmaf(b, w.b, a) : fmaf(a, w.a, b);
}

// An attention sink is one more logit, without a value: the state (sink, 1, 0). Merges it into m and l of a
// row whose splits are merged, and returns the factor for its o. A sink of -inf changes nothing.
KBTOOL_HOST_DEVICE float merge_sink(float sink, float& m, float& l) {
  const MergeWeights w = merge_weights(m, sink);
  m = w.m;
  l = merge_weighted(w, l, 1.0f);
  return w.a;
}

KBTOOL_HOST_DEVICE float normalised(float o, float l) { return l == 0.0f ? 0.0f : o / l; }

KBTOOL_HOST_DEVICE float log_sum_exp(float m, float l) {
  if (m == -negative_infinity()) return m;  // l is NaN, from inf - inf
  // In double, so that it rounds once; in float, logf and the sum would each round. Once per row.
  return static_cast<float>(static_cast<double>(m) + log(static_cast<double>(l)));
}

// A state that one thread holds: VEC elements of the weighted values of one row.
template <int VEC>
struct AttentionState {
  static_assert(VEC > 0, "a state without values has nothing to weigh");

  float m;
  float l;
  float o[VEC];

  KBTOOL_HOST_DEVICE static AttentionState empty() {
    AttentionState state;
    state.m = negative_infinity();
    state.l = 0.0f;
    for (int i = 0; i < VEC; ++i) state.o[i] = 0.0f;
    return state;
  }

  // The state of one key.
  KBTOOL_HOST_DEVICE static AttentionState of_key(float logit, const float (&value)[VEC]) {
    if (logit == negative_infinity()) return empty();
    AttentionState state;
    state.m = logit;
    state.l = expf(logit - logit);  // 1, or NaN for a logit that is not finite
    for (int i = 0; i < VEC; ++i) state.o[i] = state.l * value[i];
    return state;
  }

  // Associative up to rounding. The kernels merge in a fixed order, so results repeat.
  KBTOOL_HOST_DEVICE void merge(const AttentionState& other) {
    const MergeWeights w = merge_weights(m, other.m);
    m = w.m;
    l = merge_weighted(w, l, other.l);
    for (int i = 0; i < VEC; ++i) o[i] = merge_weighted(w, o[i], other.o[i]);
  }

  KBTOOL_HOST_DEVICE void normalise(float (&out)[VEC]) const {
    for (int i = 0; i < VEC; ++i) out[i] = normalised(o[i], l);
  }

  KBTOOL_HOST_DEVICE float lse() const { return log_sum_exp(m, l); }
};

}  // namespace kbtool
