// Checks of the operators' arguments, for every device. An error says which argument is wrong, what
// it takes and what it got.
#pragma once

#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "num_splits.h"
#include "text.h"

namespace kbtool {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  Text message;
  message << "split_k_attention: ";
  (message << ... << parts);
  throw std::invalid_argument(message.str());
}

inline std::string text_of(const std::vector<int64_t>& shape) {
  Text text;
  text << "(";
  for (size_t i = 0; i < shape.size(); ++i) text << (i == 0 ? "" : ", ") << shape[i];
  text << ")";
  return text.str();
}

inline std::vector<int64_t> shape_of(const Tensor& t) {
  std::vector<int64_t> shape(t.dim());
  for (int64_t i = 0; i < t.dim(); ++i) shape[i] = t.size(i);
  return shape;
}

inline std::vector<int64_t> strides_of(const Tensor& t) {
  return {t.strides().begin(), t.strides().end()};
}

inline std::string type_of(const Tensor& t) {
  return torch::headeronly::toString(t.scalar_type());
}

inline std::string device_of(const Tensor& t) {
  const torch::stable::Device device = t.device();
  Text text;
  text << (device.is_cpu() ? "cpu" : device.is_cuda() ? "cuda" : "a device of another type");
  if (device.is_cuda()) text << ":" << static_cast<int>(device.index());
  return text.str();
}

// The options of a call, as in the schema of split_k_attention.
struct CallOptions {
  bool causal = false;
  std::optional<double> scale;
  std::optional<int64_t> num_splits;
  std::optional<Tensor> kv_lengths;
  std::optional<Tensor> block_table;
  std::optional<int64_t> window;
  std::optional<double> softcap;
  std::optional<Tensor> sinks;
  std::optional<Tensor> k_scale;
  std::optional<Tensor> v_scale;
  std::optional<Tensor> cu_seqlens_q;
  std::optional<int64_t> max_seqlen_q;
  std::optional<Tensor> tree_mask;
  std::optional<std::string> variant;
  std::optional<bool> overlap;
};

// Queries are (B, H, Sq, D) or, with cu_seqlens_q, packed: (total_q, H, D).
inline bool is_packed(const CallOptions& options) { return options.cu_seqlens_q.has_value(); }

inline int64_t num_entries(const Tensor& q, const CallOptions& options) {
  return is_packed(options) ? options.cu_seqlens_q->size(0) - 1 : q.size(0);
}

inline int64_t head_dim(const Tensor& t) { return t.size(t.dim() - 1); }

// Queries of a batch entry, at most.
inline int64_t max_queries(const Tensor& q, const CallOptions& options) {
  return is_packed(options) ? *options.max_seqlen_q : q.size(2);
}

// Keys of a batch entry by the shapes: Skv, or what the pages of an entry hold.
inline int64_t num_keys(const Tensor& k, const CallOptions& options) {
  return options.block_table.has_value() ? options.block_table->size(1) * k.size(2) : k.size(2);
}

// Keys of a batch entry that some of so many neighbouring queries may see.
inline int64_t num_keys_seen(const Tensor& k, const CallOptions& options, int64_t queries) {
  const int64_t keys = num_keys(k, options);
  if (!options.window.has_value()) return keys;
  return std::min(keys, std::min(keys, *options.window) + std::max<int64_t>(queries, 1) - 1);
}

// `first` is the name of `of`, on whose device `t` must be.
inline void check_same_place(const char* name, const Tensor& t, const Tensor& of,
                             const char* first = "q") {
  if (t.device() != of.device()) {
    fail(name, " must be on the device of ", first, " (", device_of(of), "), got ", device_of(t));
  }
}

inline void check_operand(const char* name, const char* layout, int64_t dimensions, const Tensor& t,
                          const Tensor& q) {
  if (t.dim() != dimensions) {
    fail(name, " must have ", dimensions, " dimensions ", layout, ", got ", t.dim(), ": ",
         text_of(shape_of(t)));
  }
  check_same_place(name, t, q);
}

