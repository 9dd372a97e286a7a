// What the kernels that finish in one launch have in common: where a block is in the problem, how
// rows come into shared memory, the running softmax of a lane, and the merge of states up to the
// output.
//
// A block takes one (batch entry, KV head, query tile, split). The query heads that share a KV head
// are packed into the rows of the tile, row = query * heads_per_kv + head.
//
// A kernel's configuration C says, beside its own,
//   Element, D, ALIGNED    the type; the bucket of the head dimension; rows copy 16 bytes at a time
//   BLOCK_M, BLOCK_KV      rows of a tile, keys of a block
//   THREADS                that finish the tile; LAUNCH_THREADS, those and others before them
//   COPY_THREADS           that fill one tile together
//   CHUNKS, STATE_CHUNKS   pieces of 16 bytes in a row of k or v; of four floats in a row of o
//   tile_offset(row, chunk)      where a chunk lies in a tile
//   STATES, STATE_STEP     states of the block before the merge, and the bytes from one to the next
//   STATE_STRIDE           floats from row to row of a state
//   ML_OFFSET, EXCHANGE_OFFSET, RECEIVED_ML_OFFSET, received_o_offset(cluster), shared_bytes(cluster)
#pragma once

#include "async_copy.cuh"
#include "cluster.cuh"
#include "fused_params.h"
#include "mma.cuh"
#include "softmax.cuh"

#if !defined(KBTOOL_FUSED_OVERLAP)
#define KBTOOL_FUSED_OVERLAP 1
#endif

