// The operators of the folder, in torch.ops.kbtool, and the only source that sees torch. It uses
// nothing but the LibTorch Stable ABI (2.10), so one binary serves later versions of torch.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "cpu/kernels.h"
#include "num_splits.h"
#include "params.h"
#include "text.h"

namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

// ---- argument errors: which argument, what it takes, what it got ----

template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  kbtool::Text message;
  message << "split_k_attention: ";
  (message << ... << parts);
  throw std::invalid_argument(message.str());
}

std::string shape_of(const Tensor& t) {
  kbtool::Text text;
  text << "(";
  for (int64_t i = 0; i < t.dim(); ++i) text << (i == 0 ? "" : ", ") << t.size(i);
  text << ")";
  return text.str();
}

std::string type_of(const Tensor& t) { return torch::headeronly::toString(t.scalar_type()); }

std::string device_of(const Tensor& t) {
  const torch::stable::Device device = t.device();
  kbtool::Text text;
  text << (device.is_cpu() ? "cpu" : device.is_cuda() ? "cuda" : "a device of another type");
  if (device.is_cuda()) text << ":" << static_cast<int>(device.index());
  return text.str();
}

void check_same_place(const char* name, const Tensor& t, const Tensor& q) {
  if (t.device() != q.device()) {
    fail(name, " must be on the device of q (", device_of(q), "), got ", device_of(t));
  }
}

void check_operand(const char* name, const char* layout, const Tensor& t, const Tensor& q) {
  if (t.dim() != 4) {
    fail(name, " must have 4 dimensions ", layout, ", got ", t.dim(), ": ", shape_of(t));
  }
  check_same_place(name, t, q);
  if (t.scalar_type() != q.scalar_type()) {
    fail(name, " must have the dtype of q (", type_of(q), "), got ", type_of(t));
  }
}

void check_size(const char* name, const char* dimension, int64_t got, int64_t wanted,
                const char* reason) {
  if (got == wanted) return;
  fail(name, " must have ", dimension, "=", wanted, " (", reason, "), got ", got);
}

void check_operands(const Tensor& q, const Tensor& k, const Tensor& v) {
  check_operand("q", "(B, H, Sq, D)", q, q);
  check_operand("k", "(B, Hkv, Skv, D)", k, q);
  check_operand("v", "(B, Hkv, Skv, D)", v, q);
  switch (q.scalar_type()) {
    case ScalarType::Float:
    case ScalarType::Half:
    case ScalarType::BFloat16:
      break;
    default:
      fail("q must be Float, Half or BFloat16, got ", type_of(q));
  }
  if (q.size(3) < 1) fail("q must have D of at least 1, got shape ", shape_of(q));
  check_size("k", "B", k.size(0), q.size(0), "as q");
  check_size("k", "D", k.size(3), q.size(3), "as q");
  check_size("v", "B", v.size(0), q.size(0), "as q");
  check_size("v", "Hkv", v.size(1), k.size(1), "as k");
  check_size("v", "Skv", v.size(2), k.size(2), "as k");
  check_size("v", "D", v.size(3), q.size(3), "as q");
  const int64_t H = q.size(1);
  const int64_t Hkv = k.size(1);
  if (Hkv == 0 ? H != 0 : H % Hkv != 0) {
    fail("the heads of q must be a multiple of the heads of k and v, got H=", H, " and Hkv=", Hkv);
  }
}

