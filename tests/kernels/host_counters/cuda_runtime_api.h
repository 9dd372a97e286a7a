// As much of CUDA's runtime as counters.h calls: memory, streams, captures and user objects of graphs, on the host.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <map>

#define CUDART_CB
#define CUDART_VERSION 13000

enum cudaError_t { cudaSuccess, cudaErrorMemoryAllocation };
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone, cudaStreamCaptureStatusActive };
enum cudaStreamCaptureMode { cudaStreamCaptureModeRelaxed };
enum { cudaUserObjectNoDestructorSync = 1, cudaGraphUserObjectMove = 1, cudaStreamNonBlocking = 1 };

struct UserObject {
  void* of;
  void (*destroy)(void*);
};
struct Graph {
  unsigned long long capture;
  std::multimap<int, UserObject*> objects;
};
struct Stream {
  unsigned long long id;
  Graph* graph;  // that is captured
};
using cudaGraph_t = Graph*;
using cudaStream_t = Stream*;
using cudaUserObject_t = UserObject*;
using cudaGraphNode_t = void*;
struct cudaGraphEdgeData;

namespace host {
inline int allocations = 0;
inline bool out_of_memory = false;
}  // namespace host

inline cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  if (host::out_of_memory) return cudaErrorMemoryAllocation;
  ++host::allocations;
  *pointer = std::malloc(bytes);
  return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* pointer, int value, size_t bytes, cudaStream_t) {
  std::memset(pointer, value, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, int) {
  *stream = new Stream{0, nullptr};
  return cudaSuccess;
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
inline cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }
inline cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* id) {
  *id = stream->id;
  return cudaSuccess;
}
inline cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                            unsigned long long* id, cudaGraph_t* graph, const cudaGraphNode_t**,
                                            const cudaGraphEdgeData**, size_t*) {
  *status = stream->graph == nullptr ? cudaStreamCaptureStatusNone : cudaStreamCaptureStatusActive;
  *graph = stream->graph;
  if (stream->graph != nullptr) *id = stream->graph->capture;
  return cudaSuccess;
}
inline cudaError_t cudaUserObjectCreate(cudaUserObject_t* object, void* of, void (*destroy)(void*), unsigned, unsigned) {
  *object = new UserObject{of, destroy};
  return cudaSuccess;
}
inline cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned) {
  object->destroy(object->of);
  delete object;
  return cudaSuccess;
}
inline cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned, unsigned) {
  graph->objects.emplace(0, object);
  return cudaSuccess;
}

namespace host {
inline void destroy(cudaGraph_t graph) {
  for (const auto& [_, object] : graph->objects) cudaUserObjectRelease(object, 1);
  delete graph;
}
}  // namespace host
