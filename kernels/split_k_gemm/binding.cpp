// Registers torch.ops.split_k_gemm.split_k_gemm: its schema and the CPU implementation. Only the LibTorch
// Stable ABI (2.10) is used, so one library serves later versions of torch.
#include <torch/csrc/stable/library.h>

#include "arguments.h"
#include "cpu/gemm.h"

namespace {

using split_k_gemm::ScalarType;
using split_k_gemm::Tensor;

Tensor on_cpu(const Tensor& x, const Tensor& w, std::optional<int64_t> num_splits) {
  Tensor out = x;
  const split_k_gemm::Params p =
      split_k_gemm::checked(x, w, num_splits, {split_k_gemm::cpu::MAX_SPLITS, INT64_MAX}, &out);
  split_k_gemm::cpu::gemm(p, x.scalar_type() == ScalarType::Half,
                          num_splits.value_or(split_k_gemm::cpu::choose_splits(p)));
  return out;
}

}  // namespace

STABLE_TORCH_LIBRARY(split_k_gemm, m) {
  m.def("split_k_gemm(Tensor x, Tensor w, *, int? num_splits=None) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(split_k_gemm, CPU, m) { m.impl("split_k_gemm", TORCH_BOX(&on_cpu)); }
