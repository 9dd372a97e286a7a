// How many bytes of a row of q, k and v one copy can take.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "../../params.h"

namespace kbtool::cuda {

// The widest load, in bytes, that every row of q, k and v is made of: 16, 8, 4 or 2 (one element).
inline int copy_width(const SplitKParams& p) {
  constexpr int64_t ELEMENT_BYTES = 2;
  if (p.D > 1 && (p.k_stride.dim != 1 || p.v_stride.dim != 1)) return ELEMENT_BYTES;
  // The row itself must be a multiple of the width: a copy never crosses its end.
  uint64_t bits = static_cast<uint64_t>(p.D * ELEMENT_BYTES) | reinterpret_cast<uintptr_t>(p.k) |
                  reinterpret_cast<uintptr_t>(p.v);
  const auto include = [&](int64_t size, int64_t stride) {
    if (size > 1) bits |= static_cast<uint64_t>(stride * ELEMENT_BYTES);
  };
  for (const Strides4& stride : {p.k_stride, p.v_stride}) {
    include(p.B, stride.batch);
    include(p.Hkv, stride.head);
    include(p.Skv, stride.seq);
  }
  // Rows of q are copied 16 bytes at a time or element by element.
  uint64_t q_bits = bits | reinterpret_cast<uintptr_t>(p.q);
  for (const int64_t stride : {p.q_stride.batch, p.q_stride.head, p.q_stride.seq}) {
    q_bits |= static_cast<uint64_t>(stride * ELEMENT_BYTES);
  }
  if (q_bits % 16 == 0 && p.q_stride.dim == 1) return 16;
  if (bits % 8 == 0) return 8;
  if (bits % 4 == 0) return 4;
  return ELEMENT_BYTES;
}

}  // namespace kbtool::cuda
