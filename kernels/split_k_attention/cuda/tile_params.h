// What the kernels fa1 and two_pass are told, worked out on the host, and the sources' entry points:
// each element type is one source that defines them.
#pragma once

#include <cuda_runtime_api.h>

#include "../params.h"
#include "instance.h"
#include "kv_lengths.h"

namespace kbtool::cuda {

struct TileParams {
  SplitKParams p;  // p.kv_lengths is not used
  KvLengths lengths;
  int64_t tiles;         // query tiles of a head
  bool rows_of_16_bytes;  // every row of q, k and v is made of pieces of 16 bytes, aligned
};

using TileLaunch = cudaError_t (*)(const TileParams& tp, cudaStream_t stream);

// One pass: fills out and lse.
KBTOOL_INSTANCE cudaError_t launch_fa1_fp16(const TileParams& tp, cudaStream_t stream);
KBTOOL_INSTANCE cudaError_t launch_fa1_bf16(const TileParams& tp, cudaStream_t stream);

// Pass 1: fills partial_*, or where these are null, with one split, out and lse.
KBTOOL_INSTANCE cudaError_t launch_partial_fp16(const TileParams& tp, cudaStream_t stream);
KBTOOL_INSTANCE cudaError_t launch_partial_bf16(const TileParams& tp, cudaStream_t stream);

// Pass 2: fills out and lse from partial_*; of q, k and v nothing is read.
KBTOOL_INSTANCE cudaError_t launch_reduce_fp16(const SplitKParams& p, cudaStream_t stream);
KBTOOL_INSTANCE cudaError_t launch_reduce_bf16(const SplitKParams& p, cudaStream_t stream);

}  // namespace kbtool::cuda
