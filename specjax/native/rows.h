// What the operations on a few rows of activations share: numbers of any float as
// float32, exponentials, norms, and products with a part of a matrix's columns.
//
// Nothing here depends on how many rows there are, or on which thread computes what: a
// sum over features or slots has one order, whoever asks. Numbers are rounded to the
// model's dtype where its definition rounds them.

#ifndef SPECJAX_ROWS_H_
#define SPECJAX_ROWS_H_

#include <cmath>
#include <deque>
#include <limits>
#include <vector>

// Of the thin products the templates alone: their functions are in other libraries.
#include "xla/ffi/api/ffi.h"
#pragma push_macro("XLA_FFI_DEFINE_HANDLER_SYMBOL")
#undef XLA_FFI_DEFINE_HANDLER_SYMBOL
#define XLA_FFI_DEFINE_HANDLER_SYMBOL(...)
#include "thin_int8.cc"
#pragma pop_macro("XLA_FFI_DEFINE_HANDLER_SYMBOL")

#include "team.h"

typedef int32_t Ints __attribute__((vector_size(kBytes), aligned(4), may_alias));

inline Floats All(float value) { return Floats{} + value; }
inline Floats Choose(Ints which, Floats yes, Floats no) {
  return (Floats)((which & (Ints)yes) | (~which & (Ints)no));
}
inline void Put(float* to, Floats value) { *reinterpret_cast<Floats*>(to) = value; }

// The first `count` lanes, of which there may be fewer than a vector has; 0 beyond.
template <class T>
inline Floats LoadSome(const T* p, int64_t count) {
  if (count >= kLanes) return Load(p);
  T numbers[kLanes] = {};
  for (int64_t i = 0; i < count; ++i) numbers[i] = p[i];
  return Load(numbers);
}

inline void PutSome(float* to, Floats value, int64_t count) {
  std::memcpy(to, &value, std::min<int64_t>(count, kLanes) * sizeof *to);
}

// Scratch memory, which its thread keeps for the next call. What is taken is free again
// when the `Scratch` that took it goes; one may be made within another.
class Scratch {
 public:
  Scratch() : begin_(OfThread().used) {}
  ~Scratch() { OfThread().used = begin_; }
  Scratch(const Scratch&) = delete;

  float* Take(int64_t count) {
    Blocks& all = OfThread();
    if (all.used == all.blocks.size()) all.blocks.emplace_back();
    std::vector<float>& block = all.blocks[all.used++];
    if (static_cast<int64_t>(block.size()) < count) block.resize(count);
    return block.data();
  }

 private:
  struct Blocks {
    std::deque<std::vector<float>> blocks;
    size_t used = 0;
  };
  static Blocks& OfThread() {
    static thread_local Blocks blocks;
    return blocks;
  }
  size_t begin_;
};

// A float32 rounded to the nearest bfloat16, ties to even; of no number, another.
inline uint16_t Half(float value) {
  uint32_t word;
  std::memcpy(&word, &value, sizeof word);
  if (value != value) return word >> 16 | 0x40;
  return (word + 0x7fff + (word >> 16 & 1)) >> 16;
}

inline float Rounded(float value, bool half) {
  if (!half) return value;
  const uint16_t bits = Half(value);
  return One(&bits);
}

inline void Round(float* numbers, int64_t count, bool half) {
  if (half)
    for (int64_t i = 0; i < count; ++i) numbers[i] = Rounded(numbers[i], true);
}

inline bool IsHalf(ffi::DataType type) { return type == ffi::BF16; }

// The numbers of a buffer as float32: itself, or a copy. Null if there are none.
inline const float* Numbers(ffi::AnyBuffer buffer, Scratch& scratch) {
  const int64_t count = buffer.element_count();
  if (!count) return nullptr;
  if (!IsHalf(buffer.element_type()))
    return static_cast<const float*>(buffer.untyped_data());
  float* copy = scratch.Take(count);
  auto* halves = static_cast<const uint16_t*>(buffer.untyped_data());
  for (int64_t i = 0; i < count; ++i) copy[i] = One(halves + i);
  return copy;
}

inline void Deliver(const float* numbers, uint16_t* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = Half(numbers[i]);
}

