// y [M, N] = (x [M, K] W [K, N]) s on a CPU, as thin.cc computes it, of whole numbers of
// eight bits, a scale s for each column: a quarter of what float32 takes to read. So too
// where W is stored transposed, [N, K].
//
// Sums are of float32, in thin.cc's order: a row does not depend on how many there are.
// Or, "dynamic", x is rounded too, to a scale a row and whole numbers of sixteen bits, of
// as many levels as a sum of 32 bits holds, however it is ordered. Then sums are exact:
// on every processor the same. It is W [N, K] alone that is multiplied so.

#include <limits>
#include <vector>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "xla/ffi/api/ffi.h"

// Of thin.cc the templates alone: its own functions are in a library of theirs.
#pragma push_macro("XLA_FFI_DEFINE_HANDLER_SYMBOL")
#undef XLA_FFI_DEFINE_HANDLER_SYMBOL
#define XLA_FFI_DEFINE_HANDLER_SYMBOL(...)
#include "thin.cc"
#pragma pop_macro("XLA_FFI_DEFINE_HANDLER_SYMBOL")

// A class of its own, by which thin.cc's templates find what is below.
struct Whole {
  int8_t number;
};

typedef int8_t Bytes __attribute__((vector_size(kLanes), aligned(1), may_alias));
typedef int16_t Shorts __attribute__((vector_size(kBytes / 2)));
typedef int32_t Wide __attribute__((vector_size(kBytes)));

// Twice as wide at a time: of four times GCC makes single numbers.
inline Floats Load(const Whole* p) {
  const Bytes bytes = *reinterpret_cast<const Bytes*>(p);
  const Shorts shorts = __builtin_convertvector(bytes, Shorts);
  return __builtin_convertvector(__builtin_convertvector(shorts, Wide), Floats);
}

inline float One(const Whole* p) { return p->number; }

// Multiplied here and not by what follows, where a sum might be fused with it.
inline void Scale(float* y, const float* scale, int64_t M, int64_t N) {
  for (int64_t m = 0; m < M; ++m)
    for (int64_t n = 0; n < N; ++n) y[m * N + n] *= scale[n];
}

template <bool kTransposed>
ffi::Error ThinInt8(ffi::ThreadPool pool, ffi::Buffer<ffi::F32> x,
                    ffi::Buffer<ffi::S8> w, ffi::Buffer<ffi::F32> scale,
                    ffi::ResultBuffer<ffi::F32> y) {
  if (ffi::Error error = Check<kTransposed>(x, w, y); error.failure()) return error;
  auto [m, k, n] = std::tuple(x.dimensions()[0], x.dimensions()[1], y->dimensions()[1]);
  if (static_cast<int64_t>(scale.element_count()) != n) {
    return ffi::Error::InvalidArgument("a thin product has a scale for each output");
  }
  auto* numbers = reinterpret_cast<const Whole*>(w.untyped_data());
  float* out = y->typed_data();
  ffi::Error error = Run<kTransposed>(pool, x.typed_data(), numbers, out, m, k, n);
  if (error.success()) Scale(out, scale.typed_data(), m, n);
  return error;
}

// A row's activation in its scale.
struct Level {
  int16_t number;
};

constexpr int64_t kAtOnce = kBytes / 2;
typedef int8_t Read __attribute__((vector_size(kAtOnce), aligned(1), may_alias));
typedef int16_t Pairs __attribute__((vector_size(kBytes)));

inline Pairs Widened(const Whole* p) {
  return __builtin_convertvector(*reinterpret_cast<const Read*>(p), Pairs);
}

// sums + x w: each lane takes a pair of products, so that the order is no matter.
inline Wide AddProducts(Wide sums, const Level* x, Pairs w) {
  Pairs a;
  std::memcpy(&a, x, sizeof a);
#if defined(__AVX512VNNI__)
  return (Wide)_mm512_dpwssd_epi32((__m512i)sums, (__m512i)a, (__m512i)w);
#elif defined(__AVX512BW__)
  return sums + (Wide)_mm512_madd_epi16((__m512i)a, (__m512i)w);
#elif defined(__AVX2__) && !defined(__AVX512F__)
  return sums + (Wide)_mm256_madd_epi16((__m256i)a, (__m256i)w);
#else
  const Wide b = (Wide)a, c = (Wide)w;
  return sums + (b >> 16) * (c >> 16) + (b << 16 >> 16) * (c << 16 >> 16);
#endif
}

// Of vectors in which a number is the sum of kBlock lanes: one in which it is that of
// half as many, a's numbers before b's.
template <int kBlock, size_t... kLane>
inline Wide Folded(Wide a, Wide b, std::index_sequence<kLane...>) {
  constexpr int kHalf = kBlock / 2;
#if defined(__clang__) || __GNUC__ >= 12
  return __builtin_shufflevector(a, b, int(kLane / kHalf * kBlock + kLane % kHalf)...) +
         __builtin_shufflevector(
             a, b, int(kLane / kHalf * kBlock + kLane % kHalf + kHalf)...);
#else
  const Wide first = {int(kLane / kHalf * kBlock + kLane % kHalf)...};
  return __builtin_shuffle(a, b, first) + __builtin_shuffle(a, b, first + kHalf);
#endif
}

