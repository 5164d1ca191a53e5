// y [M, N] = x [M, K] W [K, N] on a CPU, for few rows: W is read once for all of them. So
// it is where W is stored transposed, [N, K], as the embedding is that is also the readout.
//
// Of a decoder's step the weights are what takes time to read. XLA packs all of them anew
// for more than one row; here they are streamed, and the next ones are asked for ahead.
// Each y is summed over k in an order that M does not change, so that a row's result does
// not depend on how many there are.
//
// Vectors are those of GCC and Clang, as wide as the processor's; there are no intrinsics.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <tuple>
#include <utility>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

#if defined(__AVX512F__)
constexpr int kBytes = 64, kRegisters = 32;
#elif defined(__AVX__)
constexpr int kBytes = 32, kRegisters = 16;
#elif defined(__aarch64__)
constexpr int kBytes = 16, kRegisters = 32;
#else
constexpr int kBytes = 16, kRegisters = 16;
#endif
constexpr int kLanes = kBytes / 4;
constexpr int kGroup = kRegisters == 32 ? 8 : 4;  // rows of x that are summed at a time
// Beyond them the arithmetic weighs, and XLA's product wins.
constexpr int kMostRows = kBytes == 64 ? 32 : 8;
constexpr int kTogether = 8;  // rows of W that are read at a time
constexpr int kSums = 4096;   // floats of partial sums: they stay in the first cache
constexpr int64_t kPiece = 1 << 18;  // bytes of W that are worth a task of their own

typedef float Floats __attribute__((vector_size(kBytes), aligned(4), may_alias));
typedef uint32_t Words __attribute__((vector_size(kBytes), aligned(4), may_alias));
typedef uint16_t Halves __attribute__((vector_size(kBytes / 2), aligned(2), may_alias));

// kLanes numbers of W as floats. A bfloat16 is the upper half of a float.
inline Floats Load(const float* p) { return *reinterpret_cast<const Floats*>(p); }
inline Floats Load(const uint16_t* p) {
  const Halves halves = *reinterpret_cast<const Halves*>(p);
  return reinterpret_cast<Floats>(__builtin_convertvector(halves, Words) << 16);
}

inline float One(const float* p) { return *p; }
inline float One(const uint16_t* p) {
  const uint32_t word = static_cast<uint32_t>(*p) << 16;
  float value;
  std::memcpy(&value, &word, sizeof value);
  return value;
}

// Vectors of columns whose sums fit the registers with M rows, W's and one of x.
constexpr int Columns(int M) { return (M + 1) * 2 + 2 <= kRegisters ? 2 : 1; }

// Adds R rows of W to the sums of `width` columns, C vectors at a time. On its own it has
// the registers that it needs; inlined it may not.
template <int M, int C, int R, bool kAhead, class T>
[[gnu::noinline]] void AddRows(const float* x, const T* w, Floats* sums, int64_t K,
                               int64_t N, int64_t width) {
  for (int64_t n = 0; n < width; n += C * kLanes, sums += M * C) {
    Floats s[M][C];
    for (int m = 0; m < M; ++m)
      for (int c = 0; c < C; ++c) s[m][c] = sums[m * C + c];
    for (int r = 0; r < R; ++r) {
      const T* row = w + r * N + n;
      Floats b[C];
      for (int c = 0; c < C; ++c) {
        if (kAhead) __builtin_prefetch(row + R * N + c * kLanes, 0, 2);
        b[c] = Load(row + c * kLanes);
      }
      for (int m = 0; m < M; ++m)
        for (int c = 0; c < C; ++c) s[m][c] += x[m * K + r] * b[c];
    }
    for (int m = 0; m < M; ++m)
      for (int c = 0; c < C; ++c) sums[m * C + c] = s[m][c];
  }
}

// The same for `full` groups of rows of x and then M more, with which W is read.
template <int M, int C, int R, class T>
inline void AddAllRows(const float* x, const T* w, Floats* sums, int64_t K, int64_t N,
                       int64_t full, int64_t width) {
  const int64_t group = kGroup * width / kLanes;
  AddRows<M, C, R, true>(x + full * kGroup * K, w, sums + full * group, K, N, width);
  for (int64_t i = 0; i < full; ++i)
    AddRows<kGroup, C, R, false>(x + i * kGroup * K, w, sums + i * group, K, N, width);
}

// The sums of M rows, as `AddRows` keeps them, to their rows of y.
template <int M, int C>
inline void Store(const Floats* sums, float* y, int64_t N, int64_t width) {
  for (int64_t n = 0; n < width; n += C * kLanes)
    for (int m = 0; m < M; ++m)
      for (int c = 0; c < C; ++c)
        *reinterpret_cast<Floats*>(y + m * N + n + c * kLanes) = *sums++;
}

