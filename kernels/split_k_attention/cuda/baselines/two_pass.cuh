// Baseline of Split-K attention in two launches. Pass 1: a block takes 64 query rows of one head and one
// split of their keys, and stores each row's partial state in float32 in the workspace. Pass 2: a block merges
// the partial states of one row.
#pragma once

#include "tile.cuh"

namespace kbtool::cuda {

// ---- pass 1 ----

// Narrows a tile's keys to those of a split. Splits differ by at most one key block.
template <class C>
__device__ __forceinline__ void take_split(TileWork& at, int64_t split, int64_t num_splits) {
  const int64_t blocks = (at.key_end + C::BLOCK_KV - 1) / C::BLOCK_KV;
  const int64_t each = blocks / num_splits;
  const int64_t more = blocks % num_splits;  // splits that take one block more
  const int64_t first = split * each + (split < more ? split : more);
  const int64_t end = (first + each + (split < more ? 1 : 0)) * C::BLOCK_KV;
  at.key_begin = first * C::BLOCK_KV;
  at.key_end = end < at.key_end ? end : at.key_end;
}

// Stores the partial states of a thread's rows to the workspace.
template <class C>
__device__ __forceinline__ void store_states(const TileParams& tp, const TileWork& at,
                                             int64_t split, int first_row, int column_thread,
                                             const RowState<C> (&state)[C::ROWS]) {
  const SplitKParams& p = tp.p;
  const int D = static_cast<int>(p.D);
#pragma unroll
  for (int r = 0; r < C::ROWS; ++r) {
    if (first_row + r >= at.rows) break;
    const int64_t slot =
        ((split * p.B + at.batch) * p.H + at.head) * p.Sq + at.row0 + first_row + r;
    float* o = p.partial_o + slot * p.D;
#pragma unroll
    for (int i = 0; i < C::COLUMNS; ++i) {
      const int column = column_of<C>(column_thread, i);
      if (column < D) o[column] = state[r].o[i];
    }
    if (column_thread == 0) {
      p.partial_m[slot] = state[r].m;
      p.partial_l[slot] = state[r].l;
    }
  }
}

template <class C>
__global__ void __launch_bounds__(C::THREADS) partial_kernel(const __grid_constant__ TileParams tp) {
  extern __shared__ __align__(16) unsigned char smem[];
  const int first_row = static_cast<int>(threadIdx.x) / C::ROW_THREADS * C::ROWS;
  const int column_thread = static_cast<int>(threadIdx.x) % C::ROW_THREADS;
  const int64_t work_units = tp.p.B * tp.p.H * tp.tiles * tp.p.num_splits;
  for (int64_t work_unit = blockIdx.x; work_unit < work_units; work_unit += gridDim.x) {
    const int64_t split = work_unit % tp.p.num_splits;
    TileWork at = locate_tile<C>(tp, work_unit / tp.p.num_splits, smem);
    take_split<C>(at, split, tp.p.num_splits);
    RowState<C> state[C::ROWS];
    attend_tile<C>(tp, at, smem, first_row, column_thread, state);
    if (tp.p.partial_o == nullptr) {
      store_rows<C>(tp, at, first_row, column_thread, state);
    } else {
      store_states<C>(tp, at, split, first_row, column_thread, state);
    }
  }
}

// ---- pass 2 ----

template <class Element_, int D_>
struct ReduceConfig {
  using Element = Element_;
  static constexpr int D = D_;  // the bucket
  static constexpr int WARPS = 8;
  static constexpr int THREADS = 32 * WARPS;
  static constexpr int COLUMNS = D / 32;  // of a lane: lane, lane + 32, …
  static_assert(D % 32 == 0, "each lane has as many columns");
  static_assert((WARPS & (WARPS - 1)) == 0, "the warps' states merge as a tree");
};

// Each warp merges its share of the splits in order, then the warps merge as a tree: fewer rounding errors
// than one chain over many splits, and always the same order.
template <class C>
__global__ void __launch_bounds__(C::THREADS) reduce_kernel(const __grid_constant__ SplitKParams p) {
  using State = AttentionState<C::COLUMNS>;
  __shared__ float o_smem[C::WARPS][C::D];
  __shared__ float m_smem[C::WARPS];
  __shared__ float l_smem[C::WARPS];
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int D = static_cast<int>(p.D);
  const int64_t rows = p.B * p.H * p.Sq;
  const int64_t begin = p.num_splits * warp / C::WARPS;
  const int64_t end = p.num_splits * (warp + 1) / C::WARPS;

  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    State state = State::empty();
#pragma unroll 4
    for (int64_t split = begin; split < end; ++split) {
      const int64_t slot = split * rows + row;
      State of_split;
      of_split.m = p.partial_m[slot];
      of_split.l = p.partial_l[slot];
#pragma unroll
      for (int i = 0; i < C::COLUMNS; ++i) {
        const int column = lane + i * 32;
        of_split.o[i] = column < D ? p.partial_o[slot * p.D + column] : 0.0f;
      }
      state.merge(of_split);
    }

    for (int half = C::WARPS / 2; half > 0; half /= 2) {
      if (warp >= half && warp < 2 * half) {
        if (lane == 0) {
          m_smem[warp] = state.m;
          l_smem[warp] = state.l;
        }
#pragma unroll
        for (int i = 0; i < C::COLUMNS; ++i) o_smem[warp][lane + i * 32] = state.o[i];
      }
      __syncthreads();
      if (warp < half) {
        State other;
        other.m = m_smem[warp + half];
        other.l = l_smem[warp + half];
#pragma unroll
        for (int i = 0; i < C::COLUMNS; ++i) other.o[i] = o_smem[warp + half][lane + i * 32];
        state.merge(other);
      }
      // No barrier here: each round writes other rows of o_smem than earlier rounds have read.
    }

    if (warp == 0) {
      const int64_t query = row % p.Sq;
      const int64_t head = row / p.Sq % p.H;
      const int64_t batch = row / (p.Sq * p.H);
      auto* out = static_cast<typename C::Element*>(p.out) + batch * p.out_stride.batch +
                  head * p.out_stride.head + query * p.out_stride.seq;
#pragma unroll
      for (int i = 0; i < C::COLUMNS; ++i) {
        const int column = lane + i * 32;
        if (column < D) {
          out[column * p.out_stride.dim] =
              ElementTraits<typename C::Element>::from_float(normalised(state.o[i], state.l));
        }
      }
      if (lane == 0) {
        p.lse[batch * p.lse_stride.batch + head * p.lse_stride.head + query * p.lse_stride.seq] =
            state.lse();
      }
    }
    __syncthreads();  // the next row writes where this one's states were read
  }
}

