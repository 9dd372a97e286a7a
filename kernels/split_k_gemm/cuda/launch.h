// The two kernels, how a product is cut for each, and their instances, one source per element type.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "../params.h"

namespace split_k_gemm::cuda {

constexpr int MAX_SPLITS = 8;  // the blocks of a portable cluster
constexpr int64_t MAX_ROWS = 65535 * 16;  // blocks along y or z, of 16 rows of x each
constexpr int RING_CHUNK = 64;  // of K, that TMA copies at a time or not at all

struct Card {
  int device;
  int multiprocessors;
  int shared_bytes;  // that a block may have
};

// All rows of x and w start at a multiple of 16 bytes, and K is a multiple of 8.
bool is_aligned(const Params& p);

// TMA reads x and w: they are aligned, and K is a multiple of RING_CHUNK.
bool ring_reads(const Params& p);

// How gemm.cuh cuts K. The order in which a row's terms are added follows from it, and it from N, K and the card: the
// bits of a row do not depend on the other rows.
struct Cut {
  int splits;  // ranges of k, one for each block of a cluster
  int warps;   // of a block, which take chunks of its k in turn: 8 or 16
};

Cut choose_cut(const Params& p, int multiprocessors);

// ring.cuh; cudaErrorNotSupported if the driver makes no tensor map of x or w.
cudaError_t launch_ring_fp16(const Params& p, const Card& card, cudaStream_t stream);
cudaError_t launch_ring_bf16(const Params& p, const Card& card, cudaStream_t stream);

// gemm.cuh
cudaError_t launch_fp16(const Params& p, const Cut& cut, cudaStream_t stream);
cudaError_t launch_bf16(const Params& p, const Cut& cut, cudaStream_t stream);

}  // namespace split_k_gemm::cuda
