// Host side of the fused kernel: how a call is cut up, and which instance runs it.
#include "launch.h"

#include <algorithm>
#include <cmath>

#include "../num_splits.h"
#include "fused_params.h"

// Set for a tuning build.
#if !defined(KBTOOL_FUSED_MAX_CLUSTER)
#define KBTOOL_FUSED_MAX_CLUSTER 8
#endif

namespace kbtool::cuda {
namespace {

constexpr int64_t ROWS_PER_WARP = 16;
constexpr int64_t MIN_KEYS = 64;   // one block of 16 keys for each of four warps
constexpr int64_t FEW_KEYS = 32;   // worth a block where there are four splits of them or more

int largest_divisor(int64_t n, int limit) {
  for (int64_t divisor = std::min<int64_t>(n, limit); divisor > 1; --divisor) {
    if (n % divisor == 0) return static_cast<int>(divisor);
  }
  return 1;
}

// One wave of blocks, each with keys enough to be worth it; above one cluster, whole clusters.
// Measured on an H100: three quarters of the multiprocessors draw all of the memory's bandwidth,
// and a fuller wave of clusters puts two blocks on one multiprocessor before others have any.
int64_t choose_splits(int64_t items, int row_warps, int64_t Skv, const Card& card) {
  if (items <= 0) return 1;
  const int64_t blocks = card.max_cluster > 1 ? card.multiprocessors * 3 / 4 : card.multiprocessors;
  const int64_t most = Skv / (Skv >= 4 * FEW_KEYS ? FEW_KEYS : MIN_KEYS);
  int64_t splits = std::min({blocks / items, most, MAX_NUM_SPLITS});
  // Larger tiles have one block a multiprocessor: pairs of blocks fill what one tile each leaves.
  const bool pairs = row_warps > 1 && 2 * items <= card.multiprocessors && Skv >= 2 * MIN_KEYS;
  if (splits <= 1) return pairs ? 2 : 1;
  if (card.max_cluster > 1 && splits > 8) splits -= splits % 8;
  return splits;
}

// The widest load that every row of q, k and v can be copied with.
int copy_width(const SplitKParams& p) {
  constexpr int64_t ELEMENT_BYTES = 2;
  if (p.D > 1 && (p.k_stride.dim != 1 || p.v_stride.dim != 1)) return ELEMENT_BYTES;
  uint64_t bits = reinterpret_cast<uintptr_t>(p.k) | reinterpret_cast<uintptr_t>(p.v);
  const auto include = [&](int64_t size, int64_t stride) {
    if (size > 1) bits |= static_cast<uint64_t>(stride * ELEMENT_BYTES);
  };
  for (const Strides4& stride : {p.k_stride, p.v_stride}) {
    include(p.B, stride.batch);
    include(p.Hkv, stride.head);
    include(p.Skv, stride.seq);
  }
  // Rows of q are copied in 16 bytes or by the element.
  uint64_t q_bits = bits | reinterpret_cast<uintptr_t>(p.q);
  for (const int64_t stride : {p.q_stride.batch, p.q_stride.head, p.q_stride.seq}) {
    q_bits |= static_cast<uint64_t>(stride * ELEMENT_BYTES);
  }
  if (q_bits % 16 == 0 && (p.q_stride.dim == 1 || p.D == 1)) return 16;
  if (bits % 8 == 0) return 8;
  if (bits % 4 == 0) return 4;
  return ELEMENT_BYTES;
}

LaunchFunction instance(ElementType type, int64_t D) {
  const bool half = type == ElementType::fp16;
  if (D <= 64) return half ? launch_fused_fp16_d64 : launch_fused_bf16_d64;
  if (D <= 128) return half ? launch_fused_fp16_d128 : launch_fused_bf16_d128;
  return half ? launch_fused_fp16_d256 : launch_fused_bf16_d256;
}

}  // namespace

Plan make_plan(int64_t B, int64_t H, int64_t Hkv, int64_t Sq, int64_t Skv,
               int64_t splits, const Card& card) {
  Plan plan{};
  const int64_t rows = Hkv == 0 ? 0 : H / Hkv * Sq;
  plan.row_warps = rows <= ROWS_PER_WARP ? 1 : rows <= 2 * ROWS_PER_WARP ? 2 : 4;
  plan.tiles = ceil_div(rows, plan.row_warps * ROWS_PER_WARP);
  plan.items = B * Hkv * plan.tiles;
  plan.num_splits = splits > 0 ? splits : choose_splits(plan.items, plan.row_warps, Skv, card);
  plan.cluster = largest_divisor(plan.num_splits, card.max_cluster);
  plan.overlap = card.max_cluster > 1;  // both came with sm_90
  return plan;
}

int64_t workspace_numel(const Plan& plan, int64_t rows, int64_t D) {
  if (plan.groups() == 1) return 0;
  return plan.groups() * rows * D + 2 * plan.num_splits * rows;
}

cudaError_t launch_fused(const SplitKParams& p, ElementType type, const KvLengths& lengths,
                         const Plan& plan, unsigned* counters, cudaStream_t stream) {
  constexpr int64_t MAX_BLOCKS = (int64_t{1} << 31) - 1;
  constexpr int64_t MAX_KEYS = int64_t{1} << 35;  // in blocks of 16, below 2^31
  const int64_t rows = p.Hkv == 0 ? 0 : p.H / p.Hkv * p.Sq;
  if (plan.items == 0) return cudaSuccess;
  if (p.D > MAX_HEAD_DIM || rows > MAX_BLOCKS || plan.items * plan.num_splits > MAX_BLOCKS ||
      p.Skv >= MAX_KEYS) {
    return cudaErrorInvalidConfiguration;
  }
  FusedParams fp{};
  fp.p = p;
  fp.lengths = lengths;
  fp.counters = counters;
  fp.splits = FastDivisor(static_cast<uint32_t>(plan.num_splits));
  fp.tiles = FastDivisor(static_cast<uint32_t>(plan.tiles));
  fp.kv_heads = FastDivisor(static_cast<uint32_t>(p.Hkv));
  fp.heads_per_kv = FastDivisor(static_cast<uint32_t>(p.H / p.Hkv));
  fp.cluster = static_cast<uint32_t>(plan.cluster);
  fp.groups = static_cast<uint32_t>(plan.groups());
  fp.rows = static_cast<uint32_t>(rows);
  fp.items = static_cast<uint32_t>(plan.items);
  fp.overlap = plan.overlap;
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
  return instance(type, p.D)(fp, plan.row_warps, stream);
}

cudaError_t read_card(Card* card) {
  int device = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return error;
  error = cudaDeviceGetAttribute(&card->multiprocessors, cudaDevAttrMultiProcessorCount, device);
  if (error != cudaSuccess) return error;
  int major = 0;
  error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (error != cudaSuccess) return error;
  // Every card with clusters has 8; 16, where there is room for it, was slower on an H100.
  card->max_cluster = major < 9 ? 1 : KBTOOL_FUSED_MAX_CLUSTER;
  return cudaSuccess;
}

}  // namespace kbtool::cuda
