// Programmatic dependent launch (PDL, sm_90 and later): a kernel may start while the one ahead of it in
// the stream still runs.
#pragma once

#include "cluster.cuh"
#include "fused_params.h"
#include "kernel_limits.h"

#if !defined(KBTOOL_EARLY_LAUNCH)
#define KBTOOL_EARLY_LAUNCH 1
#endif

namespace kbtool::cuda {

// Before this returns, no global memory may be read or written. Work that needs none goes ahead of it.
__device__ __forceinline__ void wait_for_earlier_kernel() {
#if KBTOOL_CLUSTERS && KBTOOL_EARLY_LAUNCH
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the next kernel of the stream start early, once every block has called this or ended.
__device__ __forceinline__ void trigger_dependent_launch(const FusedParams& fp) {
#if KBTOOL_CLUSTERS && KBTOOL_EARLY_LAUNCH
  if (fp.trigger_dependents) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Enqueues a kernel, with PDL where fp.early_launch says so. `more` are its arguments after fp.
template <class... More>
cudaError_t launch_kernel(void (*kernel)(FusedParams, More...), uint32_t grid, int threads,
                              size_t shared_bytes, uint32_t cluster, cudaStream_t stream,
                              const FusedParams& fp, const More&... more) {
  cudaLaunchAttribute attributes[2];
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(grid);
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  if (cluster > 1) {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = cluster;
    attribute.val.clusterDim.y = 1;
    attribute.val.clusterDim.z = 1;
  }
#if KBTOOL_EARLY_LAUNCH
  if (fp.early_launch) {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
  }
#endif
  return cudaLaunchKernelEx(&config, kernel, fp, more...);
}

// One block for each work unit, or fp.blocks persistent ones.
template <class C, auto KERNEL, class... More>
cudaError_t launch_blocks(const FusedParams& fp, cudaStream_t stream, const More&... more) {
  const cudaError_t error = raise_limits<KERNEL>();
  if (error != cudaSuccess) return error;
  return launch_kernel(KERNEL, fp.blocks, C::LAUNCH_THREADS,
                           C::shared_bytes(static_cast<int>(fp.cluster_size)),
                           C::PAIRED ? 2 : fp.cluster_size, stream, fp, more...);
}

}  // namespace kbtool::cuda
