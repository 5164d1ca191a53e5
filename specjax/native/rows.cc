// What rows.h declares, and the operations that are made of products. They are small:
// what takes time is in products.h.

#include "rows.h"

#include <atomic>
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

constexpr int64_t kUnit = 4 * kLanes;  // columns of a part are a multiple of it
constexpr int64_t kWorth = 1 << 16;    // bytes of matrices that are worth a part

template <class T>
void MultiplyKind(const float* x, const Matrix& w, float* y, int64_t M, Share share,
                  int64_t from, int64_t to) {
  const auto* numbers = static_cast<const T*>(w.numbers);
  if (w.transposed) MultiplyTransposed(x, numbers, y, M, w.K, w.N, from, to);
  else MultiplyShare(share, x, numbers, y, M, w.K, w.N, from, to);
}

// Columns `from` to `to` of y.
void MultiplyColumns(const Rows& x, const Matrix& w, float* y, Share share, int64_t from,
                     int64_t to) {
  const auto run = w.kind == Kind::kWhole  ? &MultiplyKind<Whole>
                   : w.kind == Kind::kHalf ? &MultiplyKind<uint16_t>
                                           : &MultiplyKind<float>;
  for (int64_t i = 0; i < x.M; i += kMostRows) {
    const int64_t rows = std::min<int64_t>(kMostRows, x.M - i);
    if (w.dynamic)
      MultiplyLevels(x.levels + i * w.K, static_cast<const Whole*>(w.numbers),
                     y + i * w.N, rows, w.K, w.N, from, to);
    else
      run(x.numbers + i * w.K, w, y + i * w.N, rows, share, from, to);
  }
}

// Scales the sums in columns `from` to `to` of y, rounds them, and adds the bias.
void Finish(const Rows& x, const Product& of, int64_t from, int64_t to) {
  const Matrix& w = of.w;
  for (int64_t m = 0; m < x.M; ++m) {
    float* row = of.y + m * w.N;
    if (w.dynamic)
      for (int64_t n = from; n < to; ++n) row[n] = row[n] * x.scale[m] * w.scale[n];
    else if (w.scale)
      for (int64_t n = from; n < to; ++n) row[n] = row[n] * w.scale[n];
    Round(row + from, to - from, of.half);
    if (!w.bias) continue;
    for (int64_t n = from; n < to; ++n) row[n] = row[n] + w.bias[n];
    Round(row + from, to - from, of.half);
  }
}

int64_t CountUnits(const std::vector<Product>& group) {
  return (group.front().w.N + kUnit - 1) / kUnit;
}

// f(group, from, to) for a part of the columns of all groups, of parts about as large.
void OverPart(const Groups& groups, int64_t part, int64_t parts,
              Call<size_t, int64_t, int64_t> f) {
  int64_t units = 0, before = 0;
  for (const auto& group : groups) units += CountUnits(group);
  const int64_t first = units * part / parts, end = units * (part + 1) / parts;
  for (size_t i = 0; i < groups.size(); ++i) {
    const int64_t from = std::max<int64_t>(first - before, 0) * kUnit;
    const int64_t to = std::min((end - before) * kUnit, groups[i].front().w.N);
    if (from < to) f(i, from, to);
    before += CountUnits(groups[i]);
  }
}

// Whole rows of a matrix are read by two threads: each has the sums over a share of them,
// and who is last adds both.
void MultiplyShares(int threads, int64_t parts, const Rows& x, const Groups& groups,
                    Call<size_t, int64_t, int64_t> after) {
  Scratch scratch;
  std::vector<std::vector<float*>> lower(groups.size());
  for (size_t i = 0; i < groups.size(); ++i)
    for (const Product& of : groups[i]) lower[i].push_back(scratch.Take(x.M * of.w.N));
  std::vector<std::atomic<int>> done(parts);
  RunTeam(threads, 2 * parts, [&](int task) {
    const int64_t part = task / 2;
    const bool upper = task % 2 == 0;
    OverPart(groups, part, parts, [&](size_t i, int64_t from, int64_t to) {
      for (size_t j = 0; j < groups[i].size(); ++j) {
        const Product& of = groups[i][j];
        MultiplyColumns(x, of.w, upper ? of.y : lower[i][j],
                        upper ? Share::kUpper : Share::kLower, from, to);
      }
    });
    if (!done[part].fetch_add(1, std::memory_order_acq_rel)) return;
    OverPart(groups, part, parts, [&](size_t i, int64_t from, int64_t to) {
      for (size_t j = 0; j < groups[i].size(); ++j) {
        const Product& of = groups[i][j];
        for (int64_t m = 0; m < x.M; ++m)
          for (int64_t n = m * of.w.N + from; n < m * of.w.N + to; ++n)
            of.y[n] += lower[i][j][n];
        Finish(x, of, from, to);
      }
      after(i, from, to);
    });
  });
}

}  // namespace

void Multiply(int threads, const Rows& x, const Groups& groups,
              Call<size_t, int64_t, int64_t> after) {
  int64_t bytes = 0, units = 0;
  bool transposed = false;
  for (const auto& group : groups) {
    units += CountUnits(group);
    for (const Product& of : group) {
      bytes += of.w.Bytes();
      transposed |= of.w.transposed;
    }
  }
  const int64_t most = std::min<int64_t>(threads, bytes / kWorth);
  const int64_t parts = std::max<int64_t>(1, std::min(most, units / 2));
  if (parts % 2 == 0 && !transposed)
    return MultiplyShares(threads, parts / 2, x, groups, after);
  RunTeam(threads, parts, [&](int part) {
    OverPart(groups, part, parts, [&](size_t i, int64_t from, int64_t to) {
      for (const Product& of : groups[i]) {
        MultiplyColumns(x, of.w, of.y, Share::kBoth, from, to);
        Finish(x, of, from, to);
      }
      after(i, from, to);
    });
  });
}

// The operations.

#include "rows_feed_forward.cc"
#include "rows_norm.cc"
#include "rows_products.cc"
