// Operations on few rows: a row's numbers are those of a call of its own, by one thread as
// by several, and near the exact ones: for processors that are not there, where XLA does
// not run.

#include "exponential.h"
#include "laws.h"
#include "operations.h"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <tuple>

#include "random.h"

constexpr int kTokens = 7, kSlots = 45;

template <class T>
Array ArrayOf(std::vector<T>& numbers) {
  return Array{numbers.data(), static_cast<int64_t>(numbers.size()), sizeof(T) == 2};
}

Array Of(Array all, int64_t at, int64_t count) {
  auto* data = static_cast<char*>(all.data) + at * (all.half ? 2 : 4);
  return Array{data, count, all.half};
}

const Array kNone{nullptr, 0, false};

double Exact(const Array& array, int64_t i) {
  return array.half ? One(static_cast<uint16_t*>(array.data) + i)
                    : static_cast<float*>(array.data)[i];
}

Kind KindOf(float) { return Kind::kFloat; }
Kind KindOf(uint16_t) { return Kind::kHalf; }
Kind KindOf(Whole) { return Kind::kWhole; }

// Numbers of a matrix [K, N], its scales and its bias.
template <class T>
struct Weights {
  int64_t K, N;
  bool dynamic = false;
  std::vector<T> numbers = ::Numbers<T>(K * N, sizeof(T) == 1 ? 1 : 40.0f / K);
  std::vector<float> scale = ::Numbers<float>(N), bias = ::Numbers<float>(N);
  Matrix Read() const {
    const bool whole = sizeof(T) == 1;
    return Matrix{KindOf(T()), dynamic,        dynamic, K, N, numbers.data(),
                  whole ? scale.data() : nullptr, bias.data()};
  }
  double Product(const std::vector<double>& x, int64_t n) const {
    double sum = 0;
    for (int64_t k = 0; k < K; ++k)
      sum += x[k] * One(&numbers[dynamic ? n * K + k : k * N + n]);
    return sum * (sizeof(T) == 1 ? scale[n] : 1) + bias[n];
  }
};

const std::vector<float> kScale = Numbers<float>(640), kShift = Numbers<float>(640);
const Norm kNorm{Law::kLayer, 1e-5f, 1.0f, kScale.data(), kShift.data()};

std::vector<double> ExactNorm(const Array& x, int64_t row, int64_t K) {
  double mean = 0, square = 0;
  std::vector<double> y(K);
  for (int64_t k = 0; k < K; ++k) mean += Exact(x, row * K + k) / K;
  for (int64_t k = 0; k < K; ++k) square += std::pow(Exact(x, row * K + k) - mean, 2) / K;
  for (int64_t k = 0; k < K; ++k)
    y[k] = (Exact(x, row * K + k) - mean) / std::sqrt(square + kNorm.eps) *
               (kScale[k] + 1) +
           kShift[k];
  return y;
}

// Compares f(x, M, threads) of all rows with that of each row, and with the exact
// numbers, of which there are N a row. near: 0 if they are too far to be compared.
template <class T, class F, class G>
int CountWrong(int64_t K, int64_t N, double near, F f, G exact) {
  auto x = Numbers<T>(kTokens * K);
  std::vector<T> all(kTokens * N), shared(kTokens * N), alone(N);
  int wrong = 0;
  f(ArrayOf(x), ArrayOf(all), 1);
  f(ArrayOf(x), ArrayOf(shared), 4);
  wrong += all != shared;
  for (int64_t m = 0; m < kTokens; ++m) {
    f(Of(ArrayOf(x), m * K, K), ArrayOf(alone), 1);
    wrong += !std::equal(alone.begin(), alone.end(), all.begin() + m * N);
    if (!near) continue;
    const std::vector<double> wanted = exact(ArrayOf(x), m);
    for (int64_t n = 0; n < N; ++n)
      wrong += !(std::abs(wanted[n] - Exact(ArrayOf(all), m * N + n)) < near);
  }
  return wrong;
}

