// Times one thread: products of a few rows, and loops of multiplications and additions in
// registers. Compiled as the native operations are, with them; measure.py calls it.

#include <chrono>
#include <vector>

#include "products_int8.cc"

namespace {

constexpr int kChains = kRegisters == 32 ? 24 : 12;  // sums that hide each other's latency
constexpr int64_t kTurns = 1 << 14;

template <class F>
double Time(F f) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  f();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Runs turn(sums) kTurns times, whose sums depend on each other, so that no turn is left
// out; returns operations a second, of `each` a sum and turn.
template <class V, class Number, class F>
double Rate(int each, F turn) {
  volatile int16_t seed = 1, sink;
  V sums[kChains];
  for (int i = 0; i < kChains; ++i) sums[i] = V{} + static_cast<Number>(seed);
  const double seconds = Time([&] {
    for (int64_t t = 0; t < kTurns; ++t)
#pragma GCC unroll 24
      for (int i = 0; i < kChains; ++i) sums[i] = turn(sums[i]);
    V all = {};
    for (const V& sum : sums) all += sum;
    sink = static_cast<int16_t>(all[0]);
  });
  return double(each) * kChains * kTurns / seconds;
}

template <class T>
void Product(const void* x, const void* w, float* y, int64_t M, int64_t K, int64_t N) {
  const auto* rows = static_cast<const float*>(x);
  Multiply(rows, static_cast<const T*>(w), y, M, K, N, 0, N);
}

void LevelsProduct(const void* x, const void* w, float* y, int64_t M, int64_t K,
                   int64_t N) {
  const auto *rows = static_cast<const Level*>(x);
  MultiplyLevels(rows, static_cast<const Whole*>(w), y, M, K, N, 0, N);
}

}  // namespace

// Operations a second of floats, and of numbers of 16 bits with sums of 32.
extern "C" double peak_of_floats() {
  volatile float one = 0.5f;
  const Floats by = Floats{} + one;
  return Rate<Floats, float>(2 * kLanes, [=](Floats sum) { return sum * by + by; });
}

extern "C" double peak_of_levels() {
  Level levels[2 * kLanes];
  volatile int16_t one = 1;
  for (Level& level : levels) level.number = one;
  return Rate<Wide, int32_t>(4 * kLanes, [&](Wide sum) {
    return AddProducts(sum, levels, (Pairs)sum);
  });
}

// The seconds of a product of M rows with a matrix [K, N] of a kind: 0 float32, 1
// bfloat16, 2 int8, 3 int8_dynamic.
extern "C" double seconds_of_product(int kind, int64_t M, int64_t K, int64_t N) {
  static constexpr decltype(&LevelsProduct) kRun[] = {
      &Product<float>, &Product<uint16_t>, &Product<Whole>, &LevelsProduct};
  const std::vector<float> x(M * K), w(K * N);  // zeros of any kind
  std::vector<float> y(M * N);
  const bool levels = kind == 3;
  const int64_t width = levels ? K / 2 : K;  // of a row, in floats
  auto multiply = [&] {
    for (int64_t m = 0; m < M; m += kMostRows)
      kRun[kind](x.data() + m * width, w.data(), y.data() + m * N,
                 std::min<int64_t>(kMostRows, M - m), K, N);
  };
  multiply();
  return Time(multiply);
}
