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
  Groups products;
  for (size_t i = 0; i < y.size(); ++i) {
    auto* sums = y[i].half ? scratch.Take(y[i].count) : static_cast<float*>(y[i].data);
    products.push_back({{matrices[i], sums, x.half && y[i].half}});
  }
  const float* more = Numbers(residual, scratch);
  Multiply(threads, rows, products, [&](size_t i, int64_t from, int64_t to) {
    const int64_t N = matrices[i].N;
    auto* halves = static_cast<uint16_t*>(y[i].data);
    for (int64_t m = 0; m < rows.M; ++m) {
      float* row = products[i].front().y + m * N;
      if (more)
        for (int64_t n = from; n < to; ++n) row[n] = more[m * N + n] + row[n];
      if (y[i].half) Deliver(row + from, halves + m * N + from, to - from);
    }
  });
}
