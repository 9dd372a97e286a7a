#pragma once

#include <cstdint>

#include "../params.h"

namespace split_k_gemm::cpu {

constexpr int64_t MAX_SPLITS = 64;

// The number of ranges of k: enough items for every core where w has few rows. It depends on the shape
// alone, so a result does not depend on the machine's number of cores.
int64_t choose_splits(const Params& p);

// Computes p.out on torch's threads; `half` says that elements are fp16, otherwise bf16.
void gemm(const Params& p, bool half, int64_t splits);

}  // namespace split_k_gemm::cpu
