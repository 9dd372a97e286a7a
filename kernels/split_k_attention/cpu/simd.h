// Vectors of fp32 through the compiler's vector extension: one source for AVX-512, AVX2 and NEON.
// Only what a compiler cannot find by itself (widening fp16 and bytes) has an intrinsic beside the
// portable form. NaN and inf keep their meaning throughout, so none of this may be built with -ffast-math.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

#if defined(__F16C__)
#include <immintrin.h>
#endif

#if defined(__FAST_MATH__)
#error "masked keys rely on inf and NaN: build without -ffast-math"
#endif

namespace kbtool::cpu {

#if defined(__AVX512F__)
constexpr int LANES = 16;
#elif defined(__AVX__)
constexpr int LANES = 8;
#else
constexpr int LANES = 4;
#endif

typedef float Vec __attribute__((vector_size(LANES * sizeof(float))));
typedef int32_t IntVec __attribute__((vector_size(LANES * sizeof(int32_t))));
typedef uint32_t UintVec __attribute__((vector_size(LANES * sizeof(uint32_t))));
typedef uint16_t Bits16Vec __attribute__((vector_size(LANES * sizeof(uint16_t))));
typedef int16_t Int16Vec __attribute__((vector_size(LANES * sizeof(int16_t))));
typedef int8_t Int8Vec __attribute__((vector_size(LANES * sizeof(int8_t))));

struct Half {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};
struct Float8E4m3 {  // of OCP's two, the one without infinities ("fn")
  uint8_t bits;
};
struct Float8E5m2 {
  uint8_t bits;
};

inline Vec splat(float x) { return Vec{} + x; }

inline Vec load(const float* p) {
  Vec x;
  std::memcpy(&x, p, sizeof x);
  return x;
}

inline void store(float* p, Vec x) { std::memcpy(p, &x, sizeof x); }

inline Bits16Vec load_bits(const uint16_t* p) {
  Bits16Vec bits;
  std::memcpy(&bits, p, sizeof bits);
  return bits;
}

inline Vec load(const BFloat16* p) {
  return (Vec)(__builtin_convertvector(load_bits(&p->bits), UintVec) << 16);
}

// The numbers of fp16 bits.
inline Vec from_half(Bits16Vec bits) {
#if defined(__AVX512F__)
  // The unmasked intrinsic makes GCC 12 warn about its own header.
  return _mm512_maskz_cvtph_ps(0xffff, (__m256i)bits);
#elif defined(__AVX__) && defined(__F16C__)
  return _mm256_cvtph_ps((__m128i)bits);
#else
  const UintVec h = __builtin_convertvector(bits, UintVec);
  const UintVec magnitude = (h & 0x7fffu) << 13;
  const Vec normal = (Vec)(magnitude + (112u << 23));
  // A subnormal number is the difference of two normal ones of fp32: denormals may be flushed.
  const UintVec smallest = UintVec{} + (113u << 23);
  const Vec subnormal = (Vec)(magnitude + smallest) - (Vec)smallest;
  const Vec number = (magnitude < (1u << 23)) ? subnormal : normal;
  const UintVec special = (UintVec)((h & 0x7c00u) == 0x7c00u) & 0x7f800000u;
  return (Vec)((UintVec)number | special | ((h & 0x8000u) << 16));
#endif
}

inline Vec load(const Half* p) { return from_half(load_bits(&p->bits)); }

// Bytes as signed numbers of 16 bits. To 32 bits, GCC 12 would widen lane by lane.
inline Bits16Vec load_signed(const uint8_t* p) {
#if defined(__AVX512F__)
  return (Bits16Vec)_mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#else
  Int8Vec bytes;
  std::memcpy(&bytes, p, sizeof bytes);
  return (Bits16Vec)__builtin_convertvector(bytes, Int16Vec);
#endif
}

// All bits set but the sign is NaN, and nothing else is. The exponent of fp16 is larger by 8.
inline Vec load(const Float8E4m3* p) {
  const Bits16Vec x = (load_signed(&p->bits) << 7) & 0xbf80u;
  const Bits16Vec nan = (Bits16Vec)((x & 0x3f80u) == 0x3f80u) & 0x7e00u;
  return from_half(x | nan) * 0x1p8f;
}

// The upper half of fp16.
inline Vec load(const Float8E5m2* p) { return from_half(load_signed(&p->bits) << 8); }

// Stores round to nearest even; a NaN stays a NaN.
inline void store_scalar(float* p, float x) { *p = x; }

inline void store_scalar(BFloat16* p, float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  p->bits = static_cast<uint16_t>(x != x ? (bits >> 16) | 0x40u : rounded);
}

inline void store_scalar(Half* p, float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t half;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u;
  } else if (magnitude >= 0x477ff000u) {  // 65520 and above round to infinity
    half = 0x7c00u;
  } else if (magnitude < 0x38800000u) {  // subnormal: the addition aligns and rounds the mantissa
    float x_abs;
    std::memcpy(&x_abs, &magnitude, sizeof x_abs);
    x_abs += 0.5f;
    std::memcpy(&half, &x_abs, sizeof half);
    half -= 0x3f000000u;
  } else {
    half = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
  }
  p->bits = static_cast<uint16_t>(sign | half);
}

