// Numbers of splits that were measured to be the fastest, by card and shape.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kbtool::cuda {

enum class Tuned { fused, wgmma };

struct TunedSplits {
  Tuned variant;
  int capability;  // 90 for sm_90
  int multiprocessors;
  int bandwidth;  // GB/s, by the memory's clock and width: what tells an H200 from an H100
  int64_t D;
  int64_t heads;  // batch entries x KV heads
  int64_t rows;   // query rows that share a KV head: H / Hkv x Sq
  int64_t Skv;
  int64_t splits;
};

constexpr int64_t gap(int64_t a, int64_t b) { return a < b ? b - a : a - b; }

// Within 10 %: one card is sold with parts of its memory bus disabled.
constexpr bool alike_bandwidth(int64_t a, int64_t b) { return 10 * (a < b ? b : a) <= 11 * (a < b ? a : b); }

// The splits of the row that equals the call in all but the number of keys and is nearest in that, by a factor
// of at most 1.5; among equally near ones, of the nearest bandwidth. 0 where there is none.
constexpr int64_t find_tuned_splits(const TunedSplits* rows, size_t count, const TunedSplits& call) {
  const TunedSplits* nearest = nullptr;
  for (const TunedSplits* row = rows; row != rows + count; ++row) {
    if (row->variant != call.variant || row->capability != call.capability ||
        row->multiprocessors != call.multiprocessors ||
        !alike_bandwidth(row->bandwidth, call.bandwidth) || row->D != call.D ||
        row->heads != call.heads || row->rows != call.rows) {
      continue;
    }
    const int64_t low = row->Skv < call.Skv ? row->Skv : call.Skv;
    const int64_t high = row->Skv < call.Skv ? call.Skv : row->Skv;
    if (2 * high > 3 * low) continue;
    if (nearest != nullptr) {  // the nearer of two has the smaller high / low
      const int64_t held_low = nearest->Skv < call.Skv ? nearest->Skv : call.Skv;
      const int64_t held_high = nearest->Skv < call.Skv ? call.Skv : nearest->Skv;
      const double held = static_cast<double>(held_high) * low;
      const double found = static_cast<double>(high) * held_low;
      if (held < found) continue;
      if (held == found && gap(nearest->bandwidth, call.bandwidth) <= gap(row->bandwidth, call.bandwidth)) {
        continue;
      }
    }
    nearest = row;
  }
  return nearest == nullptr ? 0 : nearest->splits;
}

// The last row matches no card: an empty array would not compile.
constexpr TunedSplits TUNED_SPLITS[] = {
#include "tuned_splits.inc"
    {Tuned::fused, 0, 0, 0, 0, 0, 0, 0, 0},
};

constexpr int64_t tuned_splits(const TunedSplits& call) {
  return find_tuned_splits(TUNED_SPLITS, sizeof(TUNED_SPLITS) / sizeof(TUNED_SPLITS[0]), call);
}

namespace tuned_example {
constexpr TunedSplits ROWS[] = {{Tuned::fused, 90, 132, 3352, 128, 8, 4, 4096, 16},
                                {Tuned::fused, 90, 132, 3352, 128, 8, 4, 5000, 24},
                                {Tuned::fused, 90, 132, 3430, 128, 8, 4, 4096, 20}};
constexpr int64_t find(Tuned variant, int64_t heads, int64_t Skv, int bandwidth = 3352) {
  return find_tuned_splits(ROWS, 3, {variant, 90, 132, bandwidth, 128, heads, 4, Skv, 0});
}
static_assert(find(Tuned::fused, 8, 4096) == 16, "measured");
static_assert(find(Tuned::fused, 8, 4500) == 16, "4500 / 4096 is less than 5000 / 4500");
static_assert(find(Tuned::fused, 8, 4600) == 24, "5000 / 4600 is less than 4600 / 4096");
static_assert(find(Tuned::fused, 8, 7500) == 24, "half as many again as 5000");
static_assert(find(Tuned::fused, 8, 7501) == 0, "too far from both");
static_assert(find(Tuned::fused, 4, 4096) == 0, "other heads");
static_assert(find(Tuned::wgmma, 8, 4096) == 0, "another variant");
static_assert(find(Tuned::fused, 8, 4096, 3300) == 16, "the same card");
static_assert(find(Tuned::fused, 8, 4096, 3430) == 20, "its own row, not that of one alike");
static_assert(find(Tuned::fused, 8, 4096, 4814) == 0, "a faster memory");
}  // namespace tuned_example

}  // namespace kbtool::cuda
