// Laws of rows of logits, draws from them, and the random numbers that draw, as probs.py
// and keys.py define them. Axes: M rows, V ids; B texts, T tokens, G of them drafted.
//
// A row's numbers depend on nothing but the row: sums are those of parts of fixed size, in
// their order.

#ifndef SPECJAX_LAWS_H_
#define SPECJAX_LAWS_H_

#include "rows.h"

// The laws of M rows of logits [M, V], a number a row of each, see types.Law.
struct Laws {
  const float* logits;
  float *scale, *top, *tau;
  int32_t* tie;
  float* lse;
};

// The laws of logits at a temperature for each M / B rows; 0 is argmax.
void Standardize(int threads, const Laws& laws, int64_t M, int64_t V,
                 const float* temperature, int64_t B);

// An id of each law, by two numbers u a row: a block of ids, then an id in it.
void Sample(int threads, const Laws& laws, int64_t M, int64_t V, const float* u,
            int32_t* ids);

// What a rule adds after n[b] of the drafted tokens: an id of max(0, p - q), and of p
// where nothing is left of it. After the last of num[b] drafted tokens q is 0.
struct Residual {
  int64_t B, G, V;
  Laws target, draft;  // of B (G + 1) rows, and of B G; without logits drafts are certain
  const int32_t *tokens, *num, *n;  // [B, G], [B], [B]
  const float* u;                   // [B, 2]
};
void SampleResidual(int threads, const Residual& of, int32_t* ids);

// Keys of keys and numbers: key i of data i % N; if `outer`, key i / N. They are those
// of jax.random.fold_in, and numbers those of jax.random.uniform, `each` a key.
void Fold(const uint32_t* keys, const int32_t* data, int64_t N, bool outer,
          int64_t count, uint32_t* folded);
void Uniforms(const uint32_t* keys, int64_t count, int64_t each, float* numbers);

#endif
