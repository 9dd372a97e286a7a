// The product on the CPU. An item is ROWS rows of w over one split of k; each vector of w is widened to fp32
// once for MOST_COLUMNS rows of x. The vectors are the compiler's own, of GCC and Clang.
#include "gemm.h"

#include <torch/csrc/stable/ops.h>
#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#ifdef __AVX512F__
#include <immintrin.h>
#endif

namespace split_k_gemm::cpu {
namespace {

constexpr int64_t ROWS = 4;      // of w in an item
constexpr int64_t MOST_COLUMNS = 4;  // rows of x that share what is widened
constexpr int64_t LANES = 16;    // partial sums of an element
constexpr int64_t ITEMS = 64;    // wanted, for the number of splits
constexpr int64_t MIN_K = 1024;  // of a split

using Vector = float __attribute__((vector_size(LANES * sizeof(float))));

inline Vector widen(const torch::headeronly::BFloat16* elements) {
  using Bits = uint16_t __attribute__((vector_size(LANES * sizeof(uint16_t))));
  using Wide = uint32_t __attribute__((vector_size(LANES * sizeof(uint32_t))));
  Bits bits;
  std::memcpy(&bits, elements, sizeof bits);
  return reinterpret_cast<Vector>(__builtin_convertvector(bits, Wide) << 16);
}

inline Vector widen(const torch::headeronly::Half* elements) {
#ifdef __AVX512F__
  return reinterpret_cast<Vector>(
      _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(elements))));
#else
  _Float16 narrow[LANES];
  float wide[LANES];
  std::memcpy(narrow, elements, sizeof narrow);
  for (int64_t i = 0; i < LANES; ++i) wide[i] = narrow[i];
  Vector vector;
  std::memcpy(&vector, wide, sizeof vector);
  return vector;
#endif
}

// As many elements as there are, and zeros after them.
template <class Element>
Vector widen(const Element* elements, int64_t count) {
  if (count >= LANES) return widen(elements);
  Element padded[LANES] = {};
  std::copy_n(elements, count, padded);
  return widen(padded);
}

struct Range {
  int64_t begin, end;
};

Range range_of(int64_t split, int64_t splits, int64_t K) {
  const int64_t vectors = (K + LANES - 1) / LANES;
  const int64_t size = (vectors + splits - 1) / splits * LANES;
  return {std::min(split * size, K), std::min((split + 1) * size, K)};
}

// The products of COLUMNS rows of x, in fp32 and padded with zeros, with up to ROWS rows of w, over k.
template <int64_t COLUMNS, class Element>
void multiply(const float* x, int64_t x_stride, const Element* w, int64_t w_stride, int64_t rows,
              Range k, float (*sums)[ROWS]) {
  Vector acc[COLUMNS][ROWS] = {};
  for (int64_t at = k.begin; at < k.end; at += LANES) {
    Vector wide[ROWS];
    for (int64_t r = 0; r < ROWS; ++r) {
      wide[r] = widen(w + std::min(r, rows - 1) * w_stride + at, k.end - at);
    }
    for (int64_t c = 0; c < COLUMNS; ++c) {
      Vector column;
      std::memcpy(&column, x + c * x_stride + at, sizeof column);
      for (int64_t r = 0; r < ROWS; ++r) acc[c][r] += wide[r] * column;
    }
  }
  for (int64_t c = 0; c < COLUMNS; ++c) {
    for (int64_t r = 0; r < ROWS; ++r) {
      float sum = 0;
      for (int64_t i = 0; i < LANES; ++i) sum += acc[c][r][i];
      sums[c][r] = sum;
    }
  }
}

template <class Body>
void parallel(int64_t count, const Body& body) {
  torch::stable::parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) body(i);
  });
}

template <class Element>
void run(const Params& p, int64_t splits) {
  const auto* w = static_cast<const Element*>(p.w);
  auto* out = static_cast<Element*>(p.out);
  const int64_t x_stride = (p.K + LANES - 1) / LANES * LANES;
  std::vector<float> x(p.M * x_stride);
  for (int64_t m = 0; m < p.M; ++m) {
    const auto* row = static_cast<const Element*>(p.x) + m * p.x_stride;
    std::copy_n(row, p.K, &x[m * x_stride]);
  }
  std::vector<float> partial(splits > 1 ? splits * p.M * p.N : 0);
  const int64_t tiles = (p.N + ROWS - 1) / ROWS;
  parallel(tiles * splits, [&](int64_t item) {
    const int64_t n = item % tiles * ROWS, split = item / tiles;
    const int64_t rows = std::min(ROWS, p.N - n);
    const Range k = range_of(split, splits, p.K);
    for (int64_t m = 0, columns; m < p.M; m += columns) {
      columns = p.M - m >= MOST_COLUMNS ? MOST_COLUMNS : 1;
      const auto of_columns = columns == 1 ? multiply<1, Element> : multiply<MOST_COLUMNS, Element>;
      float sums[MOST_COLUMNS][ROWS];
      of_columns(&x[m * x_stride], x_stride, w + n * p.w_stride, p.w_stride, rows, k, sums);
      for (int64_t c = 0; c < columns; ++c) {
        for (int64_t r = 0; r < rows; ++r) {
          const int64_t at = (m + c) * p.N + n + r;
          if (splits > 1) {
            partial[split * p.M * p.N + at] = sums[c][r];
          } else {
            out[at] = static_cast<Element>(sums[c][r]);
          }
        }
      }
    }
  });
  if (splits == 1) return;
  for (int64_t at = 0; at < p.M * p.N; ++at) {
    float sum = 0;
    for (int64_t split = 0; split < splits; ++split) sum += partial[split * p.M * p.N + at];
    out[at] = static_cast<Element>(sum);
  }
}

}  // namespace

int64_t choose_splits(const Params& p) {
  const int64_t tiles = std::max<int64_t>(1, (p.N + ROWS - 1) / ROWS);
  const int64_t most = std::clamp<int64_t>(p.K / MIN_K, 1, MAX_SPLITS);
  return std::clamp<int64_t>((ITEMS + tiles - 1) / tiles, 1, most);
}

void gemm(const Params& p, bool half, int64_t splits) {
  half ? run<torch::headeronly::Half>(p, splits) : run<torch::headeronly::BFloat16>(p, splits);
}

}  // namespace split_k_gemm::cpu
