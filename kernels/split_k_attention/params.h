// Parameters of a Split-K kernel: plain pointers, sizes and strides. Strides count elements and may be
// 0 (expanded) or negative. All offsets are 64-bit: a KV cache can have more than 2^31 elements.
#pragma once

#include <cstdint>
#include <type_traits>

namespace kbtool {

struct Strides4 {
  int64_t batch;
  int64_t head;
  int64_t seq;
  int64_t dim;
};

struct Strides3 {
  int64_t batch;
  int64_t head;
  int64_t seq;
};

struct SplitKParams {
  const void* q;  // [B, H, Sq, D]
  const void* k;  // [B, Hkv, Skv, D]
  const void* v;  // [B, Hkv, Skv, D]
  void* out;      // [B, H, Sq, D], the element type of q
  float* lse;     // [B, H, Sq], natural log

  // One partial state per row and split, contiguous. Null with one split: pass 1 then writes out and lse.
  float* partial_o;  // [num_splits, B, H, Sq, D], not divided by l
  float* partial_m;  // [num_splits, B, H, Sq]
  float* partial_l;  // [num_splits, B, H, Sq]

  const int64_t* kv_lengths;  // [B], each in [0, Skv]; null when every key is valid

  Strides4 q_stride;
  Strides4 k_stride;
  Strides4 v_stride;
  Strides4 out_stride;
  Strides3 lse_stride;

  int64_t B;
  int64_t H;    // query heads, a multiple of Hkv
  int64_t Hkv;  // key and value heads
  int64_t Sq;
  int64_t Skv;
  int64_t D;

  int64_t num_splits;
  float scale;
  bool causal;  // bottom-right: row i sees keys j <= i + (valid keys) - Sq
};

static_assert(std::is_trivially_copyable_v<SplitKParams>,
              "the parameters are handed to device kernels by value");

// The states of all splits in one workspace of num_splits * B * H * Sq * (D + 2) floats.
inline void place_partials(SplitKParams& p, float* workspace) {
  const int64_t states = p.num_splits * p.B * p.H * p.Sq;
  p.partial_o = workspace;
  p.partial_m = p.partial_o + states * p.D;
  p.partial_l = p.partial_m + states;
}

// Keys that row i of the queries sees, out of the valid keys of its batch entry.
#if defined(__CUDACC__)
__host__ __device__
#endif
inline int64_t visible_keys(bool causal, int64_t i, int64_t Sq, int64_t valid) {
  if (!causal) return valid;
  const int64_t seen = i + 1 + valid - Sq;
  return seen < 0 ? 0 : seen;  // i < Sq, so never more than valid
}

}  // namespace kbtool
