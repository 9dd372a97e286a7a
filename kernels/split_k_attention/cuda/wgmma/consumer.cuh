// The consumer warps: the query tile, its products with each key block, and the output of a call without splits.
#pragma once

#include "ring.cuh"

namespace kbtool::cuda {

// Barrier of the 128 threads of one consumer warpgroup.
__device__ __forceinline__ void warpgroup_sync(int warpgroup) {
  asm volatile("barrier.sync %0, 128;" ::"r"(4 + warpgroup) : "memory");
}

// The query rows of a warpgroup, copied by its own threads: no other warpgroup reads them.
template <class C>
class Queries {
 public:
  __device__ __forceinline__ Queries(const FusedParams& fp, const Ring<C>& ring, unsigned char* smem, int thread)
      : fp_(fp), ring_(ring), smem_(smem), thread_(thread % 128), first_row_(thread / 128 * 64) {}

  __device__ __forceinline__ void start(const WorkUnitOf<C>& at) const {
    if (thread_ >= COPIERS) return;
    copy_queries<C, false, 4>(fp_, at, first_row_, end_of(at), thread_, 128, [&](int row, int chunk) {
      return ring_.base + panel_offset(row, chunk, C::BLOCK_M);
    });
  }

  // All threads of the warpgroup call it together. Then wgmma may read the rows.
  __device__ __forceinline__ void finish(const WorkUnitOf<C>& at) const {
    using Element = typename C::Element;
    using Traits = typename C::Traits;
    wait_copies<0>();
    if (thread_ < COPIERS && fp_.q_factor != 1.0f) {  // -1 for a negative scale, 0 for 0: multiplying by it is exact
      const int chunk = thread_ % C::CHUNKS;  // the chunks that this thread has copied and waited for
#pragma unroll 1
      for (int row = first_row_ + thread_ / C::CHUNKS; row < end_of(at); row += 128 / C::CHUNKS) {
        Element* q = reinterpret_cast<Element*>(smem_ + panel_offset(row, chunk, C::BLOCK_M));
        for (int i = 0; i < 8; ++i) q[i] = Traits::from_float(Traits::to_float(q[i]) * fp_.q_factor);
      }
    }
    fence_async_proxy();
    warpgroup_sync(first_row_ / 64);
  }

 private:
  static constexpr int COPIERS = 128 / C::CHUNKS * C::CHUNKS;  // of rows of 192 columns some threads copy none
  __device__ __forceinline__ int end_of(const WorkUnitOf<C>& at) const { return min(at.rows, first_row_ + 64); }

  const FusedParams& fp_;
  Ring<C> ring_;
  unsigned char* smem_;
  int thread_;
  int first_row_;
};

// Starts s [64, BLOCK_KV] = Q [64, D] K^T.
template <class C>
__device__ __forceinline__ void start_qk(uint32_t q, uint32_t k,
                                             float (&s)[C::BLOCK_KV / 8][4]) {
  const uint64_t a = k_major_descriptor(q);
  const uint64_t b = k_major_descriptor(k);
#pragma unroll
  for (int step = 0; step < C::D / 16; ++step) {
    // A panel holds four steps of 32 bytes. Descriptors count in units of 16 bytes.
    const uint64_t inside = step % 4 * 2;
    wgmma_shared<typename C::Element>(s, a + (step / 4 * C::BLOCK_M * 8 + inside),
                                         b + (step / 4 * C::BLOCK_KV * 8 + inside), step > 0);
  }
  wgmma_commit();
}

// Starts o [64, Dv] += P [64, BLOCK_KV] V.
template <class C>
__device__ __forceinline__ void start_pv(const uint32_t (&weights)[C::BLOCK_KV / 16][4],
                                             uint32_t v, float (&o)[C::Dv / 8][4]) {
  const uint64_t b = mn_major_descriptor(v, C::BLOCK_KV * 128);
#pragma unroll
  for (int step = 0; step < C::BLOCK_KV / 16; ++step) {
    wgmma_registers<typename C::Element>(o, weights[step], b + step * (16 * 128 / 16));
  }
  wgmma_commit();
}

// Whether the tile has no rows for the second warpgroup, which then computes nothing. Tiles of packed queries are as
// tall as the longest entry needs, and in most batches one or a few queries of each other entry are decoded.
template <class C>
__device__ __forceinline__ bool first_warpgroup_alone(const WorkUnitOf<C>& at) {
  return C::PACKED && C::WARPGROUPS == 2 && at.rows <= 64;
}

// Ping-pong scheduling: two warpgroups start their wgmma in turn, and one computes its softmax meanwhile.
template <class C>
class PingPong {
 public:
  __device__ __forceinline__ PingPong(int warpgroup, bool alone) : warpgroup_(warpgroup), alone_(alone) {
    if (C::WARPGROUPS == 2 && warpgroup == 1) end();  // lets warpgroup 0 begin; the last of a tile lets it begin the next
  }
  __device__ __forceinline__ void begin() const {
    if constexpr (C::WARPGROUPS == 2) {
      if (alone_) return;
      asm volatile("barrier.sync %0, %1;" ::"r"(1 + warpgroup_), "n"(C::THREADS) : "memory");
    }
  }
  __device__ __forceinline__ void end() const {
    if constexpr (C::WARPGROUPS == 2) {
      if (alone_) return;
      asm volatile("barrier.arrive %0, %1;" ::"r"(2 - warpgroup_), "n"(C::THREADS) : "memory");
    }
  }

