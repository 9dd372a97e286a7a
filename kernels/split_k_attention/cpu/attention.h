// Split-K attention on the CPU; each attention_<type>.cpp has the instances of one type of queries.
#pragma once

#include <algorithm>
#include <cmath>

#include "../attention_state.h"
#include "kernels.h"
#include "tile.h"

namespace kbtool::cpu {

constexpr int64_t ROW_GROUP = 4;  // rows that share each load of a key and of a value

constexpr int64_t round_up(int64_t n, int64_t step) { return ceil_div(n, step) * step; }

// Rows that a query tile has room for, in whole groups.
inline int64_t tile_rows(const SplitKParams& p) {
  return std::min(BLOCK_M, round_up(p.H / p.Hkv * p.Sq, ROW_GROUP));
}

// Where a worker's scratch holds what, in floats; every array starts at a multiple of 64 bytes.
struct ScratchLayout {
  int64_t q;       // [rows, D_pad]
  int64_t o;       // [rows, Dv_pad]
  int64_t m;       // [rows]
  int64_t l;       // [rows]
  int64_t logits;  // [BLOCK_KV, ROW_GROUP]
  int64_t k;       // [BLOCK_KV, D_pad]
  int64_t v;       // [BLOCK_KV, Dv_pad]
  int64_t numel = 0;

  explicit ScratchLayout(const SplitKParams& p) {
    const int64_t rows = tile_rows(p);
    const int64_t D_pad = round_up(p.D, LANES);
    const int64_t Dv_pad = round_up(p.Dv, LANES);
    q = take(rows * D_pad);
    o = take(rows * Dv_pad);
    m = take(rows);
    l = take(rows);
    logits = take(BLOCK_KV * ROW_GROUP);
    k = take(BLOCK_KV * D_pad);
    v = take(BLOCK_KV * Dv_pad);
  }

 private:
  int64_t take(int64_t floats) {
    const int64_t start = numel;
    numel += round_up(floats, 16);
    return start;
  }
};

inline int64_t scratch_numel(const SplitKParams& p) { return ScratchLayout(p).numel; }

// Copies rows into fp32 with unit stride, padded with zeros to D_pad: how the kernel reads what it
// cannot read in place.
template <class Rows>
void pack_rows(const Rows& source,  // [rows, D] by strides
               int64_t dim_stride, int64_t rows, int64_t D, int64_t D_pad,
               float* packed) {  // [rows, D_pad]
  using Element = typename Rows::Element;
  for (int64_t row = 0; row < rows; ++row) {
    const Element* from = source.row(row);
    float* to = packed + row * D_pad;
    for (int64_t d = 0; d < D_pad; d += LANES) {
      if (dim_stride == 1 && d + LANES <= D) {
        store(to + d, load(from + d));
        continue;
      }
      Element lanes[LANES] = {};
      for (int64_t i = 0; i < std::min<int64_t>(LANES, D - d); ++i) {
        lanes[i] = from[(d + i) * dim_stride];
      }
      store(to + d, load(lanes));
    }
  }
}

// A block as the kernel reads it: in place, or packed.
template <class Rows>
struct Block {
  bool packed;
  Rows in_place;
  BlockRows<float> copy;

