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

}  // namespace

void OverParts(int threads, int64_t M, int64_t V, Call<int64_t, int64_t, int64_t> f) {
  const int64_t parts = CountParts(V), units = M * parts;
  const int64_t tasks = std::min<int64_t>(units, M * V < (1 << 13) ? 1 : 4 * threads);
  RunTeam(threads, tasks, [&](int task) {
    for (int64_t i = units * task / tasks; i < units * (task + 1) / tasks; ++i) {
      const int64_t from = i % parts * kPart;
      f(i / parts, from, std::min(from + kPart, V));
    }
  });
}

namespace {

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

void Standardize(int threads, const Laws& laws, int64_t M, const float* temperature,
                 int64_t B) {
  const int64_t V = laws.width, parts = CountParts(V);
  static thread_local std::vector<Part> kept;
  std::vector<Part>& all = kept;  // of this thread, whoever writes
  all.resize(std::max<size_t>(all.size(), M * parts));
  for (int64_t m = 0; m < M; ++m) {
    const float heat = temperature[m / (M / B)];
    laws.scale[m] = heat == 0 ? 1 : 1 / heat;
  }
  OverParts(threads, M, V, [&](int64_t m, int64_t from, int64_t to) {
    const bool greedy = temperature[m / (M / B)] == 0;
    all[m * parts + from / kPart] =
        ReadPart(laws.logits + m * V, from, to, laws.scale[m], greedy);
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

// Which ids, with logits v, the law of row m keeps.
inline Ints Kept(const Laws& laws, int64_t m, Floats v, Ints ids) {
  const Floats tau = All(laws.tau[m]);
  return (v > tau) | ((v == tau) & (ids <= laws.tie[m]));
}

inline Ints IdsFrom(int64_t first) {
  Ints ids;
  for (int lane = 0; lane < kLanes; ++lane) ids[lane] = first + lane;
  return ids;
}

// Probabilities of ids `from` to `to` of a row, no more than a block's, to w.
void Weigh(const Laws& laws, int64_t m, int64_t from, int64_t to, float* w) {
  const float* z = laws.logits + m * laws.width;
  const float scale = laws.scale[m], top = laws.top[m], lse = laws.lse[m];
  for (int64_t i = from; i < to; i += kLanes) {
    Floats v;
    Ints ids = IdsFrom(i);
    if (laws.place) {
      for (int lane = 0; lane < kLanes; ++lane) {
        const int64_t at = i + lane < to ? laws.place[i + lane] : laws.width;
        const bool there = at >= 0 && at < laws.width;
        ids[lane] = at, v[lane] = there ? z[at] : kLowest;
      }
    } else {
      v = LoadSome(z + i, to - i);
    }
    const Floats p = Exp((v - top) * scale - lse);
    PutSome(w + i - from, Choose(Kept(laws, m, v, ids), p, Floats{}), to - i);
  }
}

float Probability(const Laws& laws, int64_t m, int64_t id) {
  float p;
  Weigh(laws, m, id, id + 1, &p);
  return p;
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
  OverParts(threads, M, V, [&](int64_t m, int64_t from, int64_t end) {
    alignas(64) float w[kBlock];
    for (; from < end; from += kBlock) {
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

void Sample(int threads, const Laws& laws, int64_t M, const float* u, int32_t* ids) {
  const auto weigh = [&](int64_t m, int64_t from, int64_t to, float* w) {
    Weigh(laws, m, from, to, w);
  };
  SampleWeights(threads, M, laws.width, weigh, u, ids);
}

namespace {

// max(0, w p - q) after i of the drafted tokens of text b, with q = 0 after the last.
void WeighRest(const Trial& of, int64_t b, int64_t i, float w, int64_t from, int64_t to,
               float* rest) {
  Weigh(of.target, b * (of.G + 1) + i, from, to, rest);
  for (int64_t k = 0; k < to - from; ++k) rest[k] *= w;
  if (i >= of.num[b]) return;
  const int64_t at = b * of.G + i;
  if (!of.draft.logits) {
    const int64_t token = of.tokens[at] - from;
    if (0 <= token && token < to - from) rest[token] = std::max(rest[token] - 1, 0.0f);
    return;
  }
  alignas(64) float q[kBlock];
  Weigh(of.draft, at, from, to, q);
  for (int64_t k = 0; k < to - from; ++k) rest[k] = std::max(rest[k] - q[k], 0.0f);
}

// An id of what is left after n drafted tokens of text b.
int32_t SampleRest(int threads, const Trial& of, int64_t b, int64_t n, float w,
                   const float* u) {
  int32_t id;
  const auto rest = [&](int64_t, int64_t from, int64_t to, float* weights) {
    WeighRest(of, b, n, w, from, to, weights);
  };
  const auto whole = [&](int64_t, int64_t from, int64_t to, float* weights) {
    Weigh(of.target, b * (of.G + 1) + n, from, to, weights);
  };
  if (!SampleWeights(threads, 1, of.V, rest, u, &id))
    SampleWeights(threads, 1, of.V, whole, u, &id);
  return id;
}

}  // namespace

void SampleResidual(int threads, const Trial& of, const int32_t* n, const float* u,
                    int32_t* ids) {
  for (int64_t b = 0; b < of.B; ++b)
    ids[b] = SampleRest(threads, of, b, n[b], 1, u + 2 * b);
}

void VerifyBlock(int threads, const Trial& of, const float* accept, const float* u,
                 int32_t* n, float* h, int32_t* ids) {
  const int64_t G = of.G, parts = CountParts(of.V);
  Scratch scratch;
  float *w = scratch.Take(of.B * (G + 1)), *sums = scratch.Take(of.B * G * parts);
  for (int64_t b = 0; b < of.B; ++b) {
    float* row = w + b * (G + 1);
    row[0] = 1;
    for (int64_t i = 0; i < G; ++i) {
      row[i + 1] = 0;
      if (i >= of.num[b]) continue;  // what is no draft may be any number
      const int64_t id = of.tokens[b * G + i];
      const float p = Probability(of.target, b * (G + 1) + i, id);
      const float q = of.draft.logits ? Probability(of.draft, b * G + i, id) : 1;
      row[i + 1] = q > 0 ? std::min(1.0f, row[i] * (p / q)) : 0;
    }
  }
  // The sums of what is left after each token but the last, part by part.
  OverParts(threads, of.B * G, of.V, [&](int64_t row, int64_t from, int64_t end) {
    const int64_t b = row / G, i = row % G + 1, part = from / kPart;
    float& sum = sums[row * parts + part];
    sum = 0;
    if (i >= of.num[b]) return;
    alignas(64) float rest[kBlock];
    for (; from < end; from += kBlock) {
      const int64_t to = std::min(from + kBlock, of.V);
      std::fill_n(rest, kBlock, 0.0f);
      WeighRest(of, b, i, w[b * (G + 1) + i], from, to, rest);
      Floats some = {};
      for (int64_t k = 0; k < kBlock; k += kLanes) some += Load(rest + k);
      sum += Sum(some);
    }
  });
  for (int64_t b = 0; b < of.B; ++b) {
    n[b] = 0;
    for (int64_t i = 1; i <= G; ++i) {
      const float kept = w[b * (G + 1) + i], *row = sums + (b * G + i - 1) * parts;
      float s = 0;
      for (int64_t part = 0; part < parts; ++part) s += row[part];
      const float below = s + (1 - kept);
      float& chance = h[b * G + i - 1];
      chance = i == of.num[b] ? kept : below > 0 ? s / below : 1;
      if (i > of.num[b]) chance = 0;
      else if (accept[b * G + i - 1] < chance) n[b] = i;
    }
    ids[b] = SampleRest(threads, of, b, n[b], w[b * (G + 1) + n[b]], u + 2 * b);
  }
}

namespace {

// The sum of what f(from, to) returns for parts of V ids, in their order.
template <class F>
float SumOverParts(int threads, int64_t V, F f) {
  Scratch scratch;
  float* sums = scratch.Take(CountParts(V));
  OverParts(threads, 1, V, [&](int64_t, int64_t from, int64_t to) {
    sums[from / kPart] = f(from, to);
  });
  float sum = 0;
  for (int64_t part = 0; part < CountParts(V); ++part) sum += sums[part];
  return sum;
}

// f(i, count) for each vector of numbers from `from` to `to`, summed.
template <class F>
float SumOverVectors(int64_t from, int64_t to, F f) {
  Floats sum = {};
  for (int64_t i = from; i < to; i += kLanes) sum += f(i, to - i);
  return Sum(sum);
}

// The rows of one text: of row i, the target's law less what was rejected below it, and
// the law of its next child, each of which is made at its first use.
class TreeRows {
 public:
  TreeRows(int threads, const Trial& of, const int32_t* parent, int64_t b,
           Scratch& scratch)
      : threads_(threads), of_(of), b_(b), rows_(of.G + 1), first_(of.G + 1, -1) {
    for (int64_t i = 0; i <= of.G; ++i)
      rows_[i] = {nullptr, nullptr, scratch.Take(of.V), scratch.Take(of.V)};
    for (int64_t node = std::min<int64_t>(of.G, of.num[b]); node-- > 0;)
      first_[parent[node] + 1] = node;
    left_ = scratch.Take(of.V);
  }

  float* Rest(int64_t row) {
    if (!rows_[row].rest) {
      rows_[row].rest = rows_[row].room;
      Fill(of_.target, b_ * (of_.G + 1) + row, rows_[row].rest);
    }
    return rows_[row].rest;
  }

  float* Next(int64_t row) {
    if (!rows_[row].next) {
      float* next = rows_[row].next = rows_[row].other;
      if (first_[row] < 0 || !of_.draft.logits) std::fill_n(next, of_.V, 0.0f);
      else Fill(of_.draft, b_ * of_.G + first_[row], next);
    }
    return rows_[row].next;
  }

  // Child y of a row was rejected: what is left of its target's law, of which w were
  // kept, and of its children's. Returns the sum of max(0, w r - q).
  float Reject(int64_t row, int64_t y, float w, bool replaced) {
    float *rest = Rest(row), *next = Next(row);
    const float q = next[y], only = std::max(w * rest[y] - (q > 0 ? q : 1), 0.0f);
    const float share = q > 0 ? 1 : 0;  // else y was certain
    float mass = SumOverParts(threads_, of_.V, [&](int64_t from, int64_t to) {
      return SumOverVectors(from, to, [&](int64_t i, int64_t count) {
        const Floats s = LoadSome(rest + i, count) * w - LoadSome(next + i, count) * share;
        Floats left = Choose(s > 0.0f, s, Floats{});
        if (i <= y && y < i + kLanes) left[y - i] = only;
        PutSome(left_ + i, left, count);
        return left;
      });
    });
    next[y] = replaced ? q : 0;
    const float others =
        replaced ? 1 : SumOverParts(threads_, of_.V, [&](int64_t from, int64_t to) {
          return SumOverVectors(
              from, to, [&](int64_t i, int64_t n) { return LoadSome(next + i, n); });
        });
    OverParts(threads_, 1, of_.V, [&](int64_t, int64_t from, int64_t to) {
      for (int64_t i = from; i < to && mass > 0; ++i) rest[i] = left_[i] / mass;
      for (int64_t i = from; i < to && !replaced; ++i)
        next[i] = next[i] / (others > 0 ? others : 1);
    });
    return mass;
  }

 private:
  void Fill(const Laws& laws, int64_t m, float* row) {
    OverParts(threads_, 1, of_.V, [&](int64_t, int64_t from, int64_t to) {
      Weigh(laws, m, from, to, row + from);
    });
  }

  struct Row {
    float *rest, *next, *room, *other;
  };
  const int threads_;
  const Trial& of_;
  const int64_t b_;
  std::vector<Row> rows_;
  std::vector<int64_t> first_;  // the first child of each row
  float* left_;
};

}  // namespace

void Traverse(int threads, const Trial& of, const Traversal& how) {
  const int64_t G = of.G;
  for (int64_t b = 0; b < of.B; ++b) {
    Scratch scratch;
    const int32_t *parent = how.parent + b * G, *tokens = of.tokens + b * G;
    float* chance = how.chance + b * G;
    std::fill_n(chance, G, 0.0f);
    std::vector<float> w(G + 1, 1.0f);
    TreeRows rows(threads, of, parent, b, scratch);
    const auto next_child = [&](int64_t row, int64_t after) {
      for (int64_t node = after + 1; node < std::min<int64_t>(G, of.num[b]); ++node)
        if (parent[node] == row - 1) return node;
      return G;
    };
    int64_t at = 0, child = next_child(0, -1);
    while (true) {
      if (child < G) {  // down: w min(1, r(x) / q(x)) of its parent's w and r
        const int64_t x = tokens[child];
        const float q = rows.Next(at)[x], ratio = rows.Rest(at)[x] / (q > 0 ? q : 1);
        w[child + 1] = std::min(1.0f, w[at] * ratio);
        at = child + 1, child = next_child(at, -1);
        continue;
      }
      if (!at) break;
      chance[at - 1] = w[at];
      if (how.accept[b * G + at - 1] < w[at]) break;
      // Back to its parent: w = S / (S + 1 - w), where S is what is left.
      const int64_t up = parent[at - 1] + 1;
      const float mass = rows.Reject(up, tokens[at - 1], w[up], how.replaced);
      const float below = mass + (1 - w[up]);
      w[up] = up == 0 ? 1 : below > 0 ? mass / below : 1;
      child = next_child(up, at - 1), at = up;
    }
    const float* rest = rows.Rest(at);
    const auto weigh = [&](int64_t, int64_t from, int64_t to, float* weights) {
      std::copy(rest + from, rest + to, weights);
    };
    SampleWeights(threads, 1, of.V, weigh, how.u + 2 * b, how.ids + b);
    int32_t* path = how.path + b * G;
    std::vector<int32_t> upwards;
    for (; at; at = parent[at - 1] + 1) upwards.push_back(at - 1);
    how.n[b] = upwards.size();
    for (int64_t i = 0; i < G; ++i)
      path[i] = i < how.n[b] ? upwards[how.n[b] - 1 - i] : i;
  }
}

void SampleDistinct(int threads, const Laws& laws, int64_t M, const float* g,
                    int64_t count, int32_t* ids) {
  constexpr float kBehind = 1e4f;  // below everything that a law keeps
  struct Best {
    float value;
    int32_t id;
  };
  const int64_t V = laws.width, parts = CountParts(V);
  std::vector<Best> all(M * parts * count, Best{kLowest, 0});
  OverParts(threads, M, V, [&](int64_t m, int64_t from, int64_t to) {
    Best* best = all.data() + (m * parts + from / kPart) * count;
    const float *z = laws.logits + m * V, scale = laws.scale[m], top = laws.top[m];
    int64_t found = 0;
    for (int64_t i = from; i < to; i += kLanes) {
      const Floats v = LoadSome(z + i, to - i), noise = LoadSome(g + m * V + i, to - i);
      const Ints kept = Kept(laws, m, v, IdsFrom(i));
      Floats order = Choose(kept, (v - top) * scale + noise, v - top - kBehind);
      order = Choose(order == order, order, All(kLowest));
      const int64_t last = std::min<int64_t>(kLanes, to - i);
      for (int64_t lane = 0; lane < last; ++lane) {
        const float value = order[lane];
        if (found == count && !(value > best[count - 1].value)) continue;
        int64_t at = found < count ? found++ : count - 1;
        for (; at && best[at - 1].value < value; --at) best[at] = best[at - 1];
        best[at] = Best{value, static_cast<int32_t>(i + lane)};
      }
    }
  });
  // Parts are in the order of ids, so that of equals the smaller id stays first.
  for (int64_t m = 0; m < M; ++m) {
    Best* row = all.data() + m * parts * count;
    std::stable_sort(row, row + parts * count,
                     [](const Best& a, const Best& b) { return a.value > b.value; });
    for (int64_t i = 0; i < count; ++i) ids[m * count + i] = row[i].id;
  }
}