inline bool is_fp8(ScalarType type) {
  return type == ScalarType::Float8_e4m3fn || type == ScalarType::Float8_e5m2;
}

// Keys and values have the dtype of the queries. Beside queries of 16 bits they may both have one 8-bit type.
inline void check_dtypes(const Tensor& q, const Tensor& k, const Tensor& v) {
  const ScalarType type = k.scalar_type();
  const bool may_be_fp8 = q.scalar_type() == ScalarType::Half || q.scalar_type() == ScalarType::BFloat16;
  if (type != q.scalar_type() && !(may_be_fp8 && is_fp8(type))) {
    fail("k must have the dtype of q (", type_of(q), ")",
         may_be_fp8 ? ", Float8_e4m3fn or Float8_e5m2" : "", ", got ", type_of(k));
  }
  if (v.scalar_type() != type) fail("v must have the dtype of k (", type_of(k), "), got ", type_of(v));
}

inline void check_size(const char* name, const char* dimension, int64_t got, int64_t wanted,
                       const char* reason) {
  if (got == wanted) return;
  fail(name, " must have ", dimension, "=", wanted, " (", reason, "), got ", got);
}

constexpr int64_t MAX_PAGE_SIZE = 256;

// For errors that a forgotten transpose of the pages may be behind.
inline const char* layout_hint(bool paged) {
  return paged ? "; with a block_table, k and v are (pages, Hkv, page_size, D): call .transpose(1, 2) on"
                 " pages stored as (pages, page_size, Hkv, D)"
               : "";
}

constexpr int64_t MAX_QUERIES = (int64_t{1} << 31) - 1;  // of an entry of packed queries

// Where each entry's queries begin in packed ones. The CPU checks the values in check_packed; CUDA clamps them.
inline void check_cu_seqlens(const Tensor& q, const CallOptions& options) {
  if (!is_packed(options)) {
    if (options.max_seqlen_q.has_value()) fail("max_seqlen_q must come with cu_seqlens_q, got None");
    return;
  }
  const Tensor& bounds = *options.cu_seqlens_q;
  check_same_place("cu_seqlens_q", bounds, q);
  if (bounds.scalar_type() != ScalarType::Int) {
    fail("cu_seqlens_q must be torch.int32, got ", type_of(bounds), "; call .int() on it");
  }
  if (bounds.dim() != 1 || bounds.size(0) < 1 || !bounds.is_contiguous()) {
    fail("cu_seqlens_q must be contiguous, of shape (B + 1,), got shape ", text_of(shape_of(bounds)),
         " with strides ", text_of(strides_of(bounds)));
  }
  if (!options.max_seqlen_q.has_value()) fail("max_seqlen_q must come with cu_seqlens_q, got None");
  if (*options.max_seqlen_q < 0 || *options.max_seqlen_q > MAX_QUERIES) {
    fail("max_seqlen_q must lie in [0, ", MAX_QUERIES, "], got ", *options.max_seqlen_q);
  }
}