// The sum over each of kBlock vectors' lanes, in the lanes of the first.
template <int kBlock = kLanes>
inline void Fold(Wide* v) {
  if constexpr (kBlock > 1) {
#pragma GCC unroll 16
    for (int i = 0; i < kBlock / 2; ++i)
      v[i] = Folded<kBlock>(v[2 * i], v[2 * i + 1], std::make_index_sequence<kLanes>());
    Fold<kBlock / 2>(v);
  }
}

// As thin.cc's of floats. Loops that are not unrolled keep their sums in memory.
template <int M, int R>
inline void MultiplyRows(const Level* x, const Whole* w, float* y, int64_t K, int64_t N,
                         int64_t n) {
  Wide s[M][R] = {};
  const Whole* rows = w + n * K;
  int64_t k = 0;
  for (; k + kAtOnce <= K; k += kAtOnce) {
    Pairs b[R];
    for (int r = 0; r < R; ++r) {
      __builtin_prefetch(rows + (r + 2 * R) * K + k, 0, 2);
      b[r] = Widened(rows + r * K + k);
    }
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m)
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) s[m][r] = AddProducts(s[m][r], x + m * K + k, b[r]);
  }
  constexpr int kVectors = (M * R + kLanes - 1) / kLanes * kLanes;
  Wide v[kVectors] = {};
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m)
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) v[m * R + r] = s[m][r];
  for (; k < K; ++k)
    for (int m = 0; m < M; ++m)
      for (int r = 0; r < R; ++r)
        v[m * R + r][0] += x[m * K + k].number * rows[r * K + k].number;
  Floats sums[kVectors / kLanes];
#pragma GCC unroll 4
  for (int i = 0; i < kVectors; i += kLanes) {
    Fold(v + i);
    sums[i / kLanes] = __builtin_convertvector(v[i], Floats);
  }
  for (int m = 0; m < M; ++m)
    std::memcpy(y + m * N + n, reinterpret_cast<float*>(sums) + m * R, R * sizeof *y);
}

// 2 to `exponent` - 127.
inline float Power(int32_t exponent) {
  const int32_t bits = exponent << 23;
  float power;
  std::memcpy(&power, &bits, sizeof power);
  return power;
}

// x in whole numbers of a scale, which is returned: a power of two, by which nothing else
// is rounded. Of a row that is not finite it is no number.
inline float Rounded(const float* x, Level* to, int64_t K) {
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

template <size_t... kRows>
constexpr auto EachOfLevels(std::index_sequence<kRows...>) {
  return std::array{&MultiplyTransposed<kRows + 1, Whole, Level>...};
}

// Of any number of rows, so many at a time.
ffi::Error Dynamic(ffi::ThreadPool pool, ffi::Buffer<ffi::F32> x, ffi::Buffer<ffi::S8> w,
                   ffi::Buffer<ffi::F32> scale, ffi::ResultBuffer<ffi::F32> y) {
  if (ffi::Error error = Check<true>(x, w, y); error.failure()) return error;
  auto [m, k, n] = std::tuple(x.dimensions()[0], x.dimensions()[1], y->dimensions()[1]);
  const int64_t M = m, K = k, N = n;
  if (static_cast<int64_t>(scale.element_count()) != N) {
    return ffi::Error::InvalidArgument("a thin product has a scale for each output");
  }
  std::vector<Level> levels(M * K);
  std::vector<float> of_row(M);
  for (int64_t i = 0; i < M; ++i)
    of_row[i] = Rounded(x.typed_data() + i * K, levels.data() + i * K, K);
  static constexpr auto kOf = EachOfLevels(std::make_index_sequence<kGroup>());
  const Level* rows = levels.data();
  const float *row_scale = of_row.data(), *column_scale = scale.typed_data();
  const auto* numbers = reinterpret_cast<const Whole*>(w.untyped_data());
  float* out = y->typed_data();
  OverColumns(pool, K * N, N, [=](int64_t from, int64_t to) {
    for (int64_t i = 0; i < M; i += kMostRows) {
      const int64_t last = std::min<int64_t>(kMostRows, M - i) - 1;
      kOf[last % kGroup](rows + i * K, numbers, out + i * N, K, N, last / kGroup, from,
                         to);
    }
    for (int64_t i = 0; i < M; ++i)
      for (int64_t j = from; j < to; ++j)
        out[i * N + j] = out[i * N + j] * row_scale[i] * column_scale[j];
  });
  return ffi::Error::Success();
}

auto BoundInt8() {
  return ffi::Ffi::Bind()
      .Ctx<ffi::ThreadPool>()
      .Arg<ffi::Buffer<ffi::F32>>()
      .Arg<ffi::Buffer<ffi::S8>>()
      .Arg<ffi::Buffer<ffi::F32>>()
      .Ret<ffi::Buffer<ffi::F32>>();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(thin_int8, ThinInt8<false>, BoundInt8());
XLA_FFI_DEFINE_HANDLER_SYMBOL(thin_int8_transposed, ThinInt8<true>, BoundInt8());
XLA_FFI_DEFINE_HANDLER_SYMBOL(thin_int8_dynamic_transposed, Dynamic, BoundInt8());
