// The parameters of the kernels that split and merge (fused, ragged, wgmma), worked out on the host,
// and their instances' launch functions.
#pragma once

#include <cuda_runtime_api.h>

#include "../../params.h"
#include "../instances.h"
#include "fast_divisor.h"
#include "kv_lengths.h"
#include "problem.h"

namespace kbtool::cuda {

constexpr int PIECE_KEYS = 16;  // key blocks are multiples of it

struct FusedParams {
  KvLengths lengths;
  unsigned* counters;      // fused: [output_tiles, cluster_size]; ragged: [output_tiles + 1]; persistent: [1]
  FastDivisor splits;
  FastDivisor heads_at_a_time;  // FusedPlan's, and their output tiles
  FastDivisor tiles_at_a_time;
  FastDivisor kv_heads;
  FastDivisor heads_per_kv;
  uint32_t cluster_size;   // blocks
  uint32_t clusters_per_tile;
  uint32_t last_tile;      // of a KV head
  uint32_t rows;           // query rows of a KV head: heads_per_kv * Sq
  uint32_t output_tiles;   // batch entries x KV heads x query tiles
  uint32_t blocks;         // of the grid; of ragged: see ragged_blocks
  bool persistent;         // wgmma: a block takes one work unit after the other
  uint32_t ragged_blocks;  // of the ragged kernel; 0 for the others
  bool small_ring;         // wgmma: two blocks share a multiprocessor
  bool paired;             // wgmma: the blocks of two query tiles multicast k and v to each other
  uint8_t merge_lanes;     // lanes per four columns of a row in the separate merge kernel; 0: no such kernel
  bool early_launch;       // may start before the kernel ahead of it in the stream has ended
  bool trigger_dependents; // lets the kernel behind it start before it has ended itself
  int copy_width;          // bytes of one copy of a row of k or v: 16, 8, 4 or BY_ELEMENT
  bool q_aligned;          // rows of q are copied 16 bytes at a time
  bool out_aligned;        // wgmma: rows of the output are stored 16 bytes at a time
  float q_factor;          // 1, -1 for a negative scale, 0 for a scale of 0: then c stays positive
  float c;                 // factor of q.k, or of its tanh, in the exponent of base 2: |scale| or softcap, times log2(e)
  double magnitude;        // |scale| or softcap
  SplitKParams p;
  // Of pages and of softcap, which few calls have: see SplitKParams.
  int page_shift;          // log2 of the keys of a page
  int piece_keys;          // keys, of a multiple of it on, that lie in one page: PIECE_KEYS, fewer if pages are smaller
  float tanh_factor;       // |scale| / softcap, of q.k under the tanh
};

KBTOOL_INSTANCES(KBTOOL_DECLARE_INSTANCE)

// The instance's kernel. Which one a plan takes: launch_fused.cpp.
enum class FusedKernel { KBTOOL_KERNELS(KBTOOL_KERNEL_ENUMERATOR, ) wgmma_v128 };

using LaunchFunction = cudaError_t (*)(const FusedParams& fp, int row_units, cudaStream_t stream);

// Null where the build does not have it.
inline LaunchFunction find_instance(FusedKernel kernel, ElementType type, int64_t columns) {
  const int width = kernel == FusedKernel::wgmma_v128 ? 192 : WIDTHS[width_index(columns)];
#define KBTOOL_FIND(name, element, compiled_width)                               \
  if (kernel == FusedKernel::name && type == ElementType::element && width == compiled_width) \
    return launch_##name##_##element##_d##compiled_width;
  KBTOOL_INSTANCES(KBTOOL_FIND)
#undef KBTOOL_FIND
  return nullptr;
}

// Clusters of `blocks` blocks that the current card runs at a time, where each block takes a whole
// multiprocessor. Only builds with wgmma have it.
KBTOOL_INSTANCE cudaError_t count_clusters(int blocks, int* clusters);

}  // namespace kbtool::cuda
