// The parameters of the baselines fa1 and two_pass, worked out on the host, and their launch functions.
#pragma once

#include <cuda_runtime_api.h>

#include "../../params.h"
#include "../instances.h"
#include "../common/kv_lengths.h"
#include "../common/problem.h"

namespace kbtool::cuda {

struct TileParams {
  SplitKParams p;  // p.kv_lengths is not used
  KvLengths lengths;
  int64_t tiles;         // query tiles of a head
  bool aligned_16;       // every row of q, k and v can be read 16 bytes at a time
};


// fa1 fills out and lse. partial, pass 1 of two_pass, fills partial_* or, where these are null (one split),
// out and lse. reduce, pass 2, fills out and lse from partial_* and reads nothing of q, k and v.
KBTOOL_BASELINES(KBTOOL_DECLARE_BASELINE)

// The instance of a baseline for an element type.
#define KBTOOL_BASELINE(kernel, type) \
  ((type) == ElementType::fp16 ? launch_##kernel##_fp16 : launch_##kernel##_bf16)

}  // namespace kbtool::cuda
