// The operators, written once for every device: check, plan, allocate, run. A device is a class with
//
//   struct Plan                             with num_splits and workspace_numel, in floats
//   Guard(const Tensor& q)                  makes the device current while it lives
//   check(const Tensor& q, const Tensor& v) checks element type and head dimensions
//   variants(const Tensor& q)               the names of its variants, separated by commas
//   plan(q, k, v, Dv, options)              the plan of a call whose values have Dv columns; v says how they lie
//   most_workspace(q, k, Dv, options)       floats that are enough for a call with kv_lengths and
//                                           without, whatever the layout of v
//   partial_plan(q, k, Dv, options)         the plan of a call of `partial`
//   run(p, q, options, plan, workspace)     attention: fills p.out and p.lse
//   partial(p, q, options, plan)            pass 1 alone: fills p.partial_*
//   merge(p, type, o)                       pass 2 alone: fills p.out and p.lse from p.partial_*
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include <cmath>
#include <tuple>

#include "arguments.h"
#include "params.h"

namespace kbtool {

// Of packed queries, (total_q, H, D), and of their output: those of one batch entry.
inline Strides4 strides4(const Tensor& t) {
  if (t.dim() == 3) return {0, t.stride(1), t.stride(0), t.stride(2)};
  return {t.stride(0), t.stride(1), t.stride(2), t.stride(3)};
}

inline Strides3 strides3(const Tensor& lse) {
  if (lse.dim() == 2) return {0, lse.stride(1), lse.stride(0)};
  return {lse.stride(0), lse.stride(1), lse.stride(2)};
}

// The shape of the output: that of q, with the columns of v.
inline std::vector<int64_t> output_shape(const Tensor& q, const Tensor& v) {
  std::vector<int64_t> shape = shape_of(q);
  shape.back() = head_dim(v);
  return shape;
}

inline std::vector<int64_t> rows_of(const Tensor& q) {
  std::vector<int64_t> shape = shape_of(q);
  shape.pop_back();
  return shape;
}

inline void set_pages(SplitKParams& p, const Tensor& k, const CallOptions& options) {
  if (!options.block_table.has_value()) return;
  p.block_table = static_cast<const int32_t*>(options.block_table->const_data_ptr());
  p.block_table_stride = options.block_table->stride(0);
  p.num_pages = k.size(0);
  p.page_size = k.size(2);
}

inline KvType kv_type_of(const Tensor& k) {
  return k.scalar_type() == ScalarType::Float8_e4m3fn ? KvType::e4m3
         : k.scalar_type() == ScalarType::Float8_e5m2 ? KvType::e5m2
                                                      : KvType::same;
}

inline void set_scale(const float*& scales, int64_t& stride, const std::optional<Tensor>& given) {
  if (!given.has_value()) return;
  scales = static_cast<const float*>(given->const_data_ptr());
  stride = given->numel() == 1 ? 0 : 1;
}

inline void set_outputs(SplitKParams& p, const Tensor& out, const Tensor& lse) {
  p.out = out.mutable_data_ptr();
  p.lse = static_cast<float*>(lse.mutable_data_ptr());
  p.out_stride = strides4(out);
  p.lse_stride = strides3(lse);
}

template <class Device>
class Operators {
 public:
  static std::tuple<Tensor, Tensor> attention(
      Tensor q, Tensor k, Tensor v, bool causal, std::optional<double> scale,
      std::optional<int64_t> num_splits, std::optional<Tensor> kv_lengths,
      std::optional<Tensor> block_table, std::optional<int64_t> window,
      std::optional<double> softcap, std::optional<Tensor> sinks, std::optional<Tensor> k_scale,
      std::optional<Tensor> v_scale, std::optional<Tensor> cu_seqlens_q,
      std::optional<int64_t> max_seqlen_q, std::optional<Tensor> tree_mask,
      std::optional<std::string> variant, std::optional<bool> overlap) {
    const CallOptions options = {causal,  scale,   num_splits,   kv_lengths,   block_table, window,  softcap, sinks,
                                 k_scale, v_scale, cu_seqlens_q, max_seqlen_q, tree_mask,   variant, overlap};
    check_call(q, k, v, options);
    const typename Device::Guard guard(q);
    const typename Device::Plan plan = Device::plan(q, k, v, head_dim(v), options);
    Tensor out = torch::stable::new_empty(q, output_shape(q, v));
    Tensor lse = torch::stable::new_empty(q, rows_of(q), ScalarType::Float);
    std::optional<Tensor> workspace;
    if (plan.workspace_numel > 0) {
      workspace = torch::stable::new_empty(q, {plan.workspace_numel}, ScalarType::Float);
    }
    run(q, k, v, options, plan, out, lse, workspace);
    return {out, lse};
  }