// Checks of q, k and v for every device. Element types and head dimensions: see each device's check.
inline void check_operands(const Tensor& q, const Tensor& k, const Tensor& v, const CallOptions& options) {
  const bool paged = options.block_table.has_value();
  const bool packed = is_packed(options);
  check_operand("q", packed ? "(total_q, H, D)" : "(B, H, Sq, D)", packed ? 3 : 4, q, q);
  check_operand("k", paged ? "(pages, Hkv, page_size, D)" : "(B, Hkv, Skv, D)", 4, k, q);
  check_operand("v", paged ? "(pages, Hkv, page_size, Dv)" : "(B, Hkv, Skv, Dv)", 4, v, q);
  check_dtypes(q, k, v);
  const int64_t D = head_dim(q);
  if (D < 1) fail("q must have D of at least 1, got shape ", text_of(shape_of(q)));
  if (!paged) {
    check_size("k", "B", k.size(0), num_entries(q, options), packed ? "entries of cu_seqlens_q" : "as q");
  }
  check_size("k", "D", k.size(3), D, "as q");
  check_size("v", paged ? "pages" : "B", v.size(0), k.size(0), paged ? "as k" : "as q");
  check_size("v", "Hkv", v.size(1), k.size(1), "as k");
  check_size("v", paged ? "page_size" : "Skv", v.size(2), k.size(2), "as k");
  if (v.size(3) < 1) fail("v must have Dv of at least 1, got shape ", text_of(shape_of(v)));
  const int64_t page_size = k.size(2);
  if (paged && (page_size < 1 || page_size > MAX_PAGE_SIZE || (page_size & (page_size - 1)) != 0)) {
    fail("k must have a page_size that is a power of two, 1 to ", MAX_PAGE_SIZE, ", got ", page_size,
         layout_hint(paged));
  }
  const int64_t H = q.size(1);
  const int64_t Hkv = k.size(1);
  if (Hkv == 0 ? H != 0 : H % Hkv != 0) {
    fail("the heads of q must be a multiple of the heads of k and v, got H=", H, " and Hkv=", Hkv,
         layout_hint(paged));
  }
}

inline void check_num_splits(std::optional<int64_t> num_splits) {
  if (num_splits.has_value() && (*num_splits < 1 || *num_splits > MAX_NUM_SPLITS)) {
    fail("num_splits must lie in [1, ", MAX_NUM_SPLITS, "], got ", *num_splits);
  }
}

// Device, dtype and shape: the CPU checks the values in read_lengths, and CUDA clamps them in valid_keys.
inline void check_lengths(const Tensor& lengths, const Tensor& q, int64_t B) {
  check_same_place("kv_lengths", lengths, q);
  const ScalarType type = lengths.scalar_type();
  if (type != ScalarType::Int && type != ScalarType::Long) {
    fail("kv_lengths must be Int or Long, got ", type_of(lengths));
  }
  if (lengths.dim() != 1 || lengths.size(0) != B) {
    fail("kv_lengths must have shape (B,) = (", B, ",), got ", text_of(shape_of(lengths)));
  }
}

// Which page each key is in. The CPU checks the entries in check_pages; CUDA cannot.
inline void check_block_table(const Tensor& table, const Tensor& q, int64_t B) {
  check_same_place("block_table", table, q);
  if (table.scalar_type() != ScalarType::Int) {
    fail("block_table must be torch.int32, got ", type_of(table), "; call .int() on it");
  }
  if (table.dim() != 2 || table.size(0) != B) {
    fail("block_table must have shape (B, pages of an entry), B=", B, ", got ",
         text_of(shape_of(table)));
  }
  if (table.size(1) > 1 && table.stride(1) != 1) {
    fail("block_table must have a last stride of 1, got strides ", text_of(strides_of(table)),
         "; call .contiguous() on it");
  }
}

// Which of the last keys each query sees: words of 64 bits for each row of q.
inline void check_tree_mask(const Tensor& mask, const Tensor& q, const CallOptions& options) {
  check_same_place("tree_mask", mask, q);
  if (mask.scalar_type() != ScalarType::Long || !mask.is_contiguous()) {
    fail("tree_mask must be a contiguous Long tensor, got ", type_of(mask), " with strides ",
         text_of(strides_of(mask)));
  }
  const bool packed = is_packed(options);
  std::vector<int64_t> shape = packed ? std::vector<int64_t>{q.size(0)} : std::vector<int64_t>{q.size(0), q.size(2)};
  shape.push_back(mask.dim() > 0 ? mask.size(mask.dim() - 1) : 0);
  if (shape_of(mask) != shape || shape.back() < 1) {
    fail("tree_mask must have shape ", packed ? "(total_q, words)" : "(B, Sq, words)", " with at least one word, got ",
         text_of(shape_of(mask)));
  }
  if (!options.causal) fail("tree_mask must come with causal=True, got causal=False");
}

