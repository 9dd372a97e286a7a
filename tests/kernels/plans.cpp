// What the tests of plans call: the planner and the launches of fused, with sizes and cards as arrays.
#include <vector>

#include "cuda/plan/plan.cpp"
#include "cuda/fused/launch_fused.cpp"

// Each instance says that it was launched.
namespace kbtool::cuda {
static std::vector<FusedParams> launched;
static const char* last_instance;
#define INSTANCE(kernel, type, width) \
  cudaError_t launch_##kernel##_##type##_d##width(const FusedParams& fp, int, cudaStream_t) { \
    launched.push_back(fp); \
    last_instance = #kernel "_" #type "_d" #width; \
    return cudaSuccess; \
  }
KBTOOL_INSTANCES(INSTANCE)
}  // namespace kbtool::cuda

// total_q: -1 if queries are not packed.
extern "C" void plan(int wgmma, int lengths, int tma, int by_element, int fp8, int64_t total_q, const int64_t* s,
                     int64_t splits, const int* c, int64_t* out) {
  using namespace kbtool::cuda;
  Sizes sizes{s[0], s[1], s[2], s[3], s[4], s[5], s[5], lengths != 0, tma != 0, by_element != 0};
  sizes.fp8 = fp8 != 0;
  sizes.packed = total_q >= 0;
  sizes.total_q = std::max<int64_t>(total_q, 0);
  Card card{c[0], c[1], c[2], c[3], {}};
  for (int blocks = 0; blocks <= MAX_CLUSTER; ++blocks) card.clusters[blocks] = c[4 + blocks];
  const FusedPlan plan =
      wgmma ? plan_wgmma(sizes, splits, card) : plan_fused(sizes, splits, card);
  out[0] = plan.num_splits;
  out[1] = plan.cluster_size;
  out[2] = plan.tiles_per_head;
  out[3] = plan.output_tiles;
  out[4] = plan.row_units;
  out[5] = plan.merge_lanes;
  out[6] = plan.num_counters();
  out[7] = plan.workspace_numel(sizes);
  out[8] = plan.ragged_blocks;
  out[9] = plan.early_launch;
  out[10] = plan.small_ring;
  out[11] = plan.paired;
  out[12] = wgmma_is_faster(sizes, splits, card);
  out[13] = plan.heads_at_a_time;
  out[14] = plan.persistent_blocks;
}

// Contiguous but for the keys, whose rows are `row` elements apart. Never read.
static float* const base = reinterpret_cast<float*>(uintptr_t{1} << 20);
static kbtool::SplitKParams operands(const kbtool::cuda::Sizes& sizes, int64_t row, int kv_type = 0) {
  kbtool::SplitKParams p{};
  p.kv_type = static_cast<kbtool::KvType>(kv_type);
  p.B = p.entries = sizes.B, p.H = sizes.H, p.Hkv = sizes.Hkv, p.Sq = sizes.Sq, p.Skv = sizes.Skv;
  p.D = sizes.D;
  p.Dv = sizes.Dv;
  p.q_stride = p.out_stride = {p.H * p.Sq * p.D, p.Sq * p.D, p.D, 1};
  p.k_stride = p.v_stride = {p.Hkv * p.Skv * row, p.Skv * row, row, 1};
  p.lse_stride.batch = p.H * p.Sq;
  p.q = p.k = p.v = base, p.out = p.lse = base;
  return p;
}

// The launch function that a call takes; kv_type is a KvType. packed: with as many queries of each entry, one after the
// other.
extern "C" const char* instance_of(const int64_t* s, int lengths, int bf16, int kv_type, int packed, int64_t row,
                                   int64_t offset, int64_t q_row, int64_t q_offset, const int* c) {
  using namespace kbtool::cuda;
  Sizes sizes{s[0], s[1], s[2], s[3], s[4], s[5], s[5], lengths != 0, true, false};
  sizes.fp8 = kv_type != 0;
  sizes.packed = packed != 0;
  sizes.total_q = sizes.B * sizes.Sq;
  const Card card{c[0], c[1], c[2], c[3], {}};
  last_instance = "none";
  kbtool::SplitKParams p = operands(sizes, row, kv_type);
  p.q_stride = {p.H * p.Sq * q_row, p.Sq * q_row, q_row, 1};
  p.q = reinterpret_cast<const char*>(base) + 2 * q_offset;
  p.k = reinterpret_cast<const char*>(base) + kv_element_bytes(p) * offset;
  if (packed) {
    p.cu_seqlens_q = reinterpret_cast<const int32_t*>(base);
    p.B = 1, p.Sq = sizes.total_q;
  }
  launch_fused(p, bf16 ? ElementType::bf16 : ElementType::fp16,
               lengths ? KvLengths{base, 1, true} : KvLengths{}, plan_fused(sizes, 0, card),
               nullptr, nullptr, nullptr);
  return last_instance;
}