  template <class Body>
  void read(const Body& body) const {
    if (packed) {
      body(copy);
    } else {
      body(in_place);
    }
  }
};

// A finished row: output and LSE.
template <class Element>
void store_row(const SplitKParams& p, int64_t batch, int64_t head, int64_t query, float m, float l,
               const float* o) {  // [Dv]
  const float weight = p.sinks == nullptr ? 1.0f : merge_sink(p.sinks[head], m, l);
  Element* out = static_cast<Element*>(p.out) + batch * p.out_stride.batch +
                 head * p.out_stride.head + query * p.out_stride.seq;
  for (int64_t d = 0; d < p.Dv; ++d) {
    store_scalar(out + d * p.out_stride.dim, normalised(o[d] * weight, l));
  }
  p.lse[batch * p.lse_stride.batch + head * p.lse_stride.head + query * p.lse_stride.seq] =
      log_sum_exp(m, l);
}

template <class Element, class KvElement>
class PartialItem {
 public:
  PartialItem(const SplitKParams& params, int64_t item,
              float* scratch)  // [scratch_numel], see ScratchLayout
      : p(params), D_pad(round_up(p.D, LANES)), Dv_pad(round_up(p.Dv, LANES)), group(p.H / p.Hkv) {
    const ScratchLayout at(p);
    q_tile = scratch + at.q;
    o_tile = scratch + at.o;
    m_tile = scratch + at.m;
    l_tile = scratch + at.l;
    logits = scratch + at.logits;
    k_packed = scratch + at.k;
    v_packed = scratch + at.v;

    split = item % p.num_splits;
    item /= p.num_splits;
    if (p.cu_seqlens_q == nullptr) {
      const int64_t tiles = query_tiles(p.H, p.Hkv, p.Sq);
      row0 = (tiles - 1 - item % tiles) * BLOCK_M;  // causal: the longest tiles start first
      item /= tiles;
      head_kv = item % p.Hkv;
      q_batch = batch = item / p.Hkv;
      first_query = 0;
    } else {
      head_kv = item % p.Hkv;
      const int64_t tile = item / p.Hkv;
      batch = entry_of_tile(tile);
      q_batch = 0;
      first_query = p.cu_seqlens_q[batch];
      row0 = (tile - first_tile(batch)) * BLOCK_M;
    }
    queries = queries_of_entry(p, batch);
    rows = std::min(BLOCK_M, group * queries - row0);
    valid = p.kv_lengths == nullptr ? p.Skv : p.kv_lengths[batch];
  }

  void run() {
    if (rows <= 0) return;
    load_queries();
    // The keys that any row of this tile sees are cut evenly: no split is left with masked keys.
    const int64_t first = first_seen_key(0);
    const int64_t seen_by_tile = seen_keys(rows - 1) - first;
    const int64_t keys_per_split = ceil_div(seen_by_tile, p.num_splits);
    const int64_t begin = std::min(split * keys_per_split, seen_by_tile);
    const int64_t end = std::min(begin + keys_per_split, seen_by_tile);
    if (p.block_table == nullptr) {
      attend_keys(first + begin, first + end);
    } else {
      attend_pages(first + begin, first + end);
    }
    scale_values();
    if (p.partial_o == nullptr) {
      store_output();
    } else {
      store_partial();
    }
  }

 private:
  const SplitKParams& p;
  const int64_t D_pad;   // columns of q and k, rounded up
  const int64_t Dv_pad;  // of v and o
  const int64_t group;  // query heads of a KV head
  float *q_tile, *o_tile;      // [rows, D_pad], [rows, Dv_pad]
  float *m_tile, *l_tile;      // [rows]
  float* logits;               // [BLOCK_KV, ROW_GROUP]
  float *k_packed, *v_packed;  // [BLOCK_KV, D_pad], [BLOCK_KV, Dv_pad]
  int64_t batch, head_kv, split;
  int64_t q_batch, first_query;  // where the queries of the batch entry are in q and in what is stored
  int64_t queries;               // of this batch entry
  int64_t row0, rows;  // rows of the tile: query-major, row = query * group + head of the group
  int64_t valid;       // keys of this batch entry

  // Of packed queries, whose entries have at least a tile each.
  int64_t first_tile(int64_t of) const {
    return first_packed_tile(group * p.cu_seqlens_q[of], of, BLOCK_M);
  }
  int64_t entry_of_tile(int64_t tile) const {
    int64_t found = 0;
    for (int64_t end = p.entries + 1; end - found > 1;) {
      const int64_t middle = (found + end) / 2;
      (first_tile(middle) <= tile ? found : end) = middle;
    }
    return found;
  }

  float logit_scale() const { return p.scale * scale_of(p.k_scale, p.k_scale_stride, head_kv); }

  int64_t query(int64_t row) const { return (row0 + row) / group; }
  int64_t q_row(int64_t row) const { return first_query + query(row); }
  int64_t head(int64_t row) const { return head_kv * group + (row0 + row) % group; }
  int64_t seen_keys(int64_t row) const {
    return visible_keys(p.causal, query(row), queries, valid);
  }
  int64_t first_seen_key(int64_t row) const {
    return first_visible_key(p.window, query(row), queries, valid);
  }

