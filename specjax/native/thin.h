// How products.h is computed. Of a decoder's step the weights are what takes time to read.
// XLA packs all of them again for more than one row; here they are streamed once for all
// rows, and the next ones are asked for ahead. A matrix is read faster by whole rows than
// by a part of each row, after which a processor reads on in vain: so its rows are two
// halves, whose sums are added at the end, and two threads take one each.
//
// What is made for each number of rows is the loop that nearly all of the time is spent
// in, and no more: a compiler takes a tenth of a second for each such loop.

#ifndef SPECJAX_THIN_H_
#define SPECJAX_THIN_H_

#include <array>

#include "products.h"

constexpr int kGroup = kRegisters == 32 ? 12 : 6;  // rows of x that are summed at a time
constexpr int kTogether = 8;  // rows of a transposed W that are read at a time
constexpr int kSums = 16384;  // floats of partial sums: they stay in the second cache
constexpr int kLine = 64;     // bytes that memory is read in

// Rows of W that are read at a time: of narrow numbers more, which take longer to widen
// than to read.
template <class T>
constexpr int kRead = sizeof(T) == 4 ? 8 : 16;

// Vectors of columns whose sums fit the registers with a group's rows, W's and one of x.
constexpr int kColumns = 2, kWidth = kColumns * kLanes;
static_assert((kGroup + 1) * kColumns + 2 <= kRegisters);

// Asks for row[n] to be read from memory, once for all numbers of its line: to ask takes as
// long as to multiply.
template <class T>
inline void ReadAhead(const T* row, int64_t n) {
  if (n * sizeof(T) % kLine == 0) __builtin_prefetch(row + n, 0, 2);
}

// Rows of each group that M rows are divided into, as evenly as it goes: with those of the
// last one W is read, and what takes longer, reading or arithmetic, hides the other.
inline int64_t RowsOfGroup(int64_t M) {
  const int64_t groups = (M + kGroup - 1) / kGroup;
  return (M + groups - 1) / groups;
}

// Adds kRead<T> rows of W to the sums of `width` columns, kColumns vectors at a time, and
// asks for those of as many rows further on that have a bit in `ahead`. On its own it has
// the registers that it needs; inlined it may not.
template <int M, class T>
[[gnu::noinline]] void AddRows(const float* x, const T* w, Floats* sums, int64_t K,
                               int64_t N, int64_t width, unsigned ahead) {
  constexpr int C = kColumns, R = kRead<T>;
  for (int64_t n = 0; n < width; n += C * kLanes, sums += M * C) {
    Floats s[M][C];
    for (int m = 0; m < M; ++m)
      for (int c = 0; c < C; ++c) s[m][c] = sums[m * C + c];
    for (int r = 0; r < R; ++r) {
      const T* row = w + r * N + n;
      Floats b[C];
      for (int c = 0; c < C; ++c) {
        if (ahead >> r & 1) ReadAhead(w + (r + R) * N, n + c * kLanes);
        b[c] = Load(row + c * kLanes);
      }
      for (int m = 0; m < M; ++m)
        for (int c = 0; c < C; ++c) s[m][c] += x[m * K + r] * b[c];
    }
    for (int m = 0; m < M; ++m)
      for (int c = 0; c < C; ++c) sums[m * C + c] = s[m][c];
  }
}

// The same of M rows and of R rows of W, of any number.
template <class T>
[[gnu::noinline]] void AddFewRows(const float* x, const T* w, Floats* sums, int64_t M,
                                  int64_t R, int64_t K, int64_t N, int64_t width) {
  for (int64_t n = 0; n < width; n += kWidth)
    for (int64_t m = 0; m < M; ++m)
      for (int c = 0; c < kColumns; ++c, ++sums) {
        Floats sum = *sums;
        for (int64_t r = 0; r < R; ++r)
          sum += x[m * K + r] * Load(w + r * N + n + c * kLanes);
        *sums = sum;
      }
}

// The sums of M rows, as `AddRows` keeps them, to their rows of y.
inline void StoreSums(const Floats* sums, float* y, int64_t M, int64_t N,
                      int64_t width) {
  for (int64_t n = 0; n < width; n += kWidth)
    for (int64_t m = 0; m < M; ++m)
      for (int c = 0; c < kColumns; ++c) Put(y + m * N + n + c * kLanes, *sums++);
}

template <class T, size_t... kRows>
constexpr auto EachOfAddRows(std::index_sequence<kRows...>) {
  return std::array{&AddRows<kRows + 1, T>...};
}

// Rows of W, of which each is multiplied by a column of x [M, K].
template <class T>
struct Factors {
  const float* x;
  const T* w;
  int64_t M, K, N, count;  // K and N: from a row of x and of W to the next
};

