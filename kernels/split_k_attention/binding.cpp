// Registers the operators in torch.ops.kbtool: their schemas and the CPU implementation. Of torch, this
// file, cuda/binding_cuda.cpp and the headers they share use only the LibTorch Stable ABI (2.10), so
// one binary serves later versions of torch.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arguments.h"
#include "cpu/kernels.h"
#include "num_splits.h"
#include "operators.h"
#include "params.h"

namespace {

using kbtool::CallOptions;
using kbtool::fail;
using kbtool::ScalarType;
using kbtool::Tensor;

// Kept between calls: page faults on new memory take longer than a short kernel.
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

kbtool::cpu::Kernels kernels_for(ScalarType type, kbtool::KvType kv) {
  switch (type) {
    case ScalarType::Half:
      return kbtool::cpu::kernels_fp16(kv);
    case ScalarType::BFloat16:
      return kbtool::cpu::kernels_bf16(kv);
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

// Pass 1: stores the partial state of each split; if partial_* is null (one split), out and lse instead.
void partial_pass(const kbtool::SplitKParams& p, const kbtool::cpu::Kernels& kernels) {
  for_each_item(kbtool::cpu::num_items(p), kernels.scratch_numel(p),
                [&](int64_t item, float* scratch) { kernels.partial(p, item, scratch); });
}

void merge_pass(const kbtool::SplitKParams& p, const kbtool::cpu::Kernels& kernels) {
  // A merge of few rows stays on the calling thread: waking the others would take longer.
  constexpr int64_t FLOATS_PER_ITEM = 1 << 16;
  const int64_t rows = p.B * p.H * p.Sq;
  const int64_t rows_per_item = std::max<int64_t>(1, FLOATS_PER_ITEM / (p.num_splits * p.Dv));
  for_each_item(kbtool::ceil_div(rows, rows_per_item), kernels.scratch_numel(p),
                [&](int64_t item, float* scratch) {
                  const int64_t begin = item * rows_per_item;
                  kernels.merge(p, begin, std::min(begin + rows_per_item, rows), scratch);
                });
}

std::vector<int64_t> read_lengths(const Tensor& lengths, int64_t Skv, bool paged) {
  const bool is_32bit = lengths.scalar_type() == ScalarType::Int;
  std::vector<int64_t> valid(lengths.size(0));
  for (size_t b = 0; b < valid.size(); ++b) {
    const int64_t at = b * lengths.stride(0);
    valid[b] = is_32bit ? static_cast<const int32_t*>(lengths.const_data_ptr())[at]
                        : static_cast<const int64_t*>(lengths.const_data_ptr())[at];
    if (valid[b] < 0 || valid[b] > Skv) {
      fail("kv_lengths must lie in [0, Skv] = [0, ", Skv, "], got ", valid[b], " at ", b,
           kbtool::layout_hint(paged));
    }
  }
  return valid;
}

void check_packed(const kbtool::SplitKParams& p, const CallOptions& options) {
  const int32_t* bounds = p.cu_seqlens_q;
  if (bounds[0] != 0) fail("cu_seqlens_q must begin with 0, got ", bounds[0]);
  for (int64_t b = 0; b < p.entries; ++b) {
    const int64_t queries = int64_t{bounds[b + 1]} - bounds[b];
    if (queries < 0 || queries > *options.max_seqlen_q) {
      fail("cu_seqlens_q must rise by 0 to max_seqlen_q = ", *options.max_seqlen_q, ", got ", bounds[b],
           " and then ", bounds[b + 1], " at ", b + 1);
    }
  }
  if (bounds[p.entries] > p.Sq) {
    fail("cu_seqlens_q must end at total_q = ", p.Sq, " of q at most, got ", bounds[p.entries]);
  }
}

// Entries of pages whose keys no row sees are not looked at.
void check_pages(const kbtool::SplitKParams& p) {
  for (int64_t b = 0; b < p.entries; ++b) {
    const int64_t valid = p.kv_lengths[b];
    const int64_t queries = kbtool::cpu::queries_of_entry(p, b);
    if (queries == 0) continue;
    const int64_t first = kbtool::first_visible_key(p.window, 0, queries, valid) / p.page_size;
    const int64_t end = kbtool::ceil_div(valid, p.page_size);
    for (int64_t i = first; i < end; ++i) {
      const int32_t page = p.block_table[b * p.block_table_stride + i];
      if (page < 0 || page >= p.num_pages) {
        fail("block_table must lie in [0, pages of k) = [0, ", p.num_pages, "), got ", page, " at (", b,
             ", ", i, ")");
      }
    }
  }
}

struct Cpu {
  static constexpr const char* VARIANTS = "two_pass";

  struct Plan {
    int64_t num_splits;
    int64_t workspace_numel;  // Dv weighted values, a maximum and a sum for each row and split
  };

  struct Guard {
    explicit Guard(const Tensor&) {}
  };

  static void check(const Tensor& q, const Tensor&) { check_type("q", q.scalar_type()); }

  static std::string variants(const Tensor&) { return VARIANTS; }

  static Plan plan(const Tensor& q, const Tensor& k, const Tensor&, int64_t Dv, const CallOptions& options) {
    if (options.variant.has_value() && *options.variant != VARIANTS) {
      kbtool::fail_variant(*options.variant, VARIANTS, q);
    }
    const int64_t queries = std::min(kbtool::max_queries(q, options), kbtool::cpu::BLOCK_M);  // of a tile, at most
    const int64_t tiles = query_tiles(q, k, options);
    const int64_t splits = options.num_splits.value_or(kbtool::choose_num_splits(
        tiles, num_keys_seen(k, options, queries), kbtool::cpu::NOMINAL_WORKERS, kbtool::cpu::MIN_KEYS));
    const int64_t rows = q.numel() / kbtool::head_dim(q);
    return {splits, splits == 1 ? 0 : splits * rows * (Dv + 2)};
  }

  static int64_t most_workspace(const Tensor& q, const Tensor& k, int64_t Dv, const CallOptions& options) {
    return plan(q, k, k, Dv, options).workspace_numel;
  }

  static Plan partial_plan(const Tensor& q, const Tensor& k, int64_t Dv, const CallOptions& options) {
    return plan(q, k, k, Dv, options);
  }

  static void run(kbtool::SplitKParams p, const Tensor& q, const CallOptions& options,
                  const Plan& plan, float* workspace) {
    if (plan.num_splits > 1) kbtool::place_partials(p, workspace);
    partial(p, q, options, plan);
    if (plan.num_splits > 1) merge_pass(p, kernels_for(q.scalar_type(), p.kv_type));
  }

  static void partial(kbtool::SplitKParams p, const Tensor& q, const CallOptions& options,
                      const Plan&) {
    std::vector<int64_t> lengths;
    if (options.kv_lengths.has_value()) {
      lengths = read_lengths(*options.kv_lengths, p.Skv, p.block_table != nullptr);
      p.kv_lengths = lengths.data();
    }
    if (p.cu_seqlens_q != nullptr) {
      check_packed(p, options);
      lengths.resize(p.entries, p.Skv);
      lengths.push_back(0);  // of the queries after the last entry's
      p.kv_lengths = lengths.data();
    }
    if (p.block_table != nullptr) check_pages(p);
    partial_pass(p, kernels_for(q.scalar_type(), p.kv_type));
  }

  static void merge(const kbtool::SplitKParams& p, ScalarType dtype, const Tensor&) {
    check_type("dtype", dtype);
    merge_pass(p, kernels_for(dtype, p.kv_type));
  }

 private:
  static int64_t query_tiles(const Tensor& q, const Tensor& k, const CallOptions& options) {
    const int64_t H = q.size(1);
    const int64_t Hkv = k.size(1);
    const int64_t B = kbtool::num_entries(q, options);
    if (!kbtool::is_packed(options)) return B * Hkv * kbtool::cpu::query_tiles(H, Hkv, q.size(2));
    if (Hkv == 0) return 0;
    return Hkv * (H / Hkv * q.size(0) / kbtool::cpu::BLOCK_M + B);  // at most, by the shapes
  }

  static void check_type(const char* name, ScalarType type) {
    if (type == ScalarType::Float || type == ScalarType::Half || type == ScalarType::BFloat16) {
      return;
    }
    fail(name, " must be Float, Half or BFloat16, got ", torch::headeronly::toString(type));
  }
};

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
      "int? num_splits=None, Tensor? kv_lengths=None, Tensor? block_table=None, int? window=None, "
      "float? softcap=None, Tensor? sinks=None, Tensor? k_scale=None, Tensor? v_scale=None, "
      "Tensor? cu_seqlens_q=None, int? max_seqlen_q=None, Tensor? tree_mask=None, "
      "str? variant=None, bool? overlap=None) -> (Tensor, Tensor)");
  m.def(
      "split_k_attention_out(Tensor q, Tensor k, Tensor v, *, bool causal=False, "
      "float? scale=None, int? num_splits=None, Tensor? kv_lengths=None, "
      "Tensor? block_table=None, int? window=None, float? softcap=None, Tensor? sinks=None, "
      "Tensor? k_scale=None, Tensor? v_scale=None, Tensor? cu_seqlens_q=None, "
      "int? max_seqlen_q=None, Tensor? tree_mask=None, str? variant=None, bool? overlap=None, "
      "Tensor(a!) out, Tensor(b!) lse, Tensor(c!) workspace) -> ()");
  m.def(
      "split_k_attention_plan(Tensor q, Tensor k, *, int? num_splits=None, "
      "Tensor? block_table=None, int? window=None, Tensor? cu_seqlens_q=None, "
      "int? max_seqlen_q=None, int? head_dim_v=None, str? variant=None) -> (int, int)");
  m.def(
      "split_k_attention_partial(Tensor q, Tensor k, Tensor v, *, bool causal=False, "
      "float? scale=None, int? num_splits=None, Tensor? kv_lengths=None, "
      "Tensor? block_table=None, int? window=None, float? softcap=None, Tensor? k_scale=None, "
      "Tensor? v_scale=None, str? variant=None) -> (Tensor, Tensor, Tensor)");
  m.def(
      "split_k_attention_merge(Tensor o, Tensor m, Tensor l, *, ScalarType dtype) "
      "-> (Tensor, Tensor)");
  m.def("split_k_attention_merge_outputs(Tensor out, Tensor lse, *, ScalarType dtype) -> (Tensor, Tensor)");
  m.def("split_k_attention_variants(Tensor q) -> str");
  m.def(
      "split_k_attention_num_splits(int tiles, int kv_length, int workers, int min_keys) -> int");
}

STABLE_TORCH_LIBRARY_IMPL(kbtool, CPU, m) { kbtool::Operators<Cpu>::add(m); }

STABLE_TORCH_LIBRARY_IMPL(kbtool, CompositeExplicitAutograd, m) {
  m.impl("split_k_attention_num_splits", TORCH_BOX(&split_k_attention_num_splits));
}
