// What rows.h declares, and the operations that are made of products. They are small:
// what takes time is in products.h.

#include "rows.h"

#include <cmath>

#include "operations.h"

void Round(float* numbers, int64_t count, bool half) {
  if (half)
    for (int64_t i = 0; i < count; ++i) numbers[i] = Rounded(numbers[i], true);
}

const float* Numbers(const Array& array, Scratch& scratch) {
  if (!array.count) return nullptr;
  if (!array.half) return static_cast<const float*>(array.data);
  float* copy = scratch.Take(array.count);
  auto* halves = static_cast<const uint16_t*>(array.data);
  for (int64_t i = 0; i < array.count; ++i) copy[i] = One(halves + i);
  return copy;
}

void Deliver(const float* numbers, uint16_t* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = Half(numbers[i]);
}

namespace {

// The sum over f(x_i), in lanes and then over them.
template <class F>
inline float SumOver(const float* x, int64_t count, F f) {
  Floats sums = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) sums += f(Load(x + i));
  if (i < count) {  // lanes beyond add nothing, whatever f(0) is
    Floats last = f(LoadSome(x + i, count - i));
    for (int64_t lane = count - i; lane < kLanes; ++lane) last[lane] = 0;
    sums += last;
  }
  return Sum(sums);
}

}  // namespace

void Normalize(const float* x, const Norm& norm, float* y, int64_t count, bool half) {
  float mean = 0;
  if (norm.law == Law::kLayer)
    mean = SumOver(x, count, [](Floats v) { return v; }) / count;
  const float square = SumOver(x, count, [=](Floats v) {
    const Floats apart = v - mean;
    return apart * apart;
  });
  const float factor = 1.0f / std::sqrt(square / count + norm.eps);
  for (int64_t i = 0; i < count; ++i) {
    float value = (x[i] - mean) * factor;
    if (norm.scale) value *= norm.scale[i] + norm.offset;
    if (norm.bias) value += norm.bias[i];
    y[i] = Rounded(value, half);
  }
}

Rows Normalized(const Rows& rows, const Norm& norm, bool half, Scratch& scratch) {
  if (norm.law == Law::kNone) return rows;
  const int64_t M = rows.M, K = rows.K;
  float* normal = scratch.Take(M * K);
  for (int64_t m = 0; m < M; ++m)
    Normalize(rows.numbers + m * K, norm, normal + m * K, K, half);
  return Rows{M, K, normal};
}

void AddLevels(Rows& rows, Scratch& scratch) {
  auto* levels = reinterpret_cast<Level*>(scratch.Take((rows.M * rows.K + 1) / 2));
  float* scale = scratch.Take(rows.M);
  for (int64_t m = 0; m < rows.M; ++m)
    scale[m] = Rounded(rows.numbers + m * rows.K, levels + m * rows.K, rows.K);
  rows.levels = levels, rows.scale = scale;
}

int64_t Matrix::Bytes() const {
  return K * N * (kind == Kind::kFloat ? 4 : kind == Kind::kHalf ? 2 : 1);
}

namespace {

template <class T>
void MultiplyKind(const float* x, const Matrix& w, float* y, int64_t M, int64_t from,
                  int64_t to) {
  auto run = w.transposed ? &MultiplyTransposed<T> : &Multiply<T>;
  run(x, static_cast<const T*>(w.numbers), y, M, w.K, w.N, from, to);
}

}  // namespace

void MultiplyColumns(const Rows& x, const Matrix& w, float* y, int64_t from, int64_t to,
                     bool half) {
  for (int64_t i = 0; i < x.M; i += kMostRows) {
    const int64_t rows = std::min<int64_t>(kMostRows, x.M - i);
    const float* numbers = x.numbers + i * w.K;
    float* out = y + i * w.N;
    if (w.dynamic)
      MultiplyLevels(x.levels + i * w.K, static_cast<const Whole*>(w.numbers), out, rows,
                     w.K, w.N, from, to);
    else if (w.kind == Kind::kWhole)
      MultiplyKind<Whole>(numbers, w, out, rows, from, to);
    else if (w.kind == Kind::kHalf)
      MultiplyKind<uint16_t>(numbers, w, out, rows, from, to);
    else
      MultiplyKind<float>(numbers, w, out, rows, from, to);
  }
  for (int64_t m = 0; m < x.M; ++m) {
    float* row = y + m * w.N;
    if (w.dynamic)
      for (int64_t n = from; n < to; ++n) row[n] = row[n] * x.scale[m] * w.scale[n];
    else if (w.scale)
      for (int64_t n = from; n < to; ++n) row[n] = row[n] * w.scale[n];
    Round(row + from, to - from, half);
    if (!w.bias) continue;
    for (int64_t n = from; n < to; ++n) row[n] = row[n] + w.bias[n];
    Round(row + from, to - from, half);
  }
}

void OverColumnsOf(int threads, const std::vector<Matrix>& matrices,
                   Call<size_t, int64_t, int64_t> f) {
  constexpr int64_t kUnit = 4 * kLanes;  // columns of a part are a multiple of it
  constexpr int64_t kWorth = 1 << 16;    // bytes of matrices that are worth a part
  int64_t bytes = 0, units = 0;
  for (const Matrix& w : matrices) {
    bytes += w.Bytes();
    units += (w.N + kUnit - 1) / kUnit;
  }
  const int64_t most = std::min<int64_t>(threads, bytes / kWorth);
  const int64_t parts = std::max<int64_t>(1, std::min(most, units / 2));
  RunTeam(threads, parts, [&](int part) {
    int64_t first = units * part / parts, end = units * (part + 1) / parts, before = 0;
    for (size_t i = 0; i < matrices.size(); ++i) {
      const int64_t here = (matrices[i].N + kUnit - 1) / kUnit;
      const int64_t from = std::max<int64_t>(first - before, 0) * kUnit;
      const int64_t to = std::min((end - before) * kUnit, matrices[i].N);
      if (from < to) f(i, from, to);
      before += here;
    }
  });
}

// The operations.

#include "rows_feed_forward.cc"
#include "rows_norm.cc"
#include "rows_products.cc"
