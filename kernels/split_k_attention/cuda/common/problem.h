// What plans are made from: the sizes of a call, what its layout allows, the element type and the card.
#pragma once

#include <algorithm>
#include <cstdint>

#include "../../num_splits.h"

namespace kbtool::cuda {

enum class ElementType { fp16, bf16 };

constexpr int64_t MAX_HEAD_DIM = 256;

// The head dimensions that kernels are compiled for; others take the next larger one.
constexpr int WIDTHS[] = {64, 128, 256};
constexpr int width_index(int64_t D) { return D <= 64 ? 0 : D <= 128 ? 1 : 2; }

constexpr int64_t MAX_BLOCKS = (int64_t{1} << 31) - 1;  // of a grid
constexpr int64_t MAX_KEYS = (int64_t{1} << 35) - 1;    // key blocks of 16 are counted in 31 bits
constexpr int64_t MAX_RAGGED_ENTRIES = 240;             // batch entries of the ragged kernel

struct Sizes {
  int64_t B;
  int64_t H;    // query heads, a multiple of Hkv
  int64_t Hkv;  // key and value heads
  int64_t Sq;
  int64_t Skv;
  int64_t D;      // of q and k
  int64_t Dv;     // of v
  bool lengths;  // each batch entry has its own number of valid keys, which only the device knows
  bool tma;      // k and v lie so that TMA can read them (layout.h)
  bool by_element;  // rows of k and v are copied element by element (layout.h)
  bool paged;       // k and v lie in pages
  bool fp8;         // k and v have 8 bits: only fused takes them
  bool options;     // only fused takes them: a window, softcap, or the tree mask of queries that are not packed. Skv is
                    // then what a window leaves of it
  bool packed;      // queries of unlike lengths, which only the device knows: Sq is the most of an entry
  bool tree;        // a tree mask
  int64_t total_q;  // packed queries of all entries

  // Keys of 129 to 192 columns beside values of up to 128: wgmma has a kernel for them.
  bool fewer_values() const { return D > 128 && D <= 192 && Dv <= 128 && total_q == 0; }
  // Columns that an instance needs.
  int64_t width() const { return std::max(D, Dv); }
  int64_t rows() const { return (packed ? total_q : B * Sq) * H; }
  // At most, of a batch entry.
  int64_t rows_of_kv_head() const { return Hkv == 0 ? 0 : H / Hkv * Sq; }
};

constexpr int MAX_CLUSTER = 8;  // blocks; the largest portable cluster

// What a card offers; read once.
struct Card {
  int capability;       // 90 for sm_90
  int multiprocessors;
  int bandwidth;        // GB/s of its memory, from clock and width; 0 where the driver does not tell
  int max_cluster;      // blocks of a cluster, 1 where the card has none
  // clusters[n]: clusters of n blocks that run at a time where each block takes a whole
  // multiprocessor; 0 where this build has no wgmma for the card.
  int clusters[MAX_CLUSTER + 1];

  bool has_wgmma() const { return clusters[1] > 0; }
};

}  // namespace kbtool::cuda