// Those of a half, of which the upper one has whole reads.
template <class T>
Factors<T> FactorsOf(Share share, const float* x, const T* w, int64_t M, int64_t K,
                     int64_t N) {
  constexpr int64_t kReads = kRead<T>;
  const int64_t middle = std::min((K / 2 + kReads - 1) / kReads * kReads, K);
  const bool upper = share == Share::kUpper;
  const int64_t from = upper ? 0 : middle, to = upper ? middle : K;
  return {x + from, w + from * N, M, K, N, to - from};
}

// Columns `from` to `to`, a multiple of kWidth. stride: from a row of y to the next.
template <class T>
void AddColumns(const Factors<T>& of, float* y, int64_t stride, int64_t from, int64_t to) {
  static constexpr auto kAdd = EachOfAddRows<T>(std::make_index_sequence<kGroup>());
  // Of several groups the first one asks for a half of what comes next and the others for
  // the rest, so that memory is read all the time.
  constexpr int R = kRead<T>;
  constexpr unsigned kAll = (1 << R) - 1, kHalf = (1 << R / 2) - 1;
  alignas(64) Floats sums[kSums / kLanes];
  const auto [x, w, M, K, N, count] = of;
  const int64_t size = RowsOfGroup(M), first = (M - 1) / size * size, last = M - first;
  int64_t most = kSums / kMostRows;  // columns at a time, a power of two
  while (2 * most * M <= kSums) most *= 2;
  for (; from < to; from += most) {
    const int64_t width = std::min(most, to - from), group = size * width / kLanes;
    Floats* of_last = sums + first * width / kLanes;
    std::fill_n(sums, M * width / kLanes, Floats{});
    int64_t k = 0;
    for (; k + R <= count; k += R) {
      const T* rows = w + k * N + from;
      kAdd[last - 1](x + first * K + k, rows, of_last, K, N, width,
                     first ? kHalf : kAll);
      for (int64_t i = 0; i < first; i += size)
        kAdd[size - 1](x + i * K + k, rows, sums + i / size * group, K, N, width,
                       kAll - kHalf);
    }
    for (int64_t i = 0; i < M; i += size) {
      Floats* here = sums + i / size * group;
      const int64_t rows = std::min(size, M - i);
      if (k < count)
        AddFewRows(x + i * K + k, w + k * N + from, here, rows, count - k, K, N, width);
      StoreSums(here, y + i * stride + from, rows, stride, width);
    }
  }
}

// The vector of columns from `at` on, four rows at a time; beyond the last row it is that
// again.
template <class T>
void AddVector(const Factors<T>& of, float* y, int64_t stride, int64_t at) {
  constexpr int kFew = 4;
  for (int64_t i = 0; i < of.M; i += kFew) {
    Floats s[kFew] = {};
    const float* rows[kFew];
    for (int m = 0; m < kFew; ++m) rows[m] = of.x + std::min(i + m, of.M - 1) * of.K;
    for (int64_t k = 0; k < of.count; ++k) {
      const Floats b = Load(of.w + k * of.N + at);
      for (int m = 0; m < kFew; ++m) s[m] += rows[m][k] * b;
    }
    for (int m = 0; m < kFew && i + m < of.M; ++m) Put(y + (i + m) * stride + at, s[m]);
  }
}

// Columns that no vector holds.
template <class T>
[[gnu::noinline]] void AddSingly(const Factors<T>& of, float* y, int64_t stride,
                                 int64_t from, int64_t to) {
  for (int64_t m = 0; m < of.M; ++m)
    for (int64_t n = from; n < to; ++n) {
      float sum = 0;
      for (int64_t k = 0; k < of.count; ++k)
        sum += of.x[m * of.K + k] * One(of.w + k * of.N + n);
      y[m * stride + n] = sum;
    }
}

// Columns `from` to `to`, however many. Where one vector of many is left, the one before it
// is computed again with it.
template <class T>
void AddAny(const Factors<T>& of, float* y, int64_t stride, int64_t from, int64_t to) {
  const int64_t whole = from + (to - from) / kWidth * kWidth;
  const int64_t vectors = from + (to - from) / kLanes * kLanes;
  AddColumns(of, y, stride, from, whole);
  if (whole < vectors && from < whole)
    AddColumns(of, y, stride, vectors - kWidth, vectors);
  else if (whole < vectors)
    AddVector(of, y, stride, whole);
  if (vectors < to) AddSingly(of, y, stride, vectors, to);
}

