// What the operations on a few rows of activations share: numbers of any float as
// float32, norms, and products with a part of a matrix's columns. What a call of XLA
// is, handlers.cc alone knows.
//
// Nothing here depends on how many rows there are, or on which thread computes what: a
// sum over features or slots has one order, whoever asks. Numbers are rounded to the
// model's dtype where its definition rounds them.

#ifndef SPECJAX_ROWS_H_
#define SPECJAX_ROWS_H_

#include <cstddef>
#include <deque>
#include <vector>

#include "products.h"
#include "team.h"

typedef int32_t Ints __attribute__((vector_size(kBytes), aligned(4), may_alias));

inline Floats All(float value) { return Floats{} + value; }
inline Floats Choose(Ints which, Floats yes, Floats no) {
  return (Floats)((which & (Ints)yes) | (~which & (Ints)no));
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
    constexpr int64_t kMore = kBytes / sizeof(float);  // so that it begins with a vector
    if (static_cast<int64_t>(block.size()) < count + kMore) block.resize(count + kMore);
    const auto begin = reinterpret_cast<uintptr_t>(block.data());
    return block.data() + (kBytes - begin % kBytes) % kBytes / sizeof(float);
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

// Rounds numbers to bfloat16 if `half`.
void Round(float* numbers, int64_t count, bool half);

// An array that a call has: of float32, or of bfloat16 if `half`.
struct Array {
  void* data;
  int64_t count;
  bool half;
};

// The numbers of an array as float32: itself, or a copy. Null if there are none.
const float* Numbers(const Array& array, Scratch& scratch);

void Deliver(const float* numbers, uint16_t* to, int64_t count);

enum class Law : int32_t { kNone, kRms, kLayer };

// A norm of rows. Scale and bias are null where there are none; offset: added to scale.
struct Norm {
  Law law;
  float eps, offset;
  const float *scale, *bias;
};

void Normalize(const float* x, const Norm& norm, float* y, int64_t count, bool half);

// Rows [M, K] that multiply: as floats, and as whole numbers where a matrix asks.
struct Rows {
  int64_t M, K;
  const float* numbers;
  const Level* levels = nullptr;
  const float* scale = nullptr;
};

// The rows, normalised by the norm if it has a law.
Rows Normalized(const Rows& rows, const Norm& norm, bool half, Scratch& scratch);

void AddLevels(Rows& rows, Scratch& scratch);

enum class Kind { kFloat, kHalf, kWhole };

// A matrix [K, N], or [N, K] if transposed, with a scale a column if it is of whole
// numbers, and a bias, or none. dynamic: whether it multiplies levels.
struct Matrix {
  Kind kind;
  bool transposed, dynamic;
  int64_t K, N;
  const void* numbers;
  const float *scale, *bias;
  int64_t Bytes() const;
};

// y [M, N] = x w: scaled, rounded if `half`, and with the bias added.
struct Product {
  Matrix w;
  float* y;
  bool half;
};

// Products of one x. Those of a group have as many columns.
typedef std::vector<std::vector<Product>> Groups;

// Computes them by all threads, and calls after(group, from, to) once columns `from` to
// `to` of all products of a group are there.
void Multiply(int threads, const Rows& x, const Groups& groups,
              Call<size_t, int64_t, int64_t> after);

#endif