// The larger logit of each lane; a NaN wins, as in max_logit.
inline Vec max_logit(Vec a, Vec b) { return ((a > b) | (a != a)) ? a : b; }

template <int STRIDE, int... I>
inline Vec swap_lanes(Vec x, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(x, x, (I ^ STRIDE)...);
}

// Lane i becomes lane i ^ STRIDE.
template <int STRIDE>
inline Vec swap_lanes(Vec x) {
  return swap_lanes<STRIDE>(x, std::make_integer_sequence<int, LANES>{});
}

template <int STRIDE, int... I>
inline Vec fold_pair(Vec a, Vec b, std::integer_sequence<int, I...>) {
  const Vec kept = __builtin_shufflevector(a, b, ((I & STRIDE) ? I + LANES : I)...);
  const Vec moved =
      __builtin_shufflevector(a, b, ((I & STRIDE) ? (I ^ STRIDE) + LANES : (I ^ STRIDE))...);
  return kept + moved;
}

// Sums each of LANES vectors over its lanes: lane i of the result is the sum of x[i]. Every sum is
// the same tree, so a dot product does not depend on which slot of a tile computed it.
template <int STRIDE = LANES / 2>
inline Vec sum_lanes(Vec (&x)[LANES]) {
#pragma GCC unroll 16
  for (int i = 0; i < STRIDE; ++i) {
    x[i] = fold_pair<STRIDE>(x[i], x[i + STRIDE], std::make_integer_sequence<int, LANES>{});
  }
  if constexpr (STRIDE > 1) {
    return sum_lanes<STRIDE / 2>(x);
  } else {
    return x[0];
  }
}

// exp(x) for x <= 0, within 2 ulp; 0 below the smallest normal number, NaN for NaN.
inline Vec exp_nonpositive(Vec x) {
  constexpr float SMALLEST = -87.33654f;  // ln(2^-126)
  constexpr float LOG2_E = 1.44269504f;
  constexpr float LN2_HIGH = 0.693359375f;  // few bits, so that n * LN2_HIGH is exact
  constexpr float LN2_LOW = -2.12194440e-4f;
  constexpr float ROUNDER = 12582912.0f;  // 1.5 * 2^23: adding it leaves an integer in the low bits

  const Vec rounded = x * LOG2_E + ROUNDER;
  const Vec n = rounded - ROUNDER;
  const Vec r = (x - n * LN2_HIGH) - n * LN2_LOW;
  Vec p = splat(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + (r + 1.0f);
  const IntVec power = ((IntVec)rounded - 0x4b400000 + 127) << 23;
  const Vec result = p * (Vec)power;
  return (x < SMALLEST) ? Vec{} : result;
}

// tanh(x), within 3 ulp; NaN for NaN.
inline Vec tanh(Vec x) {
  constexpr float SMALL = 0.625f;  // below, the odd polynomial of Cephes' tanhf
  const Vec square = x * x;
  Vec p = splat(-5.70498872745e-3f);
  p = p * square + 2.06390887954e-2f;
  p = p * square - 5.37397155531e-2f;
  p = p * square + 1.33314422036e-1f;
  p = p * square - 3.33332819422e-1f;
  const Vec small = p * square * x + x;
  const Vec magnitude = (x < 0.0f) ? -x : x;
  const Vec e = exp_nonpositive(magnitude * -2.0f);
  const Vec large = (1.0f - e) / (1.0f + e);
  return (magnitude < SMALL) ? small : ((x < 0.0f) ? -large : large);
}

}  // namespace kbtool::cpu