template <class T>
void Multiply(const float* x, const T* w, float* y, int64_t M, int64_t K, int64_t N,
              int64_t from, int64_t to) {
  float lower[kSums];
  const int64_t most = kSums / M / (2 * kWidth) * (2 * kWidth);  // columns at a time
  for (int64_t end; from < to; from = end) {
    end = std::min(from + most, to);
    AddAny(FactorsOf(Share::kUpper, x, w, M, K, N), y, N, from, end);
    AddAny(FactorsOf(Share::kLower, x, w + from, M, K, N), lower, most, 0, end - from);
    for (int64_t m = 0; m < M; ++m)
      for (int64_t n = from; n < end; ++n) y[m * N + n] += lower[m * most + n - from];
  }
}

template <class T>
void MultiplyShare(Share share, const float* x, const T* w, float* y, int64_t M, int64_t K,
                   int64_t N, int64_t from, int64_t to) {
  if (share == Share::kBoth) Multiply(x, w, y, M, K, N, from, to);
  else AddAny(FactorsOf(share, x, w, M, K, N), y, N, from, to);
}

// Rows of a transposed W whose sums fit the registers with M rows of x.
constexpr int Beside(int M) {
  return M * 4 + 5 <= kRegisters ? 4 : M * 2 + 3 <= kRegisters ? 2 : 1;
}

// Adds to M x R sums what is left of K.
template <class T>
[[gnu::noinline]] void AddLast(const float* x, const T* rows, float* sums, int M, int R,
                               int64_t k, int64_t K) {
  for (int m = 0; m < M; ++m)
    for (int r = 0; r < R; ++r, ++sums) {
      float sum = *sums;
      for (int64_t i = k; i < K; ++i) sum += x[m * K + i] * One(rows + r * K + i);
      *sums = sum;
    }
}

// Columns `from` to `to` of y, a multiple of R, of M rows of x and a transposed W.
template <int M, int R, class T>
[[gnu::noinline]] void MultiplyRows(const float* x, const T* w, float* y, int64_t K,
                                    int64_t N, int64_t from, int64_t to) {
  for (; from < to; from += R) {
    Floats s[M][R] = {};
    const T* rows = w + from * K;
    int64_t k = 0;
    for (; k + kLanes <= K; k += kLanes) {
      Floats b[R];
      for (int r = 0; r < R; ++r) {
        ReadAhead(rows + (r + 2 * R) * K, k);
        b[r] = Load(rows + r * K + k);
      }
      for (int m = 0; m < M; ++m) {
        const Floats a = Load(x + m * K + k);
        for (int r = 0; r < R; ++r) s[m][r] += a * b[r];
      }
    }
    constexpr int kVectors = RoundUp(M * R, kLanes);
    Lanes v[kVectors], sums[kVectors / kLanes];
#pragma GCC unroll 12
    for (int m = 0; m < M; ++m)
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) v[m * R + r] = s[m][r];
    FoldAll<M * R>(v, sums);
    auto* numbers = reinterpret_cast<float*>(sums);
    if (k < K) AddLast(x, rows, numbers, M, R, k, K);
    for (int m = 0; m < M; ++m)
      std::memcpy(y + m * N + from, numbers + m * R, R * sizeof *y);
  }
}

// Columns `from` to `to` of y by groups of rows, a few columns at a time: `run[M]` is of M
// rows and a multiple of Beside(M) columns, `run[0]` of one row and any number of them.
template <class X, class T, class Run>
void OverGroups(const Run& run, const X* x, const T* w, float* y, int64_t M, int64_t K,
                int64_t N, int64_t from, int64_t to) {
  const int64_t size = RowsOfGroup(M), first = (M - 1) / size * size;
  auto multiply = [&](int64_t i, int64_t rows, int64_t end) {
    const int64_t whole = from + (end - from) / Beside(rows) * Beside(rows);
    run[rows](x + i * K, w, y + i * N, K, N, from, whole);
    for (int64_t m = i; m < i + rows && whole < end; ++m)
      run[0](x + m * K, w, y + m * N, K, N, whole, end);
  };
  for (int64_t end; from < to; from = end) {
    end = std::min(from + kTogether, to);
    multiply(first, M - first, end);  // with them W is read
    for (int64_t i = 0; i < first; i += size) multiply(i, size, end);
  }
}

// What `OverGroups` runs.
template <class T, size_t... kRows>
constexpr auto EachOfRows(std::index_sequence<kRows...>) {
  return std::array{&MultiplyRows<1, 1, T>,
                    &MultiplyRows<kRows + 1, Beside(kRows + 1), T>...};
}

template <class T>
void MultiplyTransposed(const float* x, const T* w, float* y, int64_t M, int64_t K,
                        int64_t N, int64_t from, int64_t to) {
  static constexpr auto kRun = EachOfRows<T>(std::make_index_sequence<kGroup>());
  OverGroups(kRun, x, w, y, M, K, N, from, to);
}

#endif
