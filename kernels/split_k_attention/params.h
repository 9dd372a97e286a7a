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

// The element type of keys and values: that of the queries, or 8 bits.
enum class KvType : int32_t { same, e4m3, e5m2 };

constexpr int64_t TREE_MASK_BITS = 64;  // of a word of a tree mask

struct SplitKParams {
  // [B, H, Sq, D]. Packed queries (cu_seqlens_q) are one batch entry here, of all of them: B is 1 for them and Sq their
  // number, for out, lse and partial states too.
  const void* q;
  const void* k;  // [entries, Hkv, Skv, D], or [num_pages, Hkv, page_size, D] with a block_table
  const void* v;  // as k, with Dv columns
  void* out;      // [B, H, Sq, Dv], the element type of q
  float* lse;     // [B, H, Sq], natural log

  // One partial state per row and split, contiguous. Null with one split: pass 1 then writes out and lse.
  float* partial_o;  // [num_splits, B, H, Sq, Dv], not divided by l
  float* partial_m;  // [num_splits, B, H, Sq]
  float* partial_l;  // [num_splits, B, H, Sq]

  // [entries], each in [0, Skv]; null when every key is valid. On the CPU, beside packed queries: [entries + 1], and the
  // last is 0.
  const int64_t* kv_lengths;

  Strides4 q_stride;
  Strides4 k_stride;  // batch: from page to page if there is a block_table
  Strides4 v_stride;
  Strides4 out_stride;
  Strides3 lse_stride;

  int64_t B;    // of q; batch entries, unless queries are packed
  int64_t H;    // query heads, a multiple of Hkv
  int64_t Hkv;  // key and value heads
  int64_t Sq;
  int64_t Skv;  // with a block_table: pages of an entry * page_size
  int64_t D;    // head dimension of q and k
  int64_t Dv;   // of v and of the output

  int64_t num_splits;
  float scale;
  bool causal;  // bottom-right: row i sees keys j <= i + (valid keys) - Sq

  // What only some calls have comes last: a kernel that starts waits for each line of its parameters.
  int64_t window;  // keys that a row sees at most, 0: all; needs causal
  float softcap;  // a logit x becomes softcap * tanh(x / softcap) before it is masked; 0: none
  // Key j of entry b is key j % page_size of page block_table[b * block_table_stride + j / page_size].
  // Pages may be shared. Entries of pages that no row sees may hold anything and must not be read.
  const int32_t* block_table;  // [entries, pages of an entry], null: k and v are not paged
  int64_t block_table_stride;  // from entry to entry
  int64_t page_size;           // keys of a page, a power of two
  int64_t num_pages;

  const float* sinks;  // [H], a logit of each head that has no value, contiguous; null: none

  // Keys and values of 8 bits stand for their number times the scale of their KV head; null: 1.
  const float* k_scale;  // [Hkv] by the stride, which is 0 where all heads share one
  const float* v_scale;
  int64_t k_scale_stride;
  int64_t v_scale_stride;
  KvType kv_type;

  // Queries of entry b: [cu_seqlens_q[b], cu_seqlens_q[b + 1]) of the packed ones. Those after the last entry's see no
  // key.
  const int32_t* cu_seqlens_q;  // [entries + 1]; null: every entry has Sq queries
  int64_t entries;              // batch entries of k and v

  // Of the keys that the causal mask lets row i of entry b see, bit j % 64 of word j / 64 hides key valid - 64 * words + j
  // if it is 0.
  const int64_t* tree_mask;  // [B, Sq, tree_mask_words] as q has them, contiguous; null: no key is hidden
  int64_t tree_mask_words;
};

static_assert(std::is_trivially_copyable_v<SplitKParams>,
              "the parameters are handed to device kernels by value");

// The states of all splits in one workspace of num_splits * B * H * Sq * (Dv + 2) floats.
inline void place_partials(SplitKParams& p, float* workspace) {
  const int64_t states = p.num_splits * p.B * p.H * p.Sq;
  p.partial_o = workspace;
  p.partial_m = p.partial_o + states * p.Dv;
  p.partial_l = p.partial_m + states;
}

#if defined(__CUDACC__)
#define KBTOOL_PARAMS_FUNCTION __host__ __device__ inline
#else
#define KBTOOL_PARAMS_FUNCTION inline
#endif

// The scale of a KV head.
KBTOOL_PARAMS_FUNCTION float scale_of(const float* scales, int64_t stride, int64_t head_kv) {
  return scales == nullptr ? 1.0f : scales[head_kv * stride];
}

// Row i of the queries sees the keys [first_visible_key, visible_keys) of its batch entry, of which
// `valid` keys are valid. Without a window the first is key 0.
KBTOOL_PARAMS_FUNCTION int64_t visible_keys(bool causal, int64_t i, int64_t Sq, int64_t valid) {
  if (!causal) return valid;
  const int64_t seen = i + 1 + valid - Sq;
  return seen < 0 ? 0 : seen;  // i < Sq, so never more than valid
}

KBTOOL_PARAMS_FUNCTION int64_t first_visible_key(int64_t window, int64_t i, int64_t Sq,
                                                 int64_t valid) {
  if (window == 0) return 0;
  const int64_t hidden = i + 1 + valid - Sq - window;
  return hidden < 0 ? 0 : hidden;
}

// The first key that a tree mask has a bit for; negative if it has more bits than there are keys.
KBTOOL_PARAMS_FUNCTION int64_t first_tree_key(const SplitKParams& p, int64_t valid) {
  return valid - TREE_MASK_BITS * p.tree_mask_words;
}

// Packed queries are cut into tiles entry by entry, and the tiles numbered so that the first of an entry follows from
// the queries before it alone: an entry has all the numbers up to the next one's first, at most one more than it needs.
// What follows the last entry counts as one entry more.
KBTOOL_PARAMS_FUNCTION int64_t first_packed_tile(int64_t rows_before, int64_t entry, int64_t tile_rows) {
  return rows_before / tile_rows + entry;
}

KBTOOL_PARAMS_FUNCTION int64_t num_packed_tiles(int64_t rows, int64_t entries, int64_t tile_rows) {
  return first_packed_tile(rows, entries + 1, tile_rows);
}

#undef KBTOOL_PARAMS_FUNCTION

}  // namespace kbtool