template <class T, class W>
int WrongProducts(int64_t K, int64_t N, double near, bool dynamic) {
  const Weights<W> one{K, N, dynamic}, other{K, 2 * N, dynamic};
  std::vector<T> rest(2 * kTokens * N);
  return CountWrong<T>(
      K, N, near,
      [&](Array x, Array y, int threads) {
        const Array more = Of(ArrayOf(rest), 0, 2 * y.count);
        Products(threads, x, K, kNorm, {one.Read(), other.Read()}, kNone, {y, more});
      },
      [&](Array x, int64_t m) {
        const std::vector<double> row = ExactNorm(x, m, K);
        std::vector<double> y(N);
        for (int64_t n = 0; n < N; ++n) y[n] = one.Product(row, n);
        return y;
      });
}

template <class T, class W>
int WrongFeeding(int64_t K, int64_t N, double near, bool dynamic) {
  const Weights<W> gate{K, N, dynamic}, in{K, N, dynamic}, out{N, K, dynamic};
  const FeedForward layer{kNorm, 1, true, true, {gate.Read(), in.Read(), out.Read()}};
  return CountWrong<T>(
      K, K, near,
      [&](Array x, Array y, int threads) { Feed(threads, x, layer, y); },
      [&](Array x, int64_t m) {
        const std::vector<double> row = ExactNorm(x, m, K);
        std::vector<double> hidden(N), y(K);
        for (int64_t n = 0; n < N; ++n) {
          const double turned = gate.Product(row, n);
          hidden[n] = turned / (1 + std::exp(-turned)) * in.Product(row, n);
        }
        for (int64_t k = 0; k < K; ++k) y[k] = Exact(x, m * K + k) + out.Product(hidden, k);
        return y;
      });
}

// The exact GELU, whose tail keeps its relative error.
int WrongGelu() {
  int wrong = 0;
  for (float x = -13; x < 13; x += 0.000731f) {
    const double wanted = x * 0.5 * std::erfc(-double(x) / std::sqrt(2.0));
    const float near = std::abs(float(wanted)), unit = std::nextafter(near, 1e9f) - near;
    const float got = Activated(All(x), Activation::kExactGelu)[kLanes - 1];
    wrong += !(std::abs(got - wanted) <= 8 * unit);
  }
  return wrong;
}

template <class T>
int WrongNorm(int64_t K, double near) {
  return CountWrong<T>(
      K, K, near, [&](Array x, Array y, int) { NormOfRows(x, K, kNorm, y); },
      [&](Array x, int64_t m) { return ExactNorm(x, m, K); });
}

// A cache of one text: numbers, and the scales of its slots if they are whole.
template <class C>
struct CacheOf {
  std::vector<C> keys, values;
  std::vector<float> key_scales, value_scales;
  CacheOf(int64_t K, int64_t D, int64_t S)
      : keys(K * D * S), values(K * D * S), key_scales(K * S), value_scales(K * S) {}
  bool operator==(const CacheOf& other) const {
    const auto same = [](const std::vector<C>& a, const std::vector<C>& b) {
      return !std::memcmp(a.data(), b.data(), a.size() * sizeof(C));
    };
    return same(keys, other.keys) && same(values, other.values) &&
           key_scales == other.key_scales && value_scales == other.value_scales;
  }
  double Key(int64_t text, int64_t d, int64_t s, int64_t D, int64_t S) const {
    return One(&keys[(text * D + d) * S + s]) *
           (sizeof(C) == 1 ? double(key_scales[text * S + s]) : 1);
  }
  double Value(int64_t text, int64_t s, int64_t d, int64_t D, int64_t S) const {
    return One(&values[(text * S + s) * D + d]) *
           (sizeof(C) == 1 ? double(value_scales[text * S + s]) : 1);
  }
};

