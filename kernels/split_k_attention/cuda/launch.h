// The CUDA variants behind one interface: which there are, which one is the default, plan and launch. Plain
// C++, no torch and no device code.
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <vector>

#include "../params.h"
#include "common/kv_lengths.h"
#include "common/problem.h"
#include "fused/launch_fused.h"
#include "instances.h"

namespace kbtool::cuda {

enum class Variant { KBTOOL_VARIANTS(KBTOOL_ENUMERATOR) };

const char* name_of(Variant variant);

// The variants that run on this card.
std::vector<Variant> variants_of(const Card& card);

// The fastest variant for these sizes on this card, which a call without a variant gets. If the caller gives
// the splits, the fastest for one batch entry.
Variant default_variant(const Sizes& sizes, int64_t splits, const Card& card);

struct Plan {
  Variant variant;
  int64_t num_splits;
  int64_t workspace_numel;  // floats
  int64_t num_counters;
  FusedPlan fused;  // of fused and wgmma
};

// splits == 0: chosen from the sizes and the card. fa1 has one split, whatever is asked for, and wgmma leaves keys that
// TMA cannot read to fused.
Plan make_plan(Variant variant, const Sizes& sizes, int64_t splits, const Card& card);

// Enqueues the variant's kernels. `workspace` holds plan.workspace_numel floats, at a multiple of 16
// bytes, and needs no initial value; p.partial_* and p.kv_lengths are not used. `counters` holds
// plan.num_counters zeros and holds zeros again when the kernels are done; no two calls that can run
// at the same time may share it.
cudaError_t launch(SplitKParams p, ElementType type, const KvLengths& lengths, const Plan& plan,
                   float* workspace, unsigned* counters, cudaStream_t stream);

// The passes of two_pass alone: pass 1 fills p.partial_*, pass 2 fills p.out and p.lse from them.
cudaError_t launch_partial(const SplitKParams& p, ElementType type, const KvLengths& lengths,
                           cudaStream_t stream);
cudaError_t launch_reduce(const SplitKParams& p, ElementType type, cudaStream_t stream);

// The card that is current.
cudaError_t read_card(Card* card);

}  // namespace kbtool::cuda
