// The limits were fitted to times on an H100, of 27 shapes with N and K from 1k to 38k and 1, 8 and 16 rows of x.
// On 28 other shapes the choice takes 0.9 % longer than the best of 32 configurations, each with 1 to 8 splits.
#include <algorithm>
#include <cstdint>

#include "launch.h"

namespace split_k_gemm::cuda {
namespace {

constexpr int64_t TILE_ROWS = 16;
constexpr int64_t WIDE_K = 2048;        // of which 16 warps are worth their longer sum
constexpr int64_t SPLIT_K = 4096;       // of a split, at least
constexpr int64_t LONG_READ = 40'000'000;  // elements of w; then loads ahead count for more than blocks

bool is_aligned(const void* rows, int64_t stride) {
  return reinterpret_cast<uintptr_t>(rows) % 16 == 0 && stride % 8 == 0;
}

}  // namespace

Cut choose_cut(const Params& p, int multiprocessors) {
  const int64_t tiles = (p.N + TILE_ROWS - 1) / TILE_ROWS;
  Cut cut{1, 8, 1, 1, is_aligned(p.x, p.x_stride) && is_aligned(p.w, p.w_stride) && p.K % 8 == 0};
  if (tiles <= multiprocessors && p.K >= WIDE_K) {
    // A block on each multiprocessor, or none: it needs more loads in flight.
    cut.warps = 16;
    while (2 * cut.splits <= MAX_SPLITS && 2 * cut.splits * tiles <= multiprocessors &&
           p.K >= 2 * cut.splits * SPLIT_K) {
      cut.splits *= 2;
    }
  } else {
    if (p.N * p.K >= LONG_READ) cut.chunks = 2;
    if (tiles >= 2 * multiprocessors) cut.row_tiles = 2;
  }
  return cut;
}

}  // namespace split_k_gemm::cuda
