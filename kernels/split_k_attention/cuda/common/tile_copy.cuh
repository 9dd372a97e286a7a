// Copies of keys, values and queries into shared memory, in chunks of 16 bytes; by cp.async where the
// rows' alignment allows it.
#pragma once

#include "async_copy.cuh"
#include "work_unit.cuh"
#include "mma.cuh"

namespace kbtool::cuda {

// 16 bytes of a row, element by element; past `bytes` they are 0.
__device__ __forceinline__ uint4 load_elements(const unsigned short* from, int64_t stride, int bytes) {
  uint32_t pairs[4] = {};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (i * 2 < bytes) pairs[i / 2] |= static_cast<uint32_t>(from[i * stride]) << (16 * (i % 2));
  }
  return {pairs[0], pairs[1], pairs[2], pairs[3]};
}

__device__ __forceinline__ void store_chunk(uint32_t to, const uint4& chunk) {
  asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(chunk.x), "r"(chunk.y),
               "r"(chunk.z), "r"(chunk.w)
               : "memory");
}

// Copies a key block of k or v into a tile of the ring buffer. What lies past `keys` or past D becomes 0:
// whatever is in memory there could reach a result as 0 * NaN.
template <class C>
class TileCopier {
 public:
  using Element = typename C::Element;

  __device__ TileCopier(const FusedParams& fp,
                        const void* base,  // [B, Hkv, Skv, D] by strides
                        const Strides4& stride, const WorkUnit& at, int thread)
      : width(fp.copy_width) {
    constexpr int ROWS_AT_A_TIME = C::COPY_THREADS / C::CHUNKS;
    static_assert(ROWS_AT_A_TIME >= 1, "a group copies at least a row at a time");
    chunk = thread % C::CHUNKS;
    row = thread / C::CHUNKS;
    row_stride = stride.seq;
    dim_stride = stride.dim;
    source = static_cast<const Element*>(base) + at.batch * stride.batch +
             at.head_kv * stride.head + (at.key_begin + row) * stride.seq + chunk * 8 * stride.dim;
    column_bytes = max(0, min(16, (static_cast<int>(fp.p.D) - chunk * 8) * 2));
  }

  // key0 counts from the first key of the split.
  __device__ __forceinline__ void copy(uint32_t tile, int64_t key0, int keys) const {
    const Element* from = source + key0 * row_stride;
    if constexpr (C::ALIGNED) {
      copy_rows<16>(tile, from, keys);
    } else if (width == 8) {
      copy_rows<8>(tile, from, keys);
    } else if (width == 4) {
      copy_rows<4>(tile, from, keys);
    } else {
      copy_by_element(tile, key0, keys);
    }
  }

 private:
  const Element* source;  // [keys of the split from `row` on, 8] by strides
  int64_t row_stride;
  int64_t dim_stride;
  int row;
  int chunk;
  int column_bytes;
  int width;

  // For any strides, synchronously. The loads of two rows are in flight at a time.
  __device__ __forceinline__ void copy_by_element(uint32_t tile, int64_t key0, int keys) const {
    constexpr int STEP = C::COPY_THREADS / C::CHUNKS;
    static_assert(C::BLOCK_KV % (2 * STEP) == 0, "each thread copies two rows at a time");
    const auto* from = reinterpret_cast<const unsigned short*>(source + key0 * row_stride);
    const int64_t step = STEP * row_stride;
#pragma unroll 1
    for (int at = row; at < C::BLOCK_KV; at += 2 * STEP) {
      const uint4 first = load_elements(from, dim_stride, at < keys ? column_bytes : 0);
      const uint4 second = load_elements(from + step, dim_stride, at + STEP < keys ? column_bytes : 0);
      store_chunk(tile + C::tile_offset(at, chunk), first);
      store_chunk(tile + C::tile_offset(at + STEP, chunk), second);
      from += 2 * step;
    }
  }

  // Each piece of BYTES is inside the row or outside, never across its end.
  template <int BYTES>
  __device__ __forceinline__ void copy_rows(uint32_t tile, const Element* from, int keys) const {
    constexpr int STEP = C::COPY_THREADS / C::CHUNKS;
    constexpr int ROWS = C::BLOCK_KV / STEP;
    const int64_t step = STEP * row_stride;
#pragma unroll(BYTES == 16 ? ROWS : 2)
    for (int i = 0; i < ROWS; ++i) {
      const int at = row + i * STEP;
#pragma unroll
      for (int byte = 0; byte < 16; byte += BYTES) {
        copy_async<BYTES>(at < keys && byte < column_bytes, tile + C::tile_offset(at, chunk) + byte,
                          from + i * step + byte / 2);
      }
    }
  }
};

