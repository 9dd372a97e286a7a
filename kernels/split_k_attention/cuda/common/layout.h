// What the layout of q, k and v in memory allows: how wide a copy can be, and whether TMA can read k and v.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "../../params.h"

namespace kbtool::cuda {

constexpr int64_t ELEMENT_BYTES = 2;  // of q and the output

inline bool is_fp8(const SplitKParams& p) { return p.kv_type != KvType::same; }
inline int64_t kv_element_bytes(const SplitKParams& p) { return is_fp8(p) ? 1 : ELEMENT_BYTES; }

// Bitwise OR, in bytes, of the address, the row length and each stride from row to row, head to head and entry to entry
// that is used. If it is a multiple of 16, every row is aligned to 16 bytes. The row length counts because no copy
// crosses a row's end.
inline uint64_t alignment_bits(const void* base, const Strides4& stride, int64_t batch, int64_t heads,
                               int64_t rows, int64_t columns, int64_t element_bytes) {
  uint64_t bits = static_cast<uint64_t>(columns * element_bytes) | reinterpret_cast<uintptr_t>(base);
  const auto include = [&](int64_t size, int64_t elements) {
    if (size > 1) bits |= static_cast<uint64_t>(elements * element_bytes);
  };
  include(batch, stride.batch);
  include(heads, stride.head);
  include(rows, stride.seq);
  return bits;
}

// The outermost and the sequence dimension of k and v: batch entries and their keys or, with a block table, pages and
// the keys of a page.
inline int64_t kv_entries(const SplitKParams& p) { return p.block_table == nullptr ? p.entries : p.num_pages; }
inline int64_t kv_rows(const SplitKParams& p) { return p.block_table == nullptr ? p.Skv : p.page_size; }

constexpr int BY_ELEMENT = 2;  // the copy_width of one element of 16 bits, and of elements of 8

// The widest copy, in bytes, that all rows of k and v can be cut into: 16, 8, 4 or BY_ELEMENT. Of 8-bit elements it is
// 16 or BY_ELEMENT: the two run different kernels, whose bits differ. So the batch stride counts even if B is 1, and a
// single entry has the bits that it has in a larger batch.
inline int copy_width(const SplitKParams& p) {
  if ((p.D > 1 && p.k_stride.dim != 1) || (p.Dv > 1 && p.v_stride.dim != 1)) return BY_ELEMENT;
  const auto bits_of = [&](const void* base, const Strides4& stride, int64_t columns) {
    return alignment_bits(base, stride, kv_entries(p), p.Hkv, kv_rows(p), columns, kv_element_bytes(p));
  };
  const uint64_t bits = bits_of(p.k, p.k_stride, p.D) | bits_of(p.v, p.v_stride, p.Dv);
  if (is_fp8(p)) {
    return (bits | static_cast<uint64_t>(p.k_stride.batch | p.v_stride.batch)) % 16 == 0 ? 16 : BY_ELEMENT;
  }
  if (bits % 16 == 0) return 16;
  return bits % 8 == 0 ? 8 : bits % 4 == 0 ? 4 : BY_ELEMENT;
}

// Whether the paged kernels take k and v: rows copy 16 bytes at a time, and 32 bits hold the bytes from page to page
// and from row to row. The unaligned kernels take any pages.
inline bool pages_are_regular(const SplitKParams& p) {
  const auto fits = [&](int64_t elements) {
    return elements >= 0 && elements * kv_element_bytes(p) < int64_t{1} << 32;
  };
  return copy_width(p) == 16 && fits(p.k_stride.batch) && fits(p.k_stride.seq) && fits(p.v_stride.batch) &&
         fits(p.v_stride.seq);
}

// Rows in pages are copied 16 bytes at a time or element by element.
inline bool copies_by_element(const SplitKParams& p) {
  return p.block_table == nullptr ? copy_width(p) == BY_ELEMENT : !pages_are_regular(p);
}

// Whether rows of q are copied 16 bytes at a time, or else element by element.
inline bool q_is_aligned(const SplitKParams& p) {
  return p.q_stride.dim == 1 && alignment_bits(p.q, p.q_stride, p.B, p.H, p.Sq, p.D, ELEMENT_BYTES) % 16 == 0;
}

// Whether finished rows of wgmma store 16 bytes at a time.
inline bool out_is_aligned(const SplitKParams& p) {
  return p.out_stride.dim == 1 &&
         alignment_bits(p.out, p.out_stride, p.B, p.H, p.Sq, p.Dv, ELEMENT_BYTES) % 16 == 0;
}

constexpr int64_t LEAST_TMA_PAGE = 16;  // keys; smaller pages would need too many requests for each key block

// Whether TMA can read this k or v of 16 bits, [B, Hkv, Skv, columns] or [pages, Hkv, page_size, columns] by strides. If Skv or Hkv is 1, its
// stride is not used and may be anything. The batch stride must be valid even if B is 1, so that one entry is planned
// as it is in a larger batch. If the stride of batch entries or heads is 0, the tensor map has one index for all of
// them; that of pages must not be 0, since the page after the last one stands for "no page".
inline bool tma_reads(const void* base, const Strides4& stride, const SplitKParams& p) {
  constexpr int64_t MAX_SIZE = int64_t{1} << 31;  // coordinates are 32 bits with a sign
  const int64_t rows = kv_rows(p);
  if (rows == 0 || kv_entries(p) == 0 || stride.dim != 1 || reinterpret_cast<uintptr_t>(base) % 16 != 0) return false;
  if (p.block_table != nullptr && (rows < LEAST_TMA_PAGE || stride.batch == 0)) return false;
  const auto valid = [](int64_t elements) { return elements >= 0 && elements * ELEMENT_BYTES % 16 == 0; };
  return rows <= MAX_SIZE && p.Hkv <= MAX_SIZE && kv_entries(p) < MAX_SIZE &&
         (rows == 1 || (stride.seq > 0 && valid(stride.seq))) && (p.Hkv == 1 || valid(stride.head)) &&
         valid(stride.batch);
}

inline bool tma_reads(const SplitKParams& p) {
  return !is_fp8(p) && tma_reads(p.k, p.k_stride, p) && tma_reads(p.v, p.v_stride, p);
}

}  // namespace kbtool::cuda