namespace kbtool::cuda {

// Of a tile's chunks of four columns, how many one block of a cluster finishes. At least 2, so that
// 2^32 / share fits its word.
__host__ __device__ __forceinline__ int share_of(int chunks, int cluster) {
  const int share = (chunks + cluster - 1) / cluster;
  return share > 2 ? share : 2;
}

// Where a block is in the problem. Keys are counted from the first of the split's.
struct BlockItem {
  uint32_t item;
  uint32_t split;
  uint32_t batch;
  uint32_t head_kv;
  uint32_t row0;
  int rows;           // rows of this tile
  int share;               // chunks of the tile that a block of the cluster finishes
  uint32_t share_inverse;  // 2^32 / share, rounded up
  int64_t valid;      // keys of this batch entry
  int64_t key_begin;  // first key of the split
  int64_t key_end;    // one past the last key of the split
};

// The kernel may start while the one before it in the stream still runs (sm_90 and later): before
// this returns no memory may be read or written, so what needs none is done ahead of it.
__device__ __forceinline__ void wait_for_earlier_kernel() {
#if KBTOOL_CLUSTERS && KBTOOL_FUSED_OVERLAP
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the next kernel of the stream start likewise, once every block has come here or ended.
__device__ __forceinline__ void admit_next_kernel(const FusedParams& fp) {
#if KBTOOL_CLUSTERS && KBTOOL_FUSED_OVERLAP
  if (fp.admit_next) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// A row of q and of the output.
struct RowPlace {
  uint32_t batch;
  uint32_t head;
  uint32_t query;
};

__device__ __forceinline__ RowPlace place_of(const FusedParams& fp, const BlockItem& at, int row) {
  const uint32_t packed = at.row0 + row;
  const uint32_t query = fp.heads_per_kv.divide(packed);
  const uint32_t head =
      at.head_kv * fp.heads_per_kv.divisor + (packed - query * fp.heads_per_kv.divisor);
  return {at.batch, head, query};
}

// Keys of the batch entry that a row of the tile sees.
__device__ __forceinline__ int64_t seen_keys(const FusedParams& fp, const BlockItem& at, int row) {
  return visible_keys(fp.p.causal, fp.heads_per_kv.divide(at.row0 + row), fp.p.Sq, at.valid);
}

template <class C>
__device__ __forceinline__ BlockItem locate(const FusedParams& fp) {
  BlockItem at;
  at.item = fp.splits.divide(blockIdx.x);
  at.split = blockIdx.x - at.item * fp.splits.divisor;
  const uint32_t outer = fp.inner.divide(at.item);
  const uint32_t inner = at.item - outer * fp.inner.divisor;
  const uint32_t head = fp.heads_inner ? inner : outer;
  // Causal: the longest start first.
  const uint32_t tile = fp.last_tile - (fp.heads_inner ? outer : inner);
  at.batch = fp.kv_heads.divide(head);
  at.head_kv = head - at.batch * fp.kv_heads.divisor;
  at.row0 = tile * C::BLOCK_M;
  at.rows = static_cast<int>(min(static_cast<uint32_t>(C::BLOCK_M), fp.rows - at.row0));
  at.share = share_of(at.rows * C::STATE_CHUNKS, static_cast<int>(fp.cluster));
  at.share_inverse = ~0u / static_cast<uint32_t>(at.share) + 1;
  if (fp.lengths.data != nullptr) wait_for_earlier_kernel();
  at.valid = valid_keys(fp.lengths, fp.p.Skv, at.batch);

  // What any row of the tile sees is cut evenly, in whole blocks, whatever the batch's longest.
  const int64_t seen = seen_keys(fp, at, at.rows - 1);
  const uint32_t blocks = static_cast<uint32_t>((seen + C::BLOCK_KV - 1) / C::BLOCK_KV);
  const uint32_t each = fp.splits.divide(blocks);
  const uint32_t more = blocks - each * fp.splits.divisor;  // splits that take one block more
  const uint32_t first = at.split * each + min(at.split, more);
  const uint32_t count = each + (at.split < more ? 1 : 0);
  at.key_begin = static_cast<int64_t>(first) * C::BLOCK_KV;
  at.key_end = min(static_cast<int64_t>(first + count) * C::BLOCK_KV, seen);
  return at;
}

// Of the whole block. Lanes that went separate ways meet first: the barrier counts warps.
__device__ __forceinline__ void block_sync() {
  __syncwarp();
  __syncthreads();
}

// 16 bytes of a tile, element by element; past `bytes` they are 0.
__device__ __forceinline__ void copy_elements(uint32_t to, const unsigned short* from,
                                              int64_t stride, int bytes) {
  uint32_t pairs[4] = {};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (i * 2 < bytes) pairs[i / 2] |= static_cast<uint32_t>(from[i * stride]) << (16 * (i % 2));
  }
  asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(pairs[0]), "r"(pairs[1]),
               "r"(pairs[2]), "r"(pairs[3])
               : "memory");
}

// Brings a block of k or v into a tile of the ring; what lies past `keys` or past D becomes 0, so
// that nothing which is not part of the problem can reach a result, as 0 * NaN would.
template <class C>
class TileCopier {
 public:
  using Element = typename C::Element;

  __device__ TileCopier(const FusedParams& fp, const void* base, const Strides4& stride,
                        const BlockItem& at, int thread)
      : D(static_cast<int>(fp.p.D)), width(fp.copy_width) {
    constexpr int ROWS_AT_A_TIME = C::COPY_THREADS / C::CHUNKS;
    static_assert(ROWS_AT_A_TIME >= 1, "a group copies at least a row at a time");
    chunk = thread % C::CHUNKS;
    row = thread / C::CHUNKS;
    row_stride = stride.seq;
    dim_stride = stride.dim;
    source = static_cast<const Element*>(base) + at.batch * stride.batch +
             at.head_kv * stride.head + (at.key_begin + row) * stride.seq + chunk * 8 * stride.dim;
    column_bytes = max(0, min(16, (D - chunk * 8) * 2));
  }