  static void attention_out(Tensor q, Tensor k, Tensor v, bool causal, std::optional<double> scale,
                            std::optional<int64_t> num_splits, std::optional<Tensor> kv_lengths,
                            std::optional<Tensor> block_table, std::optional<int64_t> window,
                            std::optional<double> softcap, std::optional<Tensor> sinks,
                            std::optional<Tensor> k_scale, std::optional<Tensor> v_scale,
                            std::optional<Tensor> cu_seqlens_q, std::optional<int64_t> max_seqlen_q,
                            std::optional<Tensor> tree_mask, std::optional<std::string> variant,
                            std::optional<bool> overlap,
                            Tensor out, Tensor lse, Tensor workspace) {
    const CallOptions options = {causal,  scale,   num_splits,   kv_lengths,   block_table, window,  softcap, sinks,
                                 k_scale, v_scale, cu_seqlens_q, max_seqlen_q, tree_mask,   variant, overlap};
    check_call(q, k, v, options);
    const typename Device::Guard guard(q);
    const typename Device::Plan plan = Device::plan(q, k, v, head_dim(v), options);
    check_output("out", out, q, q.scalar_type(), output_shape(q, v));
    check_output("lse", lse, q, ScalarType::Float, rows_of(q));
    check_workspace(workspace, q, plan.workspace_numel);
    run(q, k, v, options, plan, out, lse, workspace);
  }

  static std::tuple<int64_t, int64_t> attention_plan(Tensor q, Tensor k,
                                                     std::optional<int64_t> num_splits,
                                                     std::optional<Tensor> block_table,
                                                     std::optional<int64_t> window,
                                                     std::optional<Tensor> cu_seqlens_q,
                                                     std::optional<int64_t> max_seqlen_q,
                                                     std::optional<int64_t> head_dim_v,
                                                     std::optional<std::string> variant) {
    CallOptions options;
    options.causal = true;  // as a window needs it; the plan is the same
    options.num_splits = num_splits;
    options.block_table = block_table;
    options.window = window;
    options.cu_seqlens_q = cu_seqlens_q;
    options.max_seqlen_q = max_seqlen_q;
    options.variant = variant;
    check_call(q, k, k, options);
    const int64_t Dv = head_dim_v.value_or(head_dim(q));
    if (Dv < 1) fail("head_dim_v must be at least 1, got ", Dv);
    const typename Device::Guard guard(q);
    return {Device::plan(q, k, k, Dv, options).num_splits, Device::most_workspace(q, k, Dv, options)};
  }

  static std::tuple<Tensor, Tensor, Tensor> partial(
      Tensor q, Tensor k, Tensor v, bool causal, std::optional<double> scale,
      std::optional<int64_t> num_splits, std::optional<Tensor> kv_lengths,
      std::optional<Tensor> block_table, std::optional<int64_t> window,
      std::optional<double> softcap, std::optional<Tensor> k_scale, std::optional<Tensor> v_scale,
      std::optional<std::string> variant) {
    const CallOptions options = {causal,  scale,        num_splits, kv_lengths, block_table,
                                 window,  softcap,      std::nullopt, k_scale,  v_scale,
                                 std::nullopt, std::nullopt, std::nullopt, variant, std::nullopt};
    check_call(q, k, v, options);
    const typename Device::Guard guard(q);
    const typename Device::Plan plan = Device::partial_plan(q, k, head_dim(v), options);
    std::vector<int64_t> shape = {plan.num_splits, q.size(0), q.size(1), q.size(2)};
    Tensor m = torch::stable::new_empty(q, shape, ScalarType::Float);
    Tensor l = torch::stable::new_empty(q, shape, ScalarType::Float);
    shape.push_back(head_dim(v));
    Tensor o = torch::stable::new_empty(q, shape, ScalarType::Float);
    SplitKParams p = params(q, k, v, options);
    p.num_splits = plan.num_splits;
    p.partial_o = static_cast<float*>(o.mutable_data_ptr());
    p.partial_m = static_cast<float*>(m.mutable_data_ptr());
    p.partial_l = static_cast<float*>(l.mutable_data_ptr());
    if (o.numel() > 0) Device::partial(p, q, options, plan);
    return {o, m, l};
  }

