// out[m][n] = sum over k of x[m][k] w[n][k], for few rows of x, without shared memory for operands: for rows or K that
// TMA cannot read (ring.cuh), and for a number of splits that is asked for.
//
// A block computes 16 rows of w (columns of out) by 8 COLUMN_TILES rows of x over a range of k. Its
// warps take chunks of 32 k in turn, so together they read consecutive memory, and each has its own sums.
// The operands are swapped: w is A of mma.m16n8k16 and x is B, so one row of x fills an eighth of a tile, not
// a sixteenth. Fragments come straight from global memory. The order of k inside an mma is free, as long as
// both operands have the same one. So a lane loads 8 consecutive elements of a row, 16 bytes, and uses them as
// its fragments of two mmas.
//
// At the end the warps' sums are added through shared memory, and those of the blocks of a cluster, which hold
// the splits of one tile, through distributed shared memory. Every sum has a fixed order: the bits are the
// same from run to run, and those of a row do not depend on the other rows.
#pragma once

#include <cooperative_groups.h>

#include <cstdint>

#include "../params.h"
#include "mma.cuh"

namespace split_k_gemm::cuda {

constexpr int CHUNK = 32;  // k of a warp at a time: four lanes with 8 elements each

// w is read once: it should not displace x in L1.
__device__ __forceinline__ uint4 load_once(const void* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}

__device__ __forceinline__ uint4 load_again(const void* p) {
  return __ldg(static_cast<const uint4*>(p));
}

// 8 elements of a row at k; zeros past its end. Rows that are not aligned to 16 bytes come by element.
template <class Element, bool ALIGNED, bool ONCE>
__device__ __forceinline__ uint4 load8(const Element* row, int64_t k, int64_t K) {
  if constexpr (ALIGNED) {
    if (k >= K) return uint4{};
    return ONCE ? load_once(row + k) : load_again(row + k);
  } else {
    alignas(16) Element values[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) values[i] = k + i < K ? row[k + i] : Math<Element>::from_float(0.f);
    return *reinterpret_cast<const uint4*>(values);
  }
}

template <class Element_, int COLUMN_TILES_, int WARPS_, bool ALIGNED_>
struct Config {
  using Element = Element_;
  static constexpr int COLUMN_TILES = COLUMN_TILES_;  // of 8 rows of x
  static constexpr int WARPS = WARPS_;
  static constexpr bool ALIGNED = ALIGNED_;
  static constexpr int THREADS = 32 * WARPS;
  static constexpr int ROWS = 16;  // of w
  static constexpr int COLUMNS = 8 * COLUMN_TILES;
};

template <class C>
struct Fragments {
  uint4 w[2];
  uint4 x[C::COLUMN_TILES];
};

template <class C>
__global__ void __launch_bounds__(C::THREADS, 512 / C::THREADS) gemm(const Params p) {
  using Element = typename C::Element;
  namespace cg = cooperative_groups;
  __shared__ float sums[C::WARPS][C::COLUMNS][C::ROWS];

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int g = lane / 4, t = lane % 4;  // row and quarter of a chunk, in the fragments
  const int64_t first_row = static_cast<int64_t>(blockIdx.x) * C::ROWS;
  const int64_t first_column = static_cast<int64_t>(blockIdx.z) * C::COLUMNS;

  // Rows past the end repeat the last one; their sums are not stored.
  const Element* w[2];
  const Element* x[C::COLUMN_TILES];
  bool has_x[C::COLUMN_TILES];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t row = first_row + 8 * half + g;
    w[half] = static_cast<const Element*>(p.w) + (row < p.N ? row : p.N - 1) * p.w_stride + 8 * t;
  }
#pragma unroll
  for (int c = 0; c < C::COLUMN_TILES; ++c) {
    const int64_t column = first_column + 8 * c + g;
    has_x[c] = column < p.M;
    x[c] = static_cast<const Element*>(p.x) + (has_x[c] ? column : 0) * p.x_stride + 8 * t;
  }

