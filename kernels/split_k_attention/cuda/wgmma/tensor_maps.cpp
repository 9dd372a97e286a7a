#include "tensor_maps.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "../common/layout.h"

namespace kbtool::cuda {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

// The driver's function, found through the runtime, so that nothing links against the driver.
Encode encoder() {
  static const Encode found = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult result;
    const cudaError_t error = cudaGetDriverEntryPointByVersion(
        "cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &result);
    const bool there = error == cudaSuccess && result == cudaDriverEntryPointSuccess;
    return there ? reinterpret_cast<Encode>(function) : nullptr;
  }();
  return found;
}

// The driver's encoder fails on a thread without a current context. A thread has none before its first call of the
// runtime that needs one.
bool attach_context() {
  int device = 0;
  return cudaGetDevice(&device) == cudaSuccess && cudaSetDevice(device) == cudaSuccess;
}

bool make_map(const void* base,  // [B, Hkv, Skv, columns], or [pages, Hkv, page_size, columns], by strides
              const Strides4& stride, int64_t columns, const SplitKParams& p, ElementType type, int box_keys,
              CUtensorMap* map) {
  const int64_t sizes[4] = {columns, kv_rows(p), p.Hkv, kv_entries(p)};
  const int64_t elements[3] = {stride.seq, stride.head, stride.batch};
  cuuint64_t dims[4] = {static_cast<cuuint64_t>(columns)};
  cuuint64_t strides[3];
  for (int i = 0; i < 3; ++i) {
    const bool one = sizes[i + 1] == 1 || elements[i] == 0;  // any valid stride will do
    dims[i + 1] = one ? 1 : static_cast<cuuint64_t>(sizes[i + 1]);
    strides[i] = one ? 16 : static_cast<cuuint64_t>(elements[i] * ELEMENT_BYTES);
  }
  const cuuint32_t box[4] = {64, static_cast<cuuint32_t>(box_keys), 1, 1};
  const cuuint32_t steps[4] = {1, 1, 1, 1};
  const CUtensorMapDataType element = type == ElementType::fp16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                                                : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  // L2 promotion of 256 bytes costs 5 to 8 % where HBM bandwidth is the limit (H200).
  const auto encode = [&] {
    return encoder()(map, element, 4, const_cast<void*>(base), dims, strides, box, steps,
                     CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                     CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  };
  CUresult made = encode();
  if (made != CUDA_SUCCESS && attach_context()) made = encode();
  return made == CUDA_SUCCESS;
}

}  // namespace

bool make_tensor_maps(const SplitKParams& p, ElementType type, int box_keys, TensorMaps* maps) {
  if (encoder() == nullptr || !tma_reads(p)) return false;
  if (p.block_table != nullptr) box_keys = static_cast<int>(std::min<int64_t>(box_keys, p.page_size));
  return make_map(p.k, p.k_stride, p.D, p, type, box_keys, &maps->k) &&
         make_map(p.v, p.v_stride, p.Dv, p, type, box_keys, &maps->v);
}

}  // namespace kbtool::cuda
