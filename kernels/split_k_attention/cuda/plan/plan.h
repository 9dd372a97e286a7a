// How fused and wgmma cut up a call: pure functions of sizes and card, no CUDA calls.
//
//   cluster.h  how many splits merge in one cluster
//   splits.h   how many splits
//   cost.h     how long a plan takes, above 16 query rows
//   cut.h      tile, splits and merge of each kernel, from the three above
//   plan.cpp   the plans, and which kernel is the faster one
//
// An output tile is one (batch entry, KV head, query tile); a block takes one split of its keys.
#pragma once

#include "../common/problem.h"

namespace kbtool::cuda {

struct FusedPlan {
  bool wgmma;               // by the kernel of wgmma.cuh, else by that of fused.cuh
  int row_units;            // of a query tile: warps of 16 rows (1, 2 or 4); wgmma: warpgroups of 64 (1 or 2)
  int64_t tiles_per_head;   // query tiles of a KV head
  int64_t num_splits;
  int cluster_size;         // splits that merge through shared memory; divides num_splits
  int merge_lanes;          // lanes per four columns of a row in the separate merge kernel; 0: no such kernel
  bool fewer_values;        // wgmma with k of 129 to 192 columns and v of up to 128
  bool small_ring;          // wgmma with D of 65 to 128: two blocks share a multiprocessor
  bool paired;              // wgmma: the blocks of two query tiles multicast k and v to each other
  int ragged_blocks;        // blocks among which the ragged kernel divides all keys evenly; 0: another kernel
  int64_t output_tiles;     // batch entries (one, if queries are packed) x KV heads x query tiles
  int64_t heads_at_a_time;  // KV heads of all entries whose output tiles go side by side, the longest tiles first
  int persistent_blocks;    // wgmma: blocks that take one output tile after the other; 0: a block for each work unit
  bool early_launch;        // the first kernel may start before the one ahead of it has ended (PDL)
  bool trigger_dependents;  // the kernel behind this call may start before it has ended

  int64_t clusters_per_tile() const { return num_splits / cluster_size; }
  bool separate_merge() const { return merge_lanes > 0; }
  int64_t blocks() const { return output_tiles * num_splits; }

  // One counter for each merge by the last block to arrive, one of the blocks of a ragged kernel that ended, and one of
  // the tiles that persistent blocks have taken.
  int64_t num_counters() const {
    if (ragged_blocks > 0) return output_tiles + 1;
    if (persistent_blocks > 0) return 1;
    return clusters_per_tile() == 1 || separate_merge() ? 0 : output_tiles * cluster_size;
  }
  // Floats: Dv weighted values for each row and cluster, a maximum and a sum for each row and split.
  // Ragged: two slots per block, each with a partial state of every row.
  int64_t workspace_numel(const Sizes& sizes) const {
    if (ragged_blocks > 0) {
      return 2 * ragged_blocks * sizes.rows_of_kv_head() * (ceil_div(sizes.Dv, 4) * 4 + 2);
    }
    return clusters_per_tile() == 1 ? 0
                                    : sizes.rows() * (clusters_per_tile() * sizes.Dv + 2 * num_splits);
  }
};

// splits == 0: the planner chooses their number. If the caller gives it, everything that affects a row's
// bits is planned for one batch entry alone, so a row's result is the same in any batch (ADR 0031).
FusedPlan plan_fused(const Sizes& sizes, int64_t splits, const Card& card);
FusedPlan plan_wgmma(const Sizes& sizes, int64_t splits, const Card& card);

// Whether wgmma is the faster of the two; with splits given, for one batch entry.
bool wgmma_is_faster(const Sizes& sizes, int64_t splits, const Card& card);

// Output tiles that have to be in one grid: those of a batch entry, or of all packed queries.
int64_t tiles_of_entry(const FusedPlan& plan, const Sizes& sizes);

// The most splits with which they fit one.
int64_t max_splits(const FusedPlan& plan, const Sizes& sizes);

}  // namespace kbtool::cuda