// ---- launches ----

template <class Element>
cudaError_t launch_partial(const TileParams& tp, cudaStream_t stream) {
  using Small = TileConfig<Element, 64>;
  using Middle = TileConfig<Element, 128>;
  using Large = TileConfig<Element, 256>;
  const int64_t work_units = tp.p.B * tp.p.H * tp.tiles * tp.p.num_splits;
  if (tp.p.D <= 64) return launch_tiles<Small, partial_kernel<Small>>(tp, work_units, stream);
  if (tp.p.D <= 128) return launch_tiles<Middle, partial_kernel<Middle>>(tp, work_units, stream);
  return launch_tiles<Large, partial_kernel<Large>>(tp, work_units, stream);
}

template <class C>
cudaError_t launch_rows(const SplitKParams& p, cudaStream_t stream) {
  return launch_kernel(reduce_kernel<C>, grid_of(p.B * p.H * p.Sq), C::THREADS, 0, stream, p);
}

template <class Element>
cudaError_t launch_reduce(const SplitKParams& p, cudaStream_t stream) {
  if (p.D <= 64) return launch_rows<ReduceConfig<Element, 64>>(p, stream);
  if (p.D <= 128) return launch_rows<ReduceConfig<Element, 128>>(p, stream);
  return launch_rows<ReduceConfig<Element, 256>>(p, stream);
}

}  // namespace kbtool::cuda
