// Which barriers does racecheck not return from when threads have ended before them?
//   nvcc -arch=sm_90a -o barrier barrier.cu
//   for all in {0..1}{0..1}{0..1}{0..1}; do
//     timeout 20 compute-sanitizer --tool racecheck ./barrier $all; echo "$all $?"; done
// The four digits: launched as a cluster of two blocks; the second half of each block ends at once;
// the barrier of the block counts the first half alone; a barrier of the cluster comes after it.
#include <cstdio>
#include <cstring>

constexpr int HALF = 128;  // threads that stay

__device__ void block_barrier(bool counted) {
  if (counted) {
    asm volatile("barrier.sync.aligned 0, 128;" ::: "memory");
  } else {
    __syncthreads();
  }
}

__device__ void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

__global__ void reverse(float* out, bool ends, bool counted, bool clustered) {
  __shared__ float part[HALF];
  if (threadIdx.x >= HALF) {
    if (ends) return;
    if (!counted) __syncthreads();
    if (clustered) cluster_barrier();
    return;
  }
  part[threadIdx.x] = threadIdx.x;
  block_barrier(counted);
  if (clustered) cluster_barrier();
  out[blockIdx.x * HALF + threadIdx.x] = part[HALF - 1 - threadIdx.x];
}

int main(int, char** arguments) {
  const char* digits = arguments[1];
  const auto is = [&](int i) { return digits[i] == '1'; };
  if (!is(0) && is(3)) return 0;  // a block alone needs no barrier of a cluster
  float* out;
  cudaMalloc(&out, 2 * HALF * sizeof(float));
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {2, 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(2);
  config.blockDim = dim3(2 * HALF);
  config.attrs = &attribute;
  config.numAttrs = is(0) ? 1 : 0;
  const cudaError_t launched = cudaLaunchKernelEx(&config, reverse, out, is(1), is(2), is(3));
  const cudaError_t ended = cudaDeviceSynchronize();
  float first = -1.0f;
  cudaMemcpy(&first, out, sizeof(float), cudaMemcpyDeviceToHost);
  std::printf("%s: %s, %s, %g\n", digits, cudaGetErrorString(launched), cudaGetErrorString(ended),
              first);
  return first == HALF - 1 ? 0 : 1;
}
