#include "merge_outputs.h"

#include <algorithm>

#include "../attention_state.h"
#include "common/mma.cuh"

namespace kbtool::cuda {

namespace {

constexpr int WARPS = 4;  // of a block, each with a row
constexpr int COLUMNS = MAX_HEAD_DIM / 32;  // of a lane: lane, lane + 32, …

template <class Part, class Element>
__global__ void __launch_bounds__(32 * WARPS) merge_outputs_kernel(const __grid_constant__ MergeOutputsParams p) {
  const int lane = threadIdx.x % 32;
  const int64_t rows = p.B * p.H * p.Sq;
  const int64_t step = static_cast<int64_t>(gridDim.x) * WARPS;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * WARPS + threadIdx.x / 32; row < rows; row += step) {
    const int64_t query = row % p.Sq, head = row / p.Sq % p.H, batch = row / (p.Sq * p.H);
    const float* lses = p.lses + batch * p.lse_strides[1] + head * p.lse_strides[2] + query * p.lse_strides[3];
    const Part* outs = static_cast<const Part*>(p.outs) + batch * p.out_strides[1] + head * p.out_strides[2] +
                       query * p.out_strides[3];
    float m = negative_infinity();
    for (int64_t part = lane; part < p.parts; part += 32) m = max_logit(m, lses[part * p.lse_strides[0]]);
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) m = max_logit(m, __shfl_xor_sync(~0u, m, apart));
    // One base for all: rescaling at each new maximum would add up rounding errors.
    const float base = m == negative_infinity() ? 0.0f : m;
    float l = 0.0f;
    float o[COLUMNS] = {};
    for (int64_t first = 0; first < p.parts; first += 32) {  // each lane has the weight of a part
      const bool there = first + lane < p.parts;
      const float lse = there ? lses[(first + lane) * p.lse_strides[0]] : negative_infinity();
      const float of_lane = expf(lse - base);
      const unsigned some = __ballot_sync(~0u, lse != negative_infinity());  // the outputs of others may be anything
      const int count = static_cast<int>(min(int64_t{32}, p.parts - first));
      const Part* from = outs + first * p.out_strides[0];
      // Without a branch, so that the loads of several parts are in flight.
#pragma unroll 8
      for (int part = 0; part < count; ++part, from += p.out_strides[0]) {
        const float weight = __shfl_sync(~0u, of_lane, part);
        l += weight;
#pragma unroll
        for (int i = 0; i < COLUMNS; ++i) {
          const int column = lane + i * 32;
          const float x = column < p.D ? static_cast<float>(from[column * p.out_strides[4]]) : 0.0f;
          o[i] = fmaf(weight, (some >> part & 1) != 0 ? x : 0.0f, o[i]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < COLUMNS; ++i) {
      const int column = lane + i * 32;
      if (column < p.D) {
        static_cast<Element*>(p.out)[row * p.D + column] =
            ElementTraits<Element>::from_float(normalised(o[i], l));
      }
    }
    if (lane == 0) p.lse[row] = log_sum_exp(m, l);
  }
}

template <class Part, class Element>
cudaError_t launch(const MergeOutputsParams& p, cudaStream_t stream) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(std::min(ceil_div(p.B * p.H * p.Sq, WARPS), MAX_BLOCKS)));
  config.blockDim = dim3(32 * WARPS);
  config.stream = stream;
  return cudaLaunchKernelEx(&config, merge_outputs_kernel<Part, Element>, p);
}

template <class Element>
cudaError_t launch_for(const MergeOutputsParams& p, OutputType outs, cudaStream_t stream) {
  switch (outs) {
    case OutputType::fp16:
      return launch<__half, Element>(p, stream);
    case OutputType::bf16:
      return launch<__nv_bfloat16, Element>(p, stream);
    default:
      return launch<float, Element>(p, stream);
  }
}

}  // namespace

cudaError_t launch_merge_outputs(const MergeOutputsParams& p, OutputType outs, ElementType type, cudaStream_t stream) {
  return type == ElementType::fp16 ? launch_for<__half>(p, outs, stream) : launch_for<__nv_bfloat16>(p, outs, stream);
}

}  // namespace kbtool::cuda