  void load_queries() {
    const int64_t padded = tile_rows(p);
    for (int64_t row = 0; row < rows; ++row) {
      const Element* source = static_cast<const Element*>(p.q) + q_batch * p.q_stride.batch +
                              head(row) * p.q_stride.head + q_row(row) * p.q_stride.seq;
      pack_rows(BlockRows<Element>{source, 0, nullptr}, p.q_stride.dim, 1, p.D, D_pad,
                q_tile + row * D_pad);
    }
    std::fill(q_tile + rows * D_pad, q_tile + padded * D_pad, 0.0f);
    std::fill(o_tile, o_tile + padded * Dv_pad, 0.0f);
    std::fill(m_tile, m_tile + padded, negative_infinity());
    std::fill(l_tile, l_tile + padded, 0.0f);
  }

  void scale_values() {
    if (p.v_scale == nullptr) return;
    const float scale = scale_of(p.v_scale, p.v_scale_stride, head_kv);
    for (int64_t row = 0; row < rows; ++row) {
      if (l_tile[row] == 0.0f) continue;  // nothing was seen: 0 stays 0 beside an infinite scale
      for (int64_t d = 0; d < Dv_pad; ++d) o_tile[row * Dv_pad + d] *= scale;
    }
  }

  void attend_keys(int64_t begin, int64_t end) {
    for (int64_t key0 = begin; key0 < end; key0 += BLOCK_KV) {
      const int64_t keys = std::min(BLOCK_KV, end - key0);
      const bool last = keys == end - key0;
      attend_block(key0, keys, rows_at(p.k, p.k_stride, key0, last),
                   rows_at(p.v, p.v_stride, key0, last));
    }
  }

  BlockRows<KvElement> rows_at(const void* base,  // [B, Hkv, Skv, D] by strides
                             const Strides4& stride, int64_t key0, bool last) const {
    const KvElement* source = static_cast<const KvElement*>(base) + batch * stride.batch +
                              head_kv * stride.head + key0 * stride.seq;
    return {source, stride.seq, last ? nullptr : source + BLOCK_KV * stride.seq};
  }

  void attend_pages(int64_t begin, int64_t end) {
    const KvElement* k_rows[2][BLOCK_KV];  // of this block, and of the next
    const KvElement* v_rows[2][BLOCK_KV];
    if (begin < end) {
      find_rows(p.k, p.k_stride, begin, end, k_rows[0]);
      find_rows(p.v, p.v_stride, begin, end, v_rows[0]);
    }
    int now = 0;
    for (int64_t key0 = begin; key0 < end; key0 += BLOCK_KV, now ^= 1) {
      const int64_t next0 = key0 + BLOCK_KV;
      const bool last = next0 >= end;
      if (!last) {
        find_rows(p.k, p.k_stride, next0, end, k_rows[now ^ 1]);
        find_rows(p.v, p.v_stride, next0, end, v_rows[now ^ 1]);
      }
      attend_block(key0, std::min(BLOCK_KV, end - key0),
                   PagedRows<KvElement>{k_rows[now], last ? nullptr : k_rows[now ^ 1]},
                   PagedRows<KvElement>{v_rows[now], last ? nullptr : v_rows[now ^ 1]});
    }
  }

  void find_rows(const void* base,  // [num_pages, Hkv, page_size, D] by strides
                 const Strides4& stride, int64_t key0, int64_t end,
                 const KvElement** found) const {  // [BLOCK_KV]
    const int32_t* pages = p.block_table + batch * p.block_table_stride;
    const KvElement* source = static_cast<const KvElement*>(base) + head_kv * stride.head;
    const int page_bits = __builtin_ctzll(p.page_size);
    const int64_t keys = std::min(BLOCK_KV, end - key0);
    for (int64_t i = 0; i < keys;) {
      const int64_t key = key0 + i;
      const int64_t page = pages[key >> page_bits];
      const int64_t slot = key & (p.page_size - 1);
      const KvElement* row = source + page * stride.batch + slot * stride.seq;
      const int64_t stop = std::min(keys, i + p.page_size - slot);
      for (; i < stop; ++i, row += stride.seq) found[i] = row;
    }
    // The table may hold anything past the end, so what is prefetched there is the last key.
    std::fill(found + keys, found + BLOCK_KV, found[keys - 1]);
  }

