// What a CUDA device does for the operators that binding.cpp defines, through the LibTorch Stable
// ABI (2.10).
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>

#include "../arguments.h"
#include "../operators.h"
#include "../text.h"
#include "common/counters.h"
#include "common/layout.h"
#include "common/run_instance.h"
#include "launch.h"
#include "merge_outputs.h"

// Declared by torch's shim only where it was built with CUDA headers; every CUDA build exports it.
extern "C" int32_t aoti_torch_get_current_cuda_stream(int32_t device_index, void** stream);

namespace {

using kbtool::CallOptions;
using kbtool::fail;
using kbtool::ScalarType;
using kbtool::SplitKParams;
using kbtool::Tensor;
using kbtool::cuda::Card;
using kbtool::cuda::ElementType;
using kbtool::cuda::KvLengths;
using kbtool::cuda::OutputType;
using kbtool::cuda::Sizes;
using kbtool::cuda::Variant;

void check_cuda(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  if (error == kbtool::cuda::NOT_IN_THIS_BUILD) {
    fail("the kernel for this dtype and head dimension is not in this build, which"
         " is a specialisation: build the whole target");
  }
  kbtool::Text message;
  message << "split_k_attention: " << what << ": " << cudaGetErrorString(error) << " ("
          << cudaGetErrorName(error) << ")";
  throw std::runtime_error(message.str());
}

Card card_of(const Tensor& q) {
  constexpr int MAX_DEVICES = 64;
  static std::once_flag once[MAX_DEVICES];
  static Card cards[MAX_DEVICES];
  const int device = q.get_device_index();
  if (device >= MAX_DEVICES) fail("more than ", MAX_DEVICES, " devices");
  std::call_once(once[device], [&] {
    check_cuda(kbtool::cuda::read_card(&cards[device]), "reading the card");
  });
  return cards[device];
}

cudaStream_t stream_of(const Tensor& q) {
  void* stream = nullptr;
  if (aoti_torch_get_current_cuda_stream(q.get_device_index(), &stream) != 0) {
    fail("no current CUDA stream");
  }
  return static_cast<cudaStream_t>(stream);
}

// The values stay on the device; kernels clamp each to [0, Skv].
KvLengths lengths_of(const std::optional<Tensor>& lengths) {
  if (!lengths.has_value()) return {};
  return {lengths->const_data_ptr(), lengths->stride(0),
          lengths->scalar_type() == ScalarType::Long};
}

// What a plan is made for; a window leaves fewer keys to cut.
Sizes sizes_of(const Tensor& q, const Tensor& k, int64_t Dv, const CallOptions& options, bool lengths) {
  Sizes sizes{};
  sizes.B = kbtool::num_entries(q, options);
  sizes.H = q.size(1);
  sizes.Hkv = k.size(1);
  sizes.Sq = kbtool::max_queries(q, options);
  sizes.Skv = kbtool::num_keys(k, options);
  const bool hides = options.window.has_value() && *options.window < sizes.Skv;
  if (hides) sizes.Skv = std::min(sizes.Skv, *options.window + std::max<int64_t>(sizes.Sq - 1, 0));
  sizes.D = kbtool::head_dim(q);
  sizes.Dv = Dv;
  sizes.lengths = lengths;
  sizes.paged = options.block_table.has_value();
  sizes.fp8 = kbtool::is_fp8(k.scalar_type());
  // With splits given, a row's bits must not depend on the width of a table: then a window counts that hides nothing.
  const bool window = hides || (options.window.has_value() && options.num_splits.has_value());
  sizes.packed = kbtool::is_packed(options);
  sizes.total_q = sizes.packed ? q.size(0) : 0;
  sizes.tree = options.tree_mask.has_value();
  sizes.options = window || options.softcap.has_value() || (sizes.tree && !sizes.packed);
  return sizes;
}

Sizes with_layout(Sizes sizes, const Tensor& k, const Tensor& v, const CallOptions& options) {
  SplitKParams p{};
  p.entries = k.size(0);
  p.Hkv = sizes.Hkv;
  p.Skv = kbtool::num_keys(k, options);
  p.D = sizes.D;
  p.Dv = sizes.Dv;
  p.k = k.const_data_ptr();
  p.v = v.const_data_ptr();
  p.k_stride = kbtool::strides4(k);
  p.v_stride = kbtool::strides4(v);
  p.kv_type = kbtool::kv_type_of(k);
  kbtool::set_pages(p, k, options);
  sizes.tma = kbtool::cuda::tma_reads(p);
  sizes.by_element = kbtool::cuda::copies_by_element(p);
  return sizes;
}

kbtool::cuda::CounterPool& counter_pool() {
  static auto* pool = new kbtool::cuda::CounterPool;  // outlives every stream and graph
  return *pool;
}

// fa1 and two_pass are baselines, for plain calls. `what` says which call is to be plain.
void check_plain(const Tensor& k, int64_t Dv, const CallOptions& options, const std::string& what) {
  const auto refuse = [&](const char* name, bool given) {
    if (given) fail(name, " must be left out ", what);
  };
  refuse("8-bit k and v", kbtool::is_fp8(k.scalar_type()));
  refuse("block_table", options.block_table.has_value());
  refuse("window", options.window.has_value());
  refuse("softcap", options.softcap.has_value());
  refuse("sinks", options.sinks.has_value());
  refuse("cu_seqlens_q", kbtool::is_packed(options));
  refuse("tree_mask", options.tree_mask.has_value());
  refuse("v with another head dimension than k", Dv != kbtool::head_dim(k));
}

struct Cuda {
  using Plan = kbtool::cuda::Plan;

