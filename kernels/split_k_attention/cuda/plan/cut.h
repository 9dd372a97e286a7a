// Tile, splits and merge of each kernel: all of a plan that decides the bits of a result.
#pragma once

#include "../../params.h"
#include "cost.h"
#include "splits.h"

namespace kbtool::cuda {

// Output tiles per multiprocessor up to which neighbouring tiles share their copies.
constexpr int64_t FEW_WAVES = 4;

constexpr int64_t MAX_PACKED_SPLITS = 4;  // of calls whose tiles fill the card without any

// The output tiles of a call with the plan's tiles. Those of packed queries are tiles of one batch entry (params.h).
inline void count_tiles(FusedPlan* plan, const Sizes& sizes) {
  if (sizes.packed) {
    const int64_t heads = sizes.Hkv == 0 ? 0 : sizes.H / sizes.Hkv;
    plan->tiles_per_head = num_packed_tiles(heads * sizes.total_q, sizes.B, tile_rows(*plan));
    plan->output_tiles = sizes.Hkv * plan->tiles_per_head;
  } else {
    plan->tiles_per_head = ceil_div(sizes.rows_of_kv_head(), tile_rows(*plan));
    plan->output_tiles = sizes.B * sizes.Hkv * plan->tiles_per_head;
  }
}

inline FusedPlan plan_of(bool wgmma, int row_units, const Sizes& sizes) {
  FusedPlan plan{};
  plan.wgmma = wgmma;
  plan.row_units = row_units;
  count_tiles(&plan, sizes);
  return plan;
}

// splits == 0: the planner chooses their number. The first plan has tiles of all rows of a KV head, up to 64, and the
// splits of choose_splits. Above 16 rows, cheaper plans by cost.h that run in one wave replace it: tiles of 16, 32 or
// 64 rows, with splits of choose_splits or splits that one cluster merges. It stays if the caller gives the splits, if
// the kernel is ragged, if keys are copied element by element (each further tile would copy them again), if they have 8
// bits or queries are packed, for which the costs are not fitted, or if the card's block times are not known.
inline FusedPlan cut_fused(const Sizes& sizes, int64_t splits, const Card& card) {
  constexpr int64_t LEAST_KEYS = 8;  // of a split: a larger cluster saves more than an almost empty split costs
  const int64_t rows = sizes.rows_of_kv_head();
  const int whole = rows <= ROWS_PER_WARP ? 1 : rows <= 2 * ROWS_PER_WARP ? 2 : 4;
  const auto cut = [&](int row_warps) {
    FusedPlan plan = plan_of(false, row_warps, sizes);
    plan.num_splits =
        splits > 0 ? splits : choose_splits(tiles_with_rows(plan, sizes), row_warps, sizes, card);
    plan.cluster_size = choose_cluster(plan.output_tiles, plan.num_splits, card);
    return plan;
  };
  FusedPlan best = cut(whole);
  if (splits > 0) return best;
  best.ragged_blocks = choose_ragged_blocks(sizes, best, card);
  if (whole == 1 || best.output_tiles == 0 || !card.has_wgmma() || best.ragged_blocks > 0 || sizes.by_element ||
      sizes.fp8 || sizes.packed) {
    return best;
  }
  double least = fused_cost_us(best, sizes, card);
  const auto consider = [&](const FusedPlan& plan) {
    if (plan.blocks() > blocks_at_once(plan, sizes, card)) return;
    const double cost = fused_cost_us(plan, sizes, card);
    if (cost >= least) return;
    best = plan;
    least = cost;
  };
  for (const int row_warps : {1, 2, 4}) {
    FusedPlan plan = cut(row_warps);
    consider(plan);
    for (const int n : {1, 2, 3, 4, 6, 8}) {
      if (n > 1 && sizes.Skv < n * LEAST_KEYS) break;
      plan.num_splits = n;
      plan.cluster_size = n;
      consider(plan);
    }
  }
  return best;
}

// Splits of packed queries by wgmma. Tiles of unlike lengths rarely fill whole waves, and splits even them out; but
// each adds its partial states, of all rows, to what is stored and loaded again.
inline int64_t choose_packed_splits(FusedPlan plan, const Sizes& sizes, const Card& card) {
  constexpr double BYTES_PER_US = 3e6;  // of partial states, through L2
  const int64_t tiles = tiles_with_rows(plan, sizes);
  int64_t best = choose_wgmma_splits(tiles, plan.row_units == 2, sizes, card);
  if (best > 1) return best;
  const double state_us = static_cast<double>(2 * 4 * sizes.rows() * sizes.Dv) / BYTES_PER_US;
  double least = 0;
  for (int64_t n = 1; n <= MAX_PACKED_SPLITS && n * WGMMA_MIN_KEYS <= std::max(sizes.Skv, WGMMA_MIN_KEYS); ++n) {
    plan.num_splits = n;
    const double cost = wgmma_cost_us(plan, sizes, card) + (n > 1 ? static_cast<double>(n) * state_us : 0);
    if (n > 1 && cost >= least) continue;
    best = n;
    least = cost;
  }
  return best;
}

inline FusedPlan cut_wgmma(const Sizes& sizes, int64_t splits, const Card& card) {
  // With D of 256 two warpgroups leave no shared memory for the merge, and with a tree mask no registers.
  const bool two_warpgroups = sizes.rows_of_kv_head() > ROWS_PER_WARPGROUP &&
                               (sizes.width() <= 128 || sizes.fewer_values()) && !sizes.tree;
  const bool few_rows = sizes.rows_of_kv_head() <= ROWS_PER_WARP;
  FusedPlan plan = plan_of(true, two_warpgroups ? 2 : 1, sizes);
  plan.num_splits = splits > 0     ? splits
                    : sizes.packed ? choose_packed_splits(plan, sizes, card)
                                   : choose_wgmma_splits(plan.output_tiles, two_warpgroups, sizes, card);
  plan.cluster_size = 1;
  plan.fewer_values = sizes.fewer_values();
  if (plan.num_splits > 1) plan.merge_lanes = choose_merge_lanes(plan.num_splits, sizes);
  // H200: 66 us instead of 69 for 512 blocks of 1024 keys.
  plan.small_ring =
      few_rows && sizes.width() > 64 && sizes.width() <= 128 && plan.blocks() > card.multiprocessors;
  // H200: 35.7 us instead of 36.4 for 64 queries of 32 heads over 16k keys, where L2 is otherwise asked for
  // each byte twice. Prefill gains nothing.
  plan.paired = plan.separate_merge() && !plan.fewer_values && !sizes.paged && two_warpgroups &&
                plan.tiles_per_head % 2 == 0 && card.clusters[2] > 0 &&
                plan.output_tiles <= FEW_WAVES * card.multiprocessors;
  return plan;
}

}  // namespace kbtool::cuda
