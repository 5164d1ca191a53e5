// Products of a few rows with one matrix or several. The matrices are read in one pass,
// by all threads.

#include "operations.h"

void Products(int threads, const Array& x, int64_t K, const Norm& norm,
              const std::vector<Matrix>& matrices, const Array& residual,
              const std::vector<Array>& y) {
  Scratch scratch;
  Rows rows{x.count / K, K, Numbers(x, scratch)};
  rows = Normalized(rows, norm, x.half, scratch);
  bool dynamic = false;
  for (const Matrix& w : matrices) dynamic |= w.dynamic;
  if (dynamic) AddLevels(rows, scratch);
  std::vector<float*> sums;
  for (const Array& out : y)
    sums.push_back(out.half ? scratch.Take(out.count) : static_cast<float*>(out.data));
  const float* more = Numbers(residual, scratch);
  OverColumnsOf(threads, matrices, [&](size_t i, int64_t from, int64_t to) {
    const Matrix& w = matrices[i];
    MultiplyColumns(rows, w, sums[i], from, to, x.half && y[i].half);
    auto* halves = static_cast<uint16_t*>(y[i].data);
    for (int64_t m = 0; m < rows.M; ++m) {
      float* row = sums[i] + m * w.N;
      if (more)
        for (int64_t n = from; n < to; ++n) row[n] = more[m * w.N + n] + row[n];
      if (y[i].half) Deliver(row + from, halves + m * w.N + from, to - from);
    }
  });
}
