// Attention of a few rows of a text to its cache: queries and keys are normalised and
// turned, keys and values written to their slots, and each query attends to the slots
// that it sees. The cache is written in place. Its numbers are floats, or whole numbers
// times a scale of their slot, by which scores and weights are multiplied instead.
//
// Of a query the k-th slot that it sees is the k-th term of its sums, whichever slot that
// is, and those of a ring are counted from its oldest on: the tokens of a tree get the
// numbers that they would get in a chain. A task is a head of a text.

#include <cmath>
#include <limits>

#include "exponential.h"
#include "operations.h"

namespace {

constexpr int kQueries = 4;  // at a time
constexpr int kVectors = kRegisters == 32 ? 4 : 2;  // of slots or of features, with them
constexpr int kMany = 8;  // of them with one query, by which longer rows are read

// The slots that a query sees, by position: the first `prefix` ones, and others. They lie
// from slot `from` on and before `to`. turns: whether slots of a ring's end come before
// those of its beginning.
struct Seen {
  int64_t prefix, from, to;
  bool turns;
  std::vector<int32_t> others;
  int64_t Count() const { return prefix + others.size(); }
};

// Adds the visible slots from `from` on and before `to`.
void AddSlots(const uint8_t* mask, int64_t from, int64_t to, std::vector<int32_t>& slots) {
  for (int64_t s = from; s < to; ++s) {
    uint64_t eight = 0;
    while (s + 8 <= to && (std::memcpy(&eight, mask + s, 8), !eight)) s += 8;
    if (s < to && mask[s]) slots.push_back(s);
  }
}

// oldest: the slot of the first position; after the last slot comes the first.
void Look(const uint8_t* mask, int64_t oldest, int64_t S, Seen& seen) {
  std::vector<int32_t>& others = seen.others;
  others.clear();
  if (oldest) AddSlots(mask, oldest, S, others);
  const int64_t older = others.size(), end = oldest ? oldest : S;
  seen.prefix = 0;
  while (!older && seen.prefix + 8 <= end) {
    uint64_t eight;
    std::memcpy(&eight, mask + seen.prefix, 8);
    if (eight != 0x0101010101010101u) break;
    seen.prefix += 8;
  }
  while (!older && seen.prefix < end && mask[seen.prefix]) ++seen.prefix;
  AddSlots(mask, seen.prefix, end, others);
  const int64_t count = others.size();
  seen.turns = older && older < count;
  seen.from = seen.prefix || !count ? 0 : others[seen.turns ? older : 0];
  seen.to = count ? others[seen.turns ? older - 1 : count - 1] + 1 : seen.prefix;
}

// From the scores of a query to those of the next.
inline int64_t Stride(int64_t S) {
  return (S + kLanes) / kLanes * kLanes + kVectors * kLanes;
}

// Turns features i and i + D / 2 of a head by an angle.
void Turn(float* x, const float* cos, const float* sin, int64_t D) {
  const int64_t half = D / 2;
  for (int64_t i = 0; i < half; ++i) {
    const float left = x[i], right = x[i + half];
    x[i] = left * cos[i] - right * sin[i];
    x[i + half] = right * cos[i] + left * sin[i];
  }
}

// The products of M queries [M, D] with the keys [D, S] of C vectors of slots from s on.
template <int M, int C, class T>
[[gnu::noinline]] void ScoreVectors(const float* q, const T* keys, float* scores,
                                    int64_t D, int64_t S, int64_t stride, int64_t s) {
  Floats sums[M][C] = {};
  for (int64_t d = 0; d < D; ++d) {
    Floats k[C];
    for (int c = 0; c < C; ++c) k[c] = Load(keys + d * S + s + c * kLanes);
    for (int m = 0; m < M; ++m)
      for (int c = 0; c < C; ++c) sums[m][c] += q[m * D + d] * k[c];
  }
  for (int m = 0; m < M; ++m)
    for (int c = 0; c < C; ++c) Put(scores + m * stride + s + c * kLanes, sums[m][c]);
}

// The same of one vector of slots, or what is left of it, and of M queries, up to
// kQueries; beyond the last query it is that again.
template <class T>
[[gnu::noinline]] void ScoreFew(int M, const float* q, const T* keys, float* scores,
                                int64_t D, int64_t S, int64_t stride, int64_t s) {
  Floats sums[kQueries] = {};
  const float* of[kQueries];
  for (int m = 0; m < kQueries; ++m) of[m] = q + std::min(m, M - 1) * D;
  for (int64_t d = 0; d < D; ++d) {
    const Floats k = LoadSome(keys + d * S + s, S - s);
    for (int m = 0; m < kQueries; ++m) sums[m] += of[m][d] * k;
  }
  for (int m = 0; m < M; ++m) Put(scores + m * stride + s, sums[m]);
}

// Of slots `from` to `to`, and of some beside them. The last of many slots are computed
// twice: again with those before them.
template <class T>
void Score(int M, const float* q, const T* keys, float* scores, int64_t D, int64_t S,
           int64_t stride, int64_t from, int64_t to) {
  constexpr int C = kVectors;
  static constexpr decltype(&ScoreVectors<1, C, T>) kRun[kQueries] = {
      &ScoreVectors<1, C, T>, &ScoreVectors<2, C, T>, &ScoreVectors<3, C, T>,
      &ScoreVectors<4, C, T>};
  constexpr int64_t kWidth = C * kLanes;
  int64_t s = from / kLanes * kLanes;
  for (; M == 1 && s + kMany * kLanes <= to; s += kMany * kLanes)
    ScoreVectors<1, kMany, T>(q, keys, scores, D, S, stride, s);
  for (; s + kWidth <= S && s < to; s += kWidth)
    kRun[M - 1](q, keys, scores, D, S, stride, s);
  if (s < to && S >= kWidth)
    return kRun[M - 1](q, keys, scores, D, S, stride, S - kWidth);
  for (; s < to; s += kLanes) ScoreFew(M, q, keys, scores, D, S, stride, s);
}

// Multiplies the scores of all slots by scales of these slots.
void ScaleScores(float* scores, const Seen& seen, const float* scales) {
  for (int64_t s = 0; s < seen.prefix; ++s) scores[s] *= scales[s];
  for (const int32_t s : seen.others) scores[s] *= scales[s];
}

// Multiplies the weights of the slots that a query sees, in order, by scales of slots.
void ScaleWeights(float* weights, const Seen& seen, const float* scales) {
  for (int64_t s = 0; s < seen.prefix; ++s) weights[s] *= scales[s];
  float* others = weights + seen.prefix;
  for (size_t i = 0; i < seen.others.size(); ++i) others[i] *= scales[seen.others[i]];
}

// The weights of the slots that a query sees, in order, from its scores of all slots;
// returns their sum. They are followed by zeros to a whole vector.
[[gnu::noinline]] float Weigh(float* scores, const Seen& seen, const float* bias,
                              float scale, float cap) {
  const int64_t count = seen.Count();
  int64_t k = seen.prefix;
  if (bias)  // where it is read, before slots are moved together
    for (int64_t s = 0; s < seen.prefix; ++s) scores[s] = scores[s] * scale + bias[s];
  Scratch scratch;
  const float* of_slots = scores;
  if (seen.turns) {  // moved, the first ones would lie where others are read
    float* copy = scratch.Take(seen.to);
    std::copy_n(scores, seen.to, copy);
    of_slots = copy;
  }
  for (const int32_t s : seen.others)
    scores[k++] = bias ? of_slots[s] * scale + bias[s] : of_slots[s];
  const float none = -std::numeric_limits<float>::infinity();
  const int64_t end = (count + kLanes - 1) / kLanes * kLanes;
  std::fill(scores + count, scores + end, none);
  Floats most = All(none);
  for (k = 0; k < end; k += kLanes) {
    Floats x = Load(scores + k);
    if (!bias) x = x * scale;
    if (cap > 0) {
      const Floats e = Exp(x * (2 / cap));
      x = Choose(x == none, x, cap - 2 * cap / (e + 1.0f));
    }
    most = Choose(most < x, x, most);
    Put(scores + k, x);
  }
  float top = most[0];
  for (int lane = 1; lane < kLanes; ++lane) top = std::max(top, most[lane]);
  Floats sums = {};
  for (k = 0; k < end; k += kLanes) {
    const Floats weight = Exp(Load(scores + k) - top);
    sums += weight;
    Put(scores + k, weight);
  }
  return Sum(sums);
}

// Adds to M rows of `out` C vectors of features of the values of terms `from` to `to`,
// times weights.
template <int M, int C, class T>
[[gnu::noinline]] void MixVectors(const float* weights, int64_t stride, const T* values,
                                  float* out, int64_t D, int64_t from, int64_t to) {
  Floats sums[M][C];
  for (int m = 0; m < M; ++m)
    for (int c = 0; c < C; ++c) sums[m][c] = Load(out + m * D + c * kLanes);
  for (int64_t k = from; k < to; ++k) {
    Floats v[C];
    for (int c = 0; c < C; ++c) v[c] = Load(values + k * D + c * kLanes);
    for (int m = 0; m < M; ++m)
      for (int c = 0; c < C; ++c) sums[m][c] += weights[m * stride + k] * v[c];
  }
  for (int m = 0; m < M; ++m)
    for (int c = 0; c < C; ++c) Put(out + m * D + c * kLanes, sums[m][c]);
}

// The same of one vector of features, or of as many as are left, and of M queries, up to
// kQueries; beyond the last query it is that again.
template <class T>
[[gnu::noinline]] void MixFew(int M, const float* weights, int64_t stride,
                              const T* values, float* out, int64_t D, int64_t left,
                              int64_t from, int64_t to) {
  Floats sums[kQueries];
  const float* of[kQueries];
  for (int m = 0; m < kQueries; ++m) {
    const int row = std::min(m, M - 1);
    of[m] = weights + row * stride;
    sums[m] = LoadSome(out + row * D, left);
  }
  for (int64_t k = from; k < to; ++k) {
    const Floats v = LoadSome(values + k * D, left);
    for (int m = 0; m < kQueries; ++m) sums[m] += of[m][k] * v;
  }
  for (int m = 0; m < M; ++m) PutSome(out + m * D, sums[m], left);
}

template <class T>
void Mix(int M, const float* weights, int64_t stride, const T* values, float* out,
         int64_t D, int64_t from, int64_t to) {
  constexpr int C = kVectors;
  static constexpr decltype(&MixVectors<1, C, T>) kRun[kQueries] = {
      &MixVectors<1, C, T>, &MixVectors<2, C, T>, &MixVectors<3, C, T>,
      &MixVectors<4, C, T>};
  if (from >= to) return;
  int64_t d = 0;
  for (; M == 1 && d + kMany * kLanes <= D; d += kMany * kLanes)
    MixVectors<1, kMany, T>(weights, stride, values + d, out + d, D, from, to);
  for (; d + kVectors * kLanes <= D; d += kVectors * kLanes)
    kRun[M - 1](weights, stride, values + d, out + d, D, from, to);
  for (; d < D; d += kLanes)
    MixFew(M, weights, stride, values + d, out + d, D, D - d, from, to);
}

// What a head of a text has in the cache: keys [D, S], values [S, D], and their scales
// [S] if they are whole numbers.
template <class T>
struct Cached {
  const T *keys, *values;
  const float *key_scales, *value_scales;
};

inline float* Place(float* scales, int64_t at) { return scales ? scales + at : nullptr; }

template <class T>
Cached<T> ReadCache(const Attention& of, int64_t text) {
  const int64_t at = text * of.D * of.S, slot = text * of.S;
  return {static_cast<const T*>(of.keys.data) + at,
          static_cast<const T*>(of.values.data) + at,
          Place(of.key_scales, slot), Place(of.value_scales, slot)};
}

// M queries of one head, [M, D], to `out` [M, D].
template <class T>
void AttendRows(int M, const float* q, const Cached<T>& cache, const Seen* seen,
                const float* bias, float* scores, float* out, const Attention& of) {
  const T *keys = cache.keys, *values = cache.values;
  const int64_t stride = Stride(of.S);
  int64_t from = of.S, to = 0, together = of.S;
  for (int m = 0; m < M; ++m) {
    together = std::min(together, seen[m].prefix);
    if (!seen[m].Count()) continue;
    from = std::min(from, seen[m].from);
    to = std::max(to, seen[m].to);
  }
  Score(M, q, keys, scores, of.D, of.S, stride, from, to);
  float sums[kQueries];
  for (int m = 0; m < M; ++m) {
    float* row = scores + m * stride;
    if (cache.key_scales) ScaleScores(row, seen[m], cache.key_scales);
    sums[m] = Weigh(row, seen[m], bias ? bias + m * of.S : nullptr, of.scale, of.cap);
    if (cache.value_scales) ScaleWeights(row, seen[m], cache.value_scales);
  }
  std::fill_n(out, M * of.D, 0.0f);
  Mix(M, scores, stride, values, out, of.D, 0, together);
  for (int m = 0; m < M; ++m) {
    float* row = out + m * of.D;
    const float* weights = scores + m * stride;
    const std::vector<int32_t>& others = seen[m].others;
    Mix(1, weights, 0, values, row, of.D, together, seen[m].prefix);
    for (size_t i = 0, end; i < others.size(); i = end) {  // slots in a row together
      for (end = i + 1; end < others.size() && others[end] == others[end - 1] + 1;) ++end;
      const float* of_slots = weights + seen[m].prefix + i;
      Mix(1, of_slots, 0, values + others[i] * of.D, row, of.D, 0, end - i);
    }
    for (int64_t d = 0; d < of.D; ++d) row[d] = row[d] / sums[m];
  }
}

inline void Store(float value, float* to) { *to = value; }
inline void Store(float value, uint16_t* to) { *to = Half(value); }

// What turns a head: tables of angles and a norm, or neither.
struct Preparation {
  const float *cos, *sin;  // [B, T, D / 2]
  float eps, offset;
  bool half;
  void Run(float* x, const float* scale, int64_t token, int64_t D) const {
    if (scale) Normalize(x, Norm{Law::kRms, eps, offset, scale, nullptr}, x, D, half);
    if (cos) Turn(x, cos + token * D / 2, sin + token * D / 2, D);
    Round(x, D, half);
  }
};

// Writes numbers to places that are `apart` from each other.
template <class T>
void WriteHead(const float* head, int64_t D, T* to, int64_t apart, float*) {
  for (int64_t d = 0; d < D; ++d) Store(head[d], to + d * apart);
}

// The same as whole numbers from -127 to 127, of which it writes the scale too.
void WriteHead(const float* head, int64_t D, Whole* to, int64_t apart, float* scale) {
  float most = 0;
  for (int64_t d = 0; d < D; ++d) {
    const float size = std::abs(head[d]);
    if (size > most || size != size) most = size;  // what is no number stays so
  }
  *scale = most / 127;
  const float step = *scale == 0 ? 1 : *scale;
  for (int64_t d = 0; d < D; ++d) {
    const float whole = std::nearbyint(head[d] / step);
    to[d * apart].number = whole == whole ? static_cast<int8_t>(whole) : 0;
  }
}

// Keys and values of the tokens to their slots.
template <class T>
void Write(const float* k, const float* v, const Preparation& prepare,
           const float* scale, const Attention& of) {
  Scratch scratch;
  float* head = scratch.Take(of.D);
  T *keys = static_cast<T*>(of.keys.data), *values = static_cast<T*>(of.values.data);
  for (int64_t b = 0; b < of.B; ++b)
    for (int64_t t = 0; t < of.T; ++t) {
      const int64_t token = b * of.T + t, start = of.start[b], last = of.S - of.T;
      const int64_t begin =
          of.ring ? start : std::max<int64_t>(0, std::min<int64_t>(start, last));
      const int64_t slot = of.ring ? (begin + t) % of.S : begin + t;
      for (int64_t h = 0; h < of.K; ++h) {
        const int64_t at = (token * of.K + h) * of.D, text = b * of.K + h;
        const int64_t place = text * of.S + slot;
        std::copy_n(k + at, of.D, head);
        prepare.Run(head, scale, token, of.D);
        WriteHead(head, of.D, keys + text * of.D * of.S + slot, of.S,
                  Place(of.key_scales, place));
        WriteHead(v + at, of.D, values + place * of.D, 1, Place(of.value_scales, place));
      }
    }
}

// The queries of head h of text b, to their place in `mixed`.
template <class T>
void AttendHead(int64_t b, int64_t h, const float* q, const Preparation& prepare,
                const float* q_scale, const Seen* seen, const float* bias,
                const Attention& of, const Array& mixed) {
  Scratch scratch;
  float* scores = scratch.Take(kQueries * Stride(of.S));
  float *query = scratch.Take(of.T * of.D), *out = scratch.Take(of.T * of.D);
  for (int64_t t = 0; t < of.T; ++t) {
    const int64_t token = b * of.T + t;
    std::copy_n(q + (token * of.H + h) * of.D, of.D, query + t * of.D);
    prepare.Run(query + t * of.D, q_scale, token, of.D);
  }
  const int64_t text = b * of.K + h / (of.H / of.K);
  const Cached<T> cache = ReadCache<T>(of, text);
  if (of.masks > 1 || of.ring) seen += b * of.T;
  if (bias) bias += ((of.biases > 1 ? b : 0) * of.H + h) * of.T * of.S;
  for (int64_t t = 0; t < of.T; t += kQueries) {
    const int count = std::min<int64_t>(kQueries, of.T - t);
    AttendRows(count, query + t * of.D, cache, seen + t,
               bias ? bias + t * of.S : nullptr, scores, out + t * of.D, of);
  }
  for (int64_t t = 0; t < of.T; ++t) {
    const int64_t at = ((b * of.T + t) * of.H + h) * of.D;
    const float* row = out + t * of.D;
    if (mixed.half) Deliver(row, static_cast<uint16_t*>(mixed.data) + at, of.D);
    else std::copy_n(row, of.D, static_cast<float*>(mixed.data) + at);
  }
}

}  // namespace

