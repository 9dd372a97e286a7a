// The last node that a stream has captured into a CUDA graph.
#pragma once

#include <cuda_runtime_api.h>

namespace kbtool::cuda {

struct CapturedEnd {
  bool capturing = false;
  cudaStream_t stream = nullptr;
  unsigned long long capture = 0;  // its id, which no other has
  cudaGraphNode_t node = nullptr;  // the last one; null where there is none, or several
};

inline CapturedEnd captured_end(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long capture = 0;
  const cudaGraphNode_t* nodes = nullptr;
  size_t count = 0;
#if CUDART_VERSION >= 13000
  const cudaGraphEdgeData* edges = nullptr;
  const cudaError_t error =
      cudaStreamGetCaptureInfo(stream, &status, &capture, nullptr, &nodes, &edges, &count);
#else
  const cudaError_t error =
      cudaStreamGetCaptureInfo(stream, &status, &capture, nullptr, &nodes, &count);
#endif
  if (error != cudaSuccess) {
    cudaGetLastError();  // the launch that follows says what is wrong
    return {};
  }
  if (status != cudaStreamCaptureStatusActive) return {};
  return {true, stream, capture, count == 1 ? nodes[0] : nullptr};
}

}  // namespace kbtool::cuda
