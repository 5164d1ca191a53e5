// y [M, N] = x [M, K] W, columns `from` to `to`, for M of 1 to kMostRows and weights of
// float32, of bfloat16 or of eight bits. W is [K, N] or, transposed, [N, K].
//
// Each y is summed over k in an order that depends on nothing else: a row's result is the
// same however many there are, and whichever part of the columns is computed, if it begins
// at a multiple of four vectors. Of W [K, N] it is the sum of two halves, so that two
// threads may read one each.
// products_float.cc and products_int8.cc are what they are compiled in.

#ifndef SPECJAX_PRODUCTS_H_
#define SPECJAX_PRODUCTS_H_

#include <cstdint>

#include "vectors.h"

// More rows are several products.
constexpr int kMostRows = kBytes == 64 ? 32 : 16;

template <class T>
void Multiply(const float* x, const T* w, float* y, int64_t M, int64_t K, int64_t N,
              int64_t from, int64_t to);

template <class T>
void MultiplyTransposed(const float* x, const T* w, float* y, int64_t M, int64_t K,
                        int64_t N, int64_t from, int64_t to);

// The sums over the upper or the lower half of the rows of W: `Multiply` adds both.
enum class Share { kUpper, kLower, kBoth };

template <class T>
void MultiplyShare(Share share, const float* x, const T* w, float* y, int64_t M, int64_t K,
                  int64_t N, int64_t from, int64_t to);

// A row's activation in whole numbers of its scale: of as many levels as a sum of 32 bits
// holds, however it is ordered. Sums are exact: on every processor the same.
struct Level {
  int16_t number;
};

// x in levels of a scale, which is returned: a power of two, by which nothing else is
// rounded. For a row that is not finite it is not a number.
float Rounded(const float* x, Level* to, int64_t K);

// W is transposed.
void MultiplyLevels(const Level* x, const Whole* w, float* y, int64_t M, int64_t K,
                    int64_t N, int64_t from, int64_t to);

#endif
