// Every row of a product is that of a product of one, and near the exact one: for
// processors that are not there, where XLA does not run.

#include "products.h"

#include <cmath>
#include <cstdio>
#include <limits>

#include "random.h"

template <class T>
bool Differs(int M, int K, int N, bool transposed) {
  const auto x = Numbers<float>(M * K);
  const auto w = Numbers<T>(K * N);
  std::vector<float> y(M * N), alone(N);
  const auto multiply = transposed ? &MultiplyTransposed<T> : &Multiply<T>;
  multiply(x.data(), w.data(), y.data(), M, K, N, 0, N);
  const int part = N / (8 * kLanes) * (4 * kLanes);
  for (int m = 0; m < M; ++m) {
    multiply(x.data() + m * K, w.data(), alone.data(), 1, K, N, 0, part);
    multiply(x.data() + m * K, w.data(), alone.data(), 1, K, N, part, N);
    for (int n = 0; n < N; ++n) {
      double exact = 0;
      for (int k = 0; k < K; ++k)
        exact += double(x[m * K + k]) * One(&w[transposed ? n * K + k : k * N + n]);
      if (alone[n] != y[m * N + n] || std::abs(exact - y[m * N + n]) > 1e-4) return true;
    }
  }
  return false;
}

// Both shares of the rows of W are together what one product is.
template <class T>
bool Unshared(int M, int K, int N) {
  const auto x = Numbers<float>(M * K);
  const auto w = Numbers<T>(K * N);
  std::vector<float> y(M * N), upper(M * N), lower(M * N);
  Multiply(x.data(), w.data(), y.data(), M, K, N, 0, N);
  MultiplyShare(Share::kUpper, x.data(), w.data(), upper.data(), M, K, N, 0, N);
  MultiplyShare(Share::kLower, x.data(), w.data(), lower.data(), M, K, N, 0, N);
  for (int i = 0; i < M * N; ++i)
    if (upper[i] + lower[i] != y[i]) return true;
  return false;
}

// Of whole numbers too, and exact.
bool Inexact(int M, int K, int N) {
  std::vector<Level> x(M * K);
  std::vector<Whole> w(K * N);
  std::vector<float> y(M * N);
  const int most = std::min(32767, std::numeric_limits<int32_t>::max() / (128 * K));
  for (Level& level : x) level.number = most * Random();
  for (Whole& whole : w) whole.number = 127 * Random();
  MultiplyLevels(x.data(), w.data(), y.data(), M, K, N, 0, N);
  for (int m = 0; m < M; ++m)
    for (int n = 0; n < N; ++n) {
      int64_t sum = 0;
      for (int k = 0; k < K; ++k) sum += x[m * K + k].number * w[n * K + k].number;
      if (y[m * N + n] != static_cast<float>(sum)) return true;
    }
  return false;
}

template <class T>
int CountWrong(int M, int K, int N) {
  return Differs<T>(M, K, N, false) + Differs<T>(M, K, N, true) + Unshared<T>(M, K, N);
}

int main() {
  int wrong = 0;
  for (auto [K, N] : {std::pair{256, 512}, {129, 513}, {1000, 67}, {40, 24}})
    for (int M : {1, 2, 3, 5, 8, kMostRows - 3}) {
      wrong += CountWrong<float>(M, K, N) + CountWrong<uint16_t>(M, K, N);
      wrong += CountWrong<Whole>(M, K, N) + Inexact(M, K, N);
    }
  std::printf("%d wrong\n", wrong);
  return wrong;
}
