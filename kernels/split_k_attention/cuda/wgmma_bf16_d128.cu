#include "wgmma.cuh"

namespace kbtool::cuda {

cudaError_t launch_wgmma_bf16_d128(const FusedParams& fp, int row_units, cudaStream_t stream) {
  return launch_wgmma_bucket<__nv_bfloat16, 128>(fp, row_units, stream);
}

cudaError_t count_wgmma_clusters(int blocks, int* clusters) {
  using C = WgmmaConfig<__nv_bfloat16, 128, 1>;
  const cudaError_t error = prepare_kernel<wgmma_kernel<C>>();
  if (error != cudaSuccess) return error;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(C::LAUNCH_THREADS);
  config.dynamicSmemBytes = C::shared_bytes(MAX_CLUSTER);
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = blocks;
  attribute.val.clusterDim.y = 1;
  attribute.val.clusterDim.z = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaOccupancyMaxActiveClusters(clusters, wgmma_kernel<C>, &config);
}

}  // namespace kbtool::cuda