  struct Guard {
    explicit Guard(const Tensor& q) : guard(q.get_device_index()) {}
    torch::stable::accelerator::DeviceGuard guard;
  };

  static void check(const Tensor& q, const Tensor& v) {
    if (!q.is_cuda()) fail("q must be on a CUDA device, got ", kbtool::device_of(q));
    element_type("q", q.scalar_type());
    check_head_dim("q", "D", q, kbtool::head_dim(q));
    check_head_dim("v", "Dv", v, kbtool::head_dim(v));
  }

  static std::string variants(const Tensor& q) {
    kbtool::Text text;
    for (const Variant variant : kbtool::cuda::variants_of(card_of(q))) {
      text << (text.str().empty() ? "" : ",") << kbtool::cuda::name_of(variant);
    }
    return text.str();
  }

  static Plan plan(const Tensor& q, const Tensor& k, const Tensor& v, int64_t Dv, const CallOptions& options) {
    // A plan of pages is asked for without the lengths that its call has.
    const bool lengths = options.kv_lengths.has_value() || options.block_table.has_value();
    return plan(q, k, with_layout(sizes_of(q, k, Dv, options, lengths), k, v, options), options);
  }

  static int64_t most_workspace(const Tensor& q, const Tensor& k, int64_t Dv, const CallOptions& options) {
    int64_t most = 0;
    for (const bool lengths : {false, true}) {
      // v is unknown: the sizes below cover worse layouts.
      const Sizes best = with_layout(sizes_of(q, k, Dv, options, lengths), k, k, options);
      Sizes unaligned = best;
      unaligned.tma = false;
      Sizes odd = unaligned;
      odd.by_element = true;
      Sizes odd_ends = best;  // rows of an odd number of columns, which TMA reads
      odd_ends.by_element = true;
      Sizes tree = best;  // which is unknown too
      tree.tree = true;
      for (const Sizes& sizes : {best, unaligned, odd, odd_ends, tree}) {
        most = std::max(most, plan(q, k, sizes, options).workspace_numel);
      }
    }
    return most;
  }

  // Only two_pass leaves its states in memory: it is the default here.
  static Plan partial_plan(const Tensor& q, const Tensor& k, int64_t Dv, const CallOptions& options) {
    check_plain(k, Dv, options,
                "of split_k_attention_partial on CUDA, which takes no pages, window or softcap");
    if (options.variant.has_value() && parse(*options.variant, q) != Variant::two_pass) {
      fail("variant must be two_pass, the only one with a partial pass of its own, got '",
           *options.variant, "'");
    }
    return kbtool::cuda::make_plan(Variant::two_pass, sizes_of(q, k, Dv, options, false),
                                   options.num_splits.value_or(0), card_of(q));
  }

  static void run(const SplitKParams& p, const Tensor& q, const CallOptions& options,
                  const Plan& plan, float* workspace) {
    if (const auto past = reinterpret_cast<uintptr_t>(workspace) % 16; past != 0) {
      fail("workspace must start at a multiple of 16 bytes, got one that starts ", past, " past it");
    }
    const cudaStream_t stream = stream_of(q);
    unsigned* counters = nullptr;
    if (plan.num_counters > 0) {
      check_cuda(counter_pool().take(q.get_device_index(), stream, plan.num_counters, &counters),
                 "allocating counters");
    }
    check_cuda(kbtool::cuda::launch(p, element_type("q", q.scalar_type()), lengths_of(options.kv_lengths),
                                    plan, workspace, counters, stream),
               "launching the kernel");
  }

  static void partial(const SplitKParams& p, const Tensor& q, const CallOptions& options,
                      const Plan&) {
    check_cuda(kbtool::cuda::launch_partial(p, element_type("q", q.scalar_type()),
                                            lengths_of(options.kv_lengths), stream_of(q)),
               "launching the partial kernel");
  }

  static void merge(const SplitKParams& p, ScalarType dtype, const Tensor& o) {
    const ElementType type = element_type("dtype", dtype);
    check_head_dim("o", "D", o, p.D);
    check_cuda(kbtool::cuda::launch_reduce(p, type, stream_of(o)), "launching the reduce kernel");
  }

