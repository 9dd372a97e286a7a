// What the bulk tensor copies of sm_90 and later are told of k and v: how they lie in memory.
#pragma once

#include <cuda.h>

#include "../../params.h"
#include "../common/problem.h"

namespace kbtool::cuda {

// k and v as [B, Hkv, Skv, D], to be read in boxes of `box_keys` keys and 64 columns, which come in
// the 128-byte swizzle; what lies outside of the tensor comes as 0.
struct TensorMaps {
  CUtensorMap k;
  CUtensorMap v;
};

// Whether such copies can read k and v as they lie; if so, `maps` describes them.
bool make_tensor_maps(const SplitKParams& p, ElementType type, int box_keys, TensorMaps* maps);

}  // namespace kbtool::cuda
