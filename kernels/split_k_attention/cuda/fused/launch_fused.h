// Launches a plan of fused or wgmma. No torch, no device code.
#pragma once

#include <cuda_runtime_api.h>

#include "../../params.h"
#include "../common/kv_lengths.h"
#include "../plan/plan.h"

namespace kbtool::cuda {

// Enqueues the kernel, and the separate merge kernel where the plan has one; batches of more blocks than
// a grid go one part after another. `workspace` holds plan.workspace_numel floats, at a multiple of 16
// bytes, and needs no initial value; p.partial_* and p.kv_lengths are not used. `counters` holds
// plan.num_counters() zeros and holds zeros again when the kernel is done; no two launches that can run
// at the same time may share it.
cudaError_t launch_fused(const SplitKParams& p, ElementType type, const KvLengths& lengths,
                         const FusedPlan& plan, float* workspace, unsigned* counters,
                         cudaStream_t stream);

}  // namespace kbtool::cuda
