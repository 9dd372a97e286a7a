// out[m][n] = sum over k of x[m][k] w[n][k], for few rows of x, where TMA can read both: K in whole chunks of 64, and
// rows at multiples of 16 bytes.
//
// A persistent block takes tiles of `rows` rows of w by 8 COLUMN_TILES rows of x, over all of K. One warp keeps a ring
// of stages in shared memory full by TMA, one copy a stage of w and one of x, and goes on into the next tile while this
// one is summed. So a multiprocessor has most of its shared memory in flight, which hides the latency of memory from
// the first moment on.
//
// The operands are swapped, as in gemm.cuh: w is A of mma.m16n8k16 and x is B. K_GROUPS warps share 16 rows of w and
// take chunks of a stage in turn; their sums are added through shared memory in a fixed order, which follows from N and
// the card: the bits of a row do not depend on the other rows.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cuda/ptx>
#include <type_traits>

#include "launch.h"
#include "mma.cuh"
#include "tensor_map.h"

namespace split_k_gemm::cuda {

constexpr int CHUNK_BYTES = RING_CHUNK * 2;  // of a row: the line of the 128-byte swizzle
// Bytes of w that a multiprocessor requests ahead (H200): with 64 KB the card waits for requests, and 130 KB and more
// queue up in front of DRAM, where x waits behind them; the product takes 1 to 5 % longer.
constexpr int IN_FLIGHT = 96 << 10;
constexpr int MAX_STAGES = 24;

// A stage holds 512 to 1,024 bytes of a row where tiles are short, for DRAM is faster the more of a page is read at a
// time; and 32 KB of w or less, for a stage is used only when all of it is there.
template <class Element_, int ROW_GROUPS_, int COLUMN_TILES_>
struct RingConfig {
  using Element = Element_;
  static constexpr int ROW_GROUPS = ROW_GROUPS_;      // of 16 rows of w
  static constexpr int COLUMN_TILES = COLUMN_TILES_;  // of 8 rows of x
  static constexpr int K_GROUPS = ROW_GROUPS == 1 ? 8 : ROW_GROUPS == 2 ? 4 : 1;
  static constexpr int CHUNKS = ROW_GROUPS <= 2 ? 8 : 16 / ROW_GROUPS;  // of K in a stage
  static constexpr int WARPS = ROW_GROUPS * K_GROUPS;                   // that multiply; one more copies
  static constexpr int THREADS = 32 * WARPS;
  static constexpr int ROWS = 16 * ROW_GROUPS;  // of a tile at most
  static constexpr int COLUMNS = 8 * COLUMN_TILES;
};

struct RingParams {
  void* out;  // [M, N]
  int64_t M, N;
  int rows;    // of w in a tile, a multiple of 8
  int tiles;   // of `rows` rows of w
  int chunks;  // of K
  int stages;
};

// Where a warp is in the ring, and the parity of the phase that it waits for.
struct RingPosition {
  int stage = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ void advance(int stages) {
    if (++stage == stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

__device__ __forceinline__ void wait(uint64_t* barrier, uint32_t parity) {
  while (!::cuda::ptx::mbarrier_try_wait_parity(barrier, parity)) {
  }
}

// All warps that multiply; the one that copies is tiles ahead.
template <int THREADS>
__device__ __forceinline__ void wait_for_sums() {
  asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
}

template <class C>
__global__ void __launch_bounds__(C::THREADS + 32, 1)
    ring_gemm(const __grid_constant__ CUtensorMap w_map, const __grid_constant__ CUtensorMap x_map, const RingParams p) {
  namespace ptx = ::cuda::ptx;
  using Element = typename C::Element;
  constexpr int X_CHUNK = C::COLUMNS * CHUNK_BYTES;
  extern __shared__ uint8_t dynamic_shared[];
  __shared__ float sums[C::K_GROUPS][C::COLUMNS][C::ROWS];
  __shared__ uint64_t full[MAX_STAGES], empty[MAX_STAGES];

  // The swizzle repeats every 1,024 bytes.
  uint8_t* const ring = dynamic_shared + (-__cvta_generic_to_shared(dynamic_shared) & 1023);
  const int w_chunk = p.rows * CHUNK_BYTES;
  const int stage_bytes = C::CHUNKS * (X_CHUNK + w_chunk);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int first_column = blockIdx.y * C::COLUMNS;

  if (warp == C::WARPS) {
    if (lane < p.stages) {
      ptx::mbarrier_init(&full[lane], 1);
      ptx::mbarrier_init(&empty[lane], C::WARPS);
    }
    ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
    __syncwarp();
    // The others wait for the barriers; this warp does not wait for them and copies.
    asm volatile("bar.arrive 2, %0;" ::"n"(C::THREADS + 32) : "memory");
  } else {
    asm volatile("bar.sync 2, %0;" ::"n"(C::THREADS + 32) : "memory");
  }

  if (warp == C::WARPS) {
    if (lane != 0) return;
    RingPosition at{0, 1};  // the phase before the first is over: the ring begins empty
    for (int tile = blockIdx.x; tile < p.tiles; tile += gridDim.x) {
      for (int chunk = 0; chunk < p.chunks; chunk += C::CHUNKS) {
        wait(&empty[at.stage], at.parity);
        uint8_t* const stage = ring + at.stage * stage_bytes;
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full[at.stage], stage_bytes);
        const int32_t w_at[3] = {0, tile * p.rows, chunk}, x_at[3] = {0, first_column, chunk};
        // x first: behind w it would wait in DRAM's queue, and the first blocks miss L2 with both.
        ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, stage, &x_map, x_at, &full[at.stage]);
        ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, stage + C::CHUNKS * X_CHUNK, &w_map, w_at,
                                  &full[at.stage]);
        at.advance(p.stages);
      }
    }
    return;
  }

