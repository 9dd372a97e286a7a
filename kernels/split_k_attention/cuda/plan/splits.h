// Rules for the number of splits of a call. They come from times of bf16 calls on an H100 or an H200
// (ADR 0023, 0026, 0032).
#pragma once

#include <algorithm>

#include "cluster.h"

namespace kbtool::cuda {

constexpr int64_t ROWS_PER_WARP = 16;       // of fused: the rows of one mma
constexpr int64_t ROWS_PER_WARPGROUP = 64;  // of wgmma

// The minimum number of keys of one split.
constexpr int64_t FEW_KEYS = 32;         // fused, if there are at least four times as many keys
constexpr int64_t MIN_KEYS = 64;         // fused, if there are fewer keys: a block of 16 for each of four warps
constexpr int64_t WGMMA_MIN_KEYS = 256;  // two key blocks of 128, or four of 64

// Up to 16 query rows the splits of wgmma pay for its merge kernel if each has at least so many keys (H100, H200).
constexpr int64_t KEYS_FOR_SEPARATE_MERGE = 4096;

// The number of fused blocks whose copies in flight saturate the memory bandwidth, by Little's law: 64 on an H100
// (measured: 64) and 91 on an H200 (measured: 96). If the bandwidth is unknown, three quarters of the
// multiprocessors.
inline int64_t blocks_to_saturate_bandwidth(const Card& card) {
  constexpr int64_t BYTES_IN_FLIGHT = 96 << 10;  // of one block: the size of its ring buffer
  constexpr int64_t LATENCY_NS = 1850;           // under load; chosen to fit both cards, not measured directly
  if (card.bandwidth <= 0) return card.multiprocessors * 3 / 4;
  return std::min<int64_t>(card.multiprocessors,
                           ceil_div(card.bandwidth * LATENCY_NS, BYTES_IN_FLIGHT));
}

// Whether keys of 8 bits, up to 16 query rows of up to 128 columns, take all multiprocessors: a block then has more to
// do for each byte and reads 37 GB/s, so that the blocks that saturate the bandwidth with 16 bits do not. More splits
// pay from a number of keys on that fits shapes of 8, 16 and 32 output tiles (H100: 8 tiles of 128k keys 106 us instead
// of 114, of 32k keys 40 instead of 38; 32 tiles of 32k keys 107 instead of 115, of 8k keys 39 instead of 37).
inline bool fp8_takes_all(int64_t output_tiles, int64_t elements, const Card& card) {
  constexpr int64_t ELEMENTS = 1 << 19;  // of k, that a block reads in the time that more splits cost
  const int64_t few = ceil_div(blocks_to_saturate_bandwidth(card), output_tiles);
  const int64_t all = card.multiprocessors / output_tiles;
  return elements * (all - few) >= few * all * ELEMENTS;
}

// fused:
//   (a) One wave, with just enough blocks to saturate the bandwidth; more blocks would end unevenly. Tiles of
//       more than 16 rows take 3/4 of the multiprocessors, because their products take longer than loading
//       the keys. So does D above 128, because a block then reads at a lower rate. Above 16 rows, keys that are copied
//       element by element or have 8 bits take all multiprocessors: a block has more to do for each of them.
//   (b) Take the next number that one cluster merges, or a smaller one if it keeps 15/16 of those blocks.
//   (c) Otherwise merge through the workspace, if the time that more splits save exceeds the cost of the merge.
inline int64_t choose_splits(int64_t output_tiles, int row_warps, const Sizes& sizes, const Card& card) {
  // Elements of k that a block reads in the time of a merge through the workspace.
  constexpr int64_t MERGE_ELEMENTS = 256 * 128;
  constexpr int64_t PAIR_KEYS = 2048;  // minimum for two splits to pay for their merge, up to 16 rows
  const int64_t Skv = std::min(sizes.Skv, MAX_KEYS);
  const int64_t elements = Skv * sizes.width();
  if (output_tiles <= 0) return 1;

  // (a)
  const bool memory_bound = row_warps == 1 && sizes.width() <= 128;
  const bool takes_all = memory_bound ? sizes.fp8 && fp8_takes_all(output_tiles, elements, card)
                                      : (sizes.by_element || sizes.fp8) && row_warps > 1;
  const int64_t blocks = takes_all      ? card.multiprocessors
                         : memory_bound ? blocks_to_saturate_bandwidth(card)
                                        : card.multiprocessors * 3 / 4;
  const int64_t wave = card.max_cluster == 1 ? card.multiprocessors / output_tiles
                       : memory_bound        ? ceil_div(blocks, output_tiles)
                                             : blocks / output_tiles;
  const int64_t least_keys = Skv >= 4 * FEW_KEYS ? FEW_KEYS : MIN_KEYS;
  const int64_t most =
      std::min({card.multiprocessors / output_tiles, Skv / least_keys, MAX_NUM_SPLITS});
  int64_t splits = std::min(wave, most);
  // If at least half of the multiprocessors would idle, cut each tile in two. Larger tiles run one block per
  // multiprocessor, so this pays from few keys on. For tiles of 16 rows it pays only over many keys.
  const int64_t pair_keys = row_warps > 1 ? 2 * MIN_KEYS : PAIR_KEYS;
  const bool pairs = 2 * output_tiles <= card.multiprocessors && Skv >= pair_keys;
  if (splits <= 1) return pairs ? 2 : 1;
  if (card.max_cluster == 1) return splits;

  // (b) Two neighbouring multiprocessors share a port to the memory, so many clusters of an odd size
  // get their keys unevenly.
  const auto in_one_cluster = [&](int64_t n) {
    const bool even = n % 2 == 0 || 2 * output_tiles * n <= card.multiprocessors;
    return n <= card.max_cluster && even && fit_at_once(output_tiles, n, card);
  };
  for (int64_t n = splits; n <= std::min<int64_t>(most, card.max_cluster); ++n) {
    if (in_one_cluster(n)) return n;
  }
  int64_t one = std::min<int64_t>(splits, card.max_cluster);
  while (one > 1 && !in_one_cluster(one)) --one;
  if (16 * output_tiles * one >= 15 * blocks) return one;

  // (c) If more than eight clusters leave states, the last block reads so many that the merge costs twice as much.
  const int64_t merge_elements = row_warps == 1 ? MERGE_ELEMENTS : MERGE_ELEMENTS / 2;
  const auto worth = [&](int64_t from, int64_t to) {
    return elements * (to - from) >= from * to * merge_elements;
  };
  if (!worth(one, splits)) return one;
  splits = std::min(splits, std::max<int64_t>(4 * card.max_cluster, 2 * elements / merge_elements));
  const int64_t eight = 8 * card.max_cluster;
  if (splits > eight && !worth(eight, splits)) splits = eight;
  // Search upwards for the first number that the largest clusters divide. If that leaves many states to merge,
  // search downwards too.
  int64_t best = splits;
  int largest = 1;
  const auto consider = [&](int64_t n) {
    const int cluster = choose_cluster(output_tiles, n, card);
    if (cluster % 2 != 0 || cluster <= largest) return;
    best = n;
    largest = cluster;
  };
  for (int64_t n = splits; n < splits + card.max_cluster && n <= most; ++n) consider(n);
  if (best <= 8 * largest && largest > 1) return best;
  for (int64_t n = splits - 1; n > splits - card.max_cluster && n > one; --n) consider(n);
  return largest == 1 && one > 1 && best > 4 ? one : best;
}

// Whether one block on every second multiprocessor is too few to saturate the bandwidth, with up to 16 query rows
// of 65 to 128 columns. True on an H200, false on an H100.
inline bool needs_more_than_half(const Card& card) {
  return 2 * blocks_to_saturate_bandwidth(card) > card.multiprocessors;
}

// wgmma: one block per multiprocessor, up to 32 splits per tile. Exceptions:
//   - One warpgroup: half as many, if more than 16 splits would have fewer than 512 keys each.
//   - More than 33 multiprocessors per tile: a multiple of 8, up to 128 (on an H200 64 splits took 10 % less time than
//     66). If more than 64 splits would have fewer than 1,024 keys each, half as many.
//   - H200, up to 16 rows, D of 65 to 128, 8 to 15 tiles: two blocks per multiprocessor if each split then has 4,096
//     keys (0.99 to 1.01 of cuDNN's speed; 0.95 to 0.97 with one block).
inline int64_t choose_wgmma_splits(int64_t output_tiles, bool two_warpgroups, const Sizes& sizes,
                                   const Card& card) {
  constexpr int64_t MOST = 32;  // splits per tile
  constexpr int64_t MOST_OF_FEW_TILES = 128;
  constexpr int64_t MANY_SPLITS = 16;
  constexpr int64_t KEYS_OF_MANY = 512;         // of a split, above 16 splits
  constexpr int64_t KEYS_OF_VERY_MANY = 1024;   // of a split, above 64
  const int64_t most = sizes.Skv / WGMMA_MIN_KEYS;
  if (output_tiles <= 0 || most <= 1) return 1;
  const int64_t all = card.multiprocessors / output_tiles;
  const int64_t twice = 2 * card.multiprocessors / output_tiles;
  const bool small_ring = sizes.rows_of_kv_head() <= ROWS_PER_WARP && sizes.width() > 64 && sizes.width() <= 128;
  if (small_ring && needs_more_than_half(card) && twice > 16 && twice <= 33 &&
      sizes.Skv >= twice * KEYS_FOR_SEPARATE_MERGE) {
    return twice;
  }
  if (all > MOST + 1) {
    const int64_t wave = std::min(all / 8 * 8, MOST_OF_FEW_TILES);
    const bool half = wave > 64 && sizes.Skv < wave * KEYS_OF_VERY_MANY;
    return std::min(half ? wave / 2 : wave, most);
  }
  const int64_t splits = std::min(all, MOST);
  const bool half =
      !two_warpgroups && splits > MANY_SPLITS && sizes.Skv < splits * KEYS_OF_MANY;
  return std::max<int64_t>(1, std::min(half ? splits / 2 : splits, most));
}

// The separate merge kernel merges chunks of four columns of a row. This is the number of lanes of a warp that share
// the splits of one chunk. It is larger for few chunks, which would fill few warps, and for many splits. H200: two
// lanes take 5 % off a call of 16 queries and 16 splits and add 15 to 20 % at 8 splits; four or eight lanes take 7
// to 18 % off 32 and 64 splits of one to four KV heads.
inline int choose_merge_lanes(int64_t splits, const Sizes& sizes) {
  const int64_t chunks = sizes.rows() * ceil_div(sizes.Dv, 4);
  if (splits > 33 && chunks <= 4096) return 8;
  if (splits > 16 && chunks <= 1024) return 16;
  if (splits > 16 && chunks <= 8192) return 4;
  return splits > 8 && chunks <= 32768 ? 2 : 1;
}

// The number of blocks of the ragged kernel, which divides unlike lengths among blocks on the device; 0 if it does
// not pay or cannot run. If all lengths are the same it costs 5 us, above 16 query rows 10 us (H100). Without it, the
// other blocks may wait longer than that for the block that has a whole split of the longest entry.
inline int choose_ragged_blocks(const Sizes& sizes, const FusedPlan& plan, const Card& card) {
  // The kernel lays the keys of all tiles end to end, on a line, and counts them in blocks of 16.
  constexpr int64_t MAX_LINE_KEYS = int64_t{1} << 31;
  const bool small = plan.row_units == 1;
  const int64_t keys_of_split = sizes.Skv / plan.num_splits;
  if (!sizes.lengths || sizes.options || sizes.Dv != sizes.D || sizes.packed || sizes.fp8 || sizes.B < 2 || sizes.B > MAX_RAGGED_ENTRIES ||
      plan.tiles_per_head != 1) {
    return 0;
  }
  if (sizes.Skv >= MAX_LINE_KEYS / plan.output_tiles - 1024) return 0;
  if (keys_of_split < (small ? 2048 : 8192)) return 0;
  return card.multiprocessors * (small ? 2 : 1);
}

}  // namespace kbtool::cuda
