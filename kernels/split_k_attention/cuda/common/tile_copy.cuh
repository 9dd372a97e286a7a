// Copies of keys, values and queries into shared memory, in chunks of 16 bytes; by cp.async where the
// rows' alignment allows it.
#pragma once

#include "async_copy.cuh"
#include "fp8.cuh"
#include "mma.cuh"
#include "pages.cuh"
#include "work_unit.cuh"

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

// The same of 8 elements of 8 bits, widened.
template <class Kv, class Element>
__device__ __forceinline__ uint4 load_widened(const Kv* from, int64_t stride, int bytes) {
  const auto* codes = reinterpret_cast<const unsigned char*>(from);
  uint32_t pairs[4] = {};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (i * 2 < bytes) pairs[i / 2] |= static_cast<uint32_t>(codes[i * stride]) << (8 * (i % 2));
  }
  return {widen<Kv, Element>(pairs[0]), widen<Kv, Element>(pairs[1]), widen<Kv, Element>(pairs[2]),
          widen<Kv, Element>(pairs[3])};
}

__device__ __forceinline__ void store_chunk(uint32_t to, const uint4& chunk) {
  asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(chunk.x), "r"(chunk.y),
               "r"(chunk.z), "r"(chunk.w)
               : "memory");
}

// Copies a key block of k or v into a tile of the ring buffer. What lies past `keys` or past the columns becomes 0:
// whatever is in memory there could reach a result as 0 * NaN. A tile of rows that are not aligned has the element type
// of the queries, to which 8 bits are widened on the way.
template <class C>
class TileCopier {
 public:
  using Kv = typename C::Kv;

  __device__ __forceinline__ TileCopier(const FusedParams& fp,
                        const void* base,  // [B, Hkv, Skv, columns] by strides, or pages if not aligned
                        const Strides4& stride, int64_t columns, const WorkUnit& at, int thread)
      : fp(fp), base(base), stride(stride), at(at), width(fp.copy_width) {
    constexpr int ROWS_AT_A_TIME = C::COPY_THREADS / C::CHUNKS;
    static_assert(ROWS_AT_A_TIME >= 1, "a group copies at least a row at a time");
    chunk = thread % C::CHUNKS;
    row = thread / C::CHUNKS;
    row_stride = stride.seq;
    dim_stride = stride.dim;
    source = static_cast<const Kv*>(base) + at.batch * stride.batch + at.head_kv * stride.head +
             (at.key_begin + row) * stride.seq + chunk * CHUNK_ELEMENTS * stride.dim;
    column_bytes = max(0, min(16, (static_cast<int>(columns) - chunk * CHUNK_ELEMENTS) * static_cast<int>(sizeof(Kv))));
  }

  // key0 counts from the first key of the split.
  __device__ __forceinline__ void copy(uint32_t tile, int64_t key0, int keys) const {
    const Kv* from = source + key0 * row_stride;
    if constexpr (C::ALIGNED) {
      copy_rows<16>(tile, from, keys);
    } else if (C::SCALED && fp.p.kv_type == KvType::e4m3) {
      copy_row_by_row<e4m3>(tile, key0, keys);
    } else if (C::SCALED && fp.p.kv_type == KvType::e5m2) {
      copy_row_by_row<e5m2>(tile, key0, keys);
    } else if (fp.p.block_table != nullptr) {
      copy_row_by_row<Kv>(tile, key0, keys);
    } else if (width == 8) {
      copy_rows<8>(tile, from, keys);
    } else if (width == 4) {
      copy_rows<4>(tile, from, keys);
    } else {
      copy_by_element(tile, key0, keys);
    }
  }

 private:
  const FusedParams& fp;
  const void* base;
  const Strides4& stride;
  const WorkUnit& at;
  static constexpr int CHUNK_ELEMENTS = 16 / sizeof(Kv);

  const Kv* source;  // [keys of the split from `row` on, CHUNK_ELEMENTS] by strides
  int64_t row_stride;
  int64_t dim_stride;
  int row;
  int chunk;
  int column_bytes;
  int width;

