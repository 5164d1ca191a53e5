// Laws of rows of logits, draws from them, and the random numbers that draw, as probs.py
// and keys.py define them. Axes: M rows, V ids; B texts, T tokens, G of them drafted.
//
// A row's numbers depend on nothing but the row: sums are those of parts of fixed size, in
// their order.

#ifndef SPECJAX_LAWS_H_
#define SPECJAX_LAWS_H_

#include "rows.h"

// The laws of rows of logits, a number a row of each, see types.Law. Of a reduced
// vocabulary there are logits of `width` ids, in the order of which ties are, and `place`
// [V] is where an id is among them, `width` if it is not.
struct Laws {
  const float* logits;
  int64_t width;
  float *scale, *top, *tau;
  int32_t* tie;
  float* lse;
  const int32_t* place = nullptr;
};

// The laws of M rows of logits at a temperature for each M / B rows; 0 is argmax.
void Standardize(int threads, const Laws& laws, int64_t M, const float* temperature,
                 int64_t B);

// An id of each law, by two numbers u a row: a block of ids, then an id in it.
void Sample(int threads, const Laws& laws, int64_t M, const float* u, int32_t* ids);

// What a rule decides on: laws of B (G + 1) rows of the target and of B G drafted tokens
// [B, G], of which num[b] are real. Without logits drafts are certain.
struct Trial {
  int64_t B, G, V;
  Laws target, draft;
  const int32_t *tokens, *num;
};

// What is added after n[b] accepted tokens: an id of max(0, p - q), and of p where nothing
// is left of it, by u [B, 2]. After the last drafted token q is 0.
void SampleResidual(int threads, const Trial& of, const int32_t* n, const float* u,
                    int32_t* ids);

// Block verification, see verifiers/block.py: n, h [B, G] and the id that is added, by
// uniforms `accept` [B, G] and u [B, 2].
void VerifyBlock(int threads, const Trial& of, const float* accept, const float* u,
                 int32_t* n, float* h, int32_t* ids);

// Traversal verification of trees with these parents [B, G], see verifiers/traversal.py:
// the nodes from the root to the one that is kept, then others [B, G], their number, the
// probability that each was kept [B, G], and the id that is added. replaced: whether
// siblings are drawn with replacement.
struct Traversal {
  const int32_t* parent;
  bool replaced;
  const float *accept, *u;
  int32_t *path, *n;
  float* chance;
  int32_t* ids;
};
void Traverse(int threads, const Trial& of, const Traversal& how);

// The `count` ids with the largest log p + g of each row, in this order, and after the ids
// that the law keeps those of the largest logits; g: [M, V].
void SampleDistinct(int threads, const Laws& laws, int64_t M, const float* g,
                    int64_t count, int32_t* ids);

// Keys of keys and numbers: key i of data i % N; if `outer`, key i / N. They are those
// of jax.random.fold_in, and numbers those of jax.random.uniform, `each` a key.
void Fold(const uint32_t* keys, const int32_t* data, int64_t N, bool outer,
          int64_t count, uint32_t* folded);
void Uniforms(const uint32_t* keys, int64_t count, int64_t each, float* numbers);

// Gumbel variables of each key, [count, V], as jax.random.gumbel of the mode "high".
void Gumbels(int threads, const uint32_t* keys, int64_t count, int64_t V,
             float* numbers);

// f(row, from, to) for parts of each row of V ids, by several threads if there is enough
// to do. Parts are of whole blocks, and which they are depends on V alone.
void OverParts(int threads, int64_t M, int64_t V, Call<int64_t, int64_t, int64_t> f);

#endif