inline void check_sinks(const Tensor& sinks, const Tensor& q) {
  check_same_place("sinks", sinks, q);
  if (sinks.scalar_type() != ScalarType::Float || !sinks.is_contiguous()) {
    fail("sinks must be a contiguous Float tensor, got ", type_of(sinks), " with strides ",
         text_of(strides_of(sinks)));
  }
  if (sinks.dim() != 1 || sinks.size(0) != q.size(1)) {
    fail("sinks must have shape (H,) = (", q.size(1), ",), got ", text_of(shape_of(sinks)));
  }
}

// The scale of keys or of values: one for all heads, or one for each KV head.
inline void check_kv_scale(const char* name, const std::optional<Tensor>& scale, const Tensor& k) {
  if (!scale.has_value()) return;
  if (!is_fp8(k.scalar_type())) {
    fail(name, " must come with keys and values of 8 bits, got k of ", type_of(k));
  }
  check_same_place(name, *scale, k, "k");
  if (scale->scalar_type() != ScalarType::Float || !scale->is_contiguous()) {
    fail(name, " must be a contiguous Float tensor, got ", type_of(*scale), " with strides ",
         text_of(strides_of(*scale)), "; call .float().contiguous() on it");
  }
  const bool is_one = scale->dim() == 0 || (scale->dim() == 1 && scale->size(0) == 1);
  if (!is_one && (scale->dim() != 1 || scale->size(0) != k.size(1))) {
    fail(name, " must have shape (), (1,) or (Hkv,) = (", k.size(1), ",), got ",
         text_of(shape_of(*scale)));
  }
}

constexpr double MAX_SCALE = 2.3e38;    // times log2(e), it still fits a float
constexpr double MIN_SOFTCAP = 1.0e-37;  // its inverse still fits a float

// Checks of the options for every device, after those of the operands.
inline void check_options(const Tensor& q, const Tensor& k, const CallOptions& options) {
  const int64_t B = num_entries(q, options);
  check_num_splits(options.num_splits);
  if (options.kv_lengths.has_value()) check_lengths(*options.kv_lengths, q, B);
  if (options.block_table.has_value()) check_block_table(*options.block_table, q, B);
  if (options.sinks.has_value()) check_sinks(*options.sinks, q);
  if (options.tree_mask.has_value()) check_tree_mask(*options.tree_mask, q, options);
  check_kv_scale("k_scale", options.k_scale, k);
  check_kv_scale("v_scale", options.v_scale, k);
  // Each comparison is also false for NaN.
  if (options.scale.has_value() && !(std::fabs(*options.scale) <= MAX_SCALE)) {
    fail("scale must lie in [-2.3e38, 2.3e38], got ", *options.scale);
  }
  if (options.softcap.has_value() &&
      !(*options.softcap >= MIN_SOFTCAP && *options.softcap <= MAX_SCALE)) {
    fail("softcap must lie in [1e-37, 2.3e38], got ", *options.softcap, "; None is no softcap");
  }
  if (options.window.has_value()) {
    if (*options.window < 1) fail("window must be at least 1, got ", *options.window);
    if (!options.causal) fail("window must come with causal=True, got causal=False");
  }
}

// No two elements may share an address: threads would race for it. Each stride must exceed the largest
// offset that the dimensions of smaller strides reach together. That is sufficient, not necessary:
// some layouts that interleave without overlap are refused too.
inline void check_no_overlap(const char* name, const Tensor& t, const std::vector<int64_t>& shape) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return;  // no elements
  const auto strides = t.strides();
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1) continue;
    int64_t reach = 0;
    for (size_t j = 0; j < shape.size(); ++j) {
      const bool is_smaller = strides[j] < strides[i] || (strides[j] == strides[i] && j < i);
      if (is_smaller) reach += (shape[j] - 1) * strides[j];
    }
    if (strides[i] <= reach) {
      fail(name, " must not overlap itself, each stride beyond what smaller ones reach: got strides ",
           text_of(strides_of(t)), " for shape ", text_of(shape), ", where dimension ", i, " has stride ",
           strides[i], " and smaller ones reach ", reach);
    }
  }
}

