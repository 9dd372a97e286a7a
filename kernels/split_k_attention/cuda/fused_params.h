// What the fused kernel is told beyond SplitKParams, worked out on the host.
#pragma once

#include "fast_divisor.h"
#include "instance.h"
#include "launch.h"

namespace kbtool::cuda {

constexpr int64_t MAX_RAGGED_ENTRIES = 240;

struct FusedParams {
  SplitKParams p;
  KvLengths lengths;
  unsigned* counters;      // [items, cluster]
  FastDivisor splits;
  FastDivisor inner;       // items that differ in their tile alone, or in their head alone
  FastDivisor kv_heads;
  FastDivisor heads_per_kv;
  uint32_t cluster;
  uint32_t groups;
  uint32_t last_tile;      // of a KV head
  uint32_t rows;           // query rows of a KV head: heads_per_kv * Sq
  uint32_t items;
  bool heads_inner;        // neighbouring items differ in batch entry or head, not in the tile
  uint32_t ragged_blocks;  // of the kernel of ragged.cuh; 0 where the other is meant
  bool small_ring;         // of wgmma: two blocks share a multiprocessor
  bool boxes;              // k and v come by bulk tensor copies, where those can read them
  bool paired;             // of wgmma, with boxes: two tiles' blocks share their copies of k and v
  uint8_t merge_lanes;     // of a second kernel that merges all splits, to a place; 0: there is none
  bool overlap;            // may start before the kernel ahead of it in the stream has ended
  bool admit_next;         // and lets the one behind it start before it has ended itself
  int copy_width;          // bytes of the pieces that rows of k and v are made of: 16 (q's too), 8, 4 or 2
  float q_factor;          // 1, -1 for a negative scale, 0 for a scale of 0: then c stays positive
  float c;                 // |scale| * log2(e)
  double magnitude;        // |scale|
};

using LaunchFunction = cudaError_t (*)(const FusedParams& fp, int row_units, cudaStream_t stream);

// One source each.
#define KBTOOL_LAUNCH(name) \
  KBTOOL_INSTANCE cudaError_t name(const FusedParams& fp, int row_units, cudaStream_t stream)

KBTOOL_LAUNCH(launch_fused_fp16_d64);
KBTOOL_LAUNCH(launch_fused_fp16_d128);
KBTOOL_LAUNCH(launch_fused_fp16_d256);
KBTOOL_LAUNCH(launch_fused_bf16_d64);
KBTOOL_LAUNCH(launch_fused_bf16_d128);
KBTOOL_LAUNCH(launch_fused_bf16_d256);
KBTOOL_LAUNCH(launch_fused_fp16_d64_unaligned);
KBTOOL_LAUNCH(launch_fused_fp16_d128_unaligned);
KBTOOL_LAUNCH(launch_fused_fp16_d256_unaligned);
KBTOOL_LAUNCH(launch_fused_bf16_d64_unaligned);
KBTOOL_LAUNCH(launch_fused_bf16_d128_unaligned);
KBTOOL_LAUNCH(launch_fused_bf16_d256_unaligned);

KBTOOL_LAUNCH(launch_ragged_fp16_d64);
KBTOOL_LAUNCH(launch_ragged_fp16_d128);
KBTOOL_LAUNCH(launch_ragged_fp16_d256);
KBTOOL_LAUNCH(launch_ragged_bf16_d64);
KBTOOL_LAUNCH(launch_ragged_bf16_d128);
KBTOOL_LAUNCH(launch_ragged_bf16_d256);
KBTOOL_LAUNCH(launch_ragged_fp16_d64_unaligned);
KBTOOL_LAUNCH(launch_ragged_fp16_d128_unaligned);
KBTOOL_LAUNCH(launch_ragged_fp16_d256_unaligned);
KBTOOL_LAUNCH(launch_ragged_bf16_d64_unaligned);
KBTOOL_LAUNCH(launch_ragged_bf16_d128_unaligned);
KBTOOL_LAUNCH(launch_ragged_bf16_d256_unaligned);

#if defined(KBTOOL_ARCH_SM_90A)
KBTOOL_LAUNCH(launch_wgmma_fp16_d64);
KBTOOL_LAUNCH(launch_wgmma_fp16_d128);
KBTOOL_LAUNCH(launch_wgmma_fp16_d256);
KBTOOL_LAUNCH(launch_wgmma_bf16_d64);
KBTOOL_LAUNCH(launch_wgmma_bf16_d128);
KBTOOL_LAUNCH(launch_wgmma_bf16_d256);

// Clusters of `blocks` blocks that the current card runs at a time, where each block takes a whole
// multiprocessor.
cudaError_t count_clusters(int blocks, int* clusters);
#endif

#undef KBTOOL_LAUNCH

}  // namespace kbtool::cuda
