// The feed-forward layer of a few rows. Two passes over matrices, by all threads.

#include "exponential.h"
#include "operations.h"

void Feed(int threads, const Array& x, const FeedForward& layer, const Array& y) {
  Scratch scratch;
  const Matrix &first = layer.matrices.front(), &out = layer.matrices.back();
  const Matrix& in = layer.matrices[layer.gated];
  const bool half = x.half, gated = layer.gated;
  const int64_t K = first.K, M = x.count / K, N = in.N;
  const float* numbers = Numbers(x, scratch);
  Rows rows = Normalized(Rows{M, K, numbers}, layer.norm, half, scratch);
  if (first.dynamic || in.dynamic) AddLevels(rows, scratch);
  float *hidden = scratch.Take(M * N), *other = gated ? scratch.Take(M * N) : nullptr;
  const auto by = Activation(layer.activation);
  std::vector<Product> both{{first, hidden, half}};
  if (gated) both.push_back({in, other, half});
  Multiply(threads, rows, {both}, [&](size_t, int64_t from, int64_t to) {
    for (int64_t m = 0; m < M; ++m) {
      float* row = hidden + m * N;
      for (int64_t n = from; n < to; n += kLanes)
        PutSome(row + n, Activated(LoadSome(row + n, to - n), by), to - n);
      Round(row + from, to - from, half);
      if (!gated) continue;
      const float* factor = other + m * N;
      for (int64_t n = from; n < to; ++n) row[n] = row[n] * factor[n];
      Round(row + from, to - from, half);
    }
  });
  Rows inner{M, N, hidden};
  if (out.dynamic) AddLevels(inner, scratch);
  auto* halves = static_cast<uint16_t*>(y.data);
  float* sums = half ? scratch.Take(M * out.N) : static_cast<float*>(y.data);
  Multiply(threads, inner, {{{out, sums, half}}}, [&](size_t, int64_t from, int64_t to) {
    for (int64_t m = 0; m < M; ++m) {
      float* row = sums + m * out.N;
      if (layer.add)
        for (int64_t n = from; n < to; ++n) row[n] = numbers[m * out.N + n] + row[n];
      if (half) Deliver(row + from, halves + m * out.N + from, to - from);
    }
  });
}
