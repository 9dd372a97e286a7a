// How many pieces the KV range is cut into, as a pure function of sizes.
#pragma once

#include <cstdint>

namespace kbtool {

constexpr int64_t MAX_NUM_SPLITS = 1024;

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// tiles      query tiles x batch x KV heads: the work items there are without splitting
// kv_length  keys of a batch entry by its shape (Skv), whatever kv_lengths says
// workers    SMs or cores that can run an item at the same time
// min_keys   the fewest keys that are worth an item of their own
//
// Cost, in keys: items run in waves of `workers`. An item costs its keys plus min_keys / 2, for its
// start, the store of its partial state and its part of the merge. The result is the smallest number
// of splits within 10% of the lowest cost, since fewer splits mean less to merge.
//
// Worked example: decode with B=1, Hkv=8, one query tile, 16384 keys, 64 workers, min_keys=256.
//   tiles = 8; at most 16384 / 256 = 64 splits.
//   splits  1:   8 items, 1 wave  of 16384 + 128 -> 16512
//   splits  8:  64 items, 1 wave  of  2048 + 128 ->  2176   <- chosen, no other is faster
//   splits 16: 128 items, 2 waves of  1024 + 128 ->  2304
// With 64 tiles or more every worker already has a tile, and nothing is split.
constexpr int64_t choose_num_splits(int64_t tiles, int64_t kv_length, int64_t workers,
                                    int64_t min_keys) {
  if (tiles <= 0 || tiles >= workers) return 1;
  int64_t limit = kv_length / min_keys;
  if (limit > MAX_NUM_SPLITS) limit = MAX_NUM_SPLITS;
  if (limit <= 1) return 1;

  const auto cost = [&](int64_t splits) {
    const int64_t waves = ceil_div(tiles * splits, workers);
    return waves * (ceil_div(kv_length, splits) + min_keys / 2);
  };
  int64_t best = cost(1);
  for (int64_t splits = 2; splits <= limit; ++splits) {
    if (cost(splits) < best) best = cost(splits);
  }
  for (int64_t splits = 1; splits < limit; ++splits) {
    if (cost(splits) * 10 <= best * 11) return splits;
  }
  return limit;
}

static_assert(choose_num_splits(8, 16384, 64, 256) == 8, "the worked example above");
static_assert(choose_num_splits(64, 16384, 64, 256) == 1, "no worker is idle");
static_assert(choose_num_splits(1, 511, 64, 256) == 1, "too short to cut in two");

}  // namespace kbtool