// Of a call with these strides of q, k and v (4 each, then the offsets of the three, all in
// elements): the widest copy of k and v, whether q is copied 16 bytes at a time, whether TMA can
// read k and v.
extern "C" void layout_of(const int64_t* s, int kv_type, const int64_t* at, int64_t* out) {
  kbtool::SplitKParams p{};
  p.kv_type = static_cast<kbtool::KvType>(kv_type);
  p.B = p.entries = s[0], p.H = s[1], p.Hkv = s[2], p.Sq = s[3], p.Skv = s[4], p.D = p.Dv = s[5];
  const auto stride = [&](int i) {
    return kbtool::Strides4{at[i], at[i + 1], at[i + 2], at[i + 3]};
  };
  const auto start = [&](int i) {
    return reinterpret_cast<const char*>(base) + (i == 0 ? 2 : kbtool::cuda::kv_element_bytes(p)) * at[12 + i];
  };
  p.q_stride = stride(0), p.k_stride = stride(4), p.v_stride = stride(8);
  p.q = start(0), p.k = start(1), p.v = start(2);
  out[0] = kbtool::cuda::copy_width(p);
  out[1] = kbtool::cuda::q_is_aligned(p);
  out[2] = kbtool::cuda::tma_reads(p);
}

// The elements from one key to the next that a kernel is told, of rows `row` elements apart.
extern "C" int64_t key_stride(const int64_t* s, int64_t row, const int* c) {
  using namespace kbtool::cuda;
  const Sizes sizes{s[0], s[1], s[2], s[3], s[4], s[5], s[5], false, true, false};
  const Card card{c[0], c[1], c[2], c[3], {}};
  launched.clear();
  launch_fused(operands(sizes, row), ElementType::bf16, KvLengths{}, plan_fused(sizes, 0, card),
               nullptr, nullptr, nullptr);
  return launched.back().p.k_stride.seq | launched.back().p.v_stride.seq;
}

// The parts that a batch of contiguous entries is launched in; -1 if it is refused. Addresses are
// those of the parts' first entries.
extern "C" int64_t parts(const int64_t* s, int64_t splits, int kv_type, const int* c, int64_t* out) {
  using namespace kbtool::cuda;
  Sizes sizes{s[0], s[1], s[2], s[3], s[4], s[5], s[5], false, true, false};
  sizes.fp8 = kv_type != 0;
  const Card card{c[0], c[1], c[2], c[3], {}};
  const FusedPlan plan = plan_fused(sizes, splits, card);
  kbtool::SplitKParams p = operands(sizes, sizes.D, kv_type);
  p.num_splits = plan.num_splits;
  launched.clear();
  const KvLengths lengths{base, 3, true};
  if (launch_fused(p, ElementType::fp16, lengths, plan, nullptr, nullptr, nullptr) != cudaSuccess) {
    return -1;
  }
  const auto from = [&](const void* to) {
    return static_cast<const char*>(to) - reinterpret_cast<const char*>(base);
  };
  int64_t* at = out;
  for (const FusedParams& fp : launched) {
    *at++ = fp.p.B;
    *at++ = fp.output_tiles * int64_t{fp.splits.divisor};
    *at++ = from(fp.p.q);
    *at++ = from(fp.p.k);
    *at++ = from(fp.p.out);
    *at++ = from(fp.p.lse);
    *at++ = from(fp.lengths.data);
  }
  return static_cast<int64_t>(launched.size());
}