 private:
  int warpgroup_;
  bool alone_;
};

// Scheduling barrier. Without it, ptxas moves the next wgmma wait ahead of the softmax, and nothing
// overlaps. This store is never taken, since sums of weights are not negative; it depends on the softmax and
// pins the wait.
__device__ __forceinline__ void scheduling_barrier(const float (&sums)[2], uint32_t shared) {
  asm volatile(
      "{\n"
      ".reg .pred never;\n"
      "setp.lt.f32 never, %0, 0f00000000;\n"
      "@never st.shared.f32 [%1], %0;\n"
      "}\n" ::"f"(fminf(sums[0], sums[1])),
      "r"(shared)
      : "memory");
}

// A consumer warp without rows: frees each stage as it is filled.
template <class C>
__device__ __forceinline__ void free_stages(const FusedParams& fp, const WorkUnitOf<C>& at, const Ring<C>& ring,
                                            int lane) {
  const int64_t keys = at.key_end - at.key_begin;
  RingPosition<C> position;
#pragma unroll 1
  for (int64_t key0 = 0; key0 < keys; key0 += C::BLOCK_KV) {
    barrier_wait(ring.keys_full(position.stage), position.parity);
    __syncwarp();
    if (lane == 0) barrier_arrive(ring.keys_free(position.stage));
    barrier_wait(ring.values_full(position.stage), position.parity);
    __syncwarp();
    if (lane == 0) barrier_arrive(ring.values_free(position.stage));
    position.advance();
  }
}

// Where a consumer warp is in the ring, through all tiles of its block.
template <class C>
struct ConsumerPosition {
  RingPosition<C> next;  // of the key block that Q K^T takes next
  RingPosition<C> last;  // of the key block that P V takes next
  int number = 0;  // of the latter
};

// A consumer warp: its rows against every key block of the split. queries_read() is called once the last products with
// the query tile are done.
template <class C, class QueriesRead>
__device__ __forceinline__ void consume(const FusedParams& fp, const WorkUnitOf<C>& at,
                                        const Ring<C>& ring, unsigned char* smem, int warp,
                                        int lane, const PingPong<C>& ping_pong, ConsumerPosition<C>& position,
                                        LaneState<C>& state, const QueriesRead& queries_read) {
  using Traits = typename C::Traits;
  constexpr int TILES = C::BLOCK_KV / 8;
  constexpr std::true_type PLAIN;
  constexpr std::false_type ANY;
  const int64_t keys = at.key_end - at.key_begin;
  const uint32_t q = ring.base + warp / 4 * (64 * 128);  // this warpgroup's rows of each panel
  const int first_row = warp * 16;

  SeenKeys<int64_t> seen_by_row;
  bool exists[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first_row + half * 8 + lane / 4;
    exists[half] = row < at.rows;
    seen_by_row.end[half] =
        min(seen_keys(fp, at, min(row, at.rows - 1)), at.key_end) - at.key_begin;
  }
  const int64_t seen_by_all =
      min(seen_from_row_on<C>(fp, at, min(first_row, at.rows - 1)), at.key_end) - at.key_begin;

  float s[TILES][4];
  uint32_t weights[C::BLOCK_KV / 16][4];
  float alpha[2];

  // `plain`: every row sees all of this key block and of the one before it; of paired blocks, every row of both tiles.
  const auto block_softmax = [&](int64_t key0, auto plain) {
    if (!plain && key0 + C::BLOCK_KV > seen_by_all) {
      SeenKeys<int> seen;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        seen.end[half] = static_cast<int>(
            max(int64_t{0}, min(static_cast<int64_t>(C::BLOCK_KV), seen_by_row.end[half] - key0)));
      }
      mask_logits<false>(s, seen, lane);
      if constexpr (C::TREES) {
        if (fp.p.tree_mask != nullptr) mask_logits_by_tree(s, fp, at, first_row + lane / 4, at.key_begin + key0, lane);
      }
    }
    online_softmax<true>(s, fp.c, state, alpha);
  };
  const int64_t seen_by_tile = keys_seen_by_all<C>(fp, at);
  // After P V of a key block: adds the non-finite values that were zeroed.
  const auto finish_values = [&](int64_t key0, int stage, auto plain) {
    if (plain || key0 + C::BLOCK_KV <= seen_by_tile) return;
    const bool zeroed = ring.zeroed(smem)[stage] == position.number;
    __syncwarp();  // every lane has read `zeroed` before the stage is freed
    if (zeroed) add_non_finite<C>(fp, at, key0, seen_by_row, first_row + lane / 4, lane, state);
  };
  const auto pack_weights = [&] {
#pragma unroll
    for (int step = 0; step < C::BLOCK_KV / 16; ++step) {
      weights[step][0] = Traits::pack(s[step * 2][0], s[step * 2][1]);
      weights[step][1] = Traits::pack(s[step * 2][2], s[step * 2][3]);
      weights[step][2] = Traits::pack(s[step * 2 + 1][0], s[step * 2 + 1][1]);
      weights[step][3] = Traits::pack(s[step * 2 + 1][2], s[step * 2 + 1][3]);
    }
  };
  const auto await = [&](uint32_t full, uint32_t parity) {
    barrier_wait(full, parity);
    __syncwarp();
  };
  RingPosition<C>& next = position.next;
  RingPosition<C>& last = position.last;
  const auto release = [&](uint32_t free) {
    if constexpr (C::PAIRED) {
      if (lane < 2) barrier_arrive_remote(remote_address(free, lane));
    } else {
      if (lane == 0) barrier_arrive(free);
    }
    __syncwarp();
  };