  // key0 counts from the first key of the split.
  __device__ __forceinline__ void copy(uint32_t tile, int64_t key0, int keys) const {
    constexpr int STEP = C::COPY_THREADS / C::CHUNKS;
    const Element* from = source + key0 * row_stride;
    const int64_t step = STEP * row_stride;
    if constexpr (C::ALIGNED) {
      if (keys >= C::BLOCK_KV && D == C::D) {
#pragma unroll
        for (int i = 0; i < C::BLOCK_KV / STEP; ++i) {
          copy_async_16(tile + C::tile_offset(row + i * STEP, chunk), from + i * step);
        }
      } else {
#pragma unroll 1
        for (int i = 0; i < C::BLOCK_KV / STEP; ++i) {
          const int bytes = row + i * STEP < keys ? column_bytes : 0;
          const Element* place = bytes > 0 ? from + i * step : source_of_nothing();
          copy_async<16>(tile + C::tile_offset(row + i * STEP, chunk), place, bytes);
        }
      }
    } else {
#pragma unroll 1
      for (int i = 0; i < C::BLOCK_KV / STEP; ++i) {
        const int bytes = row + i * STEP < keys ? column_bytes : 0;
        copy_chunk(tile + C::tile_offset(row + i * STEP, chunk), from + i * step, bytes);
      }
    }
  }

  // Makes 0 of what is not finite in this thread's part of a tile that is there. Whether any was.
  __device__ __forceinline__ bool clear_not_finite(unsigned char* tile) const {
    constexpr int STEP = C::COPY_THREADS / C::CHUNKS;
    bool any = false;
#pragma unroll 1
    for (int at = row; at < C::BLOCK_KV; at += STEP) {
      uint4* place = reinterpret_cast<uint4*>(tile + C::tile_offset(at, chunk));
      const uint4 was = *place;
      const uint4 now = {finite_or_zero<typename C::Traits>(was.x),
                         finite_or_zero<typename C::Traits>(was.y),
                         finite_or_zero<typename C::Traits>(was.z),
                         finite_or_zero<typename C::Traits>(was.w)};
      if (now.x == was.x && now.y == was.y && now.z == was.z && now.w == was.w) continue;
      *place = now;
      any = true;
    }
    return any;
  }

  // The same, whatever the strides, and at once.
  __device__ __forceinline__ void copy_by_element(uint32_t tile, int64_t key0, int keys) const {
    constexpr int STEP = C::COPY_THREADS / C::CHUNKS;
    const Element* from = source + key0 * row_stride;
#pragma unroll 1
    for (int at = row; at < C::BLOCK_KV; at += STEP) {
      copy_elements(tile + C::tile_offset(at, chunk), reinterpret_cast<const unsigned short*>(from),
                    dim_stride, at < keys ? column_bytes : 0);
      from += STEP * row_stride;
    }
  }

 private:
  const Element* source;
  int64_t row_stride;
  int64_t dim_stride;
  int row;
  int chunk;
  int column_bytes;
  int D;
  int width;

  // An address that is aligned and is not read.
  __device__ __forceinline__ const Element* source_of_nothing() const {
    return reinterpret_cast<const Element*>(reinterpret_cast<uintptr_t>(source) & ~uintptr_t{15});
  }

  template <int BYTES>
  __device__ __forceinline__ void copy_pieces(uint32_t to, const Element* from, int bytes) const {
#pragma unroll
    for (int at = 0; at < 16; at += BYTES) {
      const int read = max(0, min(BYTES, bytes - at));
      const void* place = read > 0 ? static_cast<const void*>(from + at / 2) : source_of_nothing();
      copy_async<BYTES>(to + at, place, read);
    }
  }