void Attend(int threads, const Attention& of, const Array& mixed) {
  Scratch scratch;
  const Preparation prepare{Numbers(of.cos, scratch), Numbers(of.sin, scratch), of.eps,
                            of.offset, of.q.half};
  const float *q = Numbers(of.q, scratch), *q_scale = Numbers(of.q_scale, scratch);
  const float *k = Numbers(of.k, scratch), *k_scale = Numbers(of.k_scale, scratch);
  const float *v = Numbers(of.v, scratch), *bias = Numbers(of.bias, scratch);
  const auto write = of.key_scales  ? &Write<Whole>
                     : of.keys.half ? &Write<uint16_t>
                                    : &Write<float>;
  if (k) write(k, v, prepare, k_scale, of);
  static thread_local std::vector<Seen> kept;
  std::vector<Seen>& seen = kept;
  const int64_t texts = of.ring ? of.B : of.masks;
  seen.resize(std::max<size_t>(seen.size(), texts * of.T));
  int64_t work = 0;
  for (int64_t i = 0; i < texts * of.T; ++i) {
    const int64_t row = of.masks > 1 ? i : i % of.T;
    const int64_t oldest = of.ring ? (of.start[i / of.T] + of.T) % of.S : 0;
    Look(of.mask + row * of.S, oldest, of.S, seen[i]);
    work += seen[i].Count();
  }
  work *= of.H * of.D * (of.B / texts);
  const auto attend = of.key_scales  ? &AttendHead<Whole>
                      : of.keys.half ? &AttendHead<uint16_t>
                                     : &AttendHead<float>;
  RunTeam(work < (1 << 14) ? 1 : threads, of.B * of.H, [&](int task) {
    attend(task / of.H, task % of.H, q, prepare, q_scale, seen.data(), bias, of, mixed);
  });
}
