// Laws of logits, and draws from them by inverse CDF.

#include "laws.h"

#include <cmath>
#include <limits>

#include "exponential.h"

namespace {

constexpr int64_t kBlock = 256;   // ids, see types.BLOCK
constexpr int64_t kPart = 4096;   // ids that a thread takes, of whole blocks
constexpr float kLowest = -std::numeric_limits<float>::infinity();

int64_t CountParts(int64_t V) { return (V + kPart - 1) / kPart; }

// f(row, part) for each part of each row, by several threads if there is enough to do.
void OverParts(int threads, int64_t M, int64_t V, Call<int64_t, int64_t> f) {
  const int64_t parts = CountParts(V), units = M * parts;
  const int64_t tasks = std::min<int64_t>(units, M * V < (1 << 14) ? 1 : 4 * threads);
  RunTeam(threads, tasks, [&](int task) {
    for (int64_t i = units * task / tasks; i < units * (task + 1) / tasks; ++i)
      f(i / parts, i % parts);
  });
}

// The largest of a part of a row, the first id that has it, and the sum of
// e^(scale (z - largest)) over it. What is no number counts as -inf.
struct Part {
  float top, sum;
  int64_t first;
};

inline Floats LoadLogits(const float* z, int64_t count) {
  Floats v = LoadSome(z, count);
  for (int64_t lane = count; lane < kLanes; ++lane) v[lane] = kLowest;
  return Choose(v == v, v, All(kLowest));
}

Part ReadPart(const float* z, int64_t from, int64_t to, float scale, bool greedy) {
  Floats most = All(kLowest);
  for (int64_t i = from; i < to; i += kLanes) {
    const Floats v = LoadLogits(z + i, to - i);
    most = Choose(v > most, v, most);
  }
  Part part{kLowest, 0, from};
  for (int lane = 0; lane < kLanes; ++lane) part.top = std::max(part.top, most[lane]);
  if (part.top == kLowest) return part;
  if (greedy) {
    while (z[part.first] != part.top) ++part.first;
    return part;
  }
  Floats sums = {};
  for (int64_t i = from; i < to; i += kLanes)
    sums += Exp((LoadLogits(z + i, to - i) - part.top) * scale);
  part.sum = Sum(sums);
  return part;
}

}  // namespace

void Standardize(int threads, const Laws& laws, int64_t M, int64_t V,
                 const float* temperature, int64_t B) {
  const int64_t parts = CountParts(V);
  static thread_local std::vector<Part> kept;
  std::vector<Part>& all = kept;  // of this thread, whoever writes
  all.resize(std::max<size_t>(all.size(), M * parts));
  for (int64_t m = 0; m < M; ++m) {
    const float heat = temperature[m / (M / B)];
    laws.scale[m] = heat == 0 ? 1 : 1 / heat;
  }
  OverParts(threads, M, V, [&](int64_t m, int64_t part) {
    const int64_t from = part * kPart, to = std::min(from + kPart, V);
    const bool greedy = temperature[m / (M / B)] == 0;
    all[m * parts + part] = ReadPart(laws.logits + m * V, from, to, laws.scale[m], greedy);
  });
  for (int64_t m = 0; m < M; ++m) {
    const Part* row = all.data() + m * parts;
    const bool greedy = temperature[m / (M / B)] == 0;
    int64_t best = 0;
    for (int64_t i = 1; i < parts; ++i)
      if (row[i].top > row[best].top) best = i;
    const float top = row[best].top;
    float sum = 0;
    for (int64_t i = 0; i < parts && !greedy; ++i)
      if (row[i].sum > 0)
        sum += row[i].sum * std::exp((row[i].top - top) * laws.scale[m]);
    laws.top[m] = top;
    laws.tau[m] = greedy ? top : kLowest;
    laws.tie[m] = greedy ? row[best].first : V - 1;
    laws.lse[m] = greedy ? 0 : std::log(sum);
  }
}

