// The pages of a batch entry, by its row of the block table. With a block table there are lengths, so that the kernel
// has waited for the one ahead (PDL) before it looks into either.
#pragma once

#include "fused_params.h"

namespace kbtool::cuda {

class Pages {
 public:
  __device__ __forceinline__ Pages(const FusedParams& fp, int64_t batch)
      : table_(fp.p.block_table + batch * fp.p.block_table_stride), shift_(fp.page_shift) {}

  __device__ __forceinline__ int size() const { return 1 << shift_; }
  // Loaded by ld.cg, not the read-only path: the kernel ahead may have written the table after this one started.
  __device__ __forceinline__ int of(int64_t key) const { return __ldcg(table_ + (key >> shift_)); }
  // The key's row in its page.
  __device__ __forceinline__ int inside(int64_t key) const { return static_cast<int>(key) & (size() - 1); }

 private:
  const int* table_;
  int shift_;
};

// A key's row of k or v, by its strides.
template <class Element>
__device__ __forceinline__ const Element* kv_row(const FusedParams& fp, const void* base, const Strides4& stride,
                                                 int64_t batch, int64_t head_kv, int64_t key) {
  const Element* head = static_cast<const Element*>(base) + head_kv * stride.head;
  if (fp.p.block_table == nullptr) return head + batch * stride.batch + key * stride.seq;
  const Pages pages(fp, batch);
  return head + pages.of(key) * stride.batch + pages.inside(key) * stride.seq;
}

}  // namespace kbtool::cuda
