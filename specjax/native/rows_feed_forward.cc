// The feed-forward layer of a few rows: x + (f(h W_gate) (h W_in)) W_out, h = norm(x);
// without a gate x + f(h W_in) W_out. Two passes over matrices, by all threads.

#include "rows.h"

namespace {

// kind, eps, offset: of the norm. gated: whether the first matrix is a gate's. add:
// whether x is added.
ffi::Error FeedForward(ffi::ThreadPool pool, ffi::AnyBuffer x, ffi::AnyBuffer scale,
                       ffi::AnyBuffer bias, ffi::RemainingArgs weights,
                       ffi::Result<ffi::AnyBuffer> y, int32_t kind, float eps,
                       float offset, int32_t activation, bool gated, bool add,
                       bool dynamic) {
  Scratch scratch;
  const int64_t K = x.dimensions().back(), M = x.element_count() / K;
  const bool half = IsHalf(x.element_type());
  if (M < 1) return ffi::Error::InvalidArgument("there are no rows");
  const float* numbers = Numbers(x, scratch);
  Rows rows{M, K, numbers};
  if (kind) {
    const Norm norm{Law(kind), eps, offset, Numbers(scale, scratch),
                    Numbers(bias, scratch)};
    float* normal = scratch.Take(M * K);
    for (int64_t m = 0; m < M; ++m)
      Normalize(numbers + m * K, norm, normal + m * K, K, half);
    rows.numbers = normal;
  }
  if (dynamic) AddLevels(rows, scratch);
  std::vector<Matrix> first, last;
  for (int i = 0; i < 2 + gated; ++i) {
    auto matrix = ReadMatrix(weights, 3 * i, false, dynamic, scratch);
    if (!matrix) return ffi::Error::InvalidArgument("a matrix is missing");
    (i <= gated ? first : last).push_back(*matrix);
  }
  const Matrix &in = first.back(), &out = last.front();
  if (first.front().K != K || in.K != K || first.front().N != in.N || out.K != in.N)
    return ffi::Error::InvalidArgument("matrices of a feed-forward layer do not fit");
  const int threads = pool.num_threads();
  const int64_t N = in.N;
  float *hidden = scratch.Take(M * N), *other = gated ? scratch.Take(M * N) : nullptr;
  const auto by = Activation(activation);
  // Both matrices' columns together: the part that has a gate's has its factor's too.
  Matrix both = in;
  both.K = gated ? 2 * K : K;
  OverColumnsOf(threads, {both}, [&](size_t, int64_t from, int64_t to) {
    MultiplyColumns(rows, first.front(), hidden, from, to, half);
    if (gated) MultiplyColumns(rows, in, other, from, to, half);
    for (int64_t m = 0; m < M; ++m)
      for (int64_t n = from; n < to; n += kLanes) {
        const int64_t at = m * N + n, count = to - n;
        Floats value = Activated(LoadSome(hidden + at, count), by);
        PutSome(hidden + at, value, count);
        Round(hidden + at, std::min<int64_t>(count, kLanes), half);
        if (!gated) continue;
        value = LoadSome(hidden + at, count) * LoadSome(other + at, count);
        PutSome(hidden + at, value, count);
        Round(hidden + at, std::min<int64_t>(count, kLanes), half);
      }
  });
  Rows inner{M, N, hidden};
  if (dynamic) AddLevels(inner, scratch);
  float* plain = static_cast<float*>(y->untyped_data());
  auto* halves = half ? reinterpret_cast<uint16_t*>(plain) : nullptr;
  float* sums = half ? scratch.Take(M * out.N) : plain;
  OverColumnsOf(threads, last, [&](size_t, int64_t from, int64_t to) {
    MultiplyColumns(inner, out, sums, from, to, half);
    for (int64_t m = 0; m < M; ++m) {
      float* row = sums + m * out.N;
      if (add)
        for (int64_t n = from; n < to; ++n) row[n] = numbers[m * out.N + n] + row[n];
      if (half) Deliver(row + from, halves + m * out.N + from, to - from);
    }
  });
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(rows_feed_forward, FeedForward,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .RemainingArgs()
                                  .Ret<ffi::AnyBuffer>()
                                  .Attr<int32_t>("kind")
                                  .Attr<float>("eps")
                                  .Attr<float>("offset")
                                  .Attr<int32_t>("activation")
                                  .Attr<bool>("gated")
                                  .Attr<bool>("add")
                                  .Attr<bool>("dynamic"));
