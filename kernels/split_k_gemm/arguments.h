// Checks of the operator's arguments, for every device.
#pragma once

#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

#include "params.h"

namespace split_k_gemm {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

[[noreturn]] inline void fail(const std::string& message) {
  throw std::invalid_argument("split_k_gemm: " + message);
}

inline std::string shape_of(const Tensor& t) {
  std::string text = "(";
  for (int64_t i = 0; i < t.dim(); ++i) text += (i ? ", " : "") + std::to_string(t.size(i));
  return text + ")";
}

inline void check_matrix(const char* name, const char* shape, const Tensor& t) {
  const std::string is = name;
  if (t.dim() != 2) fail(is + " must have shape " + shape + ", got " + shape_of(t));
  const ScalarType type = t.scalar_type();
  if (type != ScalarType::Half && type != ScalarType::BFloat16) {
    fail(is + " must be Half or BFloat16, got " + torch::headeronly::toString(type));
  }
  if (t.size(1) > 1 && t.stride(1) != 1) {
    fail(is + " must have contiguous rows, got a last stride of " + std::to_string(t.stride(1)));
  }
}

// What a device takes at most.
struct Limits {
  int64_t splits;
  int64_t rows;  // of x
};

// Checks x and w and makes the output.
inline Params checked(const Tensor& x, const Tensor& w, std::optional<int64_t> num_splits, Limits most,
                      Tensor* out) {
  check_matrix("x", "(M, K)", x);
  check_matrix("w", "(N, K)", w);
  if (x.device() != w.device()) fail("x and w must be on one device");
  if (x.scalar_type() != w.scalar_type()) {
    fail(std::string("w must have the dtype of x (") + torch::headeronly::toString(x.scalar_type()) +
         "), got " + torch::headeronly::toString(w.scalar_type()));
  }
  if (x.size(1) != w.size(1)) {
    fail("w must have K=" + std::to_string(x.size(1)) + " (as x), got " + std::to_string(w.size(1)));
  }
  if (num_splits && (*num_splits < 1 || *num_splits > most.splits)) {
    fail("num_splits must lie in [1, " + std::to_string(most.splits) + "], got " + std::to_string(*num_splits));
  }
  if (x.size(0) > most.rows) {
    fail("x must have at most " + std::to_string(most.rows) + " rows, got " + std::to_string(x.size(0)));
  }
  *out = torch::stable::new_empty(x, {x.size(0), w.size(0)});
  return {x.const_data_ptr(), w.const_data_ptr(), out->mutable_data_ptr(), x.size(0), w.size(0), x.size(1),
          x.stride(0),        w.stride(0)};
}

}  // namespace split_k_gemm
