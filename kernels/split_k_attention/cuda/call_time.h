// How long a call of more than 16 rows to a KV head takes by its plan: what the rows of a tile, the
// splits and the variant are chosen by.
//
// In microseconds, fitted to the first 548 shapes of session 2026-11-23-the-last-sources-on-a-card,
// files/tiles.jsonl: an H200, bf16, causal; a time is the mean of that in a chain of calls and of that
// between plain kernels. Keys were in the second-level cache: what the memory's bandwidth bounds takes
// longer, by either variant.
#pragma once

#include <algorithm>
#include <cmath>

#include "fused_launch.h"
#include "problem.h"

namespace kbtool::cuda {

// By head dimension: 64, 128, 256.
inline int bucket_of(int64_t D) { return D <= 64 ? 0 : D <= 128 ? 1 : 2; }

struct FusedTime {
  double start;      // and end
  double more_rows;  // where there are more than 32
  double full;       // a block on each multiprocessor in place of one alone
  double step;       // over so many keys, which the warps of a block take at a time
  int64_t step_keys;
  double pair;     // the merge of two splits in a cluster
  double cluster;  // of more: less than none, for each block ends a part of the rows
};

// By bucket and tiles of 16, 32 and 64 rows.
constexpr FusedTime FUSED_TIMES[3][3] = {{{4.15, 0, 0.5, 0.61, 128, 0.2, -0.15},
                                          {4.4, 0, 0.9, 0.91, 128, 0.2, -0.15},
                                          {4.45, 0.7, 0.9, 0.82, 64, 0.1, -0.35}},
                                         {{4.9, 0, 0.75, 0.65, 64, 0.2, -0.15},
                                          {5.55, 0, 0.8, 1.0, 64, 0.2, -0.25},
                                          {5.35, 1.55, 1.2, 1.29, 64, 0, -0.6}},
                                         {{9.55, 0, 0.55, 1.0, 32, -0.45, -1.7},
                                          {9.65, 0, 1.1, 1.52, 32, -0.45, -1.8},
                                          {9.1, 3.95, 0.8, 1.0, 16, 0.2, -1.8}}};
constexpr double FUSED_WAVE[3] = {3.1, 4.3, 9.5};       // each but the first
constexpr double WORKSPACE_MERGE[3] = {2.3, 2.2, 2.0};  // of several clusters

struct WgmmaTime {
  double start;
  double full;
  double wave;     // each but the first
  double step;     // over 64 keys
  double apart;    // the merge by the second kernel
  double cluster;  // by clusters
  double two;      // warpgroups
};

constexpr WgmmaTime WGMMA_TIMES[3] = {{5.35, 1.5, 2.25, 0.53, 0.75, 1.6, 1.45},
                                      {6.15, 2.4, 2.7, 0.70, 0.75, 3.0, 2.0},
                                      {7.05, 2.4, 4.35, 1.15, 1.25, 4.4, 0}};

// Of a plan of fused: whether two blocks share a multiprocessor where there are enough of them.
inline bool blocks_share(const FusedPlan& plan, const Sizes& sizes) {
  return sizes.D <= 128 ? plan.row_units == 1 : plan.num_splits == 1;
}

// Blocks that run at the same time, each on a multiprocessor of its own.
inline int64_t blocks_alone(const FusedPlan& plan, const Card& card) {
  return int64_t{card.clusters[plan.cluster]} * plan.cluster;
}

inline int64_t blocks_at_once(const FusedPlan& plan, const Sizes& sizes, const Card& card) {
  return blocks_alone(plan, card) * (blocks_share(plan, sizes) ? 2 : 1);
}

// Every tile reads its keys and values from the second-level cache; under a causal mask some half of them.
inline double time_of_reads(const FusedPlan& plan, const Sizes& sizes) {
  constexpr double BYTES = 9e6;  // in a microsecond, as if no mask left any out
  constexpr double KEY_AND_VALUE = 2 * 2;
  return static_cast<double>(plan.items) * static_cast<double>(sizes.Skv * sizes.D) * KEY_AND_VALUE /
         BYTES;
}

inline double time_of_fused(const FusedPlan& plan, const Sizes& sizes, const Card& card) {
  const int bucket = bucket_of(sizes.D);
  const FusedTime& time = FUSED_TIMES[bucket][plan.row_units / 2];
  const int64_t blocks = plan.items * plan.num_splits;
  const int64_t at_once = std::max<int64_t>(1, blocks_at_once(plan, sizes, card));
  const double waves = static_cast<double>(ceil_div(blocks, at_once));
  const double steps = static_cast<double>(
      std::max<int64_t>(1, ceil_div(sizes.Skv, plan.num_splits * time.step_keys)));
  const bool shared = blocks > blocks_alone(plan, card) && blocks_share(plan, sizes);
  const double step = time.step * (!shared ? 1 : sizes.D <= 128 ? 1.45 : 1.1);
  const double load =
      static_cast<double>(std::min(blocks, at_once)) / static_cast<double>(card.multiprocessors);
  const double merge = plan.groups() > 1   ? WORKSPACE_MERGE[bucket]
                       : plan.cluster > 2  ? time.cluster
                       : plan.cluster == 2 ? time.pair
                                           : 0;
  return time.start + (sizes.H / sizes.Hkv * sizes.Sq > 32 ? time.more_rows : 0) +
         load * time.full + (waves - 1) * FUSED_WAVE[bucket] +
         std::max(waves * steps * step, time_of_reads(plan, sizes)) + merge;
}

inline double time_of_wgmma(const FusedPlan& plan, const Sizes& sizes, const Card& card) {
  const WgmmaTime& time = WGMMA_TIMES[bucket_of(sizes.D)];
  const double load = static_cast<double>(plan.items * plan.num_splits) /
                      static_cast<double>(card.multiprocessors);
  const double waves = std::ceil(load);
  const double steps =
      static_cast<double>(std::max<int64_t>(1, ceil_div(sizes.Skv, plan.num_splits * 64)));
  return time.start + load * time.full + (waves - 1) * time.wave +
         std::max(waves * steps * time.step, time_of_reads(plan, sizes)) +
         (plan.merge_apart() ? time.apart : plan.cluster > 1 ? time.cluster : 0) +
         (plan.row_units == 2 ? time.two : 0);
}

}  // namespace kbtool::cuda
