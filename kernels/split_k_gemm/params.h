// The sizes and addresses of one product, for every target.
#pragma once

#include <cstdint>

namespace split_k_gemm {

// out[m][n] = sum over k of x[m][k] w[n][k]; rows of x and w are contiguous, out is contiguous.
struct Params {
  const void* x;  // [M, K]
  const void* w;  // [N, K]
  void* out;      // [M, N]
  int64_t M, N, K;
  int64_t x_stride, w_stride;  // elements between rows
};

}  // namespace split_k_gemm
