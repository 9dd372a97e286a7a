#include "launch_fused.h"

#include <algorithm>
#include <cmath>

#include "../common/fused_params.h"
#include "../common/layout.h"
#include "../common/run_instance.h"

namespace kbtool::cuda {
namespace {

FusedKernel kernel_of(const FusedPlan& plan, const SplitKParams& p) {
  const bool paged = p.block_table != nullptr && pages_are_regular(p);
  const bool aligned = p.block_table == nullptr && copy_width(p) == 16;
  if (plan.wgmma && plan.fewer_values) return FusedKernel::wgmma_v128;
  if (plan.wgmma) return p.cu_seqlens_q == nullptr ? FusedKernel::wgmma : FusedKernel::wgmma_packed;
  if (plan.ragged_blocks > 0) {
    return paged ? FusedKernel::ragged_paged : aligned ? FusedKernel::ragged : FusedKernel::ragged_unaligned;
  }
  if (p.cu_seqlens_q != nullptr) {
    if (is_fp8(p)) return FusedKernel::fused_unaligned_packed;  // which widens them as it copies
    return paged     ? FusedKernel::fused_paged_packed
           : aligned ? FusedKernel::fused_packed
                     : FusedKernel::fused_unaligned_packed;
  }
  if (is_fp8(p) && (paged || aligned)) {
    if (p.kv_type == KvType::e4m3) return paged ? FusedKernel::fused_paged_e4m3 : FusedKernel::fused_e4m3;
    return paged ? FusedKernel::fused_paged_e5m2 : FusedKernel::fused_e5m2;
  }
  if (p.window > 0 || p.softcap > 0 || p.tree_mask != nullptr || p.Dv != p.D) {
    return paged     ? FusedKernel::fused_paged_options
           : aligned ? FusedKernel::fused_options
                     : FusedKernel::fused_unaligned;
  }
  return paged ? FusedKernel::fused_paged : aligned ? FusedKernel::fused : FusedKernel::fused_unaligned;
}

// A call whose blocks fit a grid.
cudaError_t launch_grid(SplitKParams p, ElementType type, const KvLengths& lengths,
                        const FusedPlan& plan, float* workspace, unsigned* counters,
                        cudaStream_t stream) {
  // A single key's stride may be anything, and disabled copies of later keys form addresses from it.
  if (kv_rows(p) == 1) p.k_stride.seq = p.v_stride.seq = 0;
  const int64_t rows = p.H / p.Hkv * p.Sq;
  if (plan.ragged_blocks > 0) {
    p.partial_o = workspace;
    p.partial_m = workspace + 2 * plan.ragged_blocks * rows * ceil_div(p.Dv, 4) * 4;
  } else if (plan.clusters_per_tile() > 1) {
    const int64_t states = p.B * p.H * p.Sq;
    p.partial_o = workspace;
    p.partial_m = p.partial_o + plan.clusters_per_tile() * states * p.Dv;
    p.partial_l = p.partial_m + plan.num_splits * states;
  }
  FusedParams fp{};
  fp.p = p;
  fp.lengths = lengths;
  fp.counters = counters;
  fp.splits = FastDivisor(static_cast<uint32_t>(plan.num_splits));
  int64_t heads = std::min(plan.heads_at_a_time, p.B * p.Hkv);
  while (p.B * p.Hkv % heads != 0) --heads;  // of a part of the batch
  fp.heads_at_a_time = FastDivisor(static_cast<uint32_t>(heads));
  fp.tiles_at_a_time = FastDivisor(static_cast<uint32_t>(heads * plan.tiles_per_head));
  fp.last_tile = static_cast<uint32_t>(plan.tiles_per_head - 1);
  fp.kv_heads = FastDivisor(static_cast<uint32_t>(p.Hkv));
  fp.heads_per_kv = FastDivisor(static_cast<uint32_t>(p.H / p.Hkv));
  fp.cluster_size = static_cast<uint32_t>(plan.cluster_size);
  fp.clusters_per_tile = static_cast<uint32_t>(plan.clusters_per_tile());
  fp.rows = static_cast<uint32_t>(rows);
  fp.output_tiles = static_cast<uint32_t>(plan.output_tiles);
  fp.ragged_blocks = static_cast<uint32_t>(plan.ragged_blocks);
  fp.persistent = plan.persistent_blocks > 0;
  fp.blocks = static_cast<uint32_t>(plan.blocks());
  if (fp.persistent) fp.blocks = std::min(fp.blocks, static_cast<uint32_t>(plan.persistent_blocks));
  fp.small_ring = plan.small_ring;
  fp.paired = plan.paired;
  fp.merge_lanes = static_cast<uint8_t>(plan.merge_lanes);
  fp.early_launch = plan.early_launch;
  fp.trigger_dependents = plan.trigger_dependents;
  fp.piece_keys = PIECE_KEYS;
  if (p.block_table != nullptr) {
    while ((int64_t{1} << fp.page_shift) < p.page_size) ++fp.page_shift;
    fp.piece_keys = static_cast<int>(std::min<int64_t>(PIECE_KEYS, p.page_size));
  }
  fp.copy_width = copy_width(p);
  fp.q_aligned = q_is_aligned(p);
  fp.out_aligned = out_is_aligned(p);

  constexpr double LOG2_E = 1.4426950408889634074;
  const double magnitude = std::fabs(static_cast<double>(p.scale));
  fp.c = static_cast<float>(magnitude * LOG2_E);
  fp.q_factor = p.scale < 0 ? -1.0f : 1.0f;
  fp.magnitude = magnitude;
  if (p.softcap > 0) {
    fp.tanh_factor = static_cast<float>(magnitude / p.softcap);
    fp.magnitude = p.softcap;
    fp.c = static_cast<float>(p.softcap * LOG2_E);
  }
  if (fp.c == 0.0f) {  // every logit is 0
    fp.q_factor = 0.0f;
    fp.c = static_cast<float>(LOG2_E);
  }
  return run_instance(find_instance(kernel_of(plan, p), type, std::max(p.D, p.Dv)), fp,
                      plan.row_units, stream);
}

// Batch entries [first, first + count) of a call.
SplitKParams entries_of(SplitKParams p, int64_t first, int64_t count) {
  const auto bytes = [&](const Strides4& stride, int64_t of_element = ELEMENT_BYTES) {
    return first * stride.batch * of_element;
  };
  p.q = static_cast<const char*>(p.q) + bytes(p.q_stride);
  if (p.block_table != nullptr) {
    p.block_table += first * p.block_table_stride;
  } else {
    p.k = static_cast<const char*>(p.k) + bytes(p.k_stride, kv_element_bytes(p));
    p.v = static_cast<const char*>(p.v) + bytes(p.v_stride, kv_element_bytes(p));
  }
  p.out = static_cast<char*>(p.out) + bytes(p.out_stride);
  if (p.lse != nullptr) p.lse += first * p.lse_stride.batch;
  if (p.tree_mask != nullptr) p.tree_mask += first * p.Sq * p.tree_mask_words;
  p.B = count;
  if (p.cu_seqlens_q == nullptr) p.entries = count;  // packed queries are one entry of q, and go as a whole
  return p;
}

KvLengths entries_of(KvLengths lengths, int64_t first) {
  if (lengths.data == nullptr) return lengths;
  const int64_t bytes = first * lengths.stride * (lengths.is_64bit ? 8 : 4);
  lengths.data = static_cast<const char*>(lengths.data) + bytes;
  return lengths;
}

}  // namespace

cudaError_t launch_fused(const SplitKParams& p, ElementType type, const KvLengths& lengths,
                         const FusedPlan& plan, float* workspace, unsigned* counters,
                         cudaStream_t stream) {
  if (plan.output_tiles == 0) return cudaSuccess;
  const int64_t tiles_of_entry = plan.output_tiles / p.B;
  const int64_t entries = MAX_BLOCKS / (tiles_of_entry * plan.num_splits);
  if (std::max(p.D, p.Dv) > MAX_HEAD_DIM || p.H / p.Hkv * p.Sq > MAX_BLOCKS || entries == 0 || p.Skv > MAX_KEYS) {
    return cudaErrorInvalidConfiguration;
  }
  for (int64_t first = 0; first < p.B; first += entries) {
    FusedPlan part = plan;
    const int64_t count = std::min(entries, p.B - first);
    part.output_tiles = tiles_of_entry * count;
    const cudaError_t error = launch_grid(entries_of(p, first, count), type,
                                          entries_of(lengths, first), part, workspace, counters,
                                          stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace kbtool::cuda
