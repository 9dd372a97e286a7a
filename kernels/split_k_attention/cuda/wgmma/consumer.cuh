// The consumer warps: the query tile, its products with each key block, and the output of a call without splits.
#pragma once

#include "ring.cuh"

namespace kbtool::cuda {

// Barrier of the 128 threads of one consumer warpgroup.
__device__ __forceinline__ void warpgroup_sync(int warpgroup) {
  asm volatile("barrier.sync %0, 128;" ::"r"(4 + warpgroup) : "memory");
}

// Loads the query tile, by all consumers.
template <class C>
__device__ __forceinline__ void load_query_tile(const FusedParams& fp, const WorkUnitOf<C>& at,
                                              const Ring<C>& ring, unsigned char* smem,
                                              int thread) {
  using Element = typename C::Element;
  using Traits = typename C::Traits;
  wait_for_earlier_kernel();
  trigger_dependent_launch(fp);
  // Of rows of 192 columns some threads copy none: a row is copied once.
  constexpr int COPIERS = C::THREADS / C::CHUNKS * C::CHUNKS;
  const bool copies = COPIERS == C::THREADS || thread < COPIERS;
  if (copies) {
    copy_queries<C, false>(fp, at, thread, C::THREADS, [&](int row, int chunk) {
      return ring.base + panel_offset(row, chunk, C::BLOCK_M);
    });
  }
  wait_copies<0>();
  if (copies && fp.q_factor != 1.0f) {  // -1 for a negative scale, 0 for a scale of 0: multiplying by it is exact
    const int chunk = thread % C::CHUNKS;  // the chunks that this thread has copied and waited for
#pragma unroll 1
    for (int row = thread / C::CHUNKS; row < at.rows; row += C::THREADS / C::CHUNKS) {
      Element* q = reinterpret_cast<Element*>(smem + panel_offset(row, chunk, C::BLOCK_M));
      for (int i = 0; i < 8; ++i) q[i] = Traits::from_float(Traits::to_float(q[i]) * fp.q_factor);
    }
  }
  fence_async_proxy();
  barrier_arrive(ring.queries_full());
  barrier_wait(ring.queries_full(), 0);
}

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
    if (C::WARPGROUPS == 2 && warpgroup == 1) end();  // lets warpgroup 0 begin
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
  const int64_t seen_by_tile = keys_seen_by_all<C>(fp, at);
  RingPosition<C> position;
  RingPosition<C> scanned;  // counts only key blocks whose values are scanned
#pragma unroll 1
  for (int64_t key0 = 0; key0 < keys; key0 += C::BLOCK_KV) {
    barrier_wait(ring.keys_full(position.stage), position.parity);
    __syncwarp();
    if (lane == 0) barrier_arrive(ring.keys_free(position.stage));
    if (key0 + C::BLOCK_KV > seen_by_tile) {
      barrier_wait(ring.values_scanned(position.stage), scanned.parity);
      scanned.advance();
    } else {
      barrier_wait(ring.values_full(position.stage), position.parity);
    }
    __syncwarp();
    if (lane == 0) barrier_arrive(ring.values_free(position.stage));
    position.advance();
  }
}

