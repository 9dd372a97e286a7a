// Counters that are zero when a kernel starts and zero again when it is done.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace kbtool::cuda {

// Launches on one stream run one after the other and share that stream's counters. The key is the stream's
// id: handles are reused, and cudaStreamPerThread is one handle for many streams. A launch captured into a
// graph may be replayed on any stream, so it gets counters of its own. They go back to the pool once the graph
// and all that was instantiated from it are gone and no launch of theirs is under way: a user object of the
// graph stands for them.
class CounterPool {
 public:
  cudaError_t take(int device, cudaStream_t stream, int64_t count, unsigned** counters) {
    const std::lock_guard<std::mutex> guard(mutex_);
    take_back();
    cudaGraph_t graph = nullptr;
    unsigned long long id = 0;  // of the capture
    cudaError_t error = capture_of(stream, &graph, &id);
    if (error != cudaSuccess) return error;
    if (graph != nullptr) return take_for_graph(device, graph, id, count, counters);

    error = cudaStreamGetId(stream, &id);
    if (error != cudaSuccess) return error;
    Block& block = of_stream_[{device, id}];
    if (block.capacity < count) {
      // The old counters are left to the launches that may still use them.
      Block larger{device, nullptr, 0, std::max<int64_t>({count, 2 * block.capacity, FIRST})};
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
    int device = 0;
    unsigned* counters = nullptr;
    int64_t used = 0;
    int64_t capacity = 0;
  };

  // The counters of all launches of one capture.
  struct OfGraph {
    CounterPool* pool;
    unsigned long long capture;
    std::vector<Block> blocks;
  };

  std::mutex mutex_;
  std::map<std::pair<int, unsigned long long>, Block> of_stream_;
  std::map<unsigned long long, OfGraph*> of_captures_;
  std::vector<Block> free_;  // of graphs that are gone

  std::mutex gone_mutex_;  // not held while CUDA is called, which may wait for the thread that runs graph_is_gone
  std::vector<OfGraph*> gone_;

  // May not call CUDA.
  static void CUDART_CB graph_is_gone(void* of_graph) {
    auto* gone = static_cast<OfGraph*>(of_graph);
    const std::lock_guard<std::mutex> guard(gone->pool->gone_mutex_);
    gone->pool->gone_.push_back(gone);
  }

  void take_back() {
    std::vector<OfGraph*> gone;
    {
      const std::lock_guard<std::mutex> guard(gone_mutex_);
      gone.swap(gone_);
    }
    for (OfGraph* graph : gone) {
      free_.insert(free_.end(), graph->blocks.begin(), graph->blocks.end());
      of_captures_.erase(graph->capture);
      delete graph;
    }
  }

  // The graph is null if the stream is not capturing.
  static cudaError_t capture_of(cudaStream_t stream, cudaGraph_t* graph, unsigned long long* id) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
#if CUDART_VERSION >= 13000
    return cudaStreamGetCaptureInfo(stream, &status, id, graph, nullptr, nullptr, nullptr);
#else
    return cudaStreamGetCaptureInfo_v2(stream, &status, id, graph, nullptr, nullptr);
#endif
  }

  cudaError_t take_for_graph(int device, cudaGraph_t graph, unsigned long long capture, int64_t count,
                             unsigned** counters) {
    OfGraph*& of_graph = of_captures_[capture];
    if (of_graph == nullptr) {
      auto made = std::make_unique<OfGraph>(OfGraph{this, capture, {}});
      cudaUserObject_t object = nullptr;
      cudaError_t error =
          cudaUserObjectCreate(&object, made.get(), graph_is_gone, 1, cudaUserObjectNoDestructorSync);
      if (error != cudaSuccess) return error;
      of_graph = made.release();  // graph_is_gone has it from here on
      error = cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove);
      if (error != cudaSuccess) {
        of_captures_.erase(capture);
        cudaUserObjectRelease(object, 1);
        return error;
      }
    }
    std::vector<Block>& blocks = of_graph->blocks;
    const auto has_room = [&](const Block& block) {
      return block.device == device && block.capacity - block.used >= count;
    };
    auto block = std::find_if(blocks.begin(), blocks.end(), has_room);
    if (block == blocks.end()) {
      Block fresh;
      const cudaError_t error = block_of_graph(device, count, &fresh);
      if (error != cudaSuccess) return error;
      block = blocks.insert(blocks.end(), fresh);
    }
    *counters = block->counters + block->used;
    block->used += count;
    return cudaSuccess;
  }

  // A block of a graph that is gone or a fresh one.
  cudaError_t block_of_graph(int device, int64_t count, Block* block) {
    const auto fits = [&](const Block& of_old) { return of_old.device == device && of_old.capacity >= count; };
    const auto old = std::find_if(free_.begin(), free_.end(), fits);
    if (old == free_.end()) {
      *block = Block{device, nullptr, 0, std::max(count, FIRST)};
      return allocate(block);
    }
    *block = *old;
    free_.erase(old);
    block->used = 0;
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
