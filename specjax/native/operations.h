// The operations on a few rows, each of which a call of XLA is (handlers.cc) and its jnp
// twin defines. Axes: M rows, K features in, N features out; B texts, T tokens, H heads
// of queries, D head width, S slots.

#ifndef SPECJAX_OPERATIONS_H_
#define SPECJAX_OPERATIONS_H_

#include <vector>

#include "rows.h"

// y [M, E] = norm(x).
void NormOfRows(const Array& x, int64_t E, const Norm& norm, const Array& y);

// y_i [M, N_i] = norm(x) W_i + b_i, to which a residual may be added.
void Products(int threads, const Array& x, int64_t K, const Norm& norm,
              const std::vector<Matrix>& matrices, const Array& residual,
              const std::vector<Array>& y);

// y = x + (f(h W_gate) (h W_in)) W_out, h = norm(x); without a gate x + f(h W_in) W_out.
struct FeedForward {
  Norm norm;
  int32_t activation;
  bool gated;
  bool add;  // whether x is added
  std::vector<Matrix> matrices;  // of the gate if there is one, in, out
};
void Feed(int threads, const Array& x, const FeedForward& layer, const Array& y);

// Attention to a cache that the tokens' keys and values are written to, or that is only
// read.
struct Attention {
  int64_t B, T, H, K, D, S;  // K: heads of keys and values
  Array q, k, v;             // [B, T, H D] and twice [B, T, K D]; k and v may be none
  Array q_scale, k_scale;    // of norms, [D], or none
  Array cos, sin;            // of angles, [B, T, D / 2], or none
  const int32_t* start;      // [B]: the slot of the first token
  const uint8_t* mask;       // [masks, T, S]: the slots that a token sees
  int64_t masks;             // B or 1
  Array bias;                // [biases, H, T, S], or none
  int64_t biases;            // B or 1
  Array keys, values;        // the cache: [B, K, D, S] and [B, K, S, D]
  float scale, cap;          // of scores; no cap is 0
  float eps, offset;         // of norms
  bool ring;                 // whether slots follow each other in a ring
  // Of a cache in eight bits the scales of its keys and values, [B, K, S]; else null.
  float *key_scales = nullptr, *value_scales = nullptr;
};
void Attend(int threads, const Attention& of, const Array& mixed);

#endif