  __device__ __forceinline__ void copy_chunk(uint32_t to, const Element* from, int bytes) const {
    if (width == 8) return copy_pieces<8>(to, from, bytes);
    if (width == 4) return copy_pieces<4>(to, from, bytes);
    copy_elements(to, reinterpret_cast<const unsigned short*>(from), dim_stride, bytes);
  }
};

// The queries of a group's rows into a tile of its ring. Rows past the tile's last stay as they are:
// what is computed from them is dropped.
template <class C>
__device__ __forceinline__ void copy_queries(const FusedParams& fp, const BlockItem& at,
                                             uint32_t tile, int thread) {
  using Element = typename C::Element;
  const Strides4& stride = fp.p.q_stride;
  const int chunk = thread % C::CHUNKS;
  const int bytes = max(0, min(16, (static_cast<int>(fp.p.D) - chunk * 8) * 2));
#pragma unroll 1
  for (int row = thread / C::CHUNKS; row < at.rows; row += C::COPY_THREADS / C::CHUNKS) {
    const RowPlace place = place_of(fp, at, row);
    const Element* from = static_cast<const Element*>(fp.p.q) + at.batch * stride.batch +
                          place.head * stride.head + place.query * stride.seq +
                          chunk * 8 * stride.dim;
    const uint32_t to = tile + C::tile_offset(row, chunk);
    if constexpr (C::ALIGNED) {
      copy_async<16>(to, bytes > 0 ? from : static_cast<const Element*>(fp.p.q), bytes);
    } else {
      copy_elements(to, reinterpret_cast<const unsigned short*>(from), stride.dim, bytes);
    }
  }
  commit_copies();
}

// What a lane carries for rows g and g + 8 of its warp.
template <class C>
struct LaneState {
  float m[2];  // of q.k, not scaled yet
  float l[2];  // of this lane's keys only
  float o[C::D / 8][4];

  // The state of no keys.
  __device__ __forceinline__ void clear() {
    m[0] = m[1] = -CUDART_INF_F;
    l[0] = l[1] = 0.0f;
#pragma unroll
    for (int tile = 0; tile < C::D / 8; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) o[tile][i] = 0.0f;
    }
  }
};

// Rows see a key only if it is among the first `seen` of the block.
template <int TILES>
__device__ __forceinline__ void mask_logits(float (&s)[TILES][4], const int (&seen)[2], int lane) {
#pragma unroll
  for (int tile = 0; tile < TILES; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = tile * 8 + lane % 4 * 2 + i % 2;
      if (key >= seen[i / 2]) s[tile][i] = -CUDART_INF_F;
    }
  }
}

// Takes a block's logits into the running maxima and sums. Turns the logits into weights; alpha is
// what weights from before this block are multiplied by.
template <class C, int TILES>
__device__ __forceinline__ void take_logits(float (&s)[TILES][4], float c, LaneState<C>& state,
                                            float (&alpha)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float m = state.m[half];
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
      m = max_nan(m, max_nan(s[tile][half * 2], s[tile][half * 2 + 1]));
    }
    m = max_nan(m, __shfl_xor_sync(~0u, m, 1));
    m = max_nan(m, __shfl_xor_sync(~0u, m, 2));
    const float base = scaled(finite_base(m), c);
    alpha[half] = exp2_fast(scaled(state.m[half], c) - base);
    state.m[half] = m;
    float sum = 0.0f;
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& x = s[tile][half * 2 + i];
        x = exp2_fast(fmaf(x, c, -base));
        sum += x;
      }
    }
    state.l[half] = fmaf(state.l[half], alpha[half], sum);
  }
}

template <class C>
__device__ __forceinline__ void rescale_values(LaneState<C>& state, const float (&alpha)[2],
                                               const bool (&exists)[2]) {
  // A new maximum becomes rare as keys go by.
  const bool rescale = (exists[0] && alpha[0] != 1.0f) || (exists[1] && alpha[1] != 1.0f);
  if (__any_sync(~0u, rescale)) {
#pragma unroll
    for (int tile = 0; tile < C::D / 8; ++tile) {
      state.o[tile][0] *= alpha[0];
      state.o[tile][1] *= alpha[0];
      state.o[tile][2] *= alpha[1];
      state.o[tile][3] *= alpha[1];
    }
  }
}

