// Captures, runs and destroys graphs in an order that is drawn, and checks the counters that each launch gets.
// run SEED: prints the most graphs that were there at a time, and how often memory was allocated.
#include <cstdio>
#include <map>
#include <random>
#include <set>

#include "cuda/common/counters.h"

namespace {

[[noreturn]] void wrong(const char* what) {
  std::printf("wrong: %s\n", what);
  std::exit(1);
}

}  // namespace

int main(int, char** arguments) {
  std::mt19937 random(std::atoi(arguments[1]));
  const auto draw = [&](int below) { return static_cast<int>(random() % static_cast<unsigned>(below)); };
  kbtool::cuda::CounterPool pool;
  struct Captured {
    Graph* graph;
    std::map<unsigned*, int> counters;  // of each launch, and how many
  };
  std::map<int, Captured> there;
  Stream eager{1, nullptr};
  unsigned* of_stream = nullptr;
  if (pool.take(0, &eager, 64, &of_stream) != cudaSuccess) wrong("a launch outside of a capture");
  size_t most = 0;
  for (int turn = 0; turn < 400; ++turn) {
    if (there.size() < 5 || draw(2) == 0) {
      Captured made{new Graph{static_cast<unsigned long long>(turn) + 10, {}}, {}};
      Stream stream{static_cast<unsigned long long>(draw(3)) + 2, made.graph};
      Stream forked{99, made.graph};
      for (int launch = draw(4); launch >= 0; --launch) {
        const int count = draw(3) == 0 ? 20000 + draw(30000) : 1 + draw(9000);
        unsigned* counters = nullptr;
        if (pool.take(0, draw(2) == 0 ? &stream : &forked, count, &counters) != cudaSuccess) wrong("a capture");
        for (int i = 0; i < count; ++i) {
          if (counters[i] != 0) wrong("a counter that is not zero");
        }
        made.counters[counters] = count;
      }
      there[turn] = made;
    } else {
      const auto gone = std::next(there.begin(), draw(static_cast<int>(there.size())));
      host::destroy(gone->second.graph);
      there.erase(gone);
    }
    most = std::max(most, there.size());
    // No two launches share a counter.
    std::map<unsigned*, int> all = {{of_stream, 64}};
    for (const auto& [_, captured] : there) all.insert(captured.counters.begin(), captured.counters.end());
    unsigned* end = nullptr;
    size_t launches = 1;
    for (const auto& [_, captured] : there) launches += captured.counters.size();
    if (all.size() != launches) wrong("two launches with the same counters");
    for (const auto& [first, count] : all) {
      if (first < end) wrong("launches whose counters overlap");
      end = first + count;
    }
    unsigned* again = nullptr;
    if (pool.take(0, &eager, 64, &again) != cudaSuccess || again != of_stream) wrong("a stream's counters moved");
  }
  // Out of memory is an error, and the pool goes on after it.
  Graph* graph = new Graph{9999, {}};
  Stream stream{2, graph};
  unsigned* counters = nullptr;
  host::out_of_memory = true;
  if (pool.take(0, &stream, 1 << 24, &counters) == cudaSuccess) wrong("memory that is not there");
  host::out_of_memory = false;
  if (pool.take(0, &stream, 1 << 24, &counters) != cudaSuccess) wrong("a capture after one without memory");
  host::destroy(graph);
  std::printf("%zu %d\n", most, host::allocations);
}
