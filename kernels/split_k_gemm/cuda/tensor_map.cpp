#include "tensor_map.h"

#include <cuda_runtime_api.h>

namespace split_k_gemm::cuda {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

// The driver's function, found through the runtime, so that nothing links against the driver.
Encode encoder() {
  static const Encode found = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult result;
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &result);
    const bool there = error == cudaSuccess && result == cudaDriverEntryPointSuccess;
    return there ? reinterpret_cast<Encode>(function) : nullptr;
  }();
  return found;
}

// The encoder fails on a thread without a current context. A thread has none before its first call of the runtime that
// needs one.
bool attach_context() {
  int device = 0;
  return cudaGetDevice(&device) == cudaSuccess && cudaSetDevice(device) == cudaSuccess;
}

}  // namespace

bool make_tensor_map(const Matrix& matrix, ElementType type, int box_rows, int box_chunks, CUtensorMap* map) {
  if (encoder() == nullptr) return false;
  const cuuint64_t dims[3] = {RING_CHUNK, static_cast<cuuint64_t>(matrix.rows),
                              static_cast<cuuint64_t>(matrix.K / RING_CHUNK)};
  // One row has any stride.
  const cuuint64_t row_bytes = matrix.rows == 1 ? 16 : static_cast<cuuint64_t>(matrix.stride) * 2;
  const cuuint64_t strides[2] = {row_bytes, RING_CHUNK * 2};
  const cuuint32_t box[3] = {RING_CHUNK, static_cast<cuuint32_t>(box_rows), static_cast<cuuint32_t>(box_chunks)};
  const cuuint32_t steps[3] = {1, 1, 1};
  const CUtensorMapDataType element =
      type == ElementType::fp16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  // L2 promotion of 256 bytes costs 2 to 8 % where the weight is large (H200).
  const auto encode = [&] {
    return encoder()(map, element, 3, const_cast<void*>(matrix.data), dims, strides, box, steps,
                     CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                     CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
  };
  return encode() || (attach_context() && encode());
}

}  // namespace split_k_gemm::cuda
