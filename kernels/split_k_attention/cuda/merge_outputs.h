// Merges what calls over parts of the keys returned, in one kernel.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "../params.h"
#include "common/problem.h"

namespace kbtool::cuda {

enum class OutputType { fp16, bf16, fp32 };

struct MergeOutputsParams {
  const void* outs;  // [parts, B, H, Sq, D] by strides, divided by their sums
  const float* lses;  // [parts, B, H, Sq] by strides, natural log; a part whose LSE is -inf counts for nothing
  void* out;         // [B, H, Sq, D], contiguous
  float* lse;        // [B, H, Sq], contiguous
  int64_t out_strides[5];
  int64_t lse_strides[4];
  int64_t parts, B, H, Sq, D;
};

// Parts are added in order, so results repeat to the bit. `type` is that of p.out.
cudaError_t launch_merge_outputs(const MergeOutputsParams& p, OutputType outs, ElementType type, cudaStream_t stream);

}  // namespace kbtool::cuda