// Zeroes NaN and infinities in a tile, by `threads` threads together. Returns whether this thread found any among
// the first `seen` keys. No query sees the keys after them: they pad a batch and may well be NaN.
template <class C>
__device__ __forceinline__ bool zero_non_finite(unsigned char* tile,  // Element [BLOCK_KV, D]
                                                int seen, int thread, int threads) {
  using Traits = typename C::Traits;
  bool any = false;
#pragma unroll 1
  for (int chunk = thread; chunk < C::TILE_BYTES / 16; chunk += threads) {
    uint4* chunk_at = reinterpret_cast<uint4*>(tile) + chunk;
    const uint4 was = *chunk_at;
    const uint4 now = {finite_or_zero<Traits>(was.x), finite_or_zero<Traits>(was.y),
                       finite_or_zero<Traits>(was.z), finite_or_zero<Traits>(was.w)};
    if (now.x == was.x && now.y == was.y && now.z == was.z && now.w == was.w) continue;
    *chunk_at = now;
    any = any || C::key_of(chunk) < seen;
  }
  return any;
}

// The chunks of the tile's queries that one of `threads` threads copies: the same chunk of every STEP-th row. Rows
// past the tile's end stay uninitialised: what is computed from them is dropped.
template <class C>
struct QueryChunks {
  using Element = typename C::Element;
  const FusedParams& fp;
  const WorkUnit& at;
  int chunk;
  int first_row;
  int step;
  int bytes;

  __device__ __forceinline__ QueryChunks(const FusedParams& fp, const WorkUnit& at, int thread, int threads)
      : fp(fp), at(at), chunk(thread % C::CHUNKS), first_row(thread / C::CHUNKS), step(threads / C::CHUNKS),
        bytes(max(0, min(16, (static_cast<int>(fp.p.D) - chunk * 8) * 2))) {}

  __device__ __forceinline__ const Element* source(int row) const {
    const Strides4& stride = fp.p.q_stride;
    const RowIndex index = row_index(fp, at, row);
    return static_cast<const Element*>(fp.p.q) + at.batch * stride.batch + index.head * stride.head +
           index.query * stride.seq + chunk * 8 * stride.dim;
  }
};

// The loads of AHEAD rows are in flight at a time.
template <class C, int AHEAD, class Address>
__device__ __forceinline__ void copy_query_elements(const QueryChunks<C>& q, const Address& address_of) {
#pragma unroll 1
  for (int row0 = q.first_row; row0 < q.at.rows; row0 += AHEAD * q.step) {
    uint4 chunks[AHEAD];
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) {
      const int row = min(row0 + i * q.step, q.at.rows - 1);
      chunks[i] = load_elements(reinterpret_cast<const unsigned short*>(q.source(row)),
                                q.fp.p.q_stride.dim, q.bytes);
    }
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) {
      const int row = row0 + i * q.step;
      if (row < q.at.rows) store_chunk(address_of(row, q.chunk), chunks[i]);
    }
  }
}

// noinline: inlined, even one row at a time, it made the shortest calls with aligned queries up to 2 % slower (H100).
template <class C, class Address>
__device__ __noinline__ void copy_query_elements_apart(const FusedParams& fp, const WorkUnit& at, int thread,
                                                       int threads, Address address_of) {
  copy_query_elements<C, 4>(QueryChunks<C>(fp, at, thread, threads), address_of);
}

// Starts copies of the tile's queries by `threads` threads, chunk by chunk to address_of(row, chunk). APART: queries
// that are not aligned are copied by a function that is not inlined. Not for wgmma: ptxas would serialise it around
// the call.
template <class C, bool APART, class Address>
__device__ __forceinline__ void copy_queries(const FusedParams& fp, const WorkUnit& at, int thread,
                                             int threads, const Address& address_of) {
  const QueryChunks<C> q(fp, at, thread, threads);
  if (fp.q_aligned) {
#pragma unroll 1
    for (int row = q.first_row; row < at.rows; row += q.step) {
      copy_async<16>(q.bytes > 0, address_of(row, q.chunk), q.source(row));
    }
  } else if constexpr (APART) {
    copy_query_elements_apart<C>(fp, at, thread, threads, address_of);
  } else {
    copy_query_elements<C, 1>(q, address_of);
  }
  commit_copies();
}

}  // namespace kbtool::cuda
