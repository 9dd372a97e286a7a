// Host side of fused and wgmma, which finish in one launch or nearly so: how a call is cut up, and
// its launch. No torch, no device code.
#pragma once

#include <cuda_runtime_api.h>

#include "../params.h"
#include "kv_lengths.h"
#include "problem.h"

namespace kbtool::cuda {

constexpr int64_t MAX_BLOCKS = (int64_t{1} << 31) - 1;   // of a grid
constexpr int64_t MAX_KEYS = (int64_t{1} << 35) - 1;  // in blocks of 16, below 2^31

// When the first kernel of a call may start before the one ahead of it in the stream has ended: behind
// kernels that admit it early that hides its launch, behind others a single kernel takes longer than to wait.
enum class Overlap { never, always, behind_own_call };

// A pure function of sizes, card and the wanted splits.
struct FusedPlan {
  bool wgmma;         // by the kernel of wgmma.cuh, else by that of fused.cuh
  int row_units;      // of a tile: warps of 16 rows (1, 2 or 4), in wgmma warpgroups of 64 (1 or 2)
  int64_t tiles;      // query tiles of a KV head
  int64_t num_splits;
  int cluster;        // splits that merge through shared memory; divides num_splits
  int merge_lanes;    // of a second kernel that merges all splits, cluster is 1; 0: there is none
  bool small_ring;    // of wgmma, for a head dimension of 65 to 128: two blocks share a multiprocessor
  bool boxes;         // k and v come by bulk tensor copies, where those can read them
  bool paired;        // of wgmma: two tiles' blocks share their copies of k and v; merge_apart(), boxes
  int ragged_blocks;  // blocks that share unlike lengths evenly; 0 where splits are cut as above
  int64_t items;      // batch entries x KV heads x tiles
  bool heads_inner;   // neighbouring items differ in batch entry or head, not in the tile
  Overlap overlap;    // of the first kernel
  bool admit_next;    // the kernel behind this one may start before this one has ended

  int64_t groups() const { return num_splits / cluster; }
  bool merge_apart() const { return merge_lanes > 0; }
  // Merged by the last block to arrive where one cluster does not hold every split.
  int64_t num_counters() const {
    if (ragged_blocks > 0) return items;
    return groups() == 1 || merge_apart() ? 0 : items * cluster;
  }
  // Floats: D weighted values for each row and group, a maximum and a sum for each row and split.
  // Ragged batches: two states a block.
  int64_t workspace_numel(const Sizes& sizes) const {
    if (ragged_blocks > 0) {
      const int64_t rows = sizes.H / sizes.Hkv * sizes.Sq;
      return 2 * ragged_blocks * rows * (ceil_div(sizes.D, 4) * 4 + 2);
    }
    return groups() == 1 ? 0 : sizes.rows() * (groups() * sizes.D + 2 * num_splits);
  }
};

// splits == 0: chosen from the sizes and the card. Where they are given, all that decides a row's bits
// is of one batch entry: they are the same whatever batch it is in.
FusedPlan plan_fused(const Sizes& sizes, int64_t splits, const Card& card);
FusedPlan plan_wgmma(const Sizes& sizes, int64_t splits, const Card& card);

// Whether wgmma is the faster of the two; with splits given, for one batch entry.
bool wgmma_is_faster(const Sizes& sizes, int64_t splits, const Card& card);

// The most splits that the blocks of one batch entry fit a grid with.
int64_t max_splits(const FusedPlan& plan, const Sizes& sizes);

// Enqueues the kernel, and the one that merges where that is apart; batches of more blocks than a
// grid has go one part after another. `workspace` holds
// plan.workspace_numel floats, at a multiple of 16 bytes, and needs no initial value; p.partial_*
// and p.kv_lengths are not used. `counters` holds plan.num_counters() zeros and holds zeros again
// when the kernel is done; no two launches that can run at the same time may share it.
cudaError_t launch_fused(const SplitKParams& p, ElementType type, const KvLengths& lengths,
                         const FusedPlan& plan, float* workspace, unsigned* counters,
                         cudaStream_t stream);

}  // namespace kbtool::cuda