// A product with a weight of 0 makes NaN of a value that is NaN or infinite, so such a value would
// reach rows that do not see its key. Where that may happen such values are taken as 0, and this adds
// those of a block to the rows that do see them. Read from memory once more: it is rare.
template <class C>
__device__ __forceinline__ void add_not_finite(const FusedParams& fp, const BlockItem& at,
                                               int64_t key0, const int64_t (&seen_by_row)[2],
                                               int lane, LaneState<C>& state) {
  using Element = typename C::Element;
  const Strides4& stride = fp.p.v_stride;
  const int64_t end = min(key0 + C::BLOCK_KV, at.key_end - at.key_begin);
  const Element* v = static_cast<const Element*>(fp.p.v) + at.batch * stride.batch +
                     at.head_kv * stride.head + at.key_begin * stride.seq;  // [keys of the split, D]
#pragma unroll 1
  for (int64_t key = key0; key < end; ++key) {
#pragma unroll
    for (int column = 0; column < C::D / 4; ++column) {
      const int dim = column / 2 * 8 + lane % 4 * 2 + column % 2;
      if (dim >= fp.p.D) continue;
      const float x = C::Traits::to_float(v[key * stride.seq + dim * stride.dim]);
      if (isfinite(x)) continue;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (key < seen_by_row[half]) state.o[column / 2][half * 2 + column % 2] += x;
      }
    }
  }
}

// Parameters lie in constant memory, which is cold in each launch. While the first keys are on
// their way, this brings in what is read after the last.
__device__ __forceinline__ void touch_later_parameters(const FusedParams& fp) {
  asm volatile("" ::"l"(fp.p.out), "l"(fp.p.lse), "l"(fp.p.partial_o), "l"(fp.p.out_stride.batch),
               "l"(fp.p.out_stride.dim), "l"(fp.p.lse_stride.batch), "l"(fp.p.lse_stride.seq),
               "r"(fp.groups), "f"(fp.c), "d"(fp.magnitude));
}

// The lanes' states of one group to its region of shared memory, and m and l beside.
template <class C>
__device__ __forceinline__ void store_group_state(const FusedParams& fp, const BlockItem& at,
                                                  unsigned char* region,  // [BLOCK_M, STATE_STRIDE]
                                                  float2* ml_smem,  // [BLOCK_M]
                                                  int row_warp, int lane,
                                                  const LaneState<C>& state) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float l = state.l[half];
    l += __shfl_xor_sync(~0u, l, 1);
    l += __shfl_xor_sync(~0u, l, 2);
    const int row = row_warp * 16 + half * 8 + lane / 4;
    if (row >= at.rows) continue;
    if (lane % 4 == 0) ml_smem[row] = make_float2(state.m[half], l);
    float* o_row = reinterpret_cast<float*>(region) + row * C::STATE_STRIDE + lane % 4 * 2;
#pragma unroll
    for (int tile = 0; tile < C::D / 8; ++tile) {
      *reinterpret_cast<float2*>(o_row + tile * 8) =
          make_float2(state.o[tile][half * 2], state.o[tile][half * 2 + 1]);
    }
  }
}

// Four columns of a finished row.
template <class Element>
__device__ __forceinline__ void store_output(const FusedParams& fp, const RowPlace& place,
                                             int column, const StateChunk& state) {
  using Traits = ElementTraits<Element>;
  const Strides4& stride = fp.p.out_stride;
  Element* out = static_cast<Element*>(fp.p.out) + place.batch * stride.batch +
                 place.head * stride.head + place.query * stride.seq + column * stride.dim;
  const float inverse = state.l == 0.0f ? 0.0f : 1.0f / state.l;
  const float values[4] = {state.o.x * inverse, state.o.y * inverse, state.o.z * inverse,
                           state.o.w * inverse};
  const int left = static_cast<int>(fp.p.D) - column;
  if (stride.dim == 1 && left >= 4 && (reinterpret_cast<uintptr_t>(out) & 7) == 0) {
    *reinterpret_cast<uint2*>(out) =
        make_uint2(Traits::pack(values[0], values[1]), Traits::pack(values[2], values[3]));
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i < left) out[i * stride.dim] = Traits::from_float(values[i]);
    }
  }
}

