// fa1 and two_pass behind a C function, for a card that is not there.
#include "host_cuda.h"

#include "cuda/baselines/fa1.cuh"
#include "cuda/baselines/two_pass.cuh"
#include "cuda/common/layout.h"
#include "num_splits.h"

using namespace kbtool;
using namespace kbtool::cuda;

namespace {

Strides4 strides4(const int64_t* s) { return {s[0], s[1], s[2], s[3]}; }

template <class Element>
cudaError_t run(int variant, TileParams tp, float* workspace) {
  if (variant == 0) return launch_fa1<Element>(tp, nullptr);
  if (workspace != nullptr) place_partials(tp.p, workspace);
  const cudaError_t error = launch_partial<Element>(tp, nullptr);
  if (error != cudaSuccess || workspace == nullptr) return error;
  return launch_reduce<Element>(tp.p, nullptr);
}

}  // namespace

// How often the kernels of the last call loaded a length.
extern "C" int64_t lengths_read() { return host_cuda::lengths_read; }

// sizes: B, H, Hkv, Sq, Skv, D, num_splits. strides: four of q, k, v and out, three of lse.
// lengths: [B], int32 or int64, or null. variant 0: fa1, 1: two_pass.
extern "C" int run_on_host(int variant, int bf16, const void* q, const void* k, const void* v,
                           void* out, float* lse, float* workspace, const int64_t* sizes,
                           const int64_t* strides, const void* lengths, int lengths_64bit,
                           float scale, int causal, uint64_t seed) {
  TileParams tp{};
  SplitKParams& p = tp.p;
  p.B = p.entries = sizes[0];
  p.H = sizes[1];
  p.Hkv = sizes[2];
  p.Sq = sizes[3];
  p.Skv = sizes[4];
  p.D = p.Dv = sizes[5];
  p.num_splits = sizes[6];
  p.q = q;
  p.k = k;
  p.v = v;
  p.out = out;
  p.lse = lse;
  p.q_stride = strides4(strides);
  p.k_stride = strides4(strides + 4);
  p.v_stride = strides4(strides + 8);
  p.out_stride = strides4(strides + 12);
  p.lse_stride = {strides[16], strides[17], strides[18]};
  p.scale = scale;
  p.causal = causal != 0;
  tp.lengths = {lengths, 1, lengths_64bit != 0};
  tp.tiles = ceil_div(p.Sq, 64);
  tp.aligned_16 = copy_width(p) == 16 && q_is_aligned(p);
  host_cuda::order.seed(static_cast<unsigned>(seed));
  host_cuda::lengths_read = 0;
  return bf16 != 0 ? run<__nv_bfloat16>(variant, tp, workspace) : run<__half>(variant, tp, workspace);
}
