#include "launch.h"

#include "baselines/tile_params.h"
#include "common/fused_params.h"
#include "common/layout.h"
#include "common/run_instance.h"

namespace kbtool::cuda {
namespace {

constexpr int64_t TILE_ROWS = 64;  // query rows of a tile of fa1 and two_pass
constexpr int64_t TILE_KEYS = 64;  // the fewest keys that are worth a split of two_pass: one block

int64_t tiles_of(int64_t Sq) { return ceil_div(Sq, TILE_ROWS); }

TileParams tile_params(const SplitKParams& p, const KvLengths& lengths) {
  return {p, lengths, tiles_of(p.Sq), copy_width(p) == 16 && q_is_aligned(p)};
}

cudaError_t launch_fa1(const SplitKParams& p, ElementType type, const KvLengths& lengths,
                       cudaStream_t stream) {
  return run_instance(KBTOOL_BASELINE(fa1, type), tile_params(p, lengths), stream);
}

}  // namespace

const char* name_of(Variant variant) {
#define KBTOOL_NAME(name) #name,
  static constexpr const char* NAMES[] = {KBTOOL_VARIANTS(KBTOOL_NAME)};
#undef KBTOOL_NAME
  return NAMES[static_cast<int>(variant)];
}

std::vector<Variant> variants_of(const Card& card) {
  std::vector<Variant> variants = {Variant::fa1, Variant::two_pass, Variant::fused};
  if (card.has_wgmma()) variants.push_back(Variant::wgmma);
  return variants;
}

Variant default_variant(const Sizes& sizes, int64_t splits, const Card& card) {
  return wgmma_is_faster(sizes, splits, card) ? Variant::wgmma : Variant::fused;
}

Plan make_plan(Variant variant, const Sizes& sizes, int64_t splits, const Card& card) {
  Plan plan{};
  plan.variant = variant;
  switch (variant) {
    case Variant::fa1:
      plan.num_splits = 1;
      break;
    case Variant::two_pass: {
      const int64_t tiles = sizes.B * sizes.H * tiles_of(sizes.Sq);
      plan.num_splits = splits > 0 ? splits
                                   : choose_num_splits(tiles, sizes.Skv, card.multiprocessors,
                                                       TILE_KEYS);
      if (plan.num_splits > 1) {
        plan.workspace_numel = plan.num_splits * sizes.rows() * (sizes.D + 2);
      }
      break;
    }
    case Variant::fused:
    case Variant::wgmma:
      plan.fused = variant == Variant::wgmma && sizes.tma && !sizes.options ? plan_wgmma(sizes, splits, card)
                                                          : plan_fused(sizes, splits, card);
      plan.num_splits = plan.fused.num_splits;
      plan.workspace_numel = plan.fused.workspace_numel(sizes);
      plan.num_counters = plan.fused.num_counters();
      break;
  }
  return plan;
}

cudaError_t launch(SplitKParams p, ElementType type, const KvLengths& lengths, const Plan& plan,
                   float* workspace, unsigned* counters, cudaStream_t stream) {
  p.num_splits = plan.num_splits;
  switch (plan.variant) {
    case Variant::fa1:
      return launch_fa1(p, type, lengths, stream);
    case Variant::two_pass: {
      if (plan.num_splits == 1) return launch_partial(p, type, lengths, stream);
      place_partials(p, workspace);
      const cudaError_t error = launch_partial(p, type, lengths, stream);
      return error == cudaSuccess ? launch_reduce(p, type, stream) : error;
    }
    case Variant::fused:
    case Variant::wgmma:
      return launch_fused(p, type, lengths, plan.fused, workspace, counters, stream);
  }
  return cudaErrorInvalidValue;
}

cudaError_t launch_partial(const SplitKParams& p, ElementType type, const KvLengths& lengths,
                           cudaStream_t stream) {
  return run_instance(KBTOOL_BASELINE(partial, type), tile_params(p, lengths), stream);
}

cudaError_t launch_reduce(const SplitKParams& p, ElementType type, cudaStream_t stream) {
  return run_instance(KBTOOL_BASELINE(reduce, type), p, stream);
}

cudaError_t read_card(Card* card) {
  int device = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return error;
  error = cudaDeviceGetAttribute(&card->multiprocessors, cudaDevAttrMultiProcessorCount, device);
  if (error != cudaSuccess) return error;
  int clock = 0;  // kHz, with two transfers per cycle
  int width = 0;  // bits
  if (cudaDeviceGetAttribute(&clock, cudaDevAttrMemoryClockRate, device) != cudaSuccess ||
      cudaDeviceGetAttribute(&width, cudaDevAttrGlobalMemoryBusWidth, device) != cudaSuccess) {
    cudaGetLastError();  // clears the error: the bandwidth is then 0, unknown
  }
  card->bandwidth = static_cast<int>(int64_t{2} * clock * (width / 8) / 1'000'000);
  int major = 0;
  error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (error != cudaSuccess) return error;
  int minor = 0;
  error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  if (error != cudaSuccess) return error;
  card->capability = major * 10 + minor;
  // Clusters of 16, where they fit, were slower (H100).
  card->max_cluster = major < 9 ? 1 : MAX_CLUSTER;
  const bool has_wgmma = card->capability == 90 && count_clusters != nullptr;  // card and build
  for (int blocks = 1; blocks <= MAX_CLUSTER && has_wgmma; ++blocks) {
    error = count_clusters(blocks, &card->clusters[blocks]);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace kbtool::cuda