// e^x, to about one unit in the last place; 0 below the smallest normal number.
inline Floats Exp(Floats x) {
  const Floats least = All(-87.33654f), most = All(88.72283f);
  Floats y = Choose(x < least, least, Choose(x > most, most, x));
  constexpr float kWhole = 3 << 22;  // added, it leaves no fraction
  const Floats n = (y * 1.44269504f + kWhole) - kWhole;
  y = y - n * 0.693145752f;
  y = y - n * 1.42860677e-6f;
  Floats p = All(1.9875691e-4f);
  p = p * y + 1.3981999e-3f;
  p = p * y + 8.3334519e-3f;
  p = p * y + 4.1665796e-2f;
  p = p * y + 1.6666665e-1f;
  p = p * y + 0.5f;
  p = (p * y) * y + y;
  p = p + 1.0f;
  // By two powers: the largest exponent is one more than a float has.
  const Ints exponent = __builtin_convertvector(n, Ints), half = exponent >> 1;
  p = p * (Floats)((half + 127) << 23) * (Floats)((exponent - half + 127) << 23);
  p = Choose(x < least, Floats{}, p);
  return Choose(x == x, p, x);
}

inline Floats Sigmoid(Floats x) { return 1.0f / (1.0f + Exp(-x)); }

enum class Activation : int32_t { kNone, kSilu, kGelu, kRelu };

inline Floats Activated(Floats x, Activation by) {
  switch (by) {
    case Activation::kSilu:
      return x * Sigmoid(x);
    case Activation::kGelu:  // 1 + tanh u is 2 sigmoid(2 u)
      return x * Sigmoid((x * x * 0.044715f * x + x) * 1.59576912f);
    case Activation::kRelu:
      return Choose(x < 0.0f, Floats{}, x);
    default:
      return x;
  }
}

enum class Law : int32_t { kNone, kRms, kLayer };

// A norm of rows. Scale and bias are null where there are none; offset: added to scale.
struct Norm {
  Law law;
  float eps, offset;
  const float *scale, *bias;
};

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