  if (keys <= 0) {  // the tile sees no key of this split
    queries_read();
    return;
  }
  await(ring.keys_full(next.stage), next.parity);
  wgmma_fence();
  start_qk<C>(q, ring.keys(next.stage), s);
  wgmma_wait<0>(s);
  release(ring.keys_free(next.stage));
  next.advance();
  block_softmax(0, ANY);
  pack_weights();

  const auto next_block = [&](int64_t key0, auto plain) {
    await(ring.keys_full(next.stage), next.parity);
    ping_pong.begin();
    wgmma_fence();
    start_qk<C>(q, ring.keys(next.stage), s);
    await(ring.values_full(last.stage), last.parity);
    wgmma_fence();
    start_pv<C>(weights, ring.values(last.stage), state.o);
    ping_pong.end();
    wgmma_wait<1>(s);
    release(ring.keys_free(next.stage));
    block_softmax(key0, plain);
    scheduling_barrier(state.l, q);
    wgmma_wait<0>(state.o);
    finish_values(key0 - C::BLOCK_KV, last.stage, plain);
    release(ring.values_free(last.stage));
    rescale_output(state, alpha, exists);
    pack_weights();
    next.advance();
    last.advance();
    ++position.number;
  };
  int64_t key0 = C::BLOCK_KV;
  // A loop without mask and scan: 1 to 2 % faster for 64 and more queries, no difference for fewer (H200).
  if constexpr (C::WARPGROUPS == 2) {
    const int64_t seen = seen_from_row_on<C>(fp, at, first_row_of_pair<C>(at)) - at.key_begin;
    const int64_t last_plain = min(seen, keys) - C::BLOCK_KV;
#pragma unroll 1
    for (; key0 <= last_plain; key0 += C::BLOCK_KV) next_block(key0, PLAIN);
  }
#pragma unroll 1
  for (; key0 < keys; key0 += C::BLOCK_KV) next_block(key0, ANY);