  // Merges outputs and LSEs of calls over parts of the keys.
  static std::tuple<Tensor, Tensor> merge_outputs(Tensor outs, Tensor lses, ScalarType dtype) {
    kbtool::check_outputs(outs, lses);
    const ElementType type = element_type("dtype", dtype);
    check_head_dim("out", "D", outs, kbtool::head_dim(outs));
    const Guard guard(outs);
    kbtool::cuda::MergeOutputsParams p{};
    p.parts = outs.size(0);
    p.B = outs.size(1);
    p.H = outs.size(2);
    p.Sq = outs.size(3);
    p.D = outs.size(4);
    Tensor out = torch::stable::new_empty(outs, {p.B, p.H, p.Sq, p.D}, dtype);
    Tensor lse = torch::stable::new_empty(outs, {p.B, p.H, p.Sq}, ScalarType::Float);
    if (lse.numel() == 0) return {out, lse};
    p.outs = outs.const_data_ptr();
    p.lses = static_cast<const float*>(lses.const_data_ptr());
    p.out = out.mutable_data_ptr();
    p.lse = static_cast<float*>(lse.mutable_data_ptr());
    for (int i = 0; i < 5; ++i) p.out_strides[i] = outs.stride(i);
    for (int i = 0; i < 4; ++i) p.lse_strides[i] = lses.stride(i);
    const OutputType from = outs.scalar_type() == ScalarType::Float  ? OutputType::fp32
                            : outs.scalar_type() == ScalarType::Half ? OutputType::fp16
                                                                     : OutputType::bf16;
    check_cuda(kbtool::cuda::launch_merge_outputs(p, from, type, stream_of(outs)), "launching the merge kernel");
    return {out, lse};
  }

 private:
  static Plan plan(const Tensor& q, const Tensor& k, const Sizes& sizes, const CallOptions& options) {
    const Card card = card_of(q);
    const int64_t splits = options.num_splits.value_or(0);
    const Variant chosen = options.variant.has_value()
                               ? parse(*options.variant, q)
                               : kbtool::cuda::default_variant(sizes, splits, card);
    if (chosen != Variant::fused && chosen != Variant::wgmma) {
      check_plain(k, sizes.Dv, options, std::string("for variant ") + kbtool::cuda::name_of(chosen) + "; fused takes it");
    }
    Plan made = kbtool::cuda::make_plan(chosen, sizes, splits, card);
    if (options.overlap.has_value() && card.max_cluster > 1) {  // sm_90 introduced clusters and early launch
      made.fused.early_launch = *options.overlap;
    }
    if (made.fused.output_tiles > 0) {  // of fused or wgmma
      const int64_t rows = sizes.H / sizes.Hkv * std::max(sizes.Sq, sizes.total_q);
      if (rows > kbtool::cuda::MAX_BLOCKS) {
        fail("q must have H / Hkv * ", sizes.packed ? "max_seqlen_q, and * total_q," : "Sq", " of at most ",
             kbtool::cuda::MAX_BLOCKS, " for variant ", kbtool::cuda::name_of(chosen), ", got ", rows);
      }
      if (const int64_t keys = kbtool::num_keys(k, options); keys > kbtool::cuda::MAX_KEYS) {
        fail("k must have Skv of at most ", kbtool::cuda::MAX_KEYS, " for variant ",
             kbtool::cuda::name_of(chosen), ", got ", keys);
      }
    }
    const int64_t most = kbtool::cuda::max_splits(made.fused, sizes);  // 2^31 - 1 for the others
    if (most == 0) {
      fail("q must have fewer heads or queries for variant ", kbtool::cuda::name_of(chosen), ": got ",
           tiles_of_entry(made.fused, sizes), sizes.packed ? " tiles" : " tiles an entry", ", and a grid has ",
           kbtool::cuda::MAX_BLOCKS);
    }
    if (made.num_splits > most) {
      fail("num_splits must be at most ", most, " for so many query rows, got ", made.num_splits);
    }
    return made;
  }

  static ElementType element_type(const char* name, ScalarType type) {
    if (type == ScalarType::Half) return ElementType::fp16;
    if (type == ScalarType::BFloat16) return ElementType::bf16;
    fail(name, " must be Half or BFloat16 on CUDA, got ", torch::headeronly::toString(type));
  }

  static void check_head_dim(const char* name, const char* dimension, const Tensor& t, int64_t D) {
    if (D <= kbtool::cuda::MAX_HEAD_DIM) return;
    fail(name, " must have ", dimension, " in [1, ", kbtool::cuda::MAX_HEAD_DIM, "] on CUDA, got shape ",
         kbtool::text_of(kbtool::shape_of(t)));
  }

  static Variant parse(const std::string& name, const Tensor& q) {
    for (const Variant variant : kbtool::cuda::variants_of(card_of(q))) {
      if (name == kbtool::cuda::name_of(variant)) return variant;
    }
    kbtool::fail_variant(name, variants(q), q);
  }
};

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(kbtool, CUDA, m) {
  kbtool::Operators<Cuda>::add(m);
  m.impl("split_k_attention_merge_outputs", TORCH_BOX(&Cuda::merge_outputs));
}