// A consumer warp: its rows against every key block of the split.
template <class C>
__device__ __forceinline__ void consume(const FusedParams& fp, const WorkUnitOf<C>& at,
                                        const Ring<C>& ring, unsigned char* smem, int warp,
                                        int lane, LaneState<C>& state) {
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
    const bool zeroed = ring.zeroed(smem)[stage] == key0;
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
  RingPosition<C> scanned;  // counts only key blocks whose values are scanned
  const auto await_values = [&](int64_t key0, const RingPosition<C>& last, auto plain) {
    if (!plain && key0 + C::BLOCK_KV > seen_by_tile) {
      await(ring.values_scanned(last.stage), scanned.parity);
      scanned.advance();
    } else {
      await(ring.values_full(last.stage), last.parity);
    }
  };
  const auto release = [&](uint32_t free) {
    if constexpr (C::PAIRED) {
      if (lane < 2) barrier_arrive_remote(remote_address(free, lane));
    } else {
      if (lane == 0) barrier_arrive(free);
    }
    __syncwarp();
  };

  if (keys <= 0) return;  // the tile sees no key of this split
  const PingPong<C> ping_pong(warp / 4, first_warpgroup_alone<C>(at));
  RingPosition<C> next;  // stage of the key block that Q K^T takes next
  RingPosition<C> last;  // stage of the key block that P V takes next: one block behind `next`
  await(ring.keys_full(0), 0);
  wgmma_fence();
  start_qk<C>(q, ring.keys(0), s);
  wgmma_wait<0>(s);
  release(ring.keys_free(0));
  next.advance();
  block_softmax(0, ANY);
  pack_weights();

  const auto next_block = [&](int64_t key0, auto plain) {
    await(ring.keys_full(next.stage), next.parity);
    ping_pong.begin();
    wgmma_fence();
    start_qk<C>(q, ring.keys(next.stage), s);
    await_values(key0 - C::BLOCK_KV, last, plain);
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
  await_values(last_key0, last, ANY);
  wgmma_fence();
  start_pv<C>(weights, ring.values(last.stage), state.o);
  wgmma_wait<0>(state.o);
  finish_values(last_key0, last.stage, ANY);
  if constexpr (C::PAIRED) release(ring.values_free(last.stage));  // the producer waits for this before it exits
}

// Stores output and LSE of a warp's rows if there is one split. The output passes through shared memory, in the
// place of this warpgroup's rows of Q, which no other warpgroup reads. The other rows of Q must stay: the other
// warpgroup may still read them.
template <class C>
__device__ __forceinline__ void store_finished_rows(const FusedParams& fp, const WorkUnitOf<C>& at,
                                                    unsigned char* smem, int warp, int lane,
                                                    const LaneState<C>& state) {
  using Element = typename C::Element;
  const auto place_in_q = [&](int row, int chunk) {
    return smem + panel_offset(row, chunk, C::BLOCK_M);
  };
  warpgroup_sync(warp / 4);
  for_each_row(at, warp, lane, state, [&](int row, int half, float l) {
    const RowIndex index = row_index(fp, at, row);
    const Quotient by_sum(fp, index.head, state.m[half], l);
    if (lane % 4 == 0) store_lse(fp, index, {state.m[half], l, {}});
#pragma unroll
    for (int tile = 0; tile < C::Dv / 8; ++tile) {
      const float* o = state.o[tile] + half * 2;
      *reinterpret_cast<uint32_t*>(place_in_q(row, tile) + lane % 4 * 4) =
          C::Traits::pack(by_sum(o[0]), by_sum(o[1]));
    }
  });
  __syncwarp();

  const Strides4& stride = fp.p.out_stride;
  const int chunk = lane % C::VALUE_CHUNKS;
  const int left = static_cast<int>(fp.p.Dv) - chunk * 8;
  if (left <= 0) return;
  const int end = min(warp * 16 + 16, at.rows);
#pragma unroll 1
  for (int row = warp * 16 + lane / C::VALUE_CHUNKS; row < end; row += 32 / C::VALUE_CHUNKS) {
    Element* out = output_at<Element>(fp, row_index(fp, at, row), chunk * 8);
    const uint4 values = *reinterpret_cast<const uint4*>(place_in_q(row, chunk));
    if (stride.dim == 1 && left >= 8 && (reinterpret_cast<uintptr_t>(out) & 15) == 0) {
      *reinterpret_cast<uint4*>(out) = values;
    } else {
      const Element* from = reinterpret_cast<const Element*>(&values);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        if (i < left) out[i * stride.dim] = from[i];
      }
    }
  }
}

}  // namespace kbtool::cuda
