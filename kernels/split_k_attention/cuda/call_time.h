// How long a call of more than 16 rows to a KV head takes by its plan: what the rows of a tile, the
// splits and the variant are chosen by.
//
// In microseconds, fitted to 754 shapes on an H200, bf16, causal, 516 of them cut in up to 32 ways
// (session 2026-11-23-the-last-sources-on-a-card); half of a time is that in a chain of calls and half
// that between plain kernels. Keys were in the second-level cache: what the memory's bandwidth bounds
// takes longer, by either variant.
#pragma once

#include <algorithm>

#include "fused_launch.h"
#include "problem.h"

namespace kbtool::cuda {

// By head dimension: 64, 128, 256.
inline int bucket_of(int64_t D) { return D <= 64 ? 0 : D <= 128 ? 1 : 2; }

struct FusedTime {
  double start;      // of a wave of blocks, and the call's end
  double more_rows;  // on top of it, where a tile holds more than 32
  double step;       // over so many keys, which the warps of a block take at a time
  int64_t step_keys;
  double pair;       // the merge of two splits in a cluster
  double cluster;    // of more: less than none, for each block ends a part of the rows
};

// By bucket and tiles of 16, 32 and 64 rows.
constexpr FusedTime FUSED_TIMES[3][3] = {{{4.6, 0, 0.70, 128, 0.25, -0.15},
                                          {4.7, 0, 0.90, 128, 0.25, -0.15},
                                          {4.5, 0.75, 0.88, 64, 0.2, -0.25}},
                                         {{5.5, 0, 0.72, 64, 0.2, -0.35},
                                          {5.85, 0, 0.97, 64, 0.3, -0.25},
                                          {5.6, 1.65, 1.30, 64, 0.1, -0.5}},
                                         {{10.8, 0, 1.00, 32, -0.6, -1.5},
                                          {9.9, 0, 1.55, 32, 0, -1.3},
                                          {9.4, 4.1, 1.08, 16, 0.2, -1.9}}};
constexpr double WORKSPACE_MERGE[3] = {1.8, 2.0, 2.8};  // of several clusters
constexpr double PART_OF_BUCKET[3] = {2.2, 1.4, 1.25};  // a step's, where D is not the bucket's

struct WgmmaTime {
  double start;
  double wave;     // each but the first
  double step;     // over 64 keys
  double apart;    // the merge by the second kernel
  double cluster;  // by clusters
  double two;      // warpgroups
};

constexpr WgmmaTime WGMMA_TIMES[3] = {{5.4, 4.1, 0.58, 1.1, 1.8, 1.6},
                                      {6.35, 5.6, 0.77, 1.3, 3.1, 2.2},
                                      {7.85, 6.9, 1.34, 1.8, 4.6, 0}};

// Whether two blocks of a plan of fused share a multiprocessor.
inline bool blocks_share(const FusedPlan& plan, const Sizes& sizes) {
  return sizes.D <= 128 ? plan.row_units == 1 : plan.num_splits == 1;
}

// Those that run at the same time.
inline int64_t blocks_at_once(const FusedPlan& plan, const Sizes& sizes, const Card& card) {
  const int64_t alone = card.clusters[plan.cluster] * plan.cluster;
  return std::max<int64_t>(1, blocks_share(plan, sizes) ? 2 * alone : alone);
}

inline double time_of_fused(const FusedPlan& plan, const Sizes& sizes, const Card& card) {
  constexpr double ONCE = 2.0;          // of the start, whatever the waves
  constexpr double SHARED_START = 0.5;  // by two blocks of a multiprocessor
  const int bucket = bucket_of(sizes.D);
  const int tile = plan.row_units / 2;
  FusedTime time = FUSED_TIMES[bucket][tile];
  if (sizes.D != int64_t{64} << bucket) time.step *= PART_OF_BUCKET[tile];
  if (sizes.H / sizes.Hkv * sizes.Sq > 32) time.start += time.more_rows;
  const int64_t blocks = plan.items * plan.num_splits;
  if (blocks > card.multiprocessors && blocks_share(plan, sizes)) {
    time.start += SHARED_START;
    time.step *= sizes.D <= 128 ? 1.35 : 1.1;
  }
  const int64_t waves = ceil_div(blocks, blocks_at_once(plan, sizes, card));
  const int64_t keys = ceil_div(sizes.Skv, plan.num_splits);
  const int64_t steps = std::max<int64_t>(1, ceil_div(keys, time.step_keys));
  const double wave = time.start - ONCE + static_cast<double>(steps) * time.step;
  const double merge = plan.groups() > 1
                           ? WORKSPACE_MERGE[bucket] + 0.02 * static_cast<double>(plan.groups())
                       : plan.cluster > 2  ? time.cluster
                       : plan.cluster == 2 ? time.pair
                                           : 0;
  return ONCE + static_cast<double>(waves) * wave + merge;
}

inline double time_of_wgmma(const FusedPlan& plan, const Sizes& sizes, const Card& card) {
  const WgmmaTime& time = WGMMA_TIMES[bucket_of(sizes.D)];
  const int64_t waves = ceil_div(plan.items * plan.num_splits, card.multiprocessors);
  const int64_t steps = ceil_div(ceil_div(sizes.Skv, plan.num_splits), 64);
  return time.start + static_cast<double>(waves - 1) * time.wave +
         static_cast<double>(waves * steps) * time.step +
         (plan.merge_apart() ? time.apart : plan.cluster > 1 ? time.cluster : 0) +
         (plan.row_units == 2 ? time.two : 0);
}

}  // namespace kbtool::cuda