  const int row_group = warp % C::ROW_GROUPS, k_group = warp / C::ROW_GROUPS;
  // Rows of the matrices that ldmatrix loads: 16 of w in two halves of 8 k, and 8 of x in four.
  const int w_row = 16 * row_group + lane % 16, w_piece = lane / 16;
  const int x_row = lane % 8, x_piece = lane / 8;
  const uint32_t ring_address = static_cast<uint32_t>(__cvta_generic_to_shared(ring));
  RingPosition at;
  for (int tile = blockIdx.x; tile < p.tiles; tile += gridDim.x) {
    float acc[2][C::COLUMN_TILES][4] = {};  // two sums each, so that products wait less for each other
    for (int first = 0; first < p.chunks; first += C::CHUNKS) {
      wait(&full[at.stage], at.parity);
      const uint32_t stage = ring_address + at.stage * stage_bytes;
      // Chunks past the end of K are zeros in w and in x.
#pragma unroll
      for (int i = 0; i < C::CHUNKS / C::K_GROUPS; ++i) {
        const int chunk = i * C::K_GROUPS + k_group;
        const uint32_t x = stage + chunk * X_CHUNK + x_row * CHUNK_BYTES;
        const uint32_t w = stage + C::CHUNKS * X_CHUNK + chunk * w_chunk + w_row * CHUNK_BYTES;
        uint32_t a[4][4], b[2][C::COLUMN_TILES][4];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
          for (int c = 0; c < C::COLUMN_TILES; ++c) {
            load_matrices(b[half][c], x + 8 * c * CHUNK_BYTES + swizzled(4 * half + x_piece, x_row));
          }
          load_matrices(a[2 * half], w + swizzled(4 * half + w_piece, w_row));
          load_matrices(a[2 * half + 1], w + swizzled(4 * half + 2 + w_piece, w_row));
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
          for (int c = 0; c < C::COLUMN_TILES; ++c) {
            Math<Element>::mma(acc[0][c], a[2 * half], b[half][c][0], b[half][c][1]);
            Math<Element>::mma(acc[1][c], a[2 * half + 1], b[half][c][2], b[half][c][3]);
          }
        }
      }
      __syncwarp();
      if (lane == 0) ptx::mbarrier_arrive(&empty[at.stage]);
      at.advance(p.stages);
    }