  template <class Rows>
  Block<Rows> read_block(const Rows& source, int64_t dim_stride, int64_t keys, int64_t columns,
                         float* packed) const {  // [BLOCK_KV, columns rounded up]
    // Widening once pays when more than two groups of rows read the block.
    const bool reread = sizeof(KvElement) < sizeof(float) && rows > 2 * ROW_GROUP;
    const int64_t padded = round_up(columns, LANES);
    if (dim_stride == 1 && columns == padded && !reread) return {false, source, {}};
    pack_rows(source, dim_stride, keys, columns, padded, packed);
    return {true, {}, {packed, padded, nullptr}};
  }

  template <class Rows>
  void attend_block(int64_t key0, int64_t keys, const Rows& k_rows, const Rows& v_rows) {
    auto k = read_block(k_rows, p.k_stride.dim, keys, p.D, k_packed);
    auto v = read_block(v_rows, p.v_stride.dim, keys, p.Dv, v_packed);
    if (key0 + keys > first_tree_key()) {
      for (int64_t row = 0; row < rows; ++row) {
        attend_tree_row(row, key0, keys, k, v);
        k.in_place.next = nullptr;  // prefetch only once
      }
      return;
    }
    for (int64_t row = 0; row < rows; row += ROW_GROUP) {
      const int64_t left = rows - row;
      if (left >= 3) {
        attend_rows<4>(row, key0, keys, k, v);
      } else if (left == 2) {
        attend_rows<2>(row, key0, keys, k, v);
      } else {
        attend_rows<1>(row, key0, keys, k, v);
      }
      k.in_place.next = v.in_place.next = nullptr;  // prefetch only once
    }
  }

  // The first key that a tree mask has a bit for; past every key without one.
  int64_t first_tree_key() const {
    return p.tree_mask == nullptr ? valid : kbtool::first_tree_key(p, valid);
  }

  bool tree_hides(int64_t row, int64_t key) const {
    const int64_t bit = key - first_tree_key();
    if (bit < 0) return false;
    const int64_t* words = p.tree_mask + (q_batch * p.Sq + q_row(row)) * p.tree_mask_words;
    return (words[bit / TREE_MASK_BITS] >> bit % TREE_MASK_BITS & 1) == 0;
  }

  // One row of a block that has keys of the tree: the values are added run by run of keys that the row sees, so that the
  // others cannot reach it even as 0 * NaN.
  template <class Rows>
  void attend_tree_row(int64_t row, int64_t key0, int64_t keys, const Block<Rows>& k, const Block<Rows>& v) {
    const int64_t first = std::clamp<int64_t>(first_seen_key(row) - key0, 0, keys);
    const int64_t end = std::clamp<int64_t>(seen_keys(row) - key0, 0, keys);
    if (first >= end) return;
    RowStates<1> state{m_tile + row, l_tile + row, o_tile + row * Dv_pad, {}};
    k.read([&](const auto& block) {
      compute_logits<1>(q_tile + row * D_pad, block, end, D_pad, logit_scale(), logits);
    });
    if (p.softcap > 0.0f) cap_logits<1>(logits, end, p.softcap);
    for (int64_t key = first; key < end; ++key) {
      if (tree_hides(row, key0 + key)) logits[key] = negative_infinity();
    }
    online_softmax<1>(logits, {{static_cast<int32_t>(first)}, {static_cast<int32_t>(end)}}, end, state);
    const float unchanged = 1.0f;
    const float* alpha = state.alpha;
    v.read([&](const auto& block) {
      for (int64_t from = first; from < end;) {
        int64_t to = from;
        while (to < end && !tree_hides(row, key0 + to)) ++to;
        if (from < to) {
          const Weighted<std::decay_t<decltype(block)>> run{logits + from, 1, block.after(from), to - from};
          accumulate<1>(run, Dv_pad, alpha, state.l, state.o);
          alpha = &unchanged;
        }
        from = to + 1;
      }
    });
  }