// An output may have any strides, as long as no two elements share a place.
void check_output(const char* name, const Tensor& t, const Tensor& q, ScalarType type,
                  const std::vector<int64_t>& shape) {
  check_same_place(name, t, q);
  if (t.scalar_type() != type) {
    fail(name, " must be ", torch::headeronly::toString(type), ", got ", type_of(t));
  }
  const int64_t dims = static_cast<int64_t>(shape.size());
  bool matches = t.dim() == dims;
  for (int64_t i = 0; matches && i < dims; ++i) matches = t.size(i) == shape[i];
  if (!matches) {
    kbtool::Text wanted;
    for (const int64_t size : shape) wanted << (wanted.str().empty() ? "" : ", ") << size;
    fail(name, " must have shape (", wanted.str(), "), got ", shape_of(t));
  }
  for (int64_t i = 0; i < dims; ++i) {
    if (shape[i] > 1 && t.stride(i) == 0) {
      fail(name, " must not be expanded: dimension ", i, " has stride 0, and its ", shape[i],
           " elements share one place");
    }
  }
}

std::vector<int64_t> read_lengths(const Tensor& lengths, const Tensor& q, int64_t Skv) {
  const int64_t B = q.size(0);
  check_same_place("kv_lengths", lengths, q);
  const ScalarType type = lengths.scalar_type();
  if (type != ScalarType::Int && type != ScalarType::Long) {
    fail("kv_lengths must be Int or Long, got ", type_of(lengths));
  }
  if (lengths.dim() != 1 || lengths.size(0) != B) {
    fail("kv_lengths must have shape (B,) = (", B, ",), got ", shape_of(lengths));
  }
  std::vector<int64_t> valid(B);
  for (int64_t b = 0; b < B; ++b) {
    const int64_t at = b * lengths.stride(0);
    valid[b] = type == ScalarType::Int ? static_cast<const int32_t*>(lengths.const_data_ptr())[at]
                                       : static_cast<const int64_t*>(lengths.const_data_ptr())[at];
    if (valid[b] < 0 || valid[b] > Skv) {
      fail("kv_lengths must lie in [0, Skv] = [0, ", Skv, "], got ", valid[b], " at ", b);
    }
  }
  return valid;
}

// ---- the plan: how many splits, and the workspace they need ----

int64_t plan_num_splits(const Tensor& q, const Tensor& k, std::optional<int64_t> num_splits) {
  if (num_splits.has_value()) {
    if (*num_splits < 1 || *num_splits > kbtool::MAX_NUM_SPLITS) {
      fail("num_splits must lie in [1, ", kbtool::MAX_NUM_SPLITS, "], got ", *num_splits);
    }
    return *num_splits;
  }
  const int64_t tiles =
      q.size(0) * k.size(1) * kbtool::cpu::query_tiles(q.size(1), k.size(1), q.size(2));
  return kbtool::choose_num_splits(tiles, k.size(2), kbtool::cpu::NOMINAL_WORKERS,
                                   kbtool::cpu::MIN_KEYS);
}

// Floats: D weighted values, a maximum and a sum for each row and split.
int64_t workspace_numel(const Tensor& q, int64_t num_splits) {
  return num_splits == 1 ? 0 : num_splits * q.size(0) * q.size(1) * q.size(2) * (q.size(3) + 2);
}

// ---- running ----

kbtool::Strides4 strides4(const Tensor& t) {
  return {t.stride(0), t.stride(1), t.stride(2), t.stride(3)};
}

