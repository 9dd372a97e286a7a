// The CUDA implementations of the operators that binding.cpp defines, through the LibTorch Stable
// ABI (2.10).
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <cmath>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "../num_splits.h"
#include "../text.h"
#include "counters.h"
#include "launch.h"

// Declared by torch's shim only where it was built with CUDA headers; every CUDA build exports it.
extern "C" int32_t aoti_torch_get_current_cuda_stream(int32_t device_index, void** stream);

namespace {

using kbtool::cuda::Card;
using kbtool::cuda::ElementType;
using kbtool::cuda::Plan;
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

void check_cuda(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  kbtool::Text message;
  message << "split_k_attention: " << what << ": " << cudaGetErrorString(error) << " ("
          << cudaGetErrorName(error) << ")";
  throw std::runtime_error(message.str());
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
  if (!q.is_cuda()) fail("q must be on a CUDA device, got ", device_of(q));
  check_operand("k", "(B, Hkv, Skv, D)", k, q);
  check_operand("v", "(B, Hkv, Skv, D)", v, q);
  if (q.scalar_type() != ScalarType::Half && q.scalar_type() != ScalarType::BFloat16) {
    fail("q must be Half or BFloat16 on CUDA, got ", type_of(q));
  }
  if (q.size(3) < 1 || q.size(3) > kbtool::cuda::MAX_HEAD_DIM) {
    fail("q must have D in [1, ", kbtool::cuda::MAX_HEAD_DIM, "] on CUDA, got shape ",
         shape_of(q));
  }
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

// The values stay on the device, where each is held to [0, Skv].
kbtool::cuda::KvLengths lengths_of(const Tensor& lengths, const Tensor& q) {
  check_same_place("kv_lengths", lengths, q);
  const ScalarType type = lengths.scalar_type();
  if (type != ScalarType::Int && type != ScalarType::Long) {
    fail("kv_lengths must be Int or Long, got ", type_of(lengths));
  }
  if (lengths.dim() != 1 || lengths.size(0) != q.size(0)) {
    fail("kv_lengths must have shape (B,) = (", q.size(0), ",), got ", shape_of(lengths));
  }
  return {lengths.const_data_ptr(), lengths.stride(0), type == ScalarType::Long};
}

// ---- the plan ----

Card card_of(int device) {
  constexpr int MAX_DEVICES = 64;
  static std::once_flag once[MAX_DEVICES];
  static Card cards[MAX_DEVICES];
  if (device >= MAX_DEVICES) fail("more than ", MAX_DEVICES, " devices");
  std::call_once(once[device], [&] {
    check_cuda(kbtool::cuda::read_card(&cards[device]), "reading the card");
  });
  return cards[device];
}

Plan plan_of(const Tensor& q, const Tensor& k, std::optional<int64_t> num_splits) {
  if (num_splits.has_value() && (*num_splits < 1 || *num_splits > kbtool::MAX_NUM_SPLITS)) {
    fail("num_splits must lie in [1, ", kbtool::MAX_NUM_SPLITS, "], got ", *num_splits);
  }
  return kbtool::cuda::make_plan(q.size(0), q.size(1), k.size(1), q.size(2), k.size(2),
                                 num_splits.value_or(0), card_of(q.get_device_index()));
}

int64_t workspace_of(const Plan& plan, const Tensor& q) {
  return kbtool::cuda::workspace_numel(plan, q.size(0) * q.size(1) * q.size(2), q.size(3));
}

// ---- running ----

kbtool::Strides4 strides4(const Tensor& t) {
  return {t.stride(0), t.stride(1), t.stride(2), t.stride(3)};
}

kbtool::cuda::CounterPool& counter_pool() {
  static auto* pool = new kbtool::cuda::CounterPool;  // outlives every stream and graph
  return *pool;
}

void attend(const Tensor& q, const Tensor& k, const Tensor& v, bool causal,
            std::optional<double> scale, const Plan& plan, const std::optional<Tensor>& kv_lengths,
            const Tensor& out, const Tensor& lse, float* workspace) {
  kbtool::SplitKParams p{};
  p.B = q.size(0);
  p.H = q.size(1);
  p.Hkv = k.size(1);
  p.Sq = q.size(2);
  p.Skv = k.size(2);
  p.D = q.size(3);
  kbtool::cuda::KvLengths lengths;
  if (kv_lengths.has_value()) lengths = lengths_of(*kv_lengths, q);
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
  p.num_splits = plan.num_splits;
  p.scale = static_cast<float>(scale.value_or(1.0 / std::sqrt(static_cast<double>(p.D))));
  p.causal = causal;
  if (plan.groups() > 1) {
    p.partial_o = workspace;
    p.partial_m = p.partial_o + plan.groups() * rows * p.D;
    p.partial_l = p.partial_m + plan.num_splits * rows;
  }

  const int32_t device = q.get_device_index();
  void* stream = nullptr;
  if (aoti_torch_get_current_cuda_stream(device, &stream) != 0) fail("no current CUDA stream");
  unsigned* counters = nullptr;
  if (plan.num_counters() > 0) {
    check_cuda(counter_pool().take(device, static_cast<cudaStream_t>(stream), plan.num_counters(),
                                   &counters),
               "allocating counters");
  }
  const ElementType type =
      q.scalar_type() == ScalarType::Half ? ElementType::fp16 : ElementType::bf16;
  check_cuda(kbtool::cuda::launch_fused(p, type, lengths, plan, counters,
                                        static_cast<cudaStream_t>(stream)),
             "launching the kernel");
}

// ---- the operators ----

std::tuple<Tensor, Tensor> split_k_attention(Tensor q, Tensor k, Tensor v, bool causal,
                                             std::optional<double> scale,
                                             std::optional<int64_t> num_splits,
                                             std::optional<Tensor> kv_lengths) {
  check_operands(q, k, v);
  const torch::stable::accelerator::DeviceGuard guard(q.get_device_index());
  const Plan plan = plan_of(q, k, num_splits);
  Tensor out = torch::stable::new_empty(q, {q.size(0), q.size(1), q.size(2), q.size(3)});
  Tensor lse = torch::stable::new_empty(q, {q.size(0), q.size(1), q.size(2)}, ScalarType::Float);
  std::optional<Tensor> workspace;
  float* floats = nullptr;
  if (const int64_t numel = workspace_of(plan, q); numel > 0) {
    workspace = torch::stable::new_empty(q, {numel}, ScalarType::Float);
    floats = static_cast<float*>(workspace->mutable_data_ptr());
  }
  attend(q, k, v, causal, scale, plan, kv_lengths, out, lse, floats);
  return {out, lse};
}

void split_k_attention_out(Tensor q, Tensor k, Tensor v, bool causal, std::optional<double> scale,
                           std::optional<int64_t> num_splits, std::optional<Tensor> kv_lengths,
                           Tensor out, Tensor lse, Tensor workspace) {
  check_operands(q, k, v);
  const torch::stable::accelerator::DeviceGuard guard(q.get_device_index());
  const Plan plan = plan_of(q, k, num_splits);
  check_output("out", out, q, q.scalar_type(), {q.size(0), q.size(1), q.size(2), q.size(3)});
  check_output("lse", lse, q, ScalarType::Float, {q.size(0), q.size(1), q.size(2)});
  check_same_place("workspace", workspace, q);
  const int64_t needed = workspace_of(plan, q);
  if (workspace.scalar_type() != ScalarType::Float || workspace.dim() != 1 ||
      !workspace.is_contiguous() || workspace.numel() < needed) {
    fail("workspace must be a contiguous Float tensor of 1 dimension and at least ", needed,
         " elements, got ", type_of(workspace), " ", shape_of(workspace));
  }
  float* floats = needed > 0 ? static_cast<float*>(workspace.mutable_data_ptr()) : nullptr;
  if (reinterpret_cast<uintptr_t>(floats) % 16 != 0) {
    fail("workspace must start at a multiple of 16 bytes");
  }
  attend(q, k, v, causal, scale, plan, kv_lengths, out, lse, floats);
}

std::tuple<int64_t, int64_t> split_k_attention_plan(Tensor q, Tensor k,
                                                    std::optional<int64_t> num_splits) {
  check_operands(q, k, k);
  const torch::stable::accelerator::DeviceGuard guard(q.get_device_index());
  const Plan plan = plan_of(q, k, num_splits);
  return {plan.num_splits, workspace_of(plan, q)};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(kbtool, CUDA, m) {
  m.impl("split_k_attention", TORCH_BOX(&split_k_attention));
  m.impl("split_k_attention_out", TORCH_BOX(&split_k_attention_out));
  m.impl("split_k_attention_plan", TORCH_BOX(&split_k_attention_plan));
}