  // For any strides, synchronously and with a look into the block table for each row: for layouts that PagedCopier does
  // not take, and for elements of 8 bits.
  template <class Stored>
  __device__ __forceinline__ void copy_row_by_row(uint32_t tile, int64_t key0, int keys) const {
#pragma unroll 1
    for (int i = row; i < C::BLOCK_KV; i += C::COPY_THREADS / C::CHUNKS) {
      uint4 elements = {};
      if (i < keys) {
        const Stored* from = kv_row<Stored>(fp, base, stride, at.batch, at.head_kv, at.key_begin + key0 + i) +
                             chunk * 8 * dim_stride;
        if constexpr (IS_FP8<Stored>) {
          elements = load_widened<Stored, typename C::Element>(from, dim_stride, column_bytes);
        } else {
          elements = load_elements(reinterpret_cast<const unsigned short*>(from), dim_stride, column_bytes);
        }
      }
      store_chunk(tile + C::tile_offset(i, chunk), elements);
    }
  }

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
  __device__ __forceinline__ void copy_rows(uint32_t tile, const Kv* from, int keys) const {
    constexpr int STEP = C::COPY_THREADS / C::CHUNKS;
    constexpr int ROWS = C::BLOCK_KV / STEP;
    const int64_t step = STEP * row_stride;
#pragma unroll(BYTES == 16 ? ROWS : 2)
    for (int i = 0; i < ROWS; ++i) {
      const int at = row + i * STEP;
#pragma unroll
      for (int byte = 0; byte < 16; byte += BYTES) {
        copy_async<BYTES>(at < keys && byte < column_bytes, tile + C::tile_offset(at, chunk) + byte,
                          from + i * step + byte / static_cast<int>(sizeof(Kv)));
      }
    }
  }
};

// Columns of v. In instances without options they are those of k, which saves a register.
template <class C>
__device__ __forceinline__ int64_t value_columns(const FusedParams& fp) {
  return C::OPTIONS ? fp.p.Dv : fp.p.D;
}

// The copies of k and v into a stage of the ring buffer: K [BLOCK_KV, D], then V. The group's key blocks are copied in
// order, from `first_key0` on, each `stride` keys after the one before.
template <class C>
class ContiguousCopier {
 public:
  __device__ __forceinline__ ContiguousCopier(const FusedParams& fp, const WorkUnit& at, int thread, int64_t, int64_t)
      : k_(fp, fp.p.k, fp.p.k_stride, fp.p.D, at, thread),
        v_(fp, fp.p.v, fp.p.v_stride, value_columns<C>(fp), at, thread) {}

  __device__ __forceinline__ void copy(uint32_t stage, int64_t key0, int keys) const {
    k_.copy(stage, key0, keys);
    v_.copy(stage + C::TILE_BYTES, key0, keys);
  }

 private:
  TileCopier<C> k_;
  TileCopier<C> v_;
};

// The same for pages. Between the end of a stage and its next copy lies as little as possible: the block table is read
// 32 entries ahead, and addresses are worked out one block ahead (H100, one entry of 64k keys: 1.34 times the time of
// contiguous keys if each block reads its entry as it is copied, 1.10 with the entries alone read ahead).
// Pages of at least PIECE_KEYS keys hold whole pieces of a key block, and each lane looks up the page of one piece. With
// smaller pages each lane looks up the page of one key of a block.
template <class C>
class PagedCopier {
 public:
  using Kv = typename C::Kv;

  __device__ __forceinline__ PagedCopier(const FusedParams& fp, const WorkUnit& at, int thread, int64_t first_key0,
                                         int64_t stride)
      : pages_(fp, at.batch),
        k_(fp.p.k, fp.p.k_stride, at, thread),
        v_(fp.p.v, fp.p.v_stride, at, thread),
        begin_(at.key_begin),
        keys_(at.key_end - at.key_begin),
        next_key0_(first_key0),
        stride_(stride),
        row_(thread / C::CHUNKS),
        chunk_(thread % C::CHUNKS),
        k_there_(chunk_ * 16 < static_cast<int>(fp.p.D * sizeof(Kv))),
        v_there_(chunk_ * 16 < static_cast<int>(value_columns<C>(fp) * sizeof(Kv))) {
    const int lane = thread % 32;
    lane_key_ = first_key0 + (in_pieces() ? lane / PIECES * stride + lane % PIECES * PIECE_KEYS : lane % C::BLOCK_KV);
    batch_ = look_up();
    next_batch_ = look_up();
    locate_next();
  }

  __device__ __forceinline__ void copy(uint32_t stage, int64_t key0, int keys) {
    if (in_pieces()) {
      copy_pieces(stage, k_piece_, k_, keys, k_there_);
      copy_pieces(stage + C::TILE_BYTES, v_piece_, v_, keys, v_there_);
    } else {
      copy_rows(stage, k_, key0, keys, k_there_);
      copy_rows(stage + C::TILE_BYTES, v_, key0, keys, v_there_);
    }
    locate_next();
  }