  const int64_t chunks = (p.K + CHUNK - 1) / CHUNK;
  const int64_t per_split = (chunks + gridDim.y - 1) / gridDim.y;
  const int64_t begin = blockIdx.y * per_split;
  const int64_t end = min(begin + per_split, chunks);

  const auto load = [&](Fragments<C>& f, int64_t chunk) {
    // Past the range of this split every k is past the end.
    const int64_t k = CHUNK * chunk;
    const int64_t K = chunk < end ? p.K - 8 * t : 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) f.w[half] = load8<Element, C::ALIGNED, true>(w[half], k, K);
#pragma unroll
    for (int c = 0; c < C::COLUMN_TILES; ++c) {
      f.x[c] = load8<Element, C::ALIGNED, false>(x[c], k, has_x[c] ? K : 0);
    }
  };

  float acc[C::COLUMN_TILES][4] = {};
  const auto multiply = [&](const Fragments<C>& f) {
    const uint4 low = f.w[0], high = f.w[1];
#pragma unroll
    for (int c = 0; c < C::COLUMN_TILES; ++c) {
      const uint4 b = f.x[c];
      Math<Element>::mma(acc[c], {low.x, high.x, low.y, high.y}, b.x, b.y);
      Math<Element>::mma(acc[c], {low.z, high.z, low.w, high.w}, b.z, b.w);
    }
  };

  Fragments<C> now, next;
  int64_t chunk = begin + warp;
  load(now, chunk);
  for (; chunk < end; chunk += C::WARPS) {
    load(next, chunk + C::WARPS);
    multiply(now);
    now = next;
  }

#pragma unroll
  for (int c = 0; c < C::COLUMN_TILES; ++c) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sums[warp][8 * c + 2 * t + i % 2][8 * (i / 2) + g] = acc[c][i];
    }
  }
  __syncthreads();

  constexpr int ELEMENTS = C::ROWS * C::COLUMNS;
  float* const flat = &sums[0][0][0];
  const auto cluster = cg::this_cluster();
  const int splits = static_cast<int>(gridDim.y);
  const auto store = [&](int element, float sum) {
    const int64_t row = first_row + element % C::ROWS, column = first_column + element / C::ROWS;
    if (row < p.N && column < p.M) {
      static_cast<Element*>(p.out)[column * p.N + row] = Math<Element>::from_float(sum);
    }
  };
  const auto sum_of_warps = [&](int element) {
    float sum = flat[element];
#pragma unroll
    for (int i = 1; i < C::WARPS; ++i) sum += flat[i * ELEMENTS + element];
    return sum;
  };
  if (splits == 1) {
    for (int e = threadIdx.x; e < ELEMENTS; e += C::THREADS) store(e, sum_of_warps(e));
    return;
  }
  // Each thread overwrites only what it alone has read.
  for (int e = threadIdx.x; e < ELEMENTS; e += C::THREADS) flat[e] = sum_of_warps(e);
  cluster.sync();
  const int rank = static_cast<int>(blockIdx.y);
  for (int e = threadIdx.x * splits + rank; e < ELEMENTS; e += C::THREADS * splits) {
    float sum = 0.f;
    for (int i = 0; i < splits; ++i) sum += *cluster.map_shared_rank(flat + e, i);
    store(e, sum);
  }
  cluster.sync();  // no block ends while another reads its sums
}

template <class C>
cudaError_t launch(const Params& p, int splits, cudaStream_t stream) {
  const auto ceil_div = [](int64_t a, int64_t b) { return static_cast<unsigned>((a + b - 1) / b); };
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(ceil_div(p.N, C::ROWS), splits, ceil_div(p.M, C::COLUMNS));
  config.blockDim = dim3(C::THREADS);
  config.stream = stream;
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = 1;
  cluster.val.clusterDim.y = splits;
  cluster.val.clusterDim.z = 1;
  config.attrs = &cluster;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, gemm<C>, p);
}

}  // namespace split_k_gemm::cuda
