// How a product is cut, and the instances of the kernel, one source per element type.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "../params.h"

namespace split_k_gemm::cuda {

constexpr int MAX_SPLITS = 8;  // the blocks of a portable cluster
constexpr int64_t MAX_ROWS = 65535 * 16;  // blocks along z, of 16 rows of x each

// The order in which a row's terms are added follows from `splits` and `warps`, and these from N and K: the
// bits of a row do not depend on the other rows.
struct Cut {
  int splits;    // ranges of k, one for each block of a cluster
  int warps;     // of a block, which take chunks of its k in turn: 8 or 16
  int chunks;    // that a warp of up to 8 rows of x loads ahead: 1 or 2
  int row_tiles;  // of w in a block, for more than 8 rows of x: 1 or 2
  bool aligned;  // all rows of x and w start at a multiple of 16 bytes, and K is a multiple of 8
};

Cut choose_cut(const Params& p, int multiprocessors);

cudaError_t launch_fp16(const Params& p, const Cut& cut, cudaStream_t stream);
cudaError_t launch_bf16(const Params& p, const Cut& cut, cudaStream_t stream);

}  // namespace split_k_gemm::cuda
