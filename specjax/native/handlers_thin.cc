// Products of few rows of float32: y [M, N] = x [M, K] W, of weights of float32, of
// bfloat16, or of eight bits with a scale a column.

#include <atomic>
#include <memory>
#include <thread>

#include "calls.h"
#include "products.h"
#include "requests.h"

namespace {

constexpr int64_t kPiece = 1 << 18;  // bytes of W that are worth a task of their own

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// f(0) .. f(parts - 1), on this thread and on those of XLA that are free.
void InParallel(const Request& request, int threads, int parts, Call<int> f) {
  struct Progress {
    Progress(int parts, Call<int> f) : parts(parts), f(f) {}
    const int parts;
    const Call<int> f;
    std::atomic<int> begun{0}, done{0};
    void Work() {
      for (int i; (i = begun.fetch_add(1)) < parts;) {
        f(i);
        done.fetch_add(1, std::memory_order_release);
      }
    }
  };
  // A late helper finds nothing to do.
  auto progress = std::make_shared<Progress>(parts, f);
  auto help = [](void* data) {
    auto* shared = static_cast<std::shared_ptr<Progress>*>(data);
    (*shared)->Work();
    delete shared;
  };
  for (int i = 1; i < std::min(threads, parts); ++i) {
    auto* shared = new std::shared_ptr<Progress>(progress);
    if (!request.Schedule(help, shared)) delete shared;
  }
  progress->Work();
  for (int spins = 0; progress->done.load(std::memory_order_acquire) < parts; ++spins) {
    if (spins < 4096) Pause();
    else std::this_thread::yield();
  }
}

// f(from, to) of parts of N columns, each worth a task, of a matrix of so many bytes.
void OverColumns(const Request& request, int64_t bytes, int64_t N,
                 Call<int64_t, int64_t> f) {
  const int64_t threads = request.CountThreads();
  const int64_t most = std::min(threads, bytes / kPiece);
  const int64_t unit = 4 * kLanes;  // columns of a part are a multiple of it
  const int64_t parts = std::max<int64_t>(1, std::min(most, N / (2 * unit)));
  const int64_t width = ((N + parts - 1) / parts + unit - 1) / unit * unit;
  auto part = [&](int64_t i) { f(i * width, std::min(N, (i + 1) * width)); };
  const int64_t count = std::max<int64_t>(1, (N + width - 1) / width);
  if (count == 1) part(0);
  else InParallel(request, threads, count, part);
}

// What a product reads and writes. W is [K, N] or, transposed, [N, K].
struct Operands {
  const float *x, *scale;  // [N], of weights of eight bits
  const void* w;
  float* y;
  int64_t M, K, N;
};

// Returns why the request is not for a product with weights of a type, or null.
const char* Read(const Request& request, XLA_FFI_DataType type, bool transposed,
                 Operands& of) {
  const bool scaled = type == XLA_FFI_DataType_S8;
  if (!request.Has(2 + scaled, 1)) return "a thin product has other operands";
  const XLA_FFI_Buffer &x = request.Input(0), &w = request.Input(1);
  const XLA_FFI_Buffer &scale = request.Input(1 + scaled), &y = request.Output(0);
  const bool fits = x.rank == 2 && w.rank == 2 && y.rank == 2 &&
                    x.dims[1] == w.dims[transposed] && y.dims[0] == x.dims[0] &&
                    y.dims[1] == w.dims[!transposed];
  if (!fits) return "a thin product is [M, K] times [K, N]";
  constexpr auto kFloat = XLA_FFI_DataType_F32;
  if (x.dtype != kFloat || y.dtype != kFloat || w.dtype != type ||
      (scaled && scale.dtype != kFloat))
    return "a thin product is of float32 with weights of another type";
  if (scaled && CountNumbers(scale) != y.dims[1])
    return "a thin product has a scale for each output";
  of = Operands{static_cast<const float*>(x.data),
                static_cast<const float*>(scale.data),
                w.data,
                static_cast<float*>(y.data),
                x.dims[0],
                x.dims[1],
                y.dims[1]};
  return nullptr;
}

template <class T>
void MultiplyAll(const Request& request, const Operands& of, bool transposed) {
  const auto multiply = transposed ? &MultiplyTransposed<T> : &Multiply<T>;
  auto* w = static_cast<const T*>(of.w);
  OverColumns(request, of.K * of.N * sizeof(T), of.N, [&](int64_t from, int64_t to) {
    multiply(of.x, w, of.y, of.M, of.K, of.N, from, to);
  });
}

template <XLA_FFI_DataType kType, bool kTransposed>
const char* Thin(Request& request) {
  Operands of;
  if (const char* why = Read(request, kType, kTransposed, of)) return why;
  if (of.M < 1 || of.M > kMostRows) return "a thin product has fewer rows";
  if (kType == XLA_FFI_DataType_F32) MultiplyAll<float>(request, of, kTransposed);
  if (kType == XLA_FFI_DataType_BF16) MultiplyAll<uint16_t>(request, of, kTransposed);
  if (kType != XLA_FFI_DataType_S8) return nullptr;
  MultiplyAll<Whole>(request, of, kTransposed);
  // Multiplied here and not by what follows, where a sum might be fused with it.
  for (int64_t m = 0; m < of.M; ++m)
    for (int64_t n = 0; n < of.N; ++n) of.y[m * of.N + n] *= of.scale[n];
  return nullptr;
}

// Of levels, and of any number of rows, so many at a time.
const char* Dynamic(Request& request) {
  Operands of;
  if (const char* why = Read(request, XLA_FFI_DataType_S8, true, of)) return why;
  const int64_t M = of.M, K = of.K, N = of.N;
  std::vector<Level> levels(M * K);
  std::vector<float> scale(M);
  for (int64_t i = 0; i < M; ++i)
    scale[i] = Rounded(of.x + i * K, levels.data() + i * K, K);
  auto* w = static_cast<const Whole*>(of.w);
  OverColumns(request, K * N, N, [&](int64_t from, int64_t to) {
    for (int64_t i = 0; i < M; i += kMostRows)
      MultiplyLevels(levels.data() + i * K, w, of.y + i * N,
                     std::min<int64_t>(kMostRows, M - i), K, N, from, to);
    for (int64_t i = 0; i < M; ++i)
      for (int64_t j = from; j < to; ++j)
        of.y[i * N + j] = of.y[i * N + j] * scale[i] * of.scale[j];
  });
  return nullptr;
}

}  // namespace

SPECJAX_HANDLER(thin_float32, (Thin<XLA_FFI_DataType_F32, false>))
SPECJAX_HANDLER(thin_bfloat16, (Thin<XLA_FFI_DataType_BF16, false>))
SPECJAX_HANDLER(thin_int8, (Thin<XLA_FFI_DataType_S8, false>))
SPECJAX_HANDLER(thin_float32_transposed, (Thin<XLA_FFI_DataType_F32, true>))
SPECJAX_HANDLER(thin_bfloat16_transposed, (Thin<XLA_FFI_DataType_BF16, true>))
SPECJAX_HANDLER(thin_int8_transposed, (Thin<XLA_FFI_DataType_S8, true>))
SPECJAX_HANDLER(thin_int8_dynamic_transposed, Dynamic)

extern "C" int thin_most_rows() { return kMostRows; }