__device__ __forceinline__ void store_lse(const FusedParams& fp, const RowPlace& place,
                                          const StateChunk& state) {
  const Strides3& stride = fp.p.lse_stride;
  fp.p.lse[place.batch * stride.batch + place.head * stride.head + place.query * stride.seq] =
      log_sum_exp_scaled(state.m, state.l, fp.c, fp.magnitude);
}

// The workspace: o [groups, B, H, Sq, D], m and l [groups * cluster, B, H, Sq]. Each block of a
// cluster keeps m and l of its own, so what it reads later is ordered by one counter.
__device__ __forceinline__ int64_t state_slot(const FusedParams& fp, int64_t layer,
                                              const RowPlace& place) {
  return ((layer * fp.p.B + place.batch) * fp.p.H + place.head) * fp.p.Sq + place.query;
}

__device__ __forceinline__ void store_partial(const FusedParams& fp, const BlockItem& at,
                                              uint32_t group, uint32_t rank, int row, int column,
                                              bool first_of_row, const StateChunk& state) {
  const RowPlace place = place_of(fp, at, row);
  if (first_of_row) {
    const int64_t slot = state_slot(fp, static_cast<int64_t>(group) * fp.cluster + rank, place);
    fp.p.partial_m[slot] = state.m;
    fp.p.partial_l[slot] = state.l;
  }
  float* o = fp.p.partial_o + state_slot(fp, group, place) * fp.p.D + column;
  const int left = static_cast<int>(fp.p.D) - column;
  if (fp.p.D % 4 == 0) {
    *reinterpret_cast<float4*>(o) = state.o;
  } else {
    const float values[4] = {state.o.x, state.o.y, state.o.z, state.o.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i < left) o[i] = values[i];
    }
  }
}

__device__ __forceinline__ StateChunk merge_partials(const FusedParams& fp, const RowPlace& place,
                                                     uint32_t rank, int column) {
  const int64_t rows = fp.p.B * fp.p.H * fp.p.Sq;
  const int64_t slot = state_slot(fp, 0, place);
  const float* m = fp.p.partial_m + rank * rows + slot;
  const float* l = fp.p.partial_l + rank * rows + slot;
  const float* o = fp.p.partial_o + slot * fp.p.D + column;
  const int64_t ml_step = fp.cluster * rows;
  const int64_t o_step = rows * fp.p.D;
  const int left = static_cast<int>(fp.p.D) - column;
  const bool vector = fp.p.D % 4 == 0;
  return merge_far_states<8>(
      static_cast<int>(fp.groups), fp.c, [&](int i) { return __ldcg(m + i * ml_step); },
      [&](int i) { return __ldcg(l + i * ml_step); },
      [&](int i) {
        const float* from = o + i * o_step;
        if (vector) return __ldcg(reinterpret_cast<const float4*>(from));
        float4 value = make_float4(__ldcg(from), 0.0f, 0.0f, 0.0f);
        if (left > 1) value.y = __ldcg(from + 1);
        if (left > 2) value.z = __ldcg(from + 2);
        if (left > 3) value.w = __ldcg(from + 3);
        return value;
      });
}

// Whether this block is the last of `count` to come here. What every thread of the earlier ones
// stored before can then be read; the counter is 0 again.
__device__ __forceinline__ bool arrive_last(unsigned* counter, unsigned count) {
  block_sync();
  bool last = false;
  if (threadIdx.x == 0) {
    unsigned before;
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(counter), "r"(count - 1)
                 : "memory");
    last = before == count - 1;
  }
  __syncwarp();
  return __syncthreads_or(last) != 0;
}

// States of the tile's rows that lie evenly spaced in shared memory.
struct SharedStates {
  const float2* ml;         // m and l of row 0 of the first
  int ml_step;              // rows from one state to the next
  const unsigned char* o;   // four columns of the first
  int o_step;               // bytes from one state to the next
  int count;
  float c;

