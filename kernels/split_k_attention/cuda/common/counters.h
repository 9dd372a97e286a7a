// Counters that are zero when a kernel starts and zero again when it is done.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

namespace kbtool::cuda {

// Launches on one stream run one after the other and share that stream's counters. The key is the stream's
// id: handles are reused, and cudaStreamPerThread is one handle for many streams. A launch captured into a
// graph may be replayed on any stream, so it gets counters of its own and keeps them.
class CounterPool {
 public:
  cudaError_t take(int device, cudaStream_t stream, int64_t count, unsigned** counters) {
    const std::lock_guard<std::mutex> guard(mutex_);
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cudaError_t error = cudaStreamIsCapturing(stream, &status);
    if (error != cudaSuccess) return error;
    if (status != cudaStreamCaptureStatusNone) return take_for_good(device, count, counters);

    unsigned long long id = 0;
    error = cudaStreamGetId(stream, &id);
    if (error != cudaSuccess) return error;
    Block& block = of_stream_[{device, id}];
    if (block.capacity < count) {
      // The old counters are left to the launches that may still use them.
      Block larger{nullptr, 0, std::max<int64_t>({count, 2 * block.capacity, FIRST})};
      error = allocate(&larger);
      if (error != cudaSuccess) return error;
      block = larger;
    }
    *counters = block.counters;
    return cudaSuccess;
  }

 private:
  static constexpr int64_t FIRST = 16384;

  struct Block {
    unsigned* counters = nullptr;
    int64_t used = 0;
    int64_t capacity = 0;
  };

  std::mutex mutex_;
  std::map<std::pair<int, unsigned long long>, Block> of_stream_;
  std::map<int, Block> of_graphs_;

  cudaError_t take_for_good(int device, int64_t count, unsigned** counters) {
    Block& block = of_graphs_[device];
    if (block.capacity - block.used < count) {
      Block fresh{nullptr, 0, std::max(count, FIRST)};
      const cudaError_t error = allocate(&fresh);
      if (error != cudaSuccess) return error;
      block = fresh;
    }
    *counters = block.counters + block.used;
    block.used += count;
    return cudaSuccess;
  }

  // Zeroed on a stream of its own before it returns, so that it works during a capture.
  static cudaError_t allocate(Block* block) {
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaError_t error = cudaThreadExchangeStreamCaptureMode(&mode);
    if (error != cudaSuccess) return error;
    cudaStream_t stream = nullptr;
    const size_t bytes = static_cast<size_t>(block->capacity) * sizeof(unsigned);
    error = cudaMalloc(reinterpret_cast<void**>(&block->counters), bytes);
    if (error == cudaSuccess) error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    if (error == cudaSuccess) error = cudaMemsetAsync(block->counters, 0, bytes, stream);
    if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
    if (stream != nullptr) cudaStreamDestroy(stream);
    cudaThreadExchangeStreamCaptureMode(&mode);
    return error;
  }
};

}  // namespace kbtool::cuda