// Kept from call to call: pages that are touched for the first time cost more than a short kernel.
float* thread_scratch(int64_t numel) {
  constexpr size_t ALIGNMENT = 64;
  struct Free {
    void operator()(float* p) const { std::free(p); }
  };
  thread_local std::unique_ptr<float, Free> scratch;
  thread_local int64_t capacity = 0;
  if (numel > capacity) {
    const size_t bytes = (numel * sizeof(float) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    scratch.reset(static_cast<float*>(std::aligned_alloc(ALIGNMENT, bytes)));
    capacity = scratch ? numel : 0;
  }
  return scratch.get();
}

kbtool::cpu::Kernels kernels_for(ScalarType type) {
  switch (type) {
    case ScalarType::Half:
      return kbtool::cpu::kernels_fp16();
    case ScalarType::BFloat16:
      return kbtool::cpu::kernels_bf16();
    default:
      return kbtool::cpu::kernels_fp32();
  }
}

// Runs body(i, scratch) for i in [0, count) on torch's own threads. Each thread takes the next
// index when it is free: which thread computes an item changes nothing in the result.
template <class Body>
void for_each_item(int64_t count, int64_t scratch_numel, const Body& body) {
  std::atomic<int64_t> next{0};
  std::atomic<bool> out_of_memory{false};
  const int64_t workers = std::min<int64_t>(count, torch::stable::get_num_threads());
  torch::stable::parallel_for(0, workers, 1, [&](int64_t, int64_t) {
    float* scratch = thread_scratch(scratch_numel);
    if (scratch == nullptr) {
      out_of_memory = true;
      return;
    }
    for (int64_t i = next++; i < count; i = next++) body(i, scratch);
  });
  if (out_of_memory) fail("out of memory for ", scratch_numel * sizeof(float), " bytes of scratch");
}

void run_cpu(const kbtool::SplitKParams& p, ScalarType type) {
  const kbtool::cpu::Kernels kernels = kernels_for(type);
  const int64_t scratch = kernels.scratch_numel(p);
  for_each_item(kbtool::cpu::num_items(p), scratch,
                [&](int64_t item, float* mine) { kernels.partial(p, item, mine); });
  if (p.num_splits == 1) return;

  // A merge of few rows stays on the calling thread: waking the others would take longer.
  constexpr int64_t FLOATS_PER_ITEM = 1 << 16;
  const int64_t rows = p.B * p.H * p.Sq;
  const int64_t rows_per_item = std::max<int64_t>(1, FLOATS_PER_ITEM / (p.num_splits * p.D));
  for_each_item(kbtool::ceil_div(rows, rows_per_item), scratch, [&](int64_t item, float* mine) {
    const int64_t begin = item * rows_per_item;
    kernels.merge(p, begin, std::min(begin + rows_per_item, rows), mine);
  });
}

void attend(const Tensor& q, const Tensor& k, const Tensor& v, bool causal,
            std::optional<double> scale, int64_t num_splits,
            const std::optional<Tensor>& kv_lengths, const Tensor& out, const Tensor& lse,
            const Tensor& workspace) {
  kbtool::SplitKParams p{};
  p.B = q.size(0);
  p.H = q.size(1);
  p.Hkv = k.size(1);
  p.Sq = q.size(2);
  p.Skv = k.size(2);
  p.D = q.size(3);
  std::vector<int64_t> lengths;
  if (kv_lengths.has_value()) {
    lengths = read_lengths(*kv_lengths, q, p.Skv);
    p.kv_lengths = lengths.data();
  }
  const int64_t rows = p.B * p.H * p.Sq;
  if (rows == 0) return;

  p.q = q.const_data_ptr();
  p.k = k.const_data_ptr();
  p.v = v.const_data_ptr();
  p.out = out.mutable_data_ptr();
  p.lse = static_cast<float*>(lse.mutable_data_ptr());
  p.q_stride = strides4(q);
  p.k_stride = strides4(k);
  p.v_stride = strides4(v);
  p.out_stride = strides4(out);
  p.lse_stride = {lse.stride(0), lse.stride(1), lse.stride(2)};
  p.num_splits = num_splits;
  p.scale = static_cast<float>(scale.value_or(1.0 / std::sqrt(static_cast<double>(p.D))));
  p.causal = causal;
  if (num_splits > 1) {
    p.partial_o = static_cast<float*>(workspace.mutable_data_ptr());
    p.partial_m = p.partial_o + num_splits * rows * p.D;
    p.partial_l = p.partial_m + num_splits * rows;
  }
  run_cpu(p, q.scalar_type());
}

// ---- the operators ----

std::tuple<Tensor, Tensor> split_k_attention(Tensor q, Tensor k, Tensor v, bool causal,
                                             std::optional<double> scale,
                                             std::optional<int64_t> num_splits,
                                             std::optional<Tensor> kv_lengths) {
  check_operands(q, k, v);
  const int64_t splits = plan_num_splits(q, k, num_splits);
  Tensor out = torch::stable::new_empty(q, {q.size(0), q.size(1), q.size(2), q.size(3)});
  Tensor lse =
      torch::stable::new_empty(q, {q.size(0), q.size(1), q.size(2)}, ScalarType::Float);
  Tensor workspace =
      torch::stable::new_empty(q, {workspace_numel(q, splits)}, ScalarType::Float);
  attend(q, k, v, causal, scale, splits, kv_lengths, out, lse, workspace);
  return {out, lse};
}

void split_k_attention_out(Tensor q, Tensor k, Tensor v, bool causal, std::optional<double> scale,
                           std::optional<int64_t> num_splits, std::optional<Tensor> kv_lengths,
                           Tensor out, Tensor lse, Tensor workspace) {
  check_operands(q, k, v);
  const int64_t splits = plan_num_splits(q, k, num_splits);
  check_output("out", out, q, q.scalar_type(), {q.size(0), q.size(1), q.size(2), q.size(3)});
  check_output("lse", lse, q, ScalarType::Float, {q.size(0), q.size(1), q.size(2)});
  check_same_place("workspace", workspace, q);
  const int64_t needed = workspace_numel(q, splits);
  if (workspace.scalar_type() != ScalarType::Float || workspace.dim() != 1 ||
      !workspace.is_contiguous() || workspace.numel() < needed) {
    fail("workspace must be a contiguous Float tensor of 1 dimension and at least ", needed,
         " elements, got ", type_of(workspace), " ", shape_of(workspace));
  }
  attend(q, k, v, causal, scale, splits, kv_lengths, out, lse, workspace);
}

std::tuple<int64_t, int64_t> split_k_attention_plan(Tensor q, Tensor k,
                                                    std::optional<int64_t> num_splits) {
  check_operands(q, k, k);
  const int64_t splits = plan_num_splits(q, k, num_splits);
  return {splits, workspace_numel(q, splits)};
}

int64_t split_k_attention_num_splits(int64_t tiles, int64_t kv_length, int64_t workers,
                                     int64_t min_keys) {
  if (workers < 1) fail("workers must be at least 1, got ", workers);
  if (min_keys < 1) fail("min_keys must be at least 1, got ", min_keys);
  return kbtool::choose_num_splits(tiles, kv_length, workers, min_keys);
}

}  // namespace