  __device__ __forceinline__ StateChunk merge(int row, int o_offset) const {
    const float2* ml_row = ml + row;
    return merge_states(
        count, c, [&](int i) { return ml_row[i * ml_step].x; },
        [&](int i) { return ml_row[i * ml_step].y; },
        [&](int i) { return *reinterpret_cast<const float4*>(o + i * o_step + o_offset); });
  }
};

// What follows once the states of the block's groups of warps lie in shared memory: merges, and the
// output of this block's share of the tile. Where there is a cluster, each block has arrived at its
// barrier once, when nothing of its own lay any more where it receives.
template <class C>
__device__ __forceinline__ void finish_block(const FusedParams& fp, const BlockItem& at,
                                             unsigned char* smem) {
  const bool clustered = fp.cluster > 1;
  float2* ml_smem = reinterpret_cast<float2*>(smem + C::ML_OFFSET);  // [STATES, BLOCK_M]
  // The states to merge next, in shared memory: first those of this block's groups.
  SharedStates states{ml_smem, C::BLOCK_M, smem, C::STATE_STEP, C::STATES, fp.c};

  // Chunks of four columns, row by row; block `rank` of the cluster finishes [begin, end).
  const int chunks = at.rows * C::STATE_CHUNKS;
  const int D = static_cast<int>(fp.p.D);
  uint32_t rank = 0;
  int begin = 0;
  int end = chunks;
  float2* received_ml = reinterpret_cast<float2*>(smem + C::RECEIVED_ML_OFFSET);  // [cluster, BLOCK_M]
  float4* received_o =
      reinterpret_cast<float4*>(smem + C::received_o_offset(fp.cluster));  // [cluster, share]
  if (clustered) {
    rank = cluster_rank();
    begin = min(static_cast<int>(rank) * at.share, chunks);
    end = min(begin + at.share, chunks);
    __syncwarp();
    cluster_wait();
    const uint32_t arrived = shared_address(smem + C::EXCHANGE_OFFSET);
    if (threadIdx.x == 0) {
      expect_stores(arrived, fp.cluster * (at.rows * static_cast<int>(sizeof(float2)) +
                                           (end - begin) * static_cast<int>(sizeof(float4))));
    }
    for (int e = threadIdx.x; e < chunks; e += C::THREADS) {
      const int row = e / C::STATE_CHUNKS;
      const int chunk = e % C::STATE_CHUNKS;
      const StateChunk state =
          states.merge(row, (row * C::STATE_STRIDE + chunk * 4) * static_cast<int>(sizeof(float)));
      const int owner = static_cast<int>(__umulhi(e, at.share_inverse));
      const int place = static_cast<int>(rank) * at.share + (e - owner * at.share);
      store_remote(remote_address(shared_address(received_o + place), owner), state.o,
                   remote_address(arrived, owner));
      // The lanes of a row share the sending of its m and l to every block.
      for (uint32_t to = chunk; to < fp.cluster; to += C::STATE_CHUNKS) {
        store_remote(remote_address(shared_address(received_ml + rank * C::BLOCK_M + row), to),
                     make_float2(state.m, state.l), remote_address(arrived, to));
      }
    }
    wait_for_stores(arrived);
    states = {received_ml, C::BLOCK_M, reinterpret_cast<unsigned char*>(received_o),
              at.share * static_cast<int>(sizeof(float4)), static_cast<int>(fp.cluster), fp.c};
  }
  const auto merge_here = [&](int e, int row, int column) {
    const int offset = clustered ? (e - begin) * static_cast<int>(sizeof(float4))
                                 : (row * C::STATE_STRIDE + column) * static_cast<int>(sizeof(float));
    return states.merge(row, offset);
  };

  // Of a row whose first columns are this block's share. The last threads do it, which have no
  // columns to finish when the share is small.
  const auto finish_lse = [&](const auto& state_of_row) {
    const int first = (begin + C::STATE_CHUNKS - 1) / C::STATE_CHUNKS;
    for (int row = first + C::THREADS - 1 - static_cast<int>(threadIdx.x);
         row * C::STATE_CHUNKS < end; row += C::THREADS) {
      store_lse(fp, place_of(fp, at, row), state_of_row(row));
    }
  };
  const auto for_each_chunk = [&](const auto& body) {
    for (int e = begin + static_cast<int>(threadIdx.x); e < end; e += C::THREADS) {
      const int row = e / C::STATE_CHUNKS;
      const int column = e % C::STATE_CHUNKS * 4;
      if (column < D) body(e, row, column);
    }
  };

  if (fp.groups == 1) {
    for_each_chunk([&](int e, int row, int column) {
      store_output<typename C::Element>(fp, place_of(fp, at, row), column,
                                        merge_here(e, row, column));
    });
    finish_lse([&](int row) { return merge_here(row * C::STATE_CHUNKS, row, 0); });
    return;
  }

  if (begin >= end) return;
  const uint32_t group = at.split / fp.cluster;
  for_each_chunk([&](int e, int row, int column) {
    store_partial(fp, at, group, rank, row, column, e == begin || column == 0,
                  merge_here(e, row, column));
  });
  if (!arrive_last(fp.counters + at.item * fp.cluster + rank, fp.groups)) return;
  for_each_chunk([&](int, int row, int column) {
    const RowPlace place = place_of(fp, at, row);
    store_output<typename C::Element>(fp, place, column, merge_partials(fp, place, rank, column));
  });
  finish_lse([&](int row) { return merge_partials(fp, place_of(fp, at, row), rank, 0); });
}

