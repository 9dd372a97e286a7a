// How many clusters of blocks the card runs at a time.
#include "../common/fused_params.h"
#include "../common/kernel_limits.h"

namespace kbtool::cuda {

namespace {

__global__ void empty_kernel() {}

}  // namespace

cudaError_t count_clusters(int blocks, int* clusters) {
  int device = 0, shared_bytes = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = most_shared_bytes(device, &shared_bytes);
  if (error == cudaSuccess) error = raise_limits<empty_kernel>();
  if (error != cudaSuccess) return error;
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = blocks;
  attribute.val.clusterDim.y = 1;
  attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(1);
  config.dynamicSmemBytes = shared_bytes;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaOccupancyMaxActiveClusters(clusters, empty_kernel, &config);
}

}  // namespace kbtool::cuda
