// The limits were fitted to times on an H100, of 27 shapes with N and K from 1k to 38k and 1, 8 and 16 rows of x.
#include <algorithm>
#include <cstdint>

#include "launch.h"

namespace split_k_gemm::cuda {
namespace {

constexpr int64_t TILE_ROWS = 16;
constexpr int64_t WIDE_K = 2048;   // of which 16 warps are worth their longer sum
constexpr int64_t SPLIT_K = 4096;  // of a split, at least

bool is_aligned(const void* rows, int64_t stride) {
  return reinterpret_cast<uintptr_t>(rows) % 16 == 0 && stride % 8 == 0;
}

}  // namespace

bool is_aligned(const Params& p) {
  return is_aligned(p.x, p.x_stride) && is_aligned(p.w, p.w_stride) && p.K % 8 == 0;
}

bool ring_reads(const Params& p) {
  // A row that repeats has a stride of 0, of which there is no tensor map, and its coordinates are 32 bits wide.
  const bool apart = (p.M == 1 || p.x_stride > 0) && (p.N == 1 || p.w_stride > 0);
  return is_aligned(p) && apart && p.K > 0 && p.K % RING_CHUNK == 0 && p.N <= INT32_MAX;
}

Cut choose_cut(const Params& p, int multiprocessors) {
  const int64_t tiles = (p.N + TILE_ROWS - 1) / TILE_ROWS;
  Cut cut{1, 8};
  if (tiles <= multiprocessors && p.K >= WIDE_K) {
    // A block on each multiprocessor, or none: it needs more loads in flight.
    cut.warps = 16;
    while (2 * cut.splits <= MAX_SPLITS && 2 * cut.splits * tiles <= multiprocessors &&
           p.K >= 2 * cut.splits * SPLIT_K) {
      cut.splits *= 2;
    }
  }
  return cut;
}

}  // namespace split_k_gemm::cuda