// Columns `from` to `to`, a multiple of C vectors.
template <int M, int C, class T>
void AddColumns(const float* x, const T* w, float* y, int64_t K, int64_t N, int64_t full,
                int64_t from, int64_t to) {
  constexpr int R = kTogether;
  alignas(64) Floats sums[kSums / kLanes];
  const int64_t rows = full * kGroup + M;
  int64_t most = kSums / kMostRows;  // columns at a time, a power of two
  while (2 * most * rows <= kSums) most *= 2;
  for (; from < to; from += most) {
    const int64_t width = std::min(most, to - from);
    std::fill_n(sums, rows * width / kLanes, Floats{});
    int64_t k = 0;
    for (; k + R <= K; k += R)
      AddAllRows<M, C, R>(x + k, w + k * N + from, sums, K, N, full, width);
    for (; k < K; ++k)
      AddAllRows<M, C, 1>(x + k, w + k * N + from, sums, K, N, full, width);
    const int64_t group = kGroup * width / kLanes;
    float* last = y + full * kGroup * N + from;
    Store<M, C>(sums + full * group, last, N, width);
    for (int64_t i = 0; i < full; ++i)
      Store<kGroup, C>(sums + i * group, y + i * kGroup * N + from, N, width);
  }
}

// Columns `from` to `to`, however many: pairs of vectors, one vector, single numbers.
template <int M, class T>
void Multiply(const float* x, const T* w, float* y, int64_t K, int64_t N, int64_t full,
              int64_t from, int64_t to) {
  constexpr int C = Columns(M);
  const int64_t whole = from + (to - from) / (C * kLanes) * (C * kLanes);
  const int64_t vectors = from + (to - from) / kLanes * kLanes;
  AddColumns<M, C>(x, w, y, K, N, full, from, whole);
  AddColumns<M, 1>(x, w, y, K, N, full, whole, vectors);
  for (int64_t m = 0; m < full * kGroup + M; ++m)
    for (int64_t n = vectors; n < to; ++n) {
      float sum = 0;
      for (int64_t k = 0; k < K; ++k) sum += x[m * K + k] * One(w + k * N + n);
      y[m * N + n] = sum;
    }
}

// The sum over a vector's lanes: halves are added until one number is left.
template <int kSize>
struct Vector {
  typedef float Type __attribute__((vector_size(kSize)));
};

template <int kSize>
inline float SumOf(typename Vector<kSize>::Type v) {
  if constexpr (kSize == 8) {
    return v[0] + v[1];
  } else {
    typename Vector<kSize / 2>::Type halves[2];
    std::memcpy(halves, &v, kSize);
    return SumOf<kSize / 2>(halves[0] + halves[1]);
  }
}

inline float Sum(Floats v) { return SumOf<kBytes>(v); }

// Rows of a transposed W whose sums fit the registers with M rows of x.
constexpr int Beside(int M) {
  return M * 4 + 5 <= kRegisters ? 4 : M * 2 + 3 <= kRegisters ? 2 : 1;
}

// R columns of y from `n` on: the product of each row of W [N, K] with each of x.
template <int M, int R, class T>
inline void MultiplyRows(const float* x, const T* w, float* y, int64_t K, int64_t N,
                         int64_t n) {
  Floats s[M][R] = {};
  const T* rows = w + n * K;
  int64_t k = 0;
  for (; k + kLanes <= K; k += kLanes) {
    Floats b[R];
    for (int r = 0; r < R; ++r) {
      __builtin_prefetch(rows + (r + 2 * R) * K + k, 0, 2);
      b[r] = Load(rows + r * K + k);
    }
    for (int m = 0; m < M; ++m) {
      const Floats a = Load(x + m * K + k);
      for (int r = 0; r < R; ++r) s[m][r] += a * b[r];
    }
  }
  for (int m = 0; m < M; ++m)
    for (int r = 0; r < R; ++r) {
      float sum = Sum(s[m][r]);
      for (int64_t i = k; i < K; ++i) sum += x[m * K + i] * One(rows + r * K + i);
      y[m * N + n + r] = sum;
    }
}

// Columns `from` to `to` of y, of M rows of x and a transposed W.
template <int M, class T, class X>
inline void MultiplySome(const X* x, const T* w, float* y, int64_t K, int64_t N,
                         int64_t from, int64_t to) {
  constexpr int R = Beside(M);
  for (; from + R <= to; from += R) MultiplyRows<M, R>(x, w, y, K, N, from);
  for (; from < to; ++from) MultiplyRows<M, 1>(x, w, y, K, N, from);
}

