// How many splits merge in one cluster, through shared memory.
#pragma once

#include <algorithm>

#include "plan.h"

namespace kbtool::cuda {

// Whether so many clusters run at the same time, each block on a multiprocessor of its own. A build
// without wgmma does not know, and says yes.
inline bool fit_at_once(int64_t clusters, int64_t blocks, const Card& card) {
  return !card.has_wgmma() || clusters <= card.clusters[blocks];
}

// The largest cluster size that divides `splits`. With at most one block per multiprocessor, all clusters
// must also run at once: an H200 runs 15 clusters of 8 at a time, and 16 of them took 1.3 times as long as
// 64 clusters of 2.
inline int choose_cluster(int64_t output_tiles, int64_t splits, const Card& card) {
  const bool waves = output_tiles * splits > card.multiprocessors;
  for (int blocks = std::min<int64_t>(splits, card.max_cluster); blocks > 1; --blocks) {
    if (splits % blocks != 0) continue;
    if (waves || fit_at_once(output_tiles * splits / blocks, blocks, card)) return blocks;
  }
  return 1;
}

}  // namespace kbtool::cuda
