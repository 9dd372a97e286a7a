// The face of the fused CUDA kernel: plain C++, no torch and no device code. Each element type and
// head-dimension bucket is one source that defines one function: no instantiation can be missing
// at link time.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "../params.h"

namespace kbtool::cuda {

enum class ElementType { fp16, bf16 };

constexpr int64_t MAX_HEAD_DIM = 256;

// What a card offers; read once.
struct Card {
  int multiprocessors;
  int max_cluster;  // blocks of a cluster, 1 where the card has none
};

// The fused kernel cuts each batch entry by its own length, which only the device knows.
struct KvLengths {
  const void* data = nullptr;  // [B], each in [0, Skv]; null when every key is valid
  int64_t stride = 1;          // in elements
  bool is_64bit = false;
};

// How one call is cut up: a pure function of sizes, card and the wanted splits.
struct Plan {
  int row_warps;      // warps that take 16 query rows each of the same keys: 1, 2 or 4
  int64_t tiles;      // query tiles of a KV head
  int64_t num_splits;
  int cluster;        // splits that merge through shared memory; divides num_splits
  int64_t items;      // batch entries x KV heads x tiles
  bool overlap;       // the card can start a kernel before the one ahead of it has ended

  int64_t groups() const { return num_splits / cluster; }
  // Merged by the last block to arrive where one cluster does not hold every split.
  int64_t num_counters() const { return groups() == 1 ? 0 : items * cluster; }
};

// splits == 0: chosen from the sizes and the card.
Plan make_plan(int64_t B, int64_t H, int64_t Hkv, int64_t Sq, int64_t Skv,
               int64_t splits, const Card& card);

// Floats: D weighted values for each row and group, a maximum and a sum for each row and split.
int64_t workspace_numel(const Plan& plan, int64_t rows, int64_t D);

// Enqueues the one kernel. p.partial_* point into a workspace of workspace_numel floats (needs no
// initial value); p.kv_lengths is not used. `counters` holds plan.num_counters() zeros and holds
// zeros again when the kernel is done; no two launches that can run at the same time may share it.
cudaError_t launch_fused(const SplitKParams& p, ElementType type, const KvLengths& lengths,
                         const Plan& plan, unsigned* counters, cudaStream_t stream);

// The card that is current.
cudaError_t read_card(Card* card);

}  // namespace kbtool::cuda