 private:
  static constexpr int PIECES = C::BLOCK_KV / PIECE_KEYS;
  static constexpr int STEP = C::COPY_THREADS / C::CHUNKS;  // rows from one that a thread copies to its next
  static constexpr int ROWS = C::BLOCK_KV / STEP;
  static_assert(PIECE_KEYS % STEP == 0, "a thread copies as many rows of each piece");

  // This thread's chunk of this head in the pages of k or v. Strides in bytes, of 32 bits: one instruction multiplies
  // and adds (pages_are_regular).
  struct Source {
    const char* base;
    uint32_t page_bytes;
    uint32_t row_bytes;

    __device__ __forceinline__ Source(const void* of, const Strides4& stride, const WorkUnit& at, int thread)
        : base(reinterpret_cast<const char*>(static_cast<const Kv*>(of) + at.head_kv * stride.head) +
               thread % C::CHUNKS * 16),
          page_bytes(static_cast<uint32_t>(stride.batch * sizeof(Kv))),
          row_bytes(static_cast<uint32_t>(stride.seq * sizeof(Kv))) {}

    __device__ __forceinline__ const char* at(int page, int row) const {
      return base + static_cast<uint64_t>(static_cast<uint32_t>(page)) * page_bytes +
             static_cast<uint64_t>(static_cast<uint32_t>(row)) * row_bytes;
    }
  };

  Pages pages_;
  Source k_;
  Source v_;
  int64_t begin_;     // first key of the split
  int64_t keys_;      // of the split
  int64_t next_key0_;
  int64_t stride_;
  int row_;
  int chunk_;
  bool k_there_;      // the chunk is not past the columns of k
  bool v_there_;      // nor of v
  int64_t lane_key_;  // whose page this lane looks up next, counted from begin_
  int batch_;         // the pages that the lanes have looked up
  int next_batch_;
  int piece_ = 0;     // of the batch

  // Of the next block: this thread's first row of each piece or, of small pages, the page of each of its rows.
  const char* k_piece_[PIECES];
  const char* v_piece_[PIECES];
  int page_of_row_[ROWS];

  __device__ __forceinline__ bool in_pieces() const { return pages_.size() >= PIECE_KEYS; }

  __device__ __forceinline__ int look_up() {
    const int page = lane_key_ < keys_ ? pages_.of(begin_ + lane_key_) : 0;
    lane_key_ += in_pieces() ? 32 / PIECES * stride_ : stride_;
    return page;
  }

  __device__ __forceinline__ void locate_next() {
    if (in_pieces()) {
#pragma unroll
      for (int i = 0; i < PIECES; ++i) {
        const int page = __shfl_sync(~0u, batch_, piece_ + i);
        const int row = pages_.inside(begin_ + next_key0_ + i * PIECE_KEYS) + row_;
        k_piece_[i] = k_.at(page, row);
        v_piece_[i] = v_.at(page, row);
      }
      piece_ += PIECES;
    } else {
#pragma unroll
      for (int i = 0; i < ROWS; ++i) page_of_row_[i] = __shfl_sync(~0u, batch_, row_ + i * STEP);
    }
    next_key0_ += stride_;
    if (in_pieces() && piece_ < 32) return;
    piece_ = 0;
    batch_ = next_batch_;
    next_batch_ = look_up();
  }

  __device__ __forceinline__ void copy_pieces(uint32_t tile, const char* const (&pieces)[PIECES],
                                              const Source& source, int keys, bool there) const {
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
      constexpr int ROWS_OF_PIECE = ROWS / PIECES;
      const uint64_t rows = i % ROWS_OF_PIECE * STEP;
      copy_row(tile, row_ + i * STEP, keys, there, pieces[i / ROWS_OF_PIECE] + rows * source.row_bytes);
    }
  }

  __device__ __forceinline__ void copy_rows(uint32_t tile, const Source& source, int64_t key0, int keys,
                                            bool there) const {
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
      const int at = row_ + i * STEP;
      copy_row(tile, at, keys, there, source.at(page_of_row_[i], pages_.inside(begin_ + key0 + at)));
    }
  }

  __device__ __forceinline__ void copy_row(uint32_t tile, int row, int keys, bool there, const char* from) const {
    copy_async<16>(row < keys && there, tile + C::tile_offset(row, chunk_), from);
  }
};

