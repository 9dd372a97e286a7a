// Runs CUDA kernels on the host, for tests: each thread of a block is a fiber that runs until it
// meets a barrier. Which fiber goes first is drawn anew for every round, so a barrier that is
// missing changes results; one that not every thread reaches is a deadlock, and is reported.
//
// The sources are compiled by the C++ compiler from a copy in which kernel launches are calls of
// host_cuda::launch. What needs a real card (asynchronous copies, tensor cores) cannot be run.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <math_constants.h>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#undef __launch_bounds__
#define __launch_bounds__(...)

namespace host_cuda {

constexpr int WARP = 32;
constexpr size_t SHARED_BYTES = 99 * 1024;
constexpr size_t STACK_BYTES = 256 * 1024;
constexpr unsigned char POISON = 0xff;  // a NaN in every element type

struct Barrier {
  int expected = 0;
  int arrived = 0;
  uint64_t generation = 0;
};

struct Fiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack{new char[STACK_BYTES]};
  int thread = 0;
  bool done = false;
  Barrier* waits_for = nullptr;
  uint64_t generation = 0;
};

struct Block {
  dim3 grid;
  dim3 index;
  int threads = 0;
  std::vector<Fiber> fibers;
  std::vector<Barrier> warps;
  Barrier block;
  std::vector<uint32_t> lanes;  // what each thread offers in a shuffle
  Fiber* running = nullptr;
  ucontext_t scheduler;
  void (*body)(const void*) = nullptr;
  const void* argument = nullptr;
};

inline Block current;
inline std::mt19937 order;

inline void complete_if_full(Barrier& barrier) {
  if (barrier.expected > 0 && barrier.arrived == barrier.expected) {
    barrier.arrived = 0;
    ++barrier.generation;
  }
}

inline void wait(Barrier& barrier) {
  Fiber* self = current.running;
  self->waits_for = &barrier;
  self->generation = barrier.generation;
  ++barrier.arrived;
  complete_if_full(barrier);
  swapcontext(&self->context, &current.scheduler);
}

inline void enter() {
  current.body(current.argument);
  Fiber* self = current.running;
  self->done = true;
  // Threads that have ended are no longer waited for.
  for (Barrier* barrier : {&current.block, &current.warps[self->thread / WARP]}) {
    --barrier->expected;
    complete_if_full(*barrier);
  }
}

inline void run_block() {
  current.block = {current.threads, 0, 0};
  current.warps.assign((current.threads + WARP - 1) / WARP, {});
  current.lanes.assign(current.threads, 0);
  for (int i = 0; i < current.threads; ++i) {
    ++current.warps[i / WARP].expected;
    Fiber& fiber = current.fibers[i];
    fiber.thread = i;
    fiber.done = false;
    fiber.waits_for = nullptr;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = STACK_BYTES;
    fiber.context.uc_link = &current.scheduler;
    makecontext(&fiber.context, enter, 0);
  }
  std::vector<int> turns(current.threads);
  std::iota(turns.begin(), turns.end(), 0);
  for (int left = current.threads; left > 0;) {
    std::shuffle(turns.begin(), turns.end(), order);
    bool progress = false;
    for (const int i : turns) {
      Fiber& fiber = current.fibers[i];
      if (fiber.done) continue;
      if (fiber.waits_for != nullptr && fiber.waits_for->generation == fiber.generation) continue;
      fiber.waits_for = nullptr;
      current.running = &fiber;
      swapcontext(&current.scheduler, &fiber.context);
      progress = true;
      left -= fiber.done;
    }
    if (!progress) {
      std::fprintf(stderr, "deadlock: a barrier that not every thread of the block reaches\n");
      std::abort();
    }
  }
}

struct ThreadIndex {
  struct X {
    operator unsigned() const { return current.running->thread; }
  } x;
};
struct BlockIndex {
  struct X {
    operator unsigned() const { return current.index.x; }
  } x;
};
struct GridSize {
  struct X {
    operator unsigned() const { return current.grid.x; }
  } x;
};

}  // namespace host_cuda

namespace kbtool::cuda {
// The block's dynamic shared memory, and what lies behind it.
inline unsigned char smem[host_cuda::SHARED_BYTES + 4096] __attribute__((aligned(16)));
}  // namespace kbtool::cuda

namespace host_cuda {

template <class Argument>
cudaError_t launch(void (*kernel)(Argument), unsigned grid, int threads, size_t shared_bytes,
                   cudaStream_t, const std::decay_t<Argument>& argument) {
  static void (*body)(Argument);
  body = kernel;
  while (current.fibers.size() < static_cast<size_t>(threads)) current.fibers.emplace_back();
  current.threads = threads;
  current.grid = dim3(grid);
  current.argument = &argument;
  current.body = [](const void* at) { body(*static_cast<const std::decay_t<Argument>*>(at)); };
  for (unsigned block = 0; block < grid; ++block) {
    current.index = dim3(block);
    std::memset(kbtool::cuda::smem, POISON, sizeof(kbtool::cuda::smem));
    run_block();
    for (size_t i = shared_bytes; i < sizeof(kbtool::cuda::smem); ++i) {
      if (kbtool::cuda::smem[i] != POISON) {
        std::fprintf(stderr, "wrote %zu bytes into %zu bytes of shared memory\n", i, shared_bytes);
        std::abort();
      }
    }
  }
  return cudaSuccess;
}

}  // namespace host_cuda

static host_cuda::ThreadIndex threadIdx;
static host_cuda::BlockIndex blockIdx;
static host_cuda::GridSize gridDim;

inline void __syncthreads() { host_cuda::wait(host_cuda::current.block); }

inline void __syncwarp() {
  host_cuda::wait(host_cuda::current.warps[host_cuda::current.running->thread / host_cuda::WARP]);
}

inline float __shfl_xor_sync(unsigned, float value, int mask) {
  const int thread = host_cuda::current.running->thread;
  std::memcpy(&host_cuda::current.lanes[thread], &value, sizeof(value));
  __syncwarp();
  std::memcpy(&value, &host_cuda::current.lanes[thread ^ mask], sizeof(value));
  __syncwarp();
  return value;
}

template <class T>
T __ldg(const T* from) {
  return *from;
}
namespace host_cuda {
inline int64_t lengths_read = 0;  // integers that kernels loaded by ld.cg
}
template <class T>
T __ldcg(const T* from) {
  host_cuda::lengths_read += std::is_integral_v<T>;
  return *from;
}

// The one attribute that the launches set; there is no card to set it on.
namespace host_cuda {
template <class Kernel>
cudaError_t set_attribute(Kernel, int, int bytes) {
  return static_cast<size_t>(bytes) <= SHARED_BYTES ? cudaSuccess : cudaErrorInvalidValue;
}
inline cudaError_t get_device(int* device) {
  *device = 0;
  return cudaSuccess;
}

// Of a card of sm_80.
inline cudaError_t get_attribute(int* value, cudaDeviceAttr attribute, int) {
  *value = attribute == cudaDevAttrComputeCapabilityMajor ? 8 : static_cast<int>(SHARED_BYTES);
  return cudaSuccess;
}
}  // namespace host_cuda