namespace {

// Probabilities of ids `from` to `to` of a row, fewer than a block's, to w.
void Weigh(const Laws& laws, int64_t m, int64_t V, int64_t from, int64_t to, float* w) {
  const float* z = laws.logits + m * V;
  const float scale = laws.scale[m], top = laws.top[m], lse = laws.lse[m];
  const Floats tau = All(laws.tau[m]);
  const int32_t tie = laws.tie[m];
  Ints ids;
  for (int lane = 0; lane < kLanes; ++lane) ids[lane] = from + lane;
  for (int64_t i = from; i < to; i += kLanes, ids += kLanes) {
    const Floats v = LoadSome(z + i, to - i);
    const Ints kept = (v > tau) | ((v == tau) & (ids <= tie));
    PutSome(w + i - from, Choose(kept, Exp((v - top) * scale - lse), Floats{}), to - i);
  }
}

// The first of positive weights whose sum with those before is more than u times the sum
// of all; the last positive one if rounding lets none be; 0 if none is positive.
int64_t Invert(const float* weights, int64_t count, float u) {
  float total = 0, sum = 0;
  int64_t last = 0;
  for (int64_t i = 0; i < count; ++i) total += weights[i];
  for (int64_t i = 0; i < count; ++i) {
    sum += weights[i];
    if (!(weights[i] > 0)) continue;
    if (sum > u * total) return i;
    last = i;
  }
  return last;
}

// (row, from, to, w): weights of the ids of a block, of which w has room.
typedef Call<int64_t, int64_t, int64_t, float*> WeighBlock;

// An id of each of M rows of weights. Returns whether all rows have a positive one.
bool SampleWeights(int threads, int64_t M, int64_t V, WeighBlock weigh, const float* u,
                   int32_t* ids) {
  const int64_t blocks = (V + kBlock - 1) / kBlock;
  Scratch scratch;
  float* sums = scratch.Take(M * blocks);
  OverParts(threads, M, V, [&](int64_t m, int64_t part) {
    alignas(64) float w[kBlock];
    const int64_t end = std::min((part + 1) * kPart, V);
    for (int64_t from = part * kPart; from < end; from += kBlock) {
      const int64_t to = std::min(from + kBlock, V);
      std::fill_n(w, kBlock, 0.0f);
      weigh(m, from, to, w);
      Floats sum = {};
      for (int64_t i = 0; i < kBlock; i += kLanes) sum += Load(w + i);
      sums[m * blocks + from / kBlock] = Sum(sum);
    }
  });
  bool all = true;
  for (int64_t m = 0; m < M; ++m) {
    alignas(64) float w[kBlock];
    const int64_t block = Invert(sums + m * blocks, blocks, u[2 * m]);
    all &= sums[m * blocks + block] > 0;
    const int64_t from = block * kBlock, to = std::min(from + kBlock, V);
    weigh(m, from, to, w);
    ids[m] = from + Invert(w, to - from, u[2 * m + 1]);
  }
  return all;
}

}  // namespace

void Sample(int threads, const Laws& laws, int64_t M, int64_t V, const float* u,
            int32_t* ids) {
  const auto weigh = [&](int64_t m, int64_t from, int64_t to, float* w) {
    Weigh(laws, m, V, from, to, w);
  };
  SampleWeights(threads, M, V, weigh, u, ids);
}

void SampleResidual(int threads, const Residual& of, int32_t* ids) {
  const int64_t G = of.G, V = of.V;
  const auto target = [&](int64_t b, int64_t from, int64_t to, float* w) {
    Weigh(of.target, b * (G + 1) + of.n[b], V, from, to, w);
  };
  const auto rest = [&](int64_t b, int64_t from, int64_t to, float* w) {
    target(b, from, to, w);
    if (of.n[b] >= of.num[b]) return;
    const int64_t at = b * G + of.n[b];
    if (!of.draft.logits) {
      const int64_t token = of.tokens[at];
      if (from <= token && token < to)
        w[token - from] = std::max(w[token - from] - 1, 0.0f);
      return;
    }
    alignas(64) float q[kBlock];
    Weigh(of.draft, at, V, from, to, q);
    for (int64_t i = 0; i < to - from; ++i) w[i] = std::max(w[i] - q[i], 0.0f);
  };
  for (int64_t b = 0; b < of.B; ++b) {
    const auto left = [&](int64_t, int64_t from, int64_t to, float* w) {
      rest(b, from, to, w);
    };
    const auto whole = [&](int64_t, int64_t from, int64_t to, float* w) {
      target(b, from, to, w);
    };
    if (!SampleWeights(threads, 1, V, left, of.u + 2 * b, ids + b))
      SampleWeights(threads, 1, V, whole, of.u + 2 * b, ids + b);
  }
}