// Zeroes NaN and infinities in a tile, by `threads` threads together. Returns whether this thread found any among
// the first `seen` keys. No query sees the keys after them: they pad a batch and may well be NaN.
template <class C>
__device__ __forceinline__ bool zero_non_finite(unsigned char* tile,  // Kv [BLOCK_KV, Dv]
                                                int seen, int thread, int threads) {
  const auto finite = [](uint32_t packed) {
    if constexpr (IS_FP8<typename C::Kv>) return finite_or_zero_fp8<typename C::Kv>(packed);
    return finite_or_zero<typename C::Traits>(packed);
  };
  bool any = false;
#pragma unroll 1
  for (int chunk = thread; chunk < C::VALUE_TILE_BYTES / 16; chunk += threads) {
    uint4* chunk_at = reinterpret_cast<uint4*>(tile) + chunk;
    const uint4 was = *chunk_at;
    const uint4 now = {finite(was.x), finite(was.y), finite(was.z), finite(was.w)};
    if (now.x == was.x && now.y == was.y && now.z == was.z && now.w == was.w) continue;
    *chunk_at = now;
    any = any || C::key_of(chunk) < seen;
  }
  return any;
}

// Whether none of this thread's chunks of a tile of 16-bit values holds NaN or infinity: 0 times either is NaN, and stays.
template <class C>
__device__ __forceinline__ bool all_finite(const unsigned char* tile, int thread, int threads) {
  using Traits = typename C::Traits;
  uint32_t sums[2] = {0, 0};
#pragma unroll 2
  for (int chunk = thread; chunk < C::VALUE_TILE_BYTES / 16; chunk += threads) {
    const uint4 values = *(reinterpret_cast<const uint4*>(tile) + chunk);
    sums[0] = Traits::add_zero_times(Traits::add_zero_times(sums[0], values.x), values.z);
    sums[1] = Traits::add_zero_times(Traits::add_zero_times(sums[1], values.y), values.w);
  }
  return ((sums[0] | sums[1]) & Traits::EXPONENTS) == 0;
}

// The chunks of the tile's queries, of rows from `row0` up to `end`, that one of `threads` threads copies: the same chunk
// of every `step`-th row. Rows past the tile's end stay uninitialised: what is computed from them is dropped.
template <class C>
struct QueryChunks {
  using Element = typename C::Element;
  static constexpr int CHUNKS = C::D / 8;  // of a row
  const FusedParams& fp;
  const WorkUnitOf<C>& at;
  int chunk;
  int first_row;
  int end;
  int step;
  int bytes;

  __device__ __forceinline__ QueryChunks(const FusedParams& fp, const WorkUnitOf<C>& at, int row0, int end, int thread,
                                         int threads)
      : fp(fp), at(at), chunk(thread % CHUNKS), first_row(row0 + thread / CHUNKS), end(end), step(threads / CHUNKS),
        bytes(max(0, min(16, (static_cast<int>(fp.p.D) - chunk * 8) * 2))) {}

  __device__ __forceinline__ const Element* source(int row) const {
    const Strides4& stride = fp.p.q_stride;
    const RowIndex index = row_index(fp, at, row);
    return static_cast<const Element*>(fp.p.q) + index.batch * stride.batch + index.head * stride.head +
           index.query * stride.seq + chunk * 8 * stride.dim;
  }
};

// The loads of AHEAD rows are in flight at a time.
template <class C, int AHEAD, class Address>
__device__ __forceinline__ void copy_query_elements(const QueryChunks<C>& q, const Address& address_of) {
#pragma unroll 1
  for (int row0 = q.first_row; row0 < q.end; row0 += AHEAD * q.step) {
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
      if (row < q.end) store_chunk(address_of(row, q.chunk), chunks[i]);
    }
  }
}

// noinline: inlined, even one row at a time, it made the shortest calls with aligned queries up to 2 % slower (H100).
template <class C, class Address>
__device__ __noinline__ void copy_query_elements_apart(const FusedParams& fp, const WorkUnitOf<C>& at, int thread,
                                                       int threads, Address address_of) {
  copy_query_elements<C, 4>(QueryChunks<C>(fp, at, 0, at.rows, thread, threads), address_of);
}

// Starts copies of the tile's queries by `threads` threads, chunk by chunk to address_of(row, chunk). APART: queries
// that are not aligned are copied by a function that is not inlined. Not for wgmma: ptxas would serialise it around
// the call.
template <class C, bool APART, int UNROLL = 1, class Address>
__device__ __forceinline__ void copy_queries(const FusedParams& fp, const WorkUnitOf<C>& at, int row0, int end,
                                             int thread, int threads, const Address& address_of) {
  const QueryChunks<C> q(fp, at, row0, end, thread, threads);
  if (fp.q_aligned) {
#pragma unroll UNROLL
    for (int row = q.first_row; row < q.end; row += q.step) {
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