// An output may have any strides that keep its elements apart.
inline void check_output(const char* name, const Tensor& t, const Tensor& q, ScalarType type,
                         const std::vector<int64_t>& shape) {
  check_same_place(name, t, q);
  if (t.scalar_type() != type) {
    fail(name, " must be ", torch::headeronly::toString(type), ", got ", type_of(t));
  }
  if (shape_of(t) != shape) {
    fail(name, " must have shape ", text_of(shape), ", got ", text_of(shape_of(t)));
  }
  check_no_overlap(name, t, shape);
}

inline void check_workspace(const Tensor& workspace, const Tensor& q, int64_t needed) {
  check_same_place("workspace", workspace, q);
  if (workspace.scalar_type() != ScalarType::Float || workspace.dim() != 1 ||
      !workspace.is_contiguous() || workspace.numel() < needed) {
    fail("workspace must be a contiguous Float tensor of 1 dimension and at least ", needed,
         " elements, got ", type_of(workspace), " ", text_of(shape_of(workspace)));
  }
}

// Outputs and LSEs of calls over parts of the keys.
inline void check_outputs(const Tensor& outs, const Tensor& lses) {
  const ScalarType type = outs.scalar_type();
  if (type != ScalarType::Float && type != ScalarType::Half && type != ScalarType::BFloat16) {
    fail("out must be Float, Half or BFloat16, got ", type_of(outs));
  }
  if (outs.dim() != 5 || outs.size(0) < 1 || outs.size(0) > MAX_NUM_SPLITS || outs.size(4) < 1) {
    fail("out must be (S, B, H, Sq, D) with S in [1, ", MAX_NUM_SPLITS, "], got shape ", text_of(shape_of(outs)));
  }
  check_same_place("lse", lses, outs, "out");
  std::vector<int64_t> rows = shape_of(outs);
  rows.pop_back();
  if (lses.scalar_type() != ScalarType::Float || shape_of(lses) != rows) {
    fail("lse must be Float of shape ", text_of(rows), ", got ", type_of(lses), " of shape ",
         text_of(shape_of(lses)));
  }
}

// States to merge: o [S, B, H, Sq, D], m and l [S, B, H, Sq], float32, contiguous.
inline void check_states(const Tensor& o, const Tensor& m, const Tensor& l) {
  if (o.dim() != 5) {
    fail("o must have 5 dimensions (S, B, H, Sq, D), got ", o.dim(), ": ", text_of(shape_of(o)));
  }
  const std::vector<int64_t> rows = {o.size(0), o.size(1), o.size(2), o.size(3)};
  const char* names[] = {"o", "m", "l"};
  const Tensor* states[] = {&o, &m, &l};
  for (int i = 0; i < 3; ++i) {
    check_same_place(names[i], *states[i], o, "o");
    if (states[i]->scalar_type() != ScalarType::Float) {
      fail(names[i], " must be Float, got ", type_of(*states[i]));
    }
    if (i > 0 && shape_of(*states[i]) != rows) {
      fail(names[i], " must have the shape of o without D, ", text_of(rows), ", got ",
           text_of(shape_of(*states[i])));
    }
    if (!states[i]->is_contiguous()) {
      fail(names[i], " must be contiguous, got strides ", text_of(strides_of(*states[i])),
           "; call .contiguous() on it");
    }
  }
  if (o.size(0) < 1 || o.size(0) > MAX_NUM_SPLITS) {
    fail("o must have S in [1, ", MAX_NUM_SPLITS, "], got shape ", text_of(shape_of(o)));
  }
  if (o.size(4) < 1) fail("o must have D of at least 1, got shape ", text_of(shape_of(o)));
}

[[noreturn]] inline void fail_variant(const std::string& got, const std::string& offered,
                                      const Tensor& q) {
  fail("variant must be one of ", offered, " on ", device_of(q), ", got '", got, "'");
}

}  // namespace kbtool