// The same of `full` groups of rows and then M more, a few columns at a time.
template <int M, class T, class X = float>
void MultiplyTransposed(const X* x, const T* w, float* y, int64_t K, int64_t N,
                        int64_t full, int64_t from, int64_t to) {
  const int64_t first = full * kGroup;
  for (int64_t end; from < to; from = end) {
    end = std::min(from + kTogether, to);
    MultiplySome<M>(x + first * K, w, y + first * N, K, N, from, end);
    for (int64_t i = 0; i < first; i += kGroup)
      MultiplySome<kGroup>(x + i * K, w, y + i * N, K, N, from, end);
  }
}

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// f(0) .. f(parts - 1), on this thread and on those of the pool that are free.
template <class F>
void InParallel(ffi::ThreadPool& pool, int parts, F f) {
  struct Progress {
    std::atomic<int> begun{0}, done{0};
  };
  auto progress = std::make_shared<Progress>();  // a late helper finds nothing to do
  auto work = [progress, parts, f] {
    for (int i; (i = progress->begun.fetch_add(1)) < parts;) {
      f(i);
      progress->done.fetch_add(1, std::memory_order_release);
    }
  };
  const int helpers = std::min<int>(pool.num_threads(), parts) - 1;
  for (int i = 0; i < helpers; ++i) {
    auto copy = work;
    pool.Schedule(std::move(copy));
  }
  work();
  for (int spins = 0; progress->done.load(std::memory_order_acquire) < parts; ++spins) {
    if (spins < 4096) Pause();
    else std::this_thread::yield();
  }
}

template <int M, bool kTransposed, class T>
constexpr auto Of() {
  if constexpr (kTransposed) return &MultiplyTransposed<M, T>;
  else return &Multiply<M, T>;
}

// By how many rows the last group has, less 1.
template <bool kTransposed, class T, size_t... kRows>
constexpr auto Each(std::index_sequence<kRows...>) {
  return std::array{Of<kRows + 1, kTransposed, T>()...};
}

// f(from, to) of parts of N columns, each worth a task, of a matrix of so many bytes.
template <class F>
void OverColumns(ffi::ThreadPool& pool, int64_t bytes, int64_t N, F f) {
  const int64_t threads = pool.num_threads();
  const int64_t most = std::min(threads, bytes / kPiece);
  const int64_t unit = 4 * kLanes;  // columns of a part are a multiple of it
  const int64_t parts = std::max<int64_t>(1, std::min(most, N / (2 * unit)));
  const int64_t width = ((N + parts - 1) / parts + unit - 1) / unit * unit;
  auto part = [=](int64_t i) { f(i * width, std::min(N, (i + 1) * width)); };
  const int64_t count = std::max<int64_t>(1, (N + width - 1) / width);
  if (count == 1) part(0);
  else InParallel(pool, count, part);
}

template <bool kTransposed, class T>
ffi::Error Run(ffi::ThreadPool& pool, const float* x, const T* w, float* y, int64_t M,
               int64_t K, int64_t N) {
  if (M < 1 || M > kMostRows) {
    return ffi::Error::InvalidArgument("a thin product has fewer rows");
  }
  static constexpr auto kOf = Each<kTransposed, T>(std::make_index_sequence<kGroup>());
  const auto multiply = kOf[(M - 1) % kGroup];
  OverColumns(pool, K * N * sizeof(T), N, [=](int64_t from, int64_t to) {
    multiply(x, w, y, K, N, (M - 1) / kGroup, from, to);
  });
  return ffi::Error::Success();
}

template <bool kTransposed, class W>
ffi::Error Check(ffi::Buffer<ffi::F32>& x, W& w, ffi::ResultBuffer<ffi::F32>& y) {
  auto rows = x.dimensions(), matrix = w.dimensions(), out = y->dimensions();
  const bool fits = rows.size() == 2 && matrix.size() == 2 && out.size() == 2 &&
                    rows[1] == matrix[kTransposed] && out[0] == rows[0] &&
                    out[1] == matrix[!kTransposed];
  return fits ? ffi::Error::Success()
              : ffi::Error::InvalidArgument("a thin product is [M, K] times [K, N]");
}

// T: what W's numbers are read as.
template <bool kTransposed, class T, ffi::DataType kType>
ffi::Error Thin(ffi::ThreadPool pool, ffi::Buffer<ffi::F32> x, ffi::Buffer<kType> w,
                ffi::ResultBuffer<ffi::F32> y) {
  if (ffi::Error error = Check<kTransposed>(x, w, y); error.failure()) return error;
  auto [m, k, n] = std::tuple(x.dimensions()[0], x.dimensions()[1], y->dimensions()[1]);
  auto* numbers = reinterpret_cast<const T*>(w.untyped_data());
  return Run<kTransposed>(pool, x.typed_data(), numbers, y->typed_data(), m, k, n);
}

template <ffi::DataType kType>
auto Bound() {
  return ffi::Ffi::Bind()
      .Ctx<ffi::ThreadPool>()
      .Arg<ffi::Buffer<ffi::F32>>()
      .template Arg<ffi::Buffer<kType>>()
      .template Ret<ffi::Buffer<ffi::F32>>();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(thin_float32, (Thin<false, float, ffi::F32>),
                              Bound<ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(thin_bfloat16, (Thin<false, uint16_t, ffi::BF16>),
                              Bound<ffi::BF16>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(thin_float32_transposed, (Thin<true, float, ffi::F32>),
                              Bound<ffi::F32>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(thin_bfloat16_transposed,
                              (Thin<true, uint16_t, ffi::BF16>), Bound<ffi::BF16>());

extern "C" int thin_most_rows() { return kMostRows; }
