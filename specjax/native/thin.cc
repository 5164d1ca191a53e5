// y [M, N] = x [M, K] W [K, N] on a CPU, for M <= 8: W is read once for all rows.
//
// Of a decoder's step the weights are what takes time to read. XLA streams them for one
// row, and packs all of them anew for two to eight; here they are streamed for every M.
// Each y is one sum over k in order, whatever M is, so that a row's result does not
// depend on how many there are.
//
// Vectors are those of GCC and Clang, as wide as the processor's; there are no intrinsics.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>

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
constexpr int kMostRows = 8;
constexpr int kTogether = 8;         // rows of W that are read at a time
constexpr int kSums = 4096;          // floats of partial sums: they stay in the first cache
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

// Adds R rows of W to the sums of `width` columns, C vectors at a time.
template <int M, int C, int R, bool kAhead, class T>
inline void AddRows(const float* x, const T* w, Floats* sums, int64_t K, int64_t N,
                    int64_t width) {
  for (int64_t n = 0; n < width; n += C * kLanes, sums += M * C) {
    Floats s[M][C];
    for (int m = 0; m < M; ++m)
      for (int c = 0; c < C; ++c) s[m][c] = sums[m * C + c];
    for (int r = 0; r < R; ++r) {
      const T* row = w + r * N + n;
      Floats b[C];
      for (int c = 0; c < C; ++c) {
        if (kAhead) __builtin_prefetch(row + R * N + c * kLanes);
        b[c] = Load(row + c * kLanes);
      }
      for (int m = 0; m < M; ++m)
        for (int c = 0; c < C; ++c) s[m][c] += x[m * K + r] * b[c];
    }
    for (int m = 0; m < M; ++m)
      for (int c = 0; c < C; ++c) sums[m * C + c] = s[m][c];
  }
}

// Columns `from` to `to`, a multiple of C vectors.
template <int M, int C, class T>
void AddColumns(const float* x, const T* w, float* y, int64_t K, int64_t N, int64_t from,
                int64_t to) {
  constexpr int R = kTogether;
  constexpr int64_t kWidth = kSums / M / (C * kLanes) * (C * kLanes);
  constexpr bool kAhead = M > 3;  // with fewer rows the processor's own prefetch is ahead
  alignas(64) Floats sums[M * kWidth / kLanes];
  for (; from < to; from += kWidth) {
    const int64_t width = std::min(kWidth, to - from);
    for (int64_t i = 0; i < M * width / kLanes; ++i) sums[i] = Floats{};
    int64_t k = 0;
    for (; k + R <= K; k += R)
      AddRows<M, C, R, kAhead>(x + k, w + k * N + from, sums, K, N, width);
    for (; k < K; ++k) AddRows<M, C, 1, false>(x + k, w + k * N + from, sums, K, N, width);
    const Floats* sum = sums;
    for (int64_t n = 0; n < width; n += C * kLanes)
      for (int m = 0; m < M; ++m)
        for (int c = 0; c < C; ++c)
          *reinterpret_cast<Floats*>(y + m * N + from + n + c * kLanes) = *sum++;
  }
}

// Columns `from` to `to`, however many: pairs of vectors, one vector, single numbers.
template <int M, class T>
void Multiply(const float* x, const T* w, float* y, int64_t K, int64_t N, int64_t from,
              int64_t to) {
  constexpr int C = Columns(M);
  const int64_t whole = from + (to - from) / (C * kLanes) * (C * kLanes);
  const int64_t vectors = from + (to - from) / kLanes * kLanes;
  AddColumns<M, C>(x, w, y, K, N, from, whole);
  AddColumns<M, 1>(x, w, y, K, N, whole, vectors);
  for (int m = 0; m < M; ++m)
    for (int64_t n = vectors; n < to; ++n) {
      float sum = 0;
      for (int64_t k = 0; k < K; ++k) sum += x[m * K + k] * One(w + k * N + n);
      y[m * N + n] = sum;
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

template <class T>
ffi::Error Run(ffi::ThreadPool& pool, const float* x, const T* w, float* y, int64_t M,
               int64_t K, int64_t N) {
  using Function =
      void (*)(const float*, const T*, float*, int64_t, int64_t, int64_t, int64_t);
  static constexpr Function kOf[] = {Multiply<1, T>, Multiply<2, T>, Multiply<3, T>,
                                     Multiply<4, T>, Multiply<5, T>, Multiply<6, T>,
                                     Multiply<7, T>, Multiply<8, T>};
  if (M < 1 || M > kMostRows) {
    return ffi::Error::InvalidArgument("a thin product has 1 to 8 rows");
  }
  const Function multiply = kOf[M - 1];
  const int64_t threads = pool.num_threads(), bytes = K * N * sizeof(T);
  const int64_t most = threads < 2 ? 1 : std::min(2 * threads, bytes / kPiece);
  const int64_t unit = 4 * kLanes;  // columns of a part are a multiple of it
  const int64_t parts = std::max<int64_t>(1, std::min(most, N / (2 * unit)));
  const int64_t width = ((N + parts - 1) / parts + unit - 1) / unit * unit;
  auto part = [=](int64_t i) {
    multiply(x, w, y, K, N, i * width, std::min(N, (i + 1) * width));
  };
  const int64_t count = std::max<int64_t>(1, (N + width - 1) / width);
  if (count == 1) part(0);
  else InParallel(pool, count, part);
  return ffi::Error::Success();
}

template <class W>
ffi::Error Check(ffi::Buffer<ffi::F32>& x, W& w, ffi::ResultBuffer<ffi::F32>& y) {
  auto rows = x.dimensions(), matrix = w.dimensions(), out = y->dimensions();
  const bool fits = rows.size() == 2 && matrix.size() == 2 && out.size() == 2 &&
                    rows[1] == matrix[0] && out[0] == rows[0] && out[1] == matrix[1];
  return fits ? ffi::Error::Success()
              : ffi::Error::InvalidArgument("a thin product is [M, K] times [K, N]");
}

static ffi::Error ThinF32(ffi::ThreadPool pool, ffi::Buffer<ffi::F32> x,
                          ffi::Buffer<ffi::F32> w, ffi::ResultBuffer<ffi::F32> y) {
  if (ffi::Error error = Check(x, w, y); error.failure()) return error;
  auto [m, k, n] = std::tuple(x.dimensions()[0], w.dimensions()[0], w.dimensions()[1]);
  return Run(pool, x.typed_data(), w.typed_data(), y->typed_data(), m, k, n);
}

static ffi::Error ThinBF16(ffi::ThreadPool pool, ffi::Buffer<ffi::F32> x,
                           ffi::Buffer<ffi::BF16> w, ffi::ResultBuffer<ffi::F32> y) {
  if (ffi::Error error = Check(x, w, y); error.failure()) return error;
  auto [m, k, n] = std::tuple(x.dimensions()[0], w.dimensions()[0], w.dimensions()[1]);
  auto* numbers = reinterpret_cast<const uint16_t*>(w.untyped_data());
  return Run(pool, x.typed_data(), numbers, y->typed_data(), m, k, n);
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(thin_float32, ThinF32,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(thin_bfloat16, ThinBF16,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::BF16>>()
                                  .Ret<ffi::Buffer<ffi::F32>>());
