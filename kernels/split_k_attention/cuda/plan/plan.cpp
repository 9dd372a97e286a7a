#include "plan.h"

#include "cut.h"

namespace kbtool::cuda {
namespace {

// The sizes to plan for: those of the whole call or, if the caller gives the splits, of one batch entry. A
// row's bits then do not depend on the batch.
Sizes sizes_to_cut(const Sizes& sizes, int64_t given_splits) {
  Sizes cut = sizes;
  if (given_splits > 0) {
    cut.B = std::min<int64_t>(sizes.B, 1);
    cut.packed = false;
  }
  return cut;
}

// The longest tiles of several heads go first, which balances the triangle of a causal mask over waves: of as many heads
// as fill two waves, if L2 has room for their keys and values. Fewer are faster, for then more blocks read the same keys
// at a time. If there are few queries compared with the keys, all tiles take about the same time. Then the tiles of a
// head run together and share its keys in L2: 176 us instead of 287 for 64 queries of 96 heads over 4k keys (H100).
int64_t choose_heads_at_a_time(const FusedPlan& plan, const Sizes& sizes, const Card& card) {
  constexpr double WAVES = 1.8;
  constexpr int64_t L2_BYTES = 32 << 20;  // of the 50 MB of an sm_90 card
  if (2 * sizes.Sq <= sizes.Skv) return 1;
  const int64_t all = std::max<int64_t>(1, sizes.B * sizes.Hkv);
  const int64_t bytes_of_head = std::max<int64_t>(1, (sizes.fp8 ? 1 : 2) * sizes.Skv * (sizes.D + sizes.Dv));
  const double filling = WAVES * card.multiprocessors / static_cast<double>(std::max<int64_t>(1, plan.tiles_per_head));
  int64_t heads = std::min({all, static_cast<int64_t>(std::ceil(filling)), std::max<int64_t>(1, L2_BYTES / bytes_of_head)});
  while (all % heads != 0) --heads;
  return heads;
}

// The part of the plan that does not change the bits: the order of the blocks, and when kernels start.
void schedule_wgmma(FusedPlan* plan, const Sizes& sizes, const Card& card) {
  // A block that goes on to the next tile has its keys on the way while it stores the last one. Of long tiles that is a
  // small part: over 16k keys persistent blocks are 2 % slower (H200).
  constexpr int64_t MOST_KEYS = 8192;
  if (plan->row_units == 2 && plan->num_splits == 1 && !sizes.packed && !sizes.lengths && sizes.Skv <= MOST_KEYS &&
      plan->output_tiles > card.multiprocessors) {
    plan->persistent_blocks = card.multiprocessors;
  }
  // H200, behind a kernel that triggers no dependents: an early launch takes 0.2 to 0.5 us off a call of two
  // kernels and adds as much to a call of one (ADR 0030).
  plan->early_launch = plan->separate_merge();
  // Few blocks do not trigger: the next call's blocks would start on the free multiprocessors, and several
  // clusters would share the memory port of one GPC. 64 blocks took 33 us instead of 28 (H100).
  plan->trigger_dependents = plan->separate_merge() || 2 * plan->blocks() > card.multiprocessors;
  plan->heads_at_a_time = plan->paired ? sizes.B * sizes.Hkv : choose_heads_at_a_time(*plan, sizes, card);
}

// Up to 16 query rows and D of 65 to 256: wgmma is faster if one wave of its blocks fills the card, by 1 to 2 % up
// to D of 128 and by up to 6 % above (H100, session planner-switches, files/few-rows.jsonl). Splits must have keys
// enough for the merge kernel. Up to D of 128 splits pay only if needs_more_than_half (true on an H200).
bool wgmma_decodes_faster(const Sizes& sizes, const Card& card) {
  constexpr int64_t LEAST_KEYS = 1024;
  constexpr int64_t MOST_SPLITS = 33;  // up to D of 128
  // fused would copy and multiply 256 columns: 106 us instead of 44 for four entries of 4,096 keys (H200).
  if (sizes.fewer_values()) return sizes.Skv >= LEAST_KEYS / 2;
  if (sizes.width() <= 64 || sizes.Skv < LEAST_KEYS || sizes.lengths) return false;
  const FusedPlan plan = cut_wgmma(sizes, 0, card);
  if (16 * plan.blocks() < 15 * card.multiprocessors) return false;
  if (plan.num_splits == 1) return true;
  return sizes.Skv / plan.num_splits >= KEYS_FOR_SEPARATE_MERGE &&
         (sizes.width() > 128 || (plan.num_splits <= MOST_SPLITS && needs_more_than_half(card)));
}

}  // namespace

FusedPlan plan_fused(const Sizes& sizes, int64_t splits, const Card& card) {
  FusedPlan plan = cut_fused(sizes_to_cut(sizes, splits), splits, card);
  count_tiles(&plan, sizes);
  plan.trigger_dependents = card.max_cluster > 1;  // sm_90 introduced clusters and triggers
  plan.heads_at_a_time = choose_heads_at_a_time(plan, sizes, card);
  return plan;
}

FusedPlan plan_wgmma(const Sizes& sizes, int64_t splits, const Card& card) {
  FusedPlan plan = cut_wgmma(sizes_to_cut(sizes, splits), splits, card);
  count_tiles(&plan, sizes);
  if (sizes.packed) plan.small_ring = plan.paired = false;  // not compiled for packed queries
  schedule_wgmma(&plan, sizes, card);
  return plan;
}

bool wgmma_is_faster(const Sizes& whole, int64_t splits, const Card& card) {
  const Sizes sizes = sizes_to_cut(whole, splits);
  if (!card.has_wgmma() || !sizes.tma || sizes.options) return false;
  if (sizes.rows_of_kv_head() <= ROWS_PER_WARP) return !whole.packed && wgmma_decodes_faster(sizes, card);
  const FusedPlan fused = cut_fused(sizes, splits, card);
  return fused.ragged_blocks == 0 && wgmma_cost_us(cut_wgmma(sizes, splits, card), sizes, card) <
                                         fused_cost_us(fused, sizes, card);
}

int64_t max_splits(const FusedPlan& plan, const Sizes& sizes) {
  return plan.output_tiles == 0 ? MAX_BLOCKS : MAX_BLOCKS / tiles_of_entry(plan, sizes);
}

int64_t tiles_of_entry(const FusedPlan& plan, const Sizes& sizes) {
  return sizes.packed ? plan.output_tiles : plan.output_tiles / sizes.B;
}

}  // namespace kbtool::cuda