// Of one text: all tokens at once, one by one, and as a tree whose other half is noise,
// with `before` slots that earlier tokens have filled.
template <class T, class C = T>
int WrongAttention(int64_t D, double near, int before) {
  constexpr int64_t H = 4, K = 2;
  const int64_t S = before + kSlots;
  auto q = Numbers<T>(kTokens * H * D), k = Numbers<T>(kTokens * K * D);
  auto v = Numbers<T>(kTokens * K * D);
  auto scale = Numbers<float>(D);
  // Of a call on `count` tokens from `first` on, each `apart` slots from the one before.
  auto attend = [&](CacheOf<C>& cache, int first, int count, int apart, int threads) {
    const int rows = (count - 1) * apart + 1;
    const int32_t start = before + first;
    std::vector<T> some_q(rows * H * D), some_k(rows * K * D), some_v(rows * K * D);
    std::vector<T> mixed(rows * H * D), out;
    std::vector<uint8_t> mask(rows * S);
    for (int i = 0; i < rows; ++i) {
      const int t = first + i / apart;
      std::copy_n(q.data() + t * H * D, H * D, some_q.data() + i * H * D);
      std::copy_n(k.data() + t * K * D, K * D, some_k.data() + i * K * D);
      std::copy_n(v.data() + t * K * D, K * D, some_v.data() + i * K * D);
      if (i % apart)  // beside the path
        std::fill_n(some_k.begin() + i * K * D, K * D, T(1));
      for (int s = 0; s <= start + i; ++s)
        mask[i * S + s] = s < start || (s - start) % apart == 0 || s == start + i;
    }
    const Array none = kNone;
    const Array keys{cache.keys.data(), K * D * S, sizeof(C) == 2};
    const Array values{cache.values.data(), K * D * S, sizeof(C) == 2};
    Attention of{1, rows, H, K, D, S, ArrayOf(some_q), ArrayOf(some_k), ArrayOf(some_v),
                 ArrayOf(scale), ArrayOf(scale), none, none, &start, mask.data(), 1,
                 none, 1, keys, values, 0.3f, 5.0f, 1e-6f, 1.0f, false};
    if (sizeof(C) == 1) {
      of.key_scales = cache.key_scales.data();
      of.value_scales = cache.value_scales.data();
    }
    Attend(threads, of, ArrayOf(mixed));
    if (threads > 1) {  // the cache that was written, read alone
      std::vector<T> again(rows * H * D);
      of.k = of.v = kNone;
      Attend(threads, of, ArrayOf(again));
      if (again != mixed) return std::vector<T>();
    }
    for (int i = 0; i < rows; i += apart)
      out.insert(out.end(), mixed.begin() + i * H * D, mixed.begin() + (i + 1) * H * D);
    return out;
  };
  CacheOf<C> filled(K, D, S);
  filled.keys = Numbers<C>(K * D * S), filled.values = Numbers<C>(K * D * S);
  filled.key_scales = filled.value_scales = std::vector<float>(K * S, 0.4f);
  auto cache = filled;
  const auto all = attend(cache, 0, kTokens, 1, 1);
  int wrong = 0;
  for (int threads : {1, 4})
    for (int apart : {1, 2, 3}) {
      auto another = filled;
      wrong += attend(another, 0, kTokens, apart, threads) != all;
    }
  auto another = filled;
  for (int t = 0; t < kTokens; ++t) {
    const auto alone = attend(another, t, 1, 1, 1);
    wrong += !std::equal(alone.begin(), alone.end(), all.begin() + t * H * D);
  }
  wrong += !(another == cache);
  if (!near) return wrong;
  // The exact ones, of the keys that the cache has.
  for (int t = 0; t < kTokens; ++t)
    for (int64_t h = 0; h < H; ++h) {
      const int count = before + t + 1;
      std::vector<double> turned(D), weights(count);
      const int64_t text = h / (H / K);
      double square = 0, sum = 0;
      for (int64_t d = 0; d < D; ++d)
        square += std::pow(Exact(ArrayOf(q), (t * H + h) * D + d), 2) / D;
      for (int64_t d = 0; d < D; ++d)
        turned[d] = Exact(ArrayOf(q), (t * H + h) * D + d) / std::sqrt(square + 1e-6) *
                    (scale[d] + 1);
      for (int s = 0; s < count; ++s) {
        double score = 0;
        for (int64_t d = 0; d < D; ++d) score += turned[d] * cache.Key(text, d, s, D, S);
        sum += weights[s] = std::exp(5 * std::tanh(0.3 * score / 5));
      }
      for (int64_t d = 0; d < D; ++d) {
        double mixed = 0;
        for (int s = 0; s < count; ++s)
          mixed += weights[s] / sum * cache.Value(text, s, d, D, S);
        auto copy = all;
        wrong += !(std::abs(mixed - Exact(ArrayOf(copy), (t * H + h) * D + d)) < near);
      }
    }
  // A value is a whole number times a scale, at most half of which it is off.
  for (int64_t i = 0; sizeof(C) == 1 && i < kTokens * K * D; ++i) {
    const int64_t t = i / (K * D), text = i / D % K, d = i % D;
    const double off = Exact(ArrayOf(v), i) - cache.Value(text, before + t, d, D, S);
    wrong += !(std::abs(off) <= 0.501 * cache.value_scales[text * S + before + t]);
  }
  return wrong;
}