  template <int ROWS, class Rows>
  void attend_rows(int64_t row, int64_t key0, int64_t keys, const Block<Rows>& k,
                   const Block<Rows>& v) {
    const auto in_block = [&](int64_t key) {
      return static_cast<int32_t>(std::clamp<int64_t>(key - key0, 0, keys));
    };
    SeenKeys<ROWS> seen;
    for (int r = 0; r < ROWS; ++r) {
      // Rows past the tile are padding. They see the same keys as the last row.
      const int64_t of_row = std::min(row + r, rows - 1);
      seen.first[r] = in_block(first_seen_key(of_row));
      seen.end[r] = in_block(seen_keys(of_row));
    }
    const int64_t needed = seen.first[0] < seen.end[ROWS - 1] ? seen.end[ROWS - 1] : 0;
    if (needed == 0) return;

    RowStates<ROWS> state{m_tile + row, l_tile + row, o_tile + row * Dv_pad, {}};
    k.read([&](const auto& block) {
      compute_logits<ROWS>(q_tile + row * D_pad, block, needed, D_pad, logit_scale(), logits);
    });
    if (p.softcap > 0.0f) cap_logits<ROWS>(logits, needed, p.softcap);
    online_softmax<ROWS>(logits, seen, needed, state);
    v.read([&](const auto& block) { accumulate_seen<ROWS>(logits, seen, block, Dv_pad, state); });
  }

  void store_output() const {
    for (int64_t row = 0; row < rows; ++row) {
      store_row<Element>(p, q_batch, head(row), q_row(row), m_tile[row], l_tile[row],
                         o_tile + row * Dv_pad);
    }
  }

  void store_partial() const {
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t slot = ((split * p.B + q_batch) * p.H + head(row)) * p.Sq + q_row(row);
      p.partial_m[slot] = m_tile[row];
      p.partial_l[slot] = l_tile[row];
      std::copy_n(o_tile + row * Dv_pad, p.Dv, p.partial_o + slot * p.Dv);
    }
  }
};

template <class Element, class KvElement>
void partial(const SplitKParams& p, int64_t item, float* scratch) {  // [scratch_numel]
  PartialItem<Element, KvElement>(p, item, scratch).run();
}

// The state of the splits [first, first + count) of a row. Halves are merged as a tree, so that the
// rounding errors of many splits do not add up one after the other.
inline void merge_splits(const SplitKParams& p, int64_t row, int64_t first, int64_t count, float& m,
                         float& l, float* o) {  // [1 + tree depth, Dv], the result in o[0]
  if (count == 1) {
    const int64_t slot = first * p.B * p.H * p.Sq + row;
    m = p.partial_m[slot];
    l = p.partial_l[slot];
    std::copy_n(p.partial_o + slot * p.Dv, p.Dv, o);
    return;
  }
  float m_right, l_right;
  float* o_right = o + p.Dv;
  merge_splits(p, row, first, count - count / 2, m, l, o);
  merge_splits(p, row, first + count - count / 2, count / 2, m_right, l_right, o_right);
  const MergeWeights w = merge_weights(m, m_right);
  m = w.m;
  l = merge_weighted(w, l, l_right);
  for (int64_t d = 0; d < p.Dv; ++d) o[d] = merge_weighted(w, o[d], o_right[d]);
}

template <class Element>
void merge(const SplitKParams& p, int64_t begin, int64_t end,
           float* scratch) {  // [scratch_numel], of which [1 + tree depth, Dv] is used
  static_assert(MAX_NUM_SPLITS <= int64_t{1} << 10 && BLOCK_KV >= 11,
                "a tree of depth 10 needs 11 rows: the scratch of packed values has them");
  for (int64_t row = begin; row < end; ++row) {
    float m, l;
    merge_splits(p, row, 0, p.num_splits, m, l, scratch);
    const int64_t query = row % p.Sq;
    const int64_t head = row / p.Sq % p.H;
    const int64_t batch = row / (p.Sq * p.H);
    store_row<Element>(p, batch, head, query, m, l, scratch);
  }
}

template <class Element>
Kernels kernels(KvType kv) {
  switch (kv) {
    case KvType::e4m3:
      return {scratch_numel, partial<Element, Float8E4m3>, merge<Element>};
    case KvType::e5m2:
      return {scratch_numel, partial<Element, Float8E5m2>, merge<Element>};
    default:
      return {scratch_numel, partial<Element, Element>, merge<Element>};
  }
}

}  // namespace kbtool::cpu
