// Products with weights of eight bits: a quarter of what float32 takes to read. Those of
// levels are sums of whole numbers.

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include <limits>

#include "thin.h"

template void Multiply(const float*, const Whole*, float*, int64_t, int64_t, int64_t,
                       int64_t, int64_t);
template void MultiplyShare(Share, const float*, const Whole*, float*, int64_t, int64_t,
                            int64_t, int64_t, int64_t);
template void MultiplyTransposed(const float*, const Whole*, float*, int64_t, int64_t,
                                 int64_t, int64_t, int64_t);

namespace {

constexpr int64_t kAtOnce = kBytes / 2;
typedef int8_t Read __attribute__((vector_size(kAtOnce), aligned(1), may_alias));
typedef int16_t Pairs __attribute__((vector_size(kBytes)));

// By intrinsics, as GCC makes five instructions of what is one.
inline Pairs Widened(const Whole* p) {
#if defined(__AVX512BW__)
  return (Pairs)_mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i*)p));
#elif defined(__AVX2__) && !defined(__AVX512F__)
  return (Pairs)_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i*)p));
#else
  return __builtin_convertvector(*reinterpret_cast<const Read*>(p), Pairs);
#endif
}

// sums + x w: each lane takes a pair of products, so that the order does not matter.
inline Wide AddProducts(Wide sums, const Level* x, Pairs w) {
  Pairs a;
  std::memcpy(&a, x, sizeof a);
#if defined(__AVX512VNNI__)
  return (Wide)_mm512_dpwssd_epi32((__m512i)sums, (__m512i)a, (__m512i)w);
#elif defined(__AVXVNNI__) && !defined(__AVX512F__)
  return (Wide)_mm256_dpwssd_avx_epi32((__m256i)sums, (__m256i)a, (__m256i)w);
#elif defined(__AVX512BW__)
  return sums + (Wide)_mm512_madd_epi16((__m512i)a, (__m512i)w);
#elif defined(__AVX2__) && !defined(__AVX512F__)
  return sums + (Wide)_mm256_madd_epi16((__m256i)a, (__m256i)w);
#else
  const Wide b = (Wide)a, c = (Wide)w;
  return sums + (b >> 16) * (c >> 16) + (b << 16 >> 16) * (c << 16 >> 16);
#endif
}

// Adds to M x R sums what is left of K.
[[gnu::noinline]] void AddLast(const Level* x, const Whole* rows, int32_t* sums, int M,
                               int R, int64_t k, int64_t K) {
  for (int m = 0; m < M; ++m)
    for (int r = 0; r < R; ++r, ++sums)
      for (int64_t i = k; i < K; ++i)
        *sums += x[m * K + i].number * rows[r * K + i].number;
}

// As thin.h's of floats. Loops that are not unrolled keep their sums in memory.
template <int M, int R>
[[gnu::noinline]] void MultiplyRows(const Level* x, const Whole* w, float* y, int64_t K,
                                    int64_t N, int64_t from, int64_t to) {
  for (; from < to; from += R) {
    Wide s[M][R] = {};
    const Whole* rows = w + from * K;
    int64_t k = 0;
    for (; k + kAtOnce <= K; k += kAtOnce) {
      Pairs b[R];
      for (int r = 0; r < R; ++r) {
        ReadAhead(rows + (r + 2 * R) * K, k);
        b[r] = Widened(rows + r * K + k);
      }
#pragma GCC unroll 12
      for (int m = 0; m < M; ++m)
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) s[m][r] = AddProducts(s[m][r], x + m * K + k, b[r]);
    }
    constexpr int kVectors = RoundUp(M * R, kLanes);
    Wide v[kVectors], sums[kVectors / kLanes];
#pragma GCC unroll 12
    for (int m = 0; m < M; ++m)
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) v[m * R + r] = s[m][r];
    FoldAll<M * R>(v, sums);
    if (k < K) AddLast(x, rows, reinterpret_cast<int32_t*>(sums), M, R, k, K);
    Lanes numbers[kVectors / kLanes];
    for (int i = 0; i < kVectors / kLanes; ++i)
      numbers[i] = __builtin_convertvector(sums[i], Lanes);
    for (int m = 0; m < M; ++m)
      std::memcpy(y + m * N + from, reinterpret_cast<float*>(numbers) + m * R,
                  R * sizeof *y);
  }
}

template <size_t... kRows>
constexpr auto EachOfLevels(std::index_sequence<kRows...>) {
  return std::array{&MultiplyRows<1, 1>, &MultiplyRows<kRows + 1, Beside(kRows + 1)>...};
}

// 2 to `exponent` - 127.
inline float Power(int32_t exponent) {
  const int32_t bits = exponent << 23;
  float power;
  std::memcpy(&power, &bits, sizeof power);
  return power;
}

}  // namespace

void MultiplyLevels(const Level* x, const Whole* w, float* y, int64_t M, int64_t K,
                    int64_t N, int64_t from, int64_t to) {
  static constexpr auto kRun = EachOfLevels(std::make_index_sequence<kGroup>());
  OverGroups(kRun, x, w, y, M, K, N, from, to);
}

float Rounded(const float* x, Level* to, int64_t K) {
  constexpr int32_t kAll = std::numeric_limits<int32_t>::max();
  const int64_t most = std::min<int64_t>(32767, kAll / (128 * K));
  int32_t bits = 0;
  while (most >> (bits + 1)) ++bits;
  int32_t largest = 0;  // without their signs floats are ordered as these are
  for (int64_t k = 0; k < K; ++k) {
    int32_t word;
    std::memcpy(&word, x + k, sizeof word);
    largest = std::max(largest, word & kAll);
  }
  const int32_t exponent = std::max(largest >> 23, bits);
  if (exponent == 255) {
    std::fill_n(to, K, Level{0});
    return std::numeric_limits<float>::quiet_NaN();
  }
  const float factor = Power(253 + bits - exponent);
  constexpr float kWhole = 3 << 22;  // added, it leaves no fraction: the even one of two
  for (int64_t k = 0; k < K; ++k)
    to[k].number = static_cast<int32_t>((x[k] * factor + kWhole) - kWhole);
  return Power(exponent + 1 - bits);
}