// Rows of logits with their laws, and what is drawn from them.
struct RowsOfLaws {
  int64_t M, V;
  std::vector<float> logits, scale, top, tau, lse;
  std::vector<int32_t> tie;
  RowsOfLaws(std::vector<float> numbers, int64_t V)
      : M(numbers.size() / V), V(V), logits(std::move(numbers)), scale(M), top(M), tau(M),
        lse(M), tie(M) {}
  Laws Read(int64_t from = 0) {
    return Laws{logits.data() + from * V, V, scale.data() + from, top.data() + from,
                tau.data() + from, tie.data() + from, lse.data() + from};
  }
  double Exact(int64_t m, int64_t id) const {  // probability
    double sum = 0;
    if (scale[m] == 1) return id == tie[m];
    for (int64_t i = 0; i < V; ++i)
      sum += std::exp((double(logits[m * V + i]) - top[m]) * scale[m]);
    return std::exp((double(logits[m * V + id]) - top[m]) * scale[m]) / sum;
  }
};

int WrongLaws(int64_t V) {
  constexpr int64_t B = 2, G = 3, M = B * (G + 1), kFew = 4;
  int wrong = 0;
  RowsOfLaws target(Numbers<float>(M * V, 4), V), draft(Numbers<float>(B * G * V, 4), V);
  const float heat[] = {0.7f, 0};
  const auto uniforms = [](int64_t count) {
    auto u = Numbers<float>(count);
    for (float& x : u) x = std::abs(x);
    return u;
  };
  const auto u = uniforms(2 * M), g = Numbers<float>(M * V, 5), accept = uniforms(B * G);
  std::vector<int32_t> tokens(B * G), num = {3, 2};
  for (int64_t i = 0; i < B * G; ++i) tokens[i] = (i * 37 + 11) % V;
  // Everything, by so many threads.
  const auto all = [&](int threads) {
    Standardize(threads, target.Read(), M, heat, B);
    Standardize(threads, draft.Read(), B * G, heat, B);
    std::vector<int32_t> ids(M + M * kFew + 3 * B), path(B * G + 2 * B);
    std::vector<float> h(B * G), gumbels(M * V), chance(B * G);
    Sample(threads, target.Read(), M, u.data(), ids.data());
    SampleDistinct(threads, target.Read(), M, g.data(), kFew, ids.data() + M);
    const Trial trial{B, G, V, target.Read(), draft.Read(), tokens.data(), num.data()};
    int32_t* last = ids.data() + M + M * kFew;
    VerifyBlock(threads, trial, accept.data(), u.data(), last, h.data(), last + B);
    SampleResidual(threads, trial, last, u.data(), last + 2 * B);
    const int32_t parent[B * G] = {-1, 0, -1, -1, -1, 0};
    const Traversal how{parent,        false,           accept.data(),
                        u.data(),      path.data(),     path.data() + B * G,
                        chance.data(), path.data() + B * G + B};
    Traverse(threads, trial, how);
    const std::vector<uint32_t> keys(2 * M, 7);
    Gumbels(threads, keys.data(), M, V, gumbels.data());
    return std::tuple{ids, h, gumbels, target.lse, target.top, path, chance};
  };
  const auto once = all(1);
  wrong += all(4) != once;
  const auto& [ids, h, gumbels, lse, top, path, chance] = once;
  for (int64_t m = 0; m < M; ++m) {
    int32_t id;
    Sample(1, target.Read(m), 1, u.data() + 2 * m, &id);
    wrong += id != ids[m];
    for (int64_t i = 0; i < V; i += 97) {
      const float *z = target.logits.data() + m * V, scale = target.scale[m];
      const bool kept = scale != 1 || i == target.tie[m];
      const double p = kept ? std::exp((double(z[i]) - top[m]) * scale - lse[m]) : 0;
      wrong += !(std::abs(p - target.Exact(m, i)) < 1e-5);
    }
    for (int64_t k = 1; k < kFew; ++k)  // in the order of log p + g
      for (int64_t i = 0; i < V && target.scale[m] != 1; ++i) {
        const auto order = [&](int64_t id) {
          return (target.logits[m * V + id] - top[m]) * target.scale[m] + g[m * V + id];
        };
        const int32_t* row = ids.data() + M + m * kFew;
        const bool before = std::find(row, row + k, i) != row + k;
        wrong += !before && order(i) > order(row[k]) + 1e-5f;
      }
  }
  for (int64_t b = 0; b < B; ++b) {  // block verification, as its paper has it
    double w = 1;
    for (int64_t i = 0; i < num[b]; ++i) {
      const int64_t p = b * (G + 1) + i, q = b * G + i, x = tokens[q];
      const double below = draft.Exact(q, x);
      w = below > 0 ? std::min(1.0, w * target.Exact(p, x) / below) : 0;
      double s = 0;
      for (int64_t id = 0; i + 1 < num[b] && id < V; ++id)
        s += std::max(0.0, w * target.Exact(p + 1, id) - draft.Exact(q + 1, id));
      const double wanted =
          i + 1 == num[b] ? w : s + 1 - w > 0 ? s / (s + 1 - w) : 1;
      wrong += !(std::abs(wanted - h[b * G + i]) < 1e-4);
    }
  }
  return wrong;
}

