// Attention of a few rows of a text to its cache: queries and keys are normalised and
// turned, keys and values written to their slots, and each query attends to the slots
// that it sees. The cache is written in place.
//
// Of a query the k-th slot that it sees is the k-th term of its sums, whichever slot that
// is: the tokens of a tree get the numbers that they would get in a chain. A task is a
// head of a text.

#include "rows.h"

namespace {

// Axes: B texts, T tokens, H heads of queries, K of keys and values, D head width, S slots.
struct Sizes {
  int64_t B, T, H, K, D, S;
};

// The slots that a query sees: the first `prefix` ones, and others in order.
struct Seen {
  int64_t prefix;
  std::vector<int32_t> others;
  int64_t Count() const { return prefix + others.size(); }
};

void Look(const uint8_t* mask, int64_t S, Seen& seen) {
  seen.others.clear();
  seen.prefix = 0;
  while (seen.prefix + 8 <= S) {
    uint64_t eight;
    std::memcpy(&eight, mask + seen.prefix, 8);
    if (eight != 0x0101010101010101u) break;
    seen.prefix += 8;
  }
  while (seen.prefix < S && mask[seen.prefix]) ++seen.prefix;
  for (int64_t s = seen.prefix; s < S; ++s) {
    uint64_t eight = 0;
    while (s + 8 <= S && (std::memcpy(&eight, mask + s, 8), !eight)) s += 8;
    if (s < S && mask[s]) seen.others.push_back(s);
  }
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
inline void ScoreSlots(const float* q, const T* keys, float* scores, int64_t D, int64_t S,
                       int64_t stride, int64_t s) {
  Floats sums[M][C] = {};
  for (int64_t d = 0; d < D; ++d) {
    Floats k[C];
    for (int c = 0; c < C; ++c) k[c] = LoadSome(keys + d * S + s + c * kLanes, S - s - c * kLanes);
    for (int m = 0; m < M; ++m)
      for (int c = 0; c < C; ++c) sums[m][c] += q[m * D + d] * k[c];
  }
  for (int m = 0; m < M; ++m)
    for (int c = 0; c < C; ++c) Put(scores + m * stride + s + c * kLanes, sums[m][c]);
}

// The same of whole vectors alone.
template <int M, int C, class T>
inline void ScoreWhole(const float* q, const T* keys, float* scores, int64_t D, int64_t S,
                       int64_t stride, int64_t s) {
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

constexpr int kQueries = 4;  // at a time

template <int M, class T>
void Score(const float* q, const T* keys, float* scores, int64_t D, int64_t S,
           int64_t stride, int64_t from, int64_t to) {
  constexpr int C = kRegisters == 32 ? 4 : 2;
  int64_t s = from / kLanes * kLanes;
  for (; s + C * kLanes <= S && s < to; s += C * kLanes)
    ScoreWhole<M, C>(q, keys, scores, D, S, stride, s);
  for (; s + kLanes <= S && s < to; s += kLanes)
    ScoreWhole<M, 1>(q, keys, scores, D, S, stride, s);
  if (s < to) ScoreSlots<M, 1>(q, keys, scores, D, S, stride, s);
}

// The weights of the slots that a query sees, in order, from its scores of all slots;
// returns their sum. They are followed by zeros to a whole vector.
inline float Weigh(float* scores, const Seen& seen, const float* bias, float scale,
                   float cap) {
  const int64_t count = seen.Count();
  int64_t k = seen.prefix;
  if (bias)  // where it is read, before slots are moved together
    for (int64_t s = 0; s < seen.prefix; ++s) scores[s] = scores[s] * scale + bias[s];
  for (const int32_t s : seen.others) {
    scores[k++] = bias ? scores[s] * scale + bias[s] : scores[s];
  }
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

// Adds to M rows of `out` the values of C vectors of features of slots, times weights.
template <int M, int C, bool kWhole, class T, class Slot>
inline void MixVectors(const float* weights, int64_t stride, const T* values, float* out,
                       int64_t D, int64_t d, int64_t from, int64_t to, Slot slot) {
  Floats sums[M][C];
  for (int m = 0; m < M; ++m)
    for (int c = 0; c < C; ++c)
      sums[m][c] = LoadSome(out + m * D + d + c * kLanes, kWhole ? kLanes : D - d);
  for (int64_t k = from; k < to; ++k) {
    const T* row = values + slot(k) * D + d;
    Floats v[C];
    for (int c = 0; c < C; ++c)
      v[c] = kWhole ? Load(row + c * kLanes) : LoadSome(row, D - d);
    for (int m = 0; m < M; ++m)
      for (int c = 0; c < C; ++c) sums[m][c] += weights[m * stride + k] * v[c];
  }
  for (int m = 0; m < M; ++m)
    for (int c = 0; c < C; ++c)
      PutSome(out + m * D + d + c * kLanes, sums[m][c], kWhole ? kLanes : D - d);
}

template <int M, class T, class Slot>
void Mix(const float* weights, int64_t stride, const T* values, float* out, int64_t D,
         int64_t from, int64_t to, Slot slot) {
  if (from >= to) return;
  constexpr int C = kRegisters == 32 ? 4 : 2;
  int64_t d = 0;
  for (; d + C * kLanes <= D; d += C * kLanes)
    MixVectors<M, C, true>(weights, stride, values, out, D, d, from, to, slot);
  for (; d + kLanes <= D; d += kLanes)
    MixVectors<M, 1, true>(weights, stride, values, out, D, d, from, to, slot);
  if (d < D) MixVectors<M, 1, false>(weights, stride, values, out, D, d, from, to, slot);
}

// M queries of one head, [M, D], to `out` [M, D].
template <int M, class T>
void AttendRows(const float* q, const T* keys, const T* values, const Seen* seen,
                const float* bias, float* scores, float* out, const Sizes& of,
                float scale, float cap) {
  const int64_t stride = (of.S + kLanes) / kLanes * kLanes + 4 * kLanes;
  int64_t from = of.S, to = 0, together = of.S;
  for (int m = 0; m < M; ++m) {
    together = std::min(together, seen[m].prefix);
    if (!seen[m].Count()) continue;
    const bool any = !seen[m].others.empty();
    from = std::min<int64_t>(from, seen[m].prefix ? 0 : seen[m].others.front());
    to = std::max<int64_t>(to, any ? seen[m].others.back() + 1 : seen[m].prefix);
  }
  Score<M>(q, keys, scores, of.D, of.S, stride, from, to);
  float sums[M];
  for (int m = 0; m < M; ++m)
    sums[m] = Weigh(scores + m * stride, seen[m], bias ? bias + m * of.S : nullptr, scale, cap);
  std::fill_n(out, M * of.D, 0.0f);
  Mix<M>(scores, stride, values, out, of.D, 0, together, [](int64_t k) { return k; });
  for (int m = 0; m < M; ++m) {
    float* row = out + m * of.D;
    const float* weights = scores + m * stride;
    const int64_t prefix = seen[m].prefix;
    const int32_t* others = seen[m].others.data() - prefix;
    Mix<1>(weights, 0, values, row, of.D, together, prefix, [](int64_t k) { return k; });
    Mix<1>(weights, 0, values, row, of.D, prefix, seen[m].Count(),
           [=](int64_t k) { return int64_t(others[k]); });
    for (int64_t d = 0; d < of.D; ++d) row[d] = row[d] / sums[m];
  }
}

template <class T>
void AttendHead(const float* q, const T* keys, const T* values, const Seen* seen,
                const float* bias, float* scores, float* out, const Sizes& of,
                float scale, float cap) {
  using Run = decltype(&AttendRows<1, T>);
  static constexpr Run kRun[] = {&AttendRows<1, T>, &AttendRows<2, T>, &AttendRows<3, T>,
                                 &AttendRows<4, T>};
  for (int64_t t = 0; t < of.T; t += kQueries) {
    const int64_t count = std::min<int64_t>(kQueries, of.T - t);
    kRun[count - 1](q + t * of.D, keys, values, seen + t, bias ? bias + t * of.S : nullptr,
                    scores, out + t * of.D, of, scale, cap);
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

template <class T>
void Write(const float* k, const float* v, const int32_t* start, const Preparation& prepare,
           const float* scale, T* keys, T* values, const Sizes& of, bool ring,
           Scratch& scratch) {
  float* head = scratch.Take(of.D);
  for (int64_t b = 0; b < of.B; ++b)
    for (int64_t t = 0; t < of.T; ++t) {
      const int64_t last = of.S - of.T, token = b * of.T + t;
      const int64_t begin = ring ? start[b] : std::max<int64_t>(0, std::min<int64_t>(start[b], last));
      const int64_t slot = ring ? (begin + t) % of.S : begin + t;
      for (int64_t h = 0; h < of.K; ++h) {
        const int64_t at = (token * of.K + h) * of.D, text = b * of.K + h;
        std::copy_n(k + at, of.D, head);
        prepare.Run(head, scale, token, of.D);
        for (int64_t d = 0; d < of.D; ++d) {
          Store(head[d], keys + (text * of.D + d) * of.S + slot);
          Store(v[at + d], values + (text * of.S + slot) * of.D + d);
        }
      }
    }
}

template <class T>
void AttendAll(int threads, const float* q, const T* keys, const T* values,
               const uint8_t* mask, int64_t texts, const float* bias, int64_t biases,
               const Preparation& prepare, const float* q_scale, float* out,
               uint16_t* halves, const Sizes& of, float scale, float cap) {
  static thread_local std::vector<Seen> kept;
  std::vector<Seen>& seen = kept;
  seen.resize(std::max<size_t>(seen.size(), texts * of.T));
  for (int64_t i = 0; i < texts * of.T; ++i) Look(mask + i * of.S, of.S, seen[i]);
  int64_t work = 0;
  for (int64_t i = 0; i < texts * of.T; ++i) work += seen[i].Count();
  work *= of.H * of.D * (of.B / texts);
  const int some = work < (1 << 14) ? 1 : threads;
  Team::Only().Run(some, of.B * of.H, [&](int task) {
    const int64_t b = task / of.H, h = task % of.H, text = b * of.K + h / (of.H / of.K);
    Scratch scratch;
    const int64_t stride = (of.S + kLanes) / kLanes * kLanes + 4 * kLanes;
    float* scores = scratch.Take(kQueries * stride);
    float *query = scratch.Take(of.T * of.D), *mixed = scratch.Take(of.T * of.D);
    for (int64_t t = 0; t < of.T; ++t) {
      const int64_t token = b * of.T + t;
      std::copy_n(q + (token * of.H + h) * of.D, of.D, query + t * of.D);
      prepare.Run(query + t * of.D, q_scale, token, of.D);
    }
    const float* more = bias ? bias + ((biases > 1 ? b : 0) * of.H + h) * of.T * of.S : nullptr;
    AttendHead(query, keys + text * of.D * of.S, values + text * of.D * of.S,
               seen.data() + (texts > 1 ? b : 0) * of.T, more, scores, mixed, of, scale, cap);
    for (int64_t t = 0; t < of.T; ++t) {
      const int64_t at = ((b * of.T + t) * of.H + h) * of.D;
      if (halves) Deliver(mixed + t * of.D, halves + at, of.D);
      else std::copy_n(mixed + t * of.D, of.D, out + at);
    }
  });
}

// queries [B, T, H D], keys and values [B, T, K D]; scales of norms [D], angles
// [B, T, D / 2] or none; start [B]; mask [B or 1, T, S]; bias [B or 1, H, T, S] or none.
ffi::Error Attend(ffi::ThreadPool pool, ffi::AnyBuffer q, ffi::AnyBuffer k,
                  ffi::AnyBuffer v, ffi::AnyBuffer q_scale, ffi::AnyBuffer k_scale,
                  ffi::AnyBuffer cos, ffi::AnyBuffer sin, ffi::Buffer<ffi::S32> start,
                  ffi::Buffer<ffi::PRED> mask, ffi::AnyBuffer bias,
                  ffi::AnyBuffer old_keys, ffi::AnyBuffer old_values,
                  ffi::Result<ffi::AnyBuffer> mixed, ffi::Result<ffi::AnyBuffer> keys,
                  ffi::Result<ffi::AnyBuffer> values, float scale, float cap, float eps,
                  float offset, bool ring) {
  auto rows = q.dimensions(), cache = values->dimensions();
  if (rows.size() != 3 || cache.size() != 4)
    return ffi::Error::InvalidArgument("attention is of [B, T, H D] to [B, K, S, D]");
  const int64_t D = cache[3];
  const Sizes of{rows[0], rows[1], rows[2] / D, cache[1], D, cache[2]};
  if (cache[0] != of.B || rows[2] % D || of.H % of.K || of.T > of.S)
    return ffi::Error::InvalidArgument("the sizes of attention do not fit");
  for (auto [from, to] : {std::pair{&old_keys, &keys}, {&old_values, &values}})
    if (from->untyped_data() != (*to)->untyped_data())
      std::memcpy((*to)->untyped_data(), from->untyped_data(), from->size_bytes());
  Scratch scratch;
  const bool half = IsHalf(q.element_type());
  const Preparation prepare{Numbers(cos, scratch), Numbers(sin, scratch), eps, offset, half};
  const float *queries = Numbers(q, scratch), *new_keys = Numbers(k, scratch);
  const float *new_values = Numbers(v, scratch), *more = Numbers(bias, scratch);
  const float *by_q = Numbers(q_scale, scratch), *by_k = Numbers(k_scale, scratch);
  auto* out = static_cast<float*>(mixed->untyped_data());
  auto* seen = reinterpret_cast<const uint8_t*>(mask.untyped_data());
  auto run = [&](auto* held, auto* read) {
    Write(new_keys, new_values, start.typed_data(), prepare, by_k, held, read, of, ring,
          scratch);
    AttendAll(pool.num_threads(), queries, held, read, seen, mask.dimensions()[0], more,
              more ? bias.dimensions()[0] : 1, prepare, by_q, out,
              half ? reinterpret_cast<uint16_t*>(out) : nullptr, of, scale, cap);
  };
  if (IsHalf(keys->element_type()))
    run(static_cast<uint16_t*>(keys->untyped_data()),
        static_cast<uint16_t*>(values->untyped_data()));
  else
    run(static_cast<float*>(keys->untyped_data()),
        static_cast<float*>(values->untyped_data()));
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(rows_attention, Attend,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::Buffer<ffi::S32>>()
                                  .Arg<ffi::Buffer<ffi::PRED>>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Attr<float>("scale")
                                  .Attr<float>("cap")
                                  .Attr<float>("eps")
                                  .Attr<float>("offset")
                                  .Attr<bool>("ring"));
