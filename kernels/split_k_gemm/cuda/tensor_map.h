// Tensor maps of x and w: what TMA needs to know of their layout.
#pragma once

#include <cuda.h>

#include "launch.h"

namespace split_k_gemm::cuda {

enum class ElementType { fp16, bf16 };

struct Matrix {
  const void* data;  // [rows, K]
  int64_t rows, K;
  int64_t stride;  // elements between rows
};

// `matrix` as [chunks of 64 columns, rows, 64], read in boxes of `box_chunks` times `box_rows` times 64 elements with
// the 128-byte swizzle; rows and chunks outside are zeros. False if the driver knows of no tensor maps.
bool make_tensor_map(const Matrix& matrix, ElementType type, int box_rows, int box_chunks, CUtensorMap* map);

}  // namespace split_k_gemm::cuda