int main() {
  int wrong = 0;
  wrong += WrongLaws(523) + WrongLaws(5) + WrongGelu();
  for (auto [K, N] : {std::pair{288, 576}, {129, 67}}) {
    wrong += WrongProducts<float, float>(K, N, 1e-3, false);
    wrong += WrongProducts<float, Whole>(K, N, 1e-3, false);
    wrong += WrongProducts<float, Whole>(K, N, 0, true);
    wrong += WrongProducts<uint16_t, uint16_t>(K, N, 0, false);
    wrong += WrongFeeding<float, float>(K, N, 1e-2, false);
    wrong += WrongFeeding<float, Whole>(K, N, 0, true);
    wrong += WrongFeeding<uint16_t, uint16_t>(K, N, 0, false);
    wrong += WrongNorm<float>(K, 1e-4) + WrongNorm<uint16_t>(K, 0);
  }
  for (auto [D, before] : {std::pair{64, 0}, {36, 0}, {18, 0}, {260, 300}})
    wrong += WrongAttention<float>(D, 1e-4, before) +
             WrongAttention<uint16_t>(D, 0, before) +
             WrongAttention<float, Whole>(D, 1e-4, before) +
             WrongAttention<uint16_t, Whole>(D, 0, before);
  std::printf("%d wrong\n", wrong);
  return wrong != 0;
}
