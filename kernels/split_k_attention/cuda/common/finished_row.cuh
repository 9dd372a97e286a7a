// A row's output and LSE from its state, once all splits are merged.
#pragma once

#include "fused_params.h"
#include "softmax.cuh"

namespace kbtool::cuda {

// noinline, here and below: inlined, the code for sinks took 0.1 us of short calls without (H100).
static __device__ __noinline__ float lse_with_sink(double lse, float sink) {
  if (sink == -CUDART_INF_F || lse == CUDART_INF) return static_cast<float>(lse);
  const float apart = static_cast<float>(fabs(sink - lse));
  return static_cast<float>((sink > lse ? sink : lse) + log1pf(expf(-apart)));
}

// What the keys have of the sum of weights.
static __device__ __noinline__ float share_beside_sink(const FusedParams& fp, uint32_t head, float m, float l) {
  const float sink = fp.p.sinks[head];
  if (sink == -CUDART_INF_F) return 1.0f;
  return 1.0f / (1.0f + expf(static_cast<float>(sink - log_sum_exp_scaled(m, l, fp.c, fp.magnitude))));
}

__device__ __forceinline__ float lse_of_row(const FusedParams& fp, uint32_t head, float m, float l) {
  const double lse = log_sum_exp_scaled(m, l, fp.c, fp.magnitude);
  return fp.p.sinks == nullptr ? static_cast<float>(lse) : lse_with_sink(lse, fp.p.sinks[head]);
}

// Divides by the sum of weights, the sink's included. A row without visible keys gives 0, also where 0 * NaN made its
// weighted sum NaN.
class Quotient {
 public:
  __device__ __forceinline__ Quotient(const FusedParams& fp, uint32_t head, float m, float l)
      : none_(l == 0.0f), inverse_(1.0f / l) {
    if (fp.p.sinks == nullptr) return;
    const float share = share_beside_sink(fp, head, m, l);
    none_ = none_ && share == share;  // a sink of NaN spoils a row without keys too
    inverse_ *= share;
  }
  __device__ __forceinline__ float operator()(float o) const { return none_ ? 0.0f : o * inverse_; }

 private:
  bool none_;
  float inverse_;
};

}  // namespace kbtool::cuda
