// What tells two streams apart: handles, or ids? Built by: nvcc -O2 -o streams streams.cu
#include <cuda_runtime.h>

#include <chrono>
#include <cstdio>
#include <thread>

__global__ void spin(long long cycles) {
  const long long begin = clock64();
  while (clock64() - begin < cycles) {
  }
}

unsigned long long id_of(cudaStream_t stream) {
  unsigned long long id = 0;
  const cudaError_t error = cudaStreamGetId(stream, &id);
  if (error != cudaSuccess) std::printf("cudaStreamGetId: %s\n", cudaGetErrorString(error));
  return id;
}

int main() {
  cudaFree(nullptr);
  // A stream that is destroyed while its kernel runs: does the next one get its handle?
  int same_handle = 0, same_id = 0;
  for (int i = 0; i < 100; ++i) {
    cudaStream_t first, second;
    cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking);
    spin<<<1, 1, 0, first>>>(2000000);  // some 1 ms
    const unsigned long long first_id = id_of(first);
    cudaStreamDestroy(first);
    cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking);
    same_handle += first == second;
    same_id += first_id == id_of(second);
    cudaStreamDestroy(second);
  }
  cudaDeviceSynchronize();
  std::printf("destroyed while its kernel ran, of 100: same handle %d, same id %d\n", same_handle, same_id);
  unsigned long long ids[2];
  std::thread([&] { ids[0] = id_of(cudaStreamPerThread); }).join();
  ids[1] = id_of(cudaStreamPerThread);
  std::printf("cudaStreamPerThread of two threads: ids %llu %llu\n", ids[0], ids[1]);
  std::printf("null %llu legacy %llu\n", id_of(nullptr), id_of(cudaStreamLegacy));
  cudaStream_t stream;
  cudaStreamCreate(&stream);
  unsigned long long sum = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 100000; ++i) sum += id_of(stream);
  const double us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
  std::printf("cudaStreamGetId: %.4f us a call (%llu)\n", us / 100000, sum % 7);
  // While another stream is being captured, and of the captured one itself.
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
  id_of(stream);
  id_of(nullptr);
  cudaGraph_t graph;
  std::printf("capture ends with: %s\n", cudaGetErrorString(cudaStreamEndCapture(stream, &graph)));
}
