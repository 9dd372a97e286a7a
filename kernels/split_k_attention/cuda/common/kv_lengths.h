// The valid keys of each batch entry, where only the device knows them.
#pragma once

#include <cstdint>

namespace kbtool::cuda {

struct KvLengths {
  const void* data = nullptr;  // [B]; null when every key is valid
  int64_t stride = 1;          // in elements
  bool is_64bit = false;
};

#if defined(__CUDACC__)
// Clamped to [0, Skv]: a kernel cannot raise an error. Loaded by ld.cg, not the read-only path: with PDL the
// kernel ahead may still be writing the lengths when this one starts.
__device__ __forceinline__ int64_t valid_keys(const KvLengths& lengths, int64_t Skv,
                                              int64_t batch) {
  if (lengths.data == nullptr) return Skv;
  const int64_t at = batch * lengths.stride;
  const int64_t length = lengths.is_64bit
                             ? __ldcg(static_cast<const long long*>(lengths.data) + at)
                             : __ldcg(static_cast<const int*>(lengths.data) + at);
  return length < 0 ? 0 : (length > Skv ? Skv : length);
}

// The same for all threads of a block, which call it together, by one load: another stream may overwrite the
// lengths during the call, and threads that saw unlike ones would wait for each other for ever. `slot` lies in
// shared memory.
__device__ __forceinline__ int64_t valid_keys_of_block(const KvLengths& lengths, int64_t Skv,
                                                       int64_t batch, unsigned char* slot) {
  if (lengths.data == nullptr) return Skv;
  int64_t& valid = *reinterpret_cast<int64_t*>(slot);
  if (threadIdx.x == 0) valid = valid_keys(lengths, Skv, batch);
  __syncwarp();
  __syncthreads();
  return valid;
}
#endif

}  // namespace kbtool::cuda