  static std::tuple<Tensor, Tensor> merge(Tensor o, Tensor m, Tensor l, ScalarType dtype) {
    check_states(o, m, l);
    const typename Device::Guard guard(o);
    Tensor out = torch::stable::new_empty(
        o, {o.size(1), o.size(2), o.size(3), o.size(4)}, dtype);
    Tensor lse = torch::stable::new_empty(o, rows_of(out), ScalarType::Float);
    SplitKParams p{};
    p.num_splits = o.size(0);
    p.B = o.size(1);
    p.H = p.Hkv = o.size(2);
    p.Sq = o.size(3);
    p.D = p.Dv = o.size(4);
    // const_cast: pass 1 writes partial_*, but pass 2 only reads them.
    p.partial_o = const_cast<float*>(static_cast<const float*>(o.const_data_ptr()));
    p.partial_m = const_cast<float*>(static_cast<const float*>(m.const_data_ptr()));
    p.partial_l = const_cast<float*>(static_cast<const float*>(l.const_data_ptr()));
    set_outputs(p, out, lse);
    if (lse.numel() > 0) Device::merge(p, dtype, o);
    return {out, lse};
  }

  static std::string variants(Tensor q) {
    const typename Device::Guard guard(q);
    return Device::variants(q);
  }

  static void add(torch::stable::detail::StableLibrary& library) {
    library.impl("split_k_attention", TORCH_BOX(&Operators::attention));
    library.impl("split_k_attention_out", TORCH_BOX(&Operators::attention_out));
    library.impl("split_k_attention_plan", TORCH_BOX(&Operators::attention_plan));
    library.impl("split_k_attention_partial", TORCH_BOX(&Operators::partial));
    library.impl("split_k_attention_merge", TORCH_BOX(&Operators::merge));
    library.impl("split_k_attention_variants", TORCH_BOX(&Operators::variants));
  }

 private:
  static void check_call(const Tensor& q, const Tensor& k, const Tensor& v,
                         const CallOptions& options) {
    check_cu_seqlens(q, options);
    check_operands(q, k, v, options);
    check_options(q, k, options);
    Device::check(q, v);
  }

  static SplitKParams params(const Tensor& q, const Tensor& k, const Tensor& v,
                             const CallOptions& options) {
    SplitKParams p{};
    p.entries = num_entries(q, options);
    p.B = is_packed(options) ? 1 : p.entries;
    p.H = q.size(1);
    p.Hkv = k.size(1);
    p.Sq = is_packed(options) ? q.size(0) : q.size(2);
    p.Skv = num_keys(k, options);
    p.D = head_dim(q);
    p.Dv = head_dim(v);
    p.q = q.const_data_ptr();
    p.k = k.const_data_ptr();
    p.v = v.const_data_ptr();
    p.q_stride = strides4(q);
    p.k_stride = strides4(k);
    p.v_stride = strides4(v);
    p.scale = static_cast<float>(
        options.scale.value_or(1.0 / std::sqrt(static_cast<double>(p.D))));
    p.causal = options.causal;
    // No valid key lies before a window of Skv keys.
    p.window = options.window.value_or(p.Skv) < p.Skv ? *options.window : 0;
    p.softcap = static_cast<float>(options.softcap.value_or(0.0));
    if (options.sinks.has_value()) {
      p.sinks = static_cast<const float*>(options.sinks->const_data_ptr());
    }
    p.kv_type = kv_type_of(k);
    set_scale(p.k_scale, p.k_scale_stride, options.k_scale);
    set_scale(p.v_scale, p.v_scale_stride, options.v_scale);
    if (options.block_table.has_value() && !options.kv_lengths.has_value()) {
      fail("kv_lengths must come with block_table, got None");
    }
    set_pages(p, k, options);
    if (options.tree_mask.has_value()) {
      p.tree_mask = static_cast<const int64_t*>(options.tree_mask->const_data_ptr());
      p.tree_mask_words = options.tree_mask->size(options.tree_mask->dim() - 1);
    }
    if (is_packed(options)) {
      p.cu_seqlens_q = static_cast<const int32_t*>(options.cu_seqlens_q->const_data_ptr());
    }
    return p;
  }

  static void run(const Tensor& q, const Tensor& k, const Tensor& v, const CallOptions& options,
                  const typename Device::Plan& plan, const Tensor& out, const Tensor& lse,
                  const std::optional<Tensor>& workspace) {
    SplitKParams p = params(q, k, v, options);
    p.num_splits = plan.num_splits;
    set_outputs(p, out, lse);
    float* floats = plan.workspace_numel > 0
                        ? static_cast<float*>(workspace->mutable_data_ptr())
                        : nullptr;
    if (lse.numel() > 0) Device::run(p, q, options, plan, floats);
  }
};

}  // namespace kbtool
