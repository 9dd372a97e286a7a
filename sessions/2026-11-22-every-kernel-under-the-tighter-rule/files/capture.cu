// Whether asking for a stream's id while another stream is captured ends that capture.
#include <cuda_runtime.h>

#include <cstdio>

int main() {
  cudaFree(nullptr);
  for (const auto mode : {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed}) {
    for (int which = 0; which < 4; ++which) {
      cudaStream_t captured, other, blocking;
      cudaStreamCreateWithFlags(&captured, cudaStreamNonBlocking);
      cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
      cudaStreamCreate(&blocking);
      const cudaStream_t asked = which == 0 ? other : which == 1 ? blocking : which == 2 ? nullptr : captured;
      cudaStreamBeginCapture(captured, mode);
      unsigned long long id = 0;
      const cudaError_t error = cudaStreamGetId(asked, &id);
      cudaGraph_t graph;
      const cudaError_t end = cudaStreamEndCapture(captured, &graph);
      std::printf("mode %d, asked %d: %s; capture ends with: %s\n", mode, which, cudaGetErrorString(error), cudaGetErrorString(end));
      cudaGetLastError();
    }
  }
}
