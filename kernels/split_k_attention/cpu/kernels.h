// The face of the CPU kernels: what a caller needs to run the two passes in parallel. Nothing here
// is a template, and each element type of the queries is one source that defines one function: no
// instantiation can be missing at link time.
#pragma once

#include <cstdint>

#include "../num_splits.h"
#include "../params.h"

namespace kbtool::cpu {

constexpr int64_t BLOCK_M = 64;   // rows of a query tile, each a query of one head of the KV group
constexpr int64_t BLOCK_KV = 64;  // keys taken at a time

// Fixed, and not the number of threads: the cut, and with it every bit of the result, must not
// depend on how many threads happen to run. 64 items keep 64 cores busy and cost two cores nothing.
constexpr int64_t NOMINAL_WORKERS = 64;
constexpr int64_t MIN_KEYS = 256;

constexpr int64_t query_tiles(int64_t H, int64_t Hkv, int64_t Sq) {
  return Hkv == 0 ? 0 : ceil_div(H / Hkv * Sq, BLOCK_M);
}

// Of packed queries, those after the last entry's are one entry more.
inline int64_t queries_of_entry(const SplitKParams& p, int64_t entry) {
  if (p.cu_seqlens_q == nullptr) return p.Sq;
  const int64_t end = entry == p.entries ? p.Sq : p.cu_seqlens_q[entry + 1];
  return end - p.cu_seqlens_q[entry];
}

inline int64_t num_items(const SplitKParams& p) {
  if (p.Hkv == 0) return 0;
  const int64_t tiles = p.cu_seqlens_q == nullptr
                            ? p.B * query_tiles(p.H, p.Hkv, p.Sq)
                            : num_packed_tiles(p.H / p.Hkv * p.Sq, p.entries, BLOCK_M);
  return tiles * p.Hkv * p.num_splits;
}

struct Kernels {
  // Floats of scratch that a worker needs, at an address that is a multiple of 64 bytes.
  int64_t (*scratch_numel)(const SplitKParams& p);
  // Pass 1: stores the partial state of one (batch, KV head, query tile, split) to partial_*. If these
  // are null (one split), stores output and LSE to out and lse. Items may run in any order.
  void (*partial)(const SplitKParams& p, int64_t item, float* scratch);
  // Pass 2: merges the splits of rows [begin, end) out of B * H * Sq, in the order of the splits.
  void (*merge)(const SplitKParams& p, int64_t begin, int64_t end, float* scratch);
};

Kernels kernels_fp32();
Kernels kernels_fp16(KvType kv);
Kernels kernels_bf16(KvType kv);

}  // namespace kbtool::cpu