// Raises the kernel's limits once a device; the attributes stay.
template <auto KERNEL>
cudaError_t prepare_kernel() {
  constexpr int MAX_DEVICES = 64;
  static bool prepared[MAX_DEVICES] = {};
  int device = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return error;
  if (device < MAX_DEVICES && __atomic_load_n(&prepared[device], __ATOMIC_ACQUIRE)) {
    return cudaSuccess;
  }
  int limit = 0;
  error = cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  if (error != cudaSuccess) return error;
  error = cudaFuncSetAttribute(KERNEL, cudaFuncAttributeMaxDynamicSharedMemorySize, limit);
  if (error != cudaSuccess) return error;
  int major = 0;
  error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (error != cudaSuccess) return error;
  if (major >= 9) {
    error = cudaFuncSetAttribute(KERNEL, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    if (error != cudaSuccess) return error;
  }
  if (device < MAX_DEVICES) __atomic_store_n(&prepared[device], true, __ATOMIC_RELEASE);
  return cudaSuccess;
}

// Among the launch's attributes: it may start before the kernel ahead of it has ended.
inline void add_overlap(const FusedParams& fp, cudaLaunchConfig_t& config) {
#if KBTOOL_FUSED_OVERLAP
  if (!fp.overlap) return;
  cudaLaunchAttribute& attribute = config.attrs[config.numAttrs++];
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
#endif
}

// One block for each (item, split).
template <class C, auto KERNEL>
cudaError_t launch_blocks(const FusedParams& fp, cudaStream_t stream) {
  const cudaError_t error = prepare_kernel<KERNEL>();
  if (error != cudaSuccess) return error;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(fp.items * fp.splits.divisor);
  config.blockDim = dim3(C::LAUNCH_THREADS);
  config.dynamicSmemBytes = C::shared_bytes(static_cast<int>(fp.cluster));
  config.stream = stream;
  cudaLaunchAttribute attributes[2];
  config.attrs = attributes;
  if (fp.cluster > 1) {
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim.x = fp.cluster;
    attributes[0].val.clusterDim.y = 1;
    attributes[0].val.clusterDim.z = 1;
    ++config.numAttrs;
  }
  add_overlap(fp, config);
  return cudaLaunchKernelEx(&config, KERNEL, fp);
}

}  // namespace kbtool::cuda
