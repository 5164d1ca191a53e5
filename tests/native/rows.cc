// Every row of a thin product is that of a product of one, and near the exact one: for
// processors that are not there, where XLA does not run.

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "thin_int8.cc"

void Set(float* to, float value) { *to = value; }
void Set(uint16_t* to, float value) {
  uint32_t word;
  std::memcpy(&word, &value, sizeof word);
  *to = word >> 16;
}

void Set(Whole* to, float value) { to->number = 2 * value; }  // sums stay small

float Random() { return (std::rand() % 2001 - 1000) / 1000.0f; }

template <int M, bool kTransposed, class T>
bool Differs(int K, int N) {
  std::vector<float> x(M * K), y(M * N), alone(N);
  std::vector<T> w(K * N);
  for (float& number : x) number = Random();
  for (T& number : w) Set(&number, Random());
  constexpr auto multiply = Of<(M - 1) % kGroup + 1, kTransposed, T>();
  constexpr auto one = Of<1, kTransposed, T>();
  multiply(x.data(), w.data(), y.data(), K, N, (M - 1) / kGroup, 0, N);
  for (int m = 0; m < M; ++m) {
    one(x.data() + m * K, w.data(), alone.data(), K, N, 0, 0, N);
    for (int n = 0; n < N; ++n) {
      double exact = 0;
      for (int k = 0; k < K; ++k)
        exact += double(x[m * K + k]) * One(&w[kTransposed ? n * K + k : k * N + n]);
      if (alone[n] != y[m * N + n] || std::abs(exact - y[m * N + n]) > 1e-4) return true;
    }
  }
  return false;
}

// Of whole numbers too, and exact.
template <int M>
bool Inexact(int K, int N) {
  std::vector<Level> x(M * K);
  std::vector<Whole> w(K * N);
  std::vector<float> y(M * N);
  const int most = std::min(32767, std::numeric_limits<int32_t>::max() / (128 * K));
  for (Level& level : x) level.number = most * Random();
  for (Whole& whole : w) whole.number = 127 * Random();
  constexpr auto kOf = EachOfLevels(std::make_index_sequence<kGroup>());
  const auto multiply = kOf[(M - 1) % kGroup];
  multiply(x.data(), w.data(), y.data(), K, N, (M - 1) / kGroup, 0, N);
  for (int m = 0; m < M; ++m)
    for (int n = 0; n < N; ++n) {
      int64_t sum = 0;
      for (int k = 0; k < K; ++k) sum += x[m * K + k].number * w[n * K + k].number;
      if (y[m * N + n] != static_cast<float>(sum)) return true;
    }
  return false;
}

template <int M, class T>
bool Wrong(int K, int N) {
  return Differs<M, false, T>(K, N) || Differs<M, true, T>(K, N);
}

int main() {
  int wrong = 0;
  for (auto [K, N] : {std::pair{256, 512}, {129, 513}, {1000, 67}}) {
    wrong += Wrong<2, float>(K, N) + Wrong<3, float>(K, N) + Wrong<8, float>(K, N);
    wrong += Wrong<2, uint16_t>(K, N) + Wrong<5, uint16_t>(K, N);
    wrong += Wrong<8, uint16_t>(K, N) + Wrong<kMostRows - 3, float>(K, N);
    wrong += Wrong<3, Whole>(K, N) + Wrong<8, Whole>(K, N);
    wrong += Inexact<1>(K, N) + Inexact<3>(K, N) + Inexact<8>(K, N);
  }
  std::printf("%d wrong\n", wrong);
  return wrong;
}
