// Tensor maps of k and v: what TMA needs to know of their layout.
#pragma once

#include <cuda.h>

#include "../../params.h"
#include "../common/problem.h"

namespace kbtool::cuda {

// k and v as [B, Hkv, Skv, D] or [pages, Hkv, page_size, D], read in boxes of `box_keys` keys (of a page, if that is
// smaller) and 64 columns with the 128-byte swizzle;
// elements outside the tensor are 0. Batch entries or heads with a stride of 0 have one index in the map.
struct TensorMaps {
  CUtensorMap k;
  CUtensorMap v;
};

// Fills `maps`; false if TMA cannot read k and v (layout.h), or the driver knows of no tensor maps.
bool make_tensor_maps(const SplitKParams& p, ElementType type, int box_keys, TensorMaps* maps);

}  // namespace kbtool::cuda
