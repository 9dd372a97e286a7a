// What plans are made from: the sizes of a call, the element type and the card.
#pragma once

#include <cstdint>

#include "../num_splits.h"

namespace kbtool::cuda {

enum class ElementType { fp16, bf16 };

constexpr int64_t MAX_HEAD_DIM = 256;

struct Sizes {
  int64_t B;
  int64_t H;    // query heads, a multiple of Hkv
  int64_t Hkv;  // key and value heads
  int64_t Sq;
  int64_t Skv;
  int64_t D;
  bool lengths;  // each batch entry has as many valid keys as the device says

  int64_t rows() const { return B * H * Sq; }
};

constexpr int MAX_CLUSTER = 8;  // what every card with clusters has

// What a card offers; read once.
struct Card {
  int capability;  // 90 for sm_90
  int multiprocessors;
  int bandwidth;    // of its memory by clock and width, GB/s; 0 where it does not tell
  int max_cluster;  // blocks of a cluster, 1 where the card has none
  // clusters[n]: clusters of n blocks that run at a time where each block takes a whole
  // multiprocessor; 0 where this build has no wgmma for the card.
  int clusters[MAX_CLUSTER + 1];

  bool has_wgmma() const { return clusters[1] > 0; }
};

}  // namespace kbtool::cuda
