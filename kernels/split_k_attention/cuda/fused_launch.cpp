// How the work of fused and wgmma is cut up, and which instance runs it.
#include "fused_launch.h"

#include <algorithm>
#include <cmath>

#include "call_time.h"
#include "copy_width.h"
#include "fused_params.h"
#include "tuned_splits.h"

namespace kbtool::cuda {
namespace {

constexpr int64_t ROWS_PER_WARP = 16;
constexpr int64_t MIN_KEYS = 64;   // one block of 16 keys for each of four warps
constexpr int64_t PAIR_KEYS = 2048;
constexpr int64_t FEW_KEYS = 32;   // worth a block where there are four splits of them or more
constexpr int64_t MERGE_ELEMENTS = 256 * 128;  // of k; see choose_splits

constexpr int64_t ROWS_PER_WARPGROUP = 64;
constexpr int64_t WGMMA_MIN_KEYS = 256;  // two blocks of keys, or four small ones
constexpr int64_t MOST_APART = 33;  // splits that the second kernel merges: of 8 items, two to each of 132
constexpr int64_t MOST_APART_OF_FEW_ITEMS = 128;  // of more than 16 rows, in one wave
// Of a block of up to 16 rows, to be worth the second kernel: measured on an H200.
constexpr int64_t KEYS_OF_MERGE_APART = 4096;
constexpr int64_t FEW_WAVES = 4;  // up to here long tiles go first over all heads, not head by head

int64_t rows_of_kv_head(const Sizes& sizes) {
  return sizes.Hkv == 0 ? 0 : sizes.H / sizes.Hkv * sizes.Sq;
}

int64_t largest_power_of_two(int64_t limit) {
  int64_t power = 1;
  while (2 * power <= limit) power *= 2;
  return power;
}

// Whether so many clusters run at the same time, each of whole multiprocessors. A build without wgmma
// does not know.
bool fit_at_once(int64_t clusters, int64_t blocks, const Card& card) {
  return !card.has_wgmma() || clusters <= card.clusters[blocks];
}

// Splits that merge through shared memory: as many as divide them and, up to a block for each
// multiprocessor, fit at once. Measured on an H200: 16 clusters of 8 take 1.3 times as long as 64 of
// 2, for 15 fit.
int choose_cluster(int64_t items, int64_t splits, const Card& card) {
  const bool waves = items * splits > card.multiprocessors;
  for (int blocks = std::min<int64_t>(splits, card.max_cluster); blocks > 1; --blocks) {
    if (splits % blocks != 0) continue;
    if (waves || fit_at_once(items * splits / blocks, blocks, card)) return blocks;
  }
  return 1;
}

// Blocks whose copies under way keep the card's memory busy: when it is, it answers in some 1.85 us.
// 64 on an H100, as measured, and 91 on an H200, where 96 were. Three quarters of a card that does not
// tell.
int64_t blocks_that_draw(const Card& card) {
  constexpr int64_t RING_BYTES = 96 << 10;  // of fused
  constexpr int64_t ANSWER_NS = 1850;
  if (card.bandwidth <= 0) return card.multiprocessors * 3 / 4;
  return std::min<int64_t>(card.multiprocessors, ceil_div(card.bandwidth * ANSWER_NS, RING_BYTES));
}

// One wave of blocks, each with keys enough to be worth it: as many as draw all of the memory's
// bandwidth, for more end unevenly; three quarters of the multiprocessors for tiles of more rows,
// whose products take longer than their keys, and for rows of 256 columns, of which a block draws less.
int64_t choose_splits(int64_t items, int row_warps, const Sizes& sizes, const Card& card) {
  const int64_t Skv = std::min(sizes.Skv, MAX_KEYS);
  if (items <= 0) return 1;
  const bool reads = row_warps == 1 && sizes.D <= 128;  // and does little else
  const int64_t blocks = reads ? blocks_that_draw(card) : card.multiprocessors * 3 / 4;
  const int64_t wave = card.max_cluster == 1 ? card.multiprocessors / items
                       : reads               ? ceil_div(blocks, items)
                                             : blocks / items;
  const int64_t least_keys = Skv >= 4 * FEW_KEYS ? FEW_KEYS : MIN_KEYS;
  const int64_t most =
      std::min({card.multiprocessors / items, Skv / least_keys, MAX_NUM_SPLITS});
  int64_t splits = std::min(wave, most);
  // Pairs of blocks fill what one tile each leaves: larger tiles have one block a multiprocessor, and
  // over many keys a merge is worth the evener load.
  const int64_t pair_keys = row_warps > 1 ? 2 * MIN_KEYS : PAIR_KEYS;
  const bool pairs = 2 * items <= card.multiprocessors && Skv >= pair_keys;
  if (splits <= 1) return pairs ? 2 : 1;
  if (card.max_cluster == 1) return splits;

  // Where one cluster merges all. Two neighbours share a port to the memory, so that many clusters of an
  // odd number are fed unevenly.
  const auto in_one_cluster = [&](int64_t n) {
    const bool even = n % 2 == 0 || 2 * items * n <= card.multiprocessors;
    return n <= card.max_cluster && even && fit_at_once(items, n, card);
  };
  for (int64_t n = splits; n <= std::min<int64_t>(most, card.max_cluster); ++n) {
    if (in_one_cluster(n)) return n;
  }
  int64_t one = std::min<int64_t>(splits, card.max_cluster);
  while (one > 1 && !in_one_cluster(one)) --one;
  if (16 * items * one >= 15 * blocks) return one;
  // The merge through the workspace takes as long as a block takes for so many elements of k, and again
  // where the last to arrive has more than the states of eight clusters to read.
  const int64_t merge_elements = row_warps == 1 ? MERGE_ELEMENTS : MERGE_ELEMENTS / 2;
  const int64_t elements = Skv * sizes.D;
  const auto worth = [&](int64_t from, int64_t to) {
    return elements * (to - from) >= from * to * merge_elements;
  };
  if (!worth(one, splits)) return one;
  splits = std::min(splits, std::max<int64_t>(4 * card.max_cluster, 2 * elements / merge_elements));
  const int64_t eight = 8 * card.max_cluster;
  if (splits > eight && !worth(eight, splits)) splits = eight;
  // Of the numbers from there on the first that is cut into the largest clusters; of those below where
  // that leaves many to merge.
  int64_t best = splits;
  int largest = 1;
  const auto consider = [&](int64_t n) {
    const int cluster = choose_cluster(items, n, card);
    if (cluster % 2 != 0 || cluster <= largest) return;
    best = n;
    largest = cluster;
  };
  for (int64_t n = splits; n < splits + card.max_cluster && n <= most; ++n) consider(n);
  if (best <= 8 * largest && largest > 1) return best;
  for (int64_t n = splits - 1; n > splits - card.max_cluster && n > one; --n) consider(n);
  return largest == 1 && one > 1 && best > 4 ? one : best;
}

// Up to 16 rows: blocks that take whole multiprocessors, one to each pair of them where that draws all
// of the memory's bandwidth or leaves two clusters to merge already, or one to each. Where pairs of
// multiprocessors want more than a block and the keys of few items are so long that they pay for a merge
// by a kernel of its own, two to each or, up to twice as many keys, one.
int64_t choose_even_splits(int64_t items, const Sizes& sizes, const Card& card) {
  if (items <= 0) return 1;
  const int64_t pairs = largest_power_of_two(card.multiprocessors / 2 / items);
  const bool drawn =
      16 * pairs * items >= 15 * blocks_that_draw(card) || pairs >= 2 * MAX_CLUSTER;
  const bool one_is_too_few = 2 * blocks_that_draw(card) > card.multiprocessors;
  if (!drawn && one_is_too_few && sizes.D > 64 && sizes.D <= 128) {
    for (const int64_t each : {2, 1}) {
      const int64_t splits = each * card.multiprocessors / items;
      const bool few_items = splits > each * MAX_CLUSTER && splits <= MOST_APART;
      if (few_items && sizes.Skv >= splits * KEYS_OF_MERGE_APART) return splits;
    }
  }
  const int64_t splits = drawn ? pairs : largest_power_of_two(card.multiprocessors / items);
  return std::max<int64_t>(1, std::min(splits, sizes.Skv / WGMMA_MIN_KEYS));
}

// More rows: a block to each multiprocessor, up to 32 to an item; of one warpgroup half of them, where
// splits would be many and short. Of items so few that it would be more than 33 a multiple of 8, and more
// than 64 only over many keys: measured on an H200, where 64 splits of one item took a tenth less than 66.
int64_t choose_wgmma_splits(int64_t items, bool two, const Sizes& sizes, const Card& card) {
  constexpr int64_t MANY = 16;
  constexpr int64_t KEYS_OF_MANY = 512;  // of a split
  constexpr int64_t KEYS_OF_MOST = 1024;
  const int64_t most = sizes.Skv / WGMMA_MIN_KEYS;
  if (items <= 0 || most <= 1) return 1;
  const int64_t all = card.multiprocessors / items;
  if (all > MOST_APART) {
    const int64_t wave = std::min(all / 8 * 8, MOST_APART_OF_FEW_ITEMS);
    const bool half = wave > 64 && sizes.Skv < wave * KEYS_OF_MOST;
    return std::min(half ? wave / 2 : wave, most);
  }
  const int64_t splits = std::min<int64_t>(all, 32);
  const bool half = !two && splits > MANY && sizes.Skv < splits * KEYS_OF_MANY;
  return std::max<int64_t>(1, std::min(half ? splits / 2 : splits, most));
}

// What was asked for; else what was measured to be the fastest for such a call; else 0. Calls with
// lengths are not measured: they may be cut otherwise.
int64_t wanted_or_measured(int64_t wanted, Tuned variant, const Sizes& sizes, const Card& card) {
  if (wanted > 0 || sizes.lengths) return wanted;
  return tuned_splits({variant, card.capability, card.multiprocessors, card.bandwidth, sizes.D,
                       sizes.B * sizes.Hkv, rows_of_kv_head(sizes), sizes.Skv, 0});
}

// The sizes that decide a row's bits: of the whole call or, where the caller gives the splits, of one
// batch entry.
Sizes sizes_of_cut(const Sizes& sizes, int64_t given_splits) {
  Sizes cut = sizes;
  if (given_splits > 0) cut.B = std::min<int64_t>(sizes.B, 1);
  return cut;
}

// Of a warp of the second kernel, how many lanes share the splits of a place, which is four columns of a
// row. Measured on an H200: two lanes take 5 % off a call of 16 queries and 16 splits, and put 15 to 20 % on
// calls of 8 splits; four lose to two there. The fewer places, which fill few warps, and the more splits, the
// more lanes: four or eight take 7 to 18 % off 32 and 64 splits of one to four KV heads. Many places keep
// every multiprocessor busy by one.
int lanes_of_merge(int64_t splits, const Sizes& sizes) {
  const int64_t places = sizes.rows() * ceil_div(sizes.D, 4);
  if (splits > 33 && places <= 4096) return 8;
  if (splits > 16 && places <= 1024) return 16;
  if (splits > 16 && places <= 8192) return 4;
  return splits > 8 && places <= 32768 ? 2 : 1;
}

// Blocks to share unlike lengths out to on the device; 0 where that does not pay or cannot be.
// Measured on an H100: it costs 5 us, with tiles of more rows 10, where the lengths are all the same;
// a block that has a whole split of the longest entry to itself may keep the others waiting longer.
int choose_ragged_blocks(const Sizes& sizes, const FusedPlan& plan, const Card& card) {
  constexpr int64_t MAX_LINE_KEYS = int64_t{1} << 31;  // of all items; a place holds 16
  const bool small = plan.row_units == 1;
  const int64_t keys_of_block = sizes.Skv / plan.num_splits;
  if (!sizes.lengths || sizes.B < 2 || sizes.B > MAX_RAGGED_ENTRIES || plan.tiles != 1) return 0;
  if (sizes.Skv >= MAX_LINE_KEYS / plan.items - 1024) return 0;
  if (keys_of_block < (small ? 2048 : 8192)) return 0;
  return card.multiprocessors * (small ? 2 : 1);
}

FusedPlan plan_of(bool wgmma, int row_units, int64_t rows_per_unit, const Sizes& sizes) {
  FusedPlan plan{};
  plan.wgmma = wgmma;
  plan.row_units = row_units;
  plan.tiles = ceil_div(rows_of_kv_head(sizes), row_units * rows_per_unit);
  plan.items = sizes.B * sizes.Hkv * plan.tiles;
  return plan;
}

// By type and bucket of the head dimension: 64, 128, 256.
using Buckets = LaunchFunction[2][3];
constexpr Buckets FUSED = {{launch_fused_fp16_d64, launch_fused_fp16_d128, launch_fused_fp16_d256},
                           {launch_fused_bf16_d64, launch_fused_bf16_d128, launch_fused_bf16_d256}};
constexpr Buckets RAGGED = {
    {launch_ragged_fp16_d64, launch_ragged_fp16_d128, launch_ragged_fp16_d256},
    {launch_ragged_bf16_d64, launch_ragged_bf16_d128, launch_ragged_bf16_d256}};
constexpr Buckets FUSED_UNALIGNED = {
    {launch_fused_fp16_d64_unaligned, launch_fused_fp16_d128_unaligned,
     launch_fused_fp16_d256_unaligned},
    {launch_fused_bf16_d64_unaligned, launch_fused_bf16_d128_unaligned,
     launch_fused_bf16_d256_unaligned}};
constexpr Buckets RAGGED_UNALIGNED = {
    {launch_ragged_fp16_d64_unaligned, launch_ragged_fp16_d128_unaligned,
     launch_ragged_fp16_d256_unaligned},
    {launch_ragged_bf16_d64_unaligned, launch_ragged_bf16_d128_unaligned,
     launch_ragged_bf16_d256_unaligned}};

LaunchFunction instance(const FusedPlan& plan, ElementType type, int64_t D, bool aligned) {
  const int element = type == ElementType::fp16 ? 0 : 1;
  const int bucket = bucket_of(D);
#if defined(KBTOOL_ARCH_SM_90A)
  static constexpr Buckets WGMMA = {
      {launch_wgmma_fp16_d64, launch_wgmma_fp16_d128, launch_wgmma_fp16_d256},
      {launch_wgmma_bf16_d64, launch_wgmma_bf16_d128, launch_wgmma_bf16_d256}};
  if (plan.wgmma) return WGMMA[element][bucket];
#endif
  if (plan.ragged_blocks > 0) return (aligned ? RAGGED : RAGGED_UNALIGNED)[element][bucket];
  return (aligned ? FUSED : FUSED_UNALIGNED)[element][bucket];
}

// What decides a result's bits, of fused and of wgmma. splits == 0: the model's.
//
// The tile holds all rows of a KV head, up to 64, where the number of splits is given, where unlike
// lengths are shared out and on cards whose times are not known. Elsewhere more than 16 rows go in tiles
// of 16, 32 or 64, in splits that one cluster merges or as choose_splits has it, whichever takes the
// least time; but in more than one wave of blocks by the tile that holds all.
FusedPlan cut_fused(const Sizes& sizes, int64_t splits, const Card& card) {
  constexpr int64_t LEAST_KEYS = 8;  // a split without keys costs less than its cluster saves
  const int64_t rows = rows_of_kv_head(sizes);
  const int whole = rows <= ROWS_PER_WARP ? 1 : rows <= 2 * ROWS_PER_WARP ? 2 : 4;
  const auto cut = [&](int row_warps) {
    FusedPlan plan = plan_of(false, row_warps, ROWS_PER_WARP, sizes);
    plan.num_splits = splits > 0 ? splits : choose_splits(plan.items, row_warps, sizes, card);
    plan.cluster = choose_cluster(plan.items, plan.num_splits, card);
    return plan;
  };
  FusedPlan best = cut(whole);
  if (splits > 0) return best;
  best.ragged_blocks = choose_ragged_blocks(sizes, best, card);
  if (whole == 1 || best.items == 0 || !card.has_wgmma() || best.ragged_blocks > 0) return best;
  double least = time_of_fused(best, sizes, card);
  const auto consider = [&](const FusedPlan& plan) {
    if (plan.items * plan.num_splits > blocks_at_once(plan, sizes, card)) return;
    const double time = time_of_fused(plan, sizes, card);
    if (time >= least) return;
    best = plan;
    least = time;
  };
  for (const int row_warps : {1, 2, 4}) {
    FusedPlan plan = cut(row_warps);
    consider(plan);
    for (const int n : {1, 2, 3, 4, 6, 8}) {
      if (n > 1 && sizes.Skv < n * LEAST_KEYS) break;
      plan.num_splits = n;
      plan.cluster = n;
      consider(plan);
    }
  }
  return best;
}

FusedPlan cut_wgmma(const Sizes& sizes, int64_t splits, const Card& card) {
  // Two warpgroups of a head dimension of 256 have no room for the merge.
  const bool two = rows_of_kv_head(sizes) > ROWS_PER_WARPGROUP && sizes.D <= 128;
  FusedPlan plan = plan_of(true, two ? 2 : 1, ROWS_PER_WARPGROUP, sizes);
  const bool few_rows = rows_of_kv_head(sizes) <= ROWS_PER_WARP;
  plan.num_splits = splits > 0 ? splits
                    : few_rows ? choose_even_splits(plan.items, sizes, card)
                               : choose_wgmma_splits(plan.items, two, sizes, card);
  plan.cluster = choose_cluster(plan.items, plan.num_splits, card);
  // Measured on an H100 and an H200: a cluster of two or four that runs in one wave merges tiles of more
  // rows in less time than a second kernel takes to start; larger clusters, those that wait, and several
  // that merge through the workspace take longer, unless that kernel had many states to read.
  const bool one_cluster = plan.cluster == plan.num_splits && plan.cluster <= 4 &&
                           fit_at_once(plan.items, plan.cluster, card);
  const int64_t blocks = plan.items * plan.num_splits;
  // Two clusters merge small tiles sooner, if they are there at once: 64 of four take 81 us in waves
  // where the second kernel makes it 65.
  const bool small_tile = few_rows && sizes.D <= 128;
  const bool at_once = plan.groups() <= 2 && blocks <= card.multiprocessors;
  const bool one_wave = !few_rows && blocks <= card.multiprocessors;
  const bool apart = plan.num_splits > 1 && !one_cluster &&
                     plan.num_splits <= (one_wave ? MOST_APART_OF_FEW_ITEMS : MOST_APART) &&
                     !(small_tile && (at_once || plan.num_splits < MAX_CLUSTER));
  if (apart) {
    plan.cluster = 1;
    plan.merge_lanes = lanes_of_merge(plan.num_splits, sizes);
  }
  // Measured on an H200: 66 us in place of 69 for 512 blocks of 1024 keys.
  plan.small_ring = few_rows && sizes.D > 64 && sizes.D <= 128 && blocks > card.multiprocessors;
  // Measured on an H200: 35.7 us in place of 36.4 for 64 queries of 32 heads over 16k keys, where the
  // second-level cache is asked for every byte twice. Prefills gain nothing; with clusters that merge it was not tried.
  plan.paired = apart && two && plan.tiles % 2 == 0 && card.clusters[2] > 0 &&
                plan.items <= FEW_WAVES * card.multiprocessors;
  return plan;
}

// What decides no bits: how the blocks of all items get their keys, and when.
void schedule_wgmma(FusedPlan* plan, const Sizes& sizes, const Card& card) {
  const bool few_rows = rows_of_kv_head(sizes) <= ROWS_PER_WARP;
  const int64_t blocks = plan->items * plan->num_splits;
  // Measured on an H100: where a multiprocessor has to itself what two share otherwise and does little
  // but read, four warps of copies bring a hundredth more than its one copy engine; so they do for
  // rows of more than two boxes until there is more than a wave of blocks.
  plan->boxes = few_rows             ? 2 * blocks > card.multiprocessors
                : sizes.D <= 2 * 64  ? true
                                     : blocks > card.multiprocessors;
  // Measured on H200s behind a kernel that admits none: a call of two kernels takes 0.2 to 0.5 us less for
  // having asked, one of one kernel as much or more longer.
  plan->overlap = plan->merge_apart() ? Overlap::always : Overlap::behind_own_call;
  // Blocks take whole multiprocessors or halves. Where two kernels fit side by side, the second would find the
  // places that are left, several clusters to a slice of the card that feeds them through one port:
  // measured on an H100, 33 us in place of 28 for 64 blocks.
  plan->admit_next = plan->merge_apart() || 2 * blocks > card.multiprocessors;
  plan->heads_inner = plan->paired || plan->items <= FEW_WAVES * card.multiprocessors;
}

}  // namespace

FusedPlan plan_fused(const Sizes& sizes, int64_t splits, const Card& card) {
  const int64_t known = wanted_or_measured(splits, Tuned::fused, sizes, card);
  FusedPlan plan = cut_fused(sizes_of_cut(sizes, splits), known, card);
  plan.items = sizes.B * sizes.Hkv * plan.tiles;
  plan.admit_next = card.max_cluster > 1;  // both came with sm_90
  plan.overlap = plan.admit_next ? Overlap::behind_own_call : Overlap::never;
  plan.heads_inner = plan.items <= FEW_WAVES * card.multiprocessors;
  return plan;
}

FusedPlan plan_wgmma(const Sizes& sizes, int64_t splits, const Card& card) {
  const int64_t known = wanted_or_measured(splits, Tuned::wgmma, sizes, card);
  FusedPlan plan = cut_wgmma(sizes_of_cut(sizes, splits), known, card);
  plan.items = sizes.B * sizes.Hkv * plan.tiles;
  schedule_wgmma(&plan, sizes, card);
  return plan;
}

// A measured number of splits says how to cut a variant, and nothing of others. Up to 16 rows the
// variant is told by the model's cut; measured on an H100 and an H200: wgmma reads long keys at 1 to 2 %
// more of the memory's bandwidth, where its blocks of a whole multiprocessor are spread evenly: one to a
// pair, which a cluster of two would share, or a full wave; and where no more than two clusters merge,
// or over long keys the second kernel. More rows: by the times of call_time.h.
bool wgmma_is_faster(const Sizes& whole, int64_t splits, const Card& card) {
  constexpr int64_t KEYS_OF_A_PAIR = 8192;  // a block's, at least
  constexpr int64_t KEYS_OF_A_WAVE = 1024;  // for each of the clusters that merge
  const Sizes sizes = sizes_of_cut(whole, splits);
  if (!card.has_wgmma() || sizes.D % 8 != 0) return false;
  if (rows_of_kv_head(sizes) > ROWS_PER_WARP) {
    const FusedPlan fused = cut_fused(sizes, splits, card);
    return fused.ragged_blocks == 0 && time_of_wgmma(cut_wgmma(sizes, splits, card), sizes, card) <
                                           time_of_fused(fused, sizes, card);
  }
  if (sizes.D <= 64 || sizes.Skv < KEYS_OF_A_WAVE || sizes.lengths) return false;
  const FusedPlan plan = cut_wgmma(sizes, 0, card);
  const int64_t groups = plan.merge_apart() ? 1 : plan.groups();
  const int64_t blocks = plan.items * plan.num_splits;
  const int64_t keys = sizes.Skv / plan.num_splits;
  const bool pairs = 2 * blocks <= card.multiprocessors;
  const int64_t least_keys =
      plan.merge_apart() && sizes.D <= 128 ? KEYS_OF_MERGE_APART : KEYS_OF_A_WAVE * groups;
  // A cluster of two shares a pair; for rows of 256 columns it is still the faster one.
  const bool apart = (plan.cluster != 2 && !plan.merge_apart()) || sizes.D > 128;
  return pairs ? groups == 1 && apart && keys >= KEYS_OF_A_PAIR
               : groups <= 2 && 16 * blocks >= 15 * card.multiprocessors && keys >= least_keys;
}

namespace {

// Of a call whose blocks fit a grid.
cudaError_t launch_grid(SplitKParams p, ElementType type, const KvLengths& lengths,
                        const FusedPlan& plan, float* workspace, unsigned* counters,
                        cudaStream_t stream) {
  // A single key's may be anything, and copies of keys that are not there form addresses from it.
  if (p.Skv == 1) p.k_stride.seq = p.v_stride.seq = 0;
  const int64_t rows = p.H / p.Hkv * p.Sq;
  if (plan.ragged_blocks > 0) {
    p.partial_o = workspace;
    p.partial_m = workspace + 2 * plan.ragged_blocks * rows * ceil_div(p.D, 4) * 4;
  } else if (plan.groups() > 1) {
    const int64_t states = p.B * p.H * p.Sq;
    p.partial_o = workspace;
    p.partial_m = p.partial_o + plan.groups() * states * p.D;
    p.partial_l = p.partial_m + plan.num_splits * states;
  }
  FusedParams fp{};
  fp.p = p;
  fp.lengths = lengths;
  fp.counters = counters;
  fp.splits = FastDivisor(static_cast<uint32_t>(plan.num_splits));
  fp.inner = FastDivisor(static_cast<uint32_t>(plan.heads_inner ? p.B * p.Hkv : plan.tiles));
  fp.heads_inner = plan.heads_inner;
  fp.last_tile = static_cast<uint32_t>(plan.tiles - 1);
  fp.kv_heads = FastDivisor(static_cast<uint32_t>(p.Hkv));
  fp.heads_per_kv = FastDivisor(static_cast<uint32_t>(p.H / p.Hkv));
  fp.cluster = static_cast<uint32_t>(plan.cluster);
  fp.groups = static_cast<uint32_t>(plan.groups());
  fp.rows = static_cast<uint32_t>(rows);
  fp.items = static_cast<uint32_t>(plan.items);
  fp.ragged_blocks = static_cast<uint32_t>(plan.ragged_blocks);
  fp.small_ring = plan.small_ring;
  fp.boxes = plan.boxes;
  fp.paired = plan.paired;
  fp.merge_lanes = static_cast<uint8_t>(plan.merge_lanes);
  fp.overlap = plan.overlap == Overlap::always;
  fp.admit_next = plan.admit_next;
  fp.copy_width = copy_width(p);

  constexpr double LOG2_E = 1.4426950408889634074;
  const double magnitude = std::fabs(static_cast<double>(p.scale));
  fp.c = static_cast<float>(magnitude * LOG2_E);
  fp.q_factor = p.scale < 0 ? -1.0f : 1.0f;
  fp.magnitude = magnitude;
  if (fp.c == 0.0f) {  // every logit is 0
    fp.q_factor = 0.0f;
    fp.c = static_cast<float>(LOG2_E);
  }
  return run_instance(instance(plan, type, p.D, fp.copy_width == 16), fp, plan.row_units, stream);
}

// Batch entries [first, first + count) of a call.
SplitKParams entries_of(SplitKParams p, int64_t first, int64_t count) {
  constexpr int64_t ELEMENT_BYTES = 2;
  const auto bytes = [&](const Strides4& stride) { return first * stride.batch * ELEMENT_BYTES; };
  p.q = static_cast<const char*>(p.q) + bytes(p.q_stride);
  p.k = static_cast<const char*>(p.k) + bytes(p.k_stride);
  p.v = static_cast<const char*>(p.v) + bytes(p.v_stride);
  p.out = static_cast<char*>(p.out) + bytes(p.out_stride);
  if (p.lse != nullptr) p.lse += first * p.lse_stride.batch;
  p.B = count;
  return p;
}

KvLengths entries_of(KvLengths lengths, int64_t first) {
  if (lengths.data == nullptr) return lengths;
  const int64_t bytes = first * lengths.stride * (lengths.is_64bit ? 8 : 4);
  lengths.data = static_cast<const char*>(lengths.data) + bytes;
  return lengths;
}

}  // namespace

int64_t max_splits(const FusedPlan& plan, const Sizes& sizes) {
  return plan.items == 0 ? MAX_BLOCKS : MAX_BLOCKS / (plan.items / sizes.B);
}

cudaError_t launch_fused(const SplitKParams& p, ElementType type, const KvLengths& lengths,
                         const FusedPlan& plan, float* workspace, unsigned* counters,
                         cudaStream_t stream) {
  if (plan.items == 0) return cudaSuccess;
  const int64_t items_of_entry = plan.items / p.B;
  const int64_t entries = MAX_BLOCKS / (items_of_entry * plan.num_splits);
  if (p.D > MAX_HEAD_DIM || p.H / p.Hkv * p.Sq > MAX_BLOCKS || entries == 0 || p.Skv > MAX_KEYS) {
    return cudaErrorInvalidConfiguration;
  }
  for (int64_t first = 0; first < p.B; first += entries) {
    FusedPlan part = plan;
    const int64_t count = std::min(entries, p.B - first);
    part.items = items_of_entry * count;
    const cudaError_t error = launch_grid(entries_of(p, first, count), type,
                                          entries_of(lengths, first), part, workspace, counters,
                                          stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace kbtool::cuda
