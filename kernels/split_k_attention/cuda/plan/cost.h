// Time of a plan in microseconds, for calls with more than 16 query rows per KV head:
//
//   start + load x full + (waves - 1) x wave + max(waves x steps x step, l2_read_us) + merge
//
// load is the number of blocks per multiprocessor; fused counts only the blocks of one wave. steps is the number of
// steps that a block takes through its keys. start, full, wave, step and merge are the constants below; more_rows and
// two_warpgroups come on top. Width is the compiled head dimension: 64, 128 or 256.
//
// Fitted to the first 548 shapes of session 2026-11-23-the-last-sources-on-a-card, files/tiles.jsonl: H200,
// bf16, causal, keys in the L2 cache. Each time is the mean of two: a call in a chain of calls, and a call
// between kernels that are launched without programmatic dependent launch. A call that is limited by HBM
// takes longer than this, with fused and with wgmma (ADR 0032).
#pragma once

#include <algorithm>
#include <cmath>

#include "plan.h"
#include "splits.h"

namespace kbtool::cuda {

// All in us but step_keys.
struct FusedCost {
  double start;      // start and end of a call
  double more_rows;  // added above 32 query rows
  double full;       // times the load: added in full if there is one block per multiprocessor
  double step;       // time for step_keys keys, the number that the warps of a block take at a time
  int64_t step_keys;
  double pair;       // merge of two splits in a cluster
  // Merge of more than two splits in a cluster. Negative: `start` contains storing a whole tile, and each block of
  // a cluster stores only its share of the tile.
  double cluster;
};

// [width: 64, 128, 256][rows of a tile: 16, 32, 64]
constexpr FusedCost FUSED_COSTS[3][3] = {{{4.15, 0, 0.5, 0.61, 128, 0.2, -0.15},
                                          {4.4, 0, 0.9, 0.91, 128, 0.2, -0.15},
                                          {4.45, 0.7, 0.9, 0.82, 64, 0.1, -0.35}},
                                         {{4.9, 0, 0.75, 0.65, 64, 0.2, -0.15},
                                          {5.55, 0, 0.8, 1.0, 64, 0.2, -0.25},
                                          {5.35, 1.55, 1.2, 1.29, 64, 0, -0.6}},
                                         {{9.55, 0, 0.55, 1.0, 32, -0.45, -1.7},
                                          {9.65, 0, 1.1, 1.52, 32, -0.45, -1.8},
                                          {9.1, 3.95, 0.8, 1.0, 16, 0.2, -1.8}}};
constexpr double FUSED_WAVE[3] = {3.1, 4.3, 9.5};  // us, for each wave after the first, by width
// us, by width: merge through the workspace, if the splits of a tile need more than one cluster.
constexpr double WORKSPACE_MERGE[3] = {2.3, 2.2, 2.0};
// Factor on a step if two blocks share a multiprocessor: for D up to 128, and above.
constexpr double SHARED_STEP_FACTOR[2] = {1.45, 1.1};

// All in us.
struct WgmmaCost {
  double start;
  double full;            // times the load: added in full if there is one block per multiprocessor
  double wave;            // added for each wave after the first
  double step;            // time for 64 keys
  double merge;           // by the separate kernel, of more than four splits
  // The same, of two to four splits. Not fitted: we added 1 us to the fitted time of a merge in a cluster, which wgmma
  // no longer does. On an H100 the separate kernel took 0.6 to 1.7 us more than the cluster in five shapes (session
  // planner-switches, files/switches.jsonl, always_separate).
  double few_splits_merge;
  double two_warpgroups;  // added if a block has two consumer warpgroups (tiles of 128 rows)
};

// [width: 64, 128, 256]
constexpr WgmmaCost WGMMA_COSTS[3] = {{5.35, 1.5, 2.25, 0.53, 0.75, 2.6, 1.45},
                                      {6.15, 2.4, 2.7, 0.70, 0.75, 4.0, 2.0},
                                      {7.05, 2.4, 4.35, 1.15, 1.25, 5.4, 0}};

inline int64_t tile_rows(const FusedPlan& plan) {
  return plan.row_units * (plan.wgmma ? ROWS_PER_WARPGROUP : ROWS_PER_WARP);
}

// Output tiles that have rows, at most.
inline int64_t tiles_with_rows(const FusedPlan& plan, const Sizes& sizes) {
  if (!sizes.packed) return plan.output_tiles;
  const int64_t of_entry = ceil_div(sizes.rows_of_kv_head(), tile_rows(plan));
  return std::min(plan.output_tiles - sizes.Hkv, sizes.B * sizes.Hkv * of_entry);
}

// fused: whether two blocks share a multiprocessor if the call has more blocks than multiprocessors.
inline bool blocks_share(const FusedPlan& plan, const Sizes& sizes) {
  return sizes.width() <= 128 ? plan.row_units == 1 : plan.num_splits == 1;
}

// Blocks that run at the same time if each has a multiprocessor of its own.
inline int64_t blocks_alone(const FusedPlan& plan, const Card& card) {
  return int64_t{card.clusters[plan.cluster_size]} * plan.cluster_size;
}

inline int64_t blocks_at_once(const FusedPlan& plan, const Sizes& sizes, const Card& card) {
  return blocks_alone(plan, card) * (blocks_share(plan, sizes) ? 2 : 1);
}

// Each query tile reads its keys and values from L2; a causal mask hides about half of them.
inline double l2_read_us(const FusedPlan& plan, const Sizes& sizes) {
  constexpr double BYTES_PER_US = 9e6;  // about twice the real rate: the bytes below count hidden keys too
  constexpr double KEY_AND_VALUE = 2 * 2;  // two tensors, 2 bytes an element
  return static_cast<double>(plan.output_tiles) * static_cast<double>(sizes.Skv * sizes.width()) *
         KEY_AND_VALUE / BYTES_PER_US;
}

inline double fused_cost_us(const FusedPlan& plan, const Sizes& sizes, const Card& card) {
  const int width = width_index(sizes.width());
  const FusedCost& cost = FUSED_COSTS[width][plan.row_units / 2];
  const int64_t blocks = tiles_with_rows(plan, sizes) * plan.num_splits;
  const int64_t at_once = std::max<int64_t>(1, blocks_at_once(plan, sizes, card));
  const double waves = static_cast<double>(ceil_div(blocks, at_once));
  const double steps = static_cast<double>(
      std::max<int64_t>(1, ceil_div(sizes.Skv, plan.num_splits * cost.step_keys)));
  const bool shared = blocks > blocks_alone(plan, card) && blocks_share(plan, sizes);
  const double step = cost.step * (!shared ? 1 : SHARED_STEP_FACTOR[sizes.width() <= 128 ? 0 : 1]);
  const double load =
      static_cast<double>(std::min(blocks, at_once)) / static_cast<double>(card.multiprocessors);
  const double merge = plan.clusters_per_tile() > 1 ? WORKSPACE_MERGE[width]
                       : plan.cluster_size > 2      ? cost.cluster
                       : plan.cluster_size == 2     ? cost.pair
                                                    : 0;
  return cost.start + (sizes.rows_of_kv_head() > 32 ? cost.more_rows : 0) + load * cost.full +
         (waves - 1) * FUSED_WAVE[width] +
         std::max(waves * steps * step, l2_read_us(plan, sizes)) + merge;
}

inline double wgmma_cost_us(const FusedPlan& plan, const Sizes& sizes, const Card& card) {
  // The products with k of 192 columns take a half more than of 128, and those with v as long.
  const WgmmaCost& cost = WGMMA_COSTS[sizes.fewer_values() ? 1 : width_index(sizes.width())];
  const double step = cost.step * (sizes.fewer_values() ? 1.25 : 1);
  const double load = static_cast<double>(tiles_with_rows(plan, sizes) * plan.num_splits) /
                      static_cast<double>(card.multiprocessors);
  // Batches of packed queries have a few tiles with rows less than the bound: a tenth of a wave over is none.
  const double waves = std::max(1.0, std::ceil(load - (sizes.packed ? 0.1 : 0)));
  const double steps =
      static_cast<double>(std::max<int64_t>(1, ceil_div(sizes.Skv, plan.num_splits * 64)));
  return cost.start + load * cost.full + (waves - 1) * cost.wave +
         std::max(waves * steps * step, l2_read_us(plan, sizes)) +
         (plan.num_splits > 4   ? cost.merge
          : plan.num_splits > 1 ? cost.few_splits_merge
                                : 0) +
         (plan.row_units == 2 ? cost.two_warpgroups : 0);
}

}  // namespace kbtool::cuda