  const int64_t last_key0 = (keys - 1) / C::BLOCK_KV * C::BLOCK_KV;
  await(ring.values_full(last.stage), last.parity);
  wgmma_fence();
  start_pv<C>(weights, ring.values(last.stage), state.o);
  queries_read();
  wgmma_wait<0>(state.o);
  finish_values(last_key0, last.stage, ANY);
  if (C::PAIRED || C::PERSISTENT) release(ring.values_free(last.stage));  // of paired blocks the producer waits for it
  last.advance();
  ++position.number;
}

// Four lanes hold a row's 32 columns of four tiles, two of each tile; then each holds the eight of one tile. `two`: packed
// columns, of this lane in the four tiles; of the tile of this lane, by all four lanes.
__device__ __forceinline__ void exchange_in_quad(uint32_t (&two)[4], int lane) {
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2) {
    const bool upper = (lane & bit) != 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i & bit) continue;
      const uint32_t got = __shfl_xor_sync(~0u, upper ? two[i] : two[i + bit], bit);
      (upper ? two[i] : two[i + bit]) = got;
    }
  }
}

// Stores output and LSE of a warp's rows if there is one split.
template <class C>
__device__ __forceinline__ void store_finished_rows(const FusedParams& fp, const WorkUnitOf<C>& at, int warp, int lane,
                                                    const LaneState<C>& state) {
  using Element = typename C::Element;
  const int Dv = static_cast<int>(fp.p.Dv);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float l = state.l[half];
    l += __shfl_xor_sync(~0u, l, 1);
    l += __shfl_xor_sync(~0u, l, 2);
    const int row = warp * 16 + half * 8 + lane / 4;
    const bool exists = row < at.rows;
    const RowIndex index = row_index(fp, at, min(row, at.rows - 1));
    const Quotient by_sum(fp, index.head, state.m[half], l);
    if (exists && lane % 4 == 0) store_lse(fp, index, {state.m[half], l, {}});
    const auto pack = [&](int tile) {
      const float* o = state.o[tile] + half * 2;
      return C::Traits::pack(by_sum(o[0]), by_sum(o[1]));
    };
    if (fp.out_aligned) {
      Element* out = output_at<Element>(fp, index, lane % 4 * 8);
#pragma unroll
      for (int tile = 0; tile < C::Dv / 8; tile += 4) {
        uint32_t eight[4] = {pack(tile), pack(tile + 1), pack(tile + 2), pack(tile + 3)};
        exchange_in_quad(eight, lane);
        if (exists && tile * 8 + lane % 4 * 8 < Dv) {
          *reinterpret_cast<uint4*>(out + tile * 8) = make_uint4(eight[0], eight[1], eight[2], eight[3]);
        }
      }
    } else if (exists) {
      const int64_t to_next = fp.p.out_stride.dim;
      Element* out = output_at<Element>(fp, index, lane % 4 * 2);
#pragma unroll
      for (int tile = 0; tile < C::Dv / 8; ++tile, out += 8 * to_next) {
        const uint32_t two = pack(tile);
        const int column = tile * 8 + lane % 4 * 2;
        if (column < Dv) out[0] = reinterpret_cast<const Element*>(&two)[0];
        if (column + 1 < Dv) out[to_next] = reinterpret_cast<const Element*>(&two)[1];
      }
    }
  }
}

}  // namespace kbtool::cuda