    const int64_t first_row = static_cast<int64_t>(tile) * p.rows;
    const auto store = [&](int row, int column, float sum) {
      const int64_t n = first_row + row, m = first_column + column;
      if (row < p.rows && n < p.N && m < p.M) {
        static_cast<Element*>(p.out)[m * p.N + n] = Math<Element>::from_float(sum);
      }
    };
    const auto each_sum = [&](const auto& use) {
#pragma unroll
      for (int c = 0; c < C::COLUMN_TILES; ++c) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          use(16 * row_group + 8 * (i / 2) + lane / 4, 8 * c + 2 * (lane % 4) + i % 2, acc[0][c][i] + acc[1][c][i]);
        }
      }
    };
    if constexpr (C::K_GROUPS == 1) {
      each_sum(store);
    } else {
      each_sum([&](int row, int column, float sum) { sums[k_group][column][row] = sum; });
      wait_for_sums<C::THREADS>();
      for (int e = threadIdx.x; e < C::ROWS * C::COLUMNS; e += C::THREADS) {
        const int column = e / C::ROWS, row = e % C::ROWS;
        float sum = sums[0][column][row];
#pragma unroll
        for (int i = 1; i < C::K_GROUPS; ++i) sum += sums[i][column][row];
        store(row, column, sum);
      }
      wait_for_sums<C::THREADS>();  // before the next tile's
    }
  }
}

// Rows of w in a tile: as many in each wave of blocks.
template <class C>
int rows_of_tile(int64_t N, int multiprocessors) {
  const auto ceil_div = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  const int64_t waves = ceil_div(N, static_cast<int64_t>(multiprocessors) * C::ROWS);
  return static_cast<int>(std::max<int64_t>(16, ceil_div(ceil_div(N, waves * multiprocessors), 8) * 8));
}

template <class C>
cudaError_t launch_ring(const Params& p, const Card& card, cudaStream_t stream) {
  RingParams r{p.out, p.M, p.N};
  r.rows = rows_of_tile<C>(p.N, card.multiprocessors);
  r.tiles = static_cast<int>((p.N + r.rows - 1) / r.rows);
  r.chunks = static_cast<int>(p.K / RING_CHUNK);
  const int blocks = std::min(r.tiles, card.multiprocessors);

  // A tile of fewer rows than its warps multiply reads on past its stage: what comes of it is not stored.
  constexpr int BEYOND = 1024 + C::ROWS * CHUNK_BYTES;
  const int stage_bytes = C::CHUNKS * (C::COLUMNS + r.rows) * CHUNK_BYTES;
  const int used = (r.chunks + C::CHUNKS - 1) / C::CHUNKS * ((r.tiles + blocks - 1) / blocks);
  const int room = card.shared_bytes - static_cast<int>(sizeof(float)) * C::K_GROUPS * C::COLUMNS * C::ROWS - 1024;
  const int wanted = std::max(2, IN_FLIGHT / (C::CHUNKS * r.rows * CHUNK_BYTES));
  r.stages = std::min({wanted, (room - BEYOND) / stage_bytes, used, MAX_STAGES});
  const int bytes = r.stages * stage_bytes + BEYOND;

  static std::atomic<uint64_t> may_use_room{0};  // a bit for each device
  if (const uint64_t bit = uint64_t{1} << card.device; !(may_use_room & bit)) {
    const cudaError_t error =
        cudaFuncSetAttribute(ring_gemm<C>, cudaFuncAttributeMaxDynamicSharedMemorySize, room);
    if (error != cudaSuccess) return error;
    may_use_room |= bit;
  }

  CUtensorMap w_map, x_map;
  constexpr ElementType type =
      std::is_same_v<typename C::Element, __half> ? ElementType::fp16 : ElementType::bf16;
  if (!make_tensor_map({p.w, p.N, p.K, p.w_stride}, type, r.rows, C::CHUNKS, &w_map) ||
      !make_tensor_map({p.x, p.M, p.K, p.x_stride}, type, C::COLUMNS, C::CHUNKS, &x_map)) {
    return cudaErrorNotSupported;
  }
  const dim3 grid(blocks, static_cast<unsigned>((p.M + C::COLUMNS - 1) / C::COLUMNS));
  ring_gemm<C><<<grid, C::THREADS + 32, bytes, stream>>>(w_map, x_map, r);
  return cudaPeekAtLastError();
}

}  // namespace split_k_gemm::cuda