inline void Normalize(const float* x, const Norm& norm, float* y, int64_t count,
                      bool half) {
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

// Rows [M, K] that multiply: as floats, and as whole numbers where a matrix asks.
struct Rows {
  int64_t M, K;
  const float* numbers;
  const Level* levels = nullptr;
  const float* scale = nullptr;
};

inline void AddLevels(Rows& rows, Scratch& scratch) {
  auto* levels = reinterpret_cast<Level*>(scratch.Take((rows.M * rows.K + 1) / 2));
  float* scale = scratch.Take(rows.M);
  for (int64_t m = 0; m < rows.M; ++m)
    scale[m] = Rounded(rows.numbers + m * rows.K, levels + m * rows.K, rows.K);
  rows.levels = levels, rows.scale = scale;
}

// A matrix [K, N], or [N, K] if transposed, with a scale a column if it is of whole
// numbers, and a bias, or none.
struct Matrix {
  ffi::DataType type;
  bool transposed, dynamic;
  int64_t K, N;
  const void* numbers;
  const float *scale, *bias;
  int64_t Bytes() const { return K * N * ffi::ByteWidth(type); }
};

template <int M, bool kTransposed, class T>
void MultiplyBy(const float* x, const Matrix& w, float* y, int64_t full, int64_t from,
                int64_t to) {
  constexpr auto kRun = Of<M, kTransposed, T>();
  kRun(x, static_cast<const T*>(w.numbers), y, w.K, w.N, full, from, to);
}

template <class T, size_t... kRows>
void MultiplyFloats(const float* x, const Matrix& w, float* y, int64_t rows, int64_t from,
                    int64_t to, std::index_sequence<kRows...>) {
  using Run = void (*)(const float*, const Matrix&, float*, int64_t, int64_t, int64_t);
  static constexpr Run kPlain[] = {&MultiplyBy<kRows + 1, false, T>...};
  static constexpr Run kTurned[] = {&MultiplyBy<kRows + 1, true, T>...};
  const size_t last = (rows - 1) % kGroup;
  (w.transposed ? kTurned : kPlain)[last](x, w, y, (rows - 1) / kGroup, from, to);
}

inline void MultiplyLevels(const Level* x, const Matrix& w, float* y, int64_t rows,
                           int64_t from, int64_t to) {
  static constexpr auto kRun = EachOfLevels(std::make_index_sequence<kGroup>());
  kRun[(rows - 1) % kGroup](x, static_cast<const Whole*>(w.numbers), y, w.K, w.N,
                            (rows - 1) / kGroup, from, to);
}

// Columns `from` to `to` of y [M, N], scaled, rounded, and with the bias added.
inline void MultiplyColumns(const Rows& x, const Matrix& w, float* y, int64_t from,
                            int64_t to, bool half) {
  constexpr auto kAll = std::make_index_sequence<kGroup>();
  for (int64_t i = 0; i < x.M; i += kMostRows) {
    const int64_t rows = std::min<int64_t>(kMostRows, x.M - i);
    const float* numbers = x.numbers + i * w.K;
    float* out = y + i * w.N;
    if (w.dynamic)
      MultiplyLevels(x.levels + i * w.K, w, out, rows, from, to);
    else if (w.type == ffi::S8)
      MultiplyFloats<Whole>(numbers, w, out, rows, from, to, kAll);
    else if (w.type == ffi::BF16)
      MultiplyFloats<uint16_t>(numbers, w, out, rows, from, to, kAll);
    else
      MultiplyFloats<float>(numbers, w, out, rows, from, to, kAll);
  }
  for (int64_t m = 0; m < x.M; ++m) {
    float* row = y + m * w.N;
    if (w.dynamic)
      for (int64_t n = from; n < to; ++n) row[n] = row[n] * x.scale[m] * w.scale[n];
    else if (w.scale)
      for (int64_t n = from; n < to; ++n) row[n] = row[n] * w.scale[n];
    Round(row + from, to - from, half);
    if (!w.bias) continue;
    for (int64_t n = from; n < to; ++n) row[n] = row[n] + w.bias[n];
    Round(row + from, to - from, half);
  }
}

constexpr int64_t kUnit = 4 * kLanes;        // columns of a part are a multiple of it
constexpr int64_t kWorth = 1 << 16;          // bytes of matrices that are worth a part

// f(i, from, to) for parts of the columns of matrices, about equal in bytes.
template <class F>
void OverColumnsOf(int threads, const std::vector<Matrix>& matrices, const F& f) {
  int64_t bytes = 0, units = 0;
  for (const Matrix& w : matrices) {
    bytes += w.Bytes();
    units += (w.N + kUnit - 1) / kUnit;
  }
  const int64_t most = std::min<int64_t>(threads, bytes / kWorth);
  const int64_t parts = std::max<int64_t>(1, std::min(most, units / 2));
  Team::Only().Run(threads, parts, [&](int part) {
    int64_t first = units * part / parts, end = units * (part + 1) / parts, before = 0;
    for (size_t i = 0; i < matrices.size(); ++i) {
      const int64_t here = (matrices[i].N + kUnit - 1) / kUnit;
      const int64_t from = std::max<int64_t>(first - before, 0) * kUnit;
      const int64_t to = std::min((end - before) * kUnit, matrices[i].N);
      if (from < to) f(i, from, to);
      before += here;
    }
  });
}

// The matrix of three buffers: numbers, scales, bias; the latter may be empty. dynamic:
// whether whole numbers multiply whole numbers, and are stored by outputs.
inline ffi::ErrorOr<Matrix> ReadMatrix(ffi::RemainingArgs& args, size_t at, bool transposed,
                                       bool dynamic, Scratch& scratch) {
  auto w = args.get<ffi::AnyBuffer>(at), scale = args.get<ffi::AnyBuffer>(at + 1);
  auto bias = args.get<ffi::AnyBuffer>(at + 2);
  if (!w || !scale || !bias) return ffi::Unexpected(ffi::Error::InvalidArgument("matrix"));
  dynamic = dynamic && w->element_type() == ffi::S8;
  const bool turned = transposed || dynamic;
  auto shape = w->dimensions();
  const int64_t K = shape[turned], N = shape[!turned];
  return Matrix{w->element_type(), turned, dynamic, K, N, w->untyped_data(),
                Numbers(*scale, scratch), Numbers(*bias, scratch)};
}

#endif