STABLE_TORCH_LIBRARY(kbtool, m) {
  m.def(
      "split_k_attention(Tensor q, Tensor k, Tensor v, *, bool causal=False, float? scale=None, "
      "int? num_splits=None, Tensor? kv_lengths=None) -> (Tensor, Tensor)");
  m.def(
      "split_k_attention_out(Tensor q, Tensor k, Tensor v, *, bool causal=False, "
      "float? scale=None, int? num_splits=None, Tensor? kv_lengths=None, Tensor(a!) out, "
      "Tensor(b!) lse, Tensor(c!) workspace) -> ()");
  m.def("split_k_attention_plan(Tensor q, Tensor k, *, int? num_splits=None) -> (int, int)");
  m.def(
      "split_k_attention_num_splits(int tiles, int kv_length, int workers, int min_keys) -> int");
}

STABLE_TORCH_LIBRARY_IMPL(kbtool, CPU, m) {
  m.impl("split_k_attention", TORCH_BOX(&split_k_attention));
  m.impl("split_k_attention_out", TORCH_BOX(&split_k_attention_out));
  m.impl("split_k_attention_plan", TORCH_BOX(&split_k_attention_plan));
}

STABLE_TORCH_LIBRARY_IMPL(kbtool, CompositeExplicitAutograd, m) {
  m.impl("split_k_attention_num_splits", TORCH_BOX(&split_k_attention_num_splits));
}
