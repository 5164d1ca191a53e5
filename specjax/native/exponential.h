// Exponentials and the activations made of them, of vectors.

#ifndef SPECJAX_EXPONENTIAL_H_
#define SPECJAX_EXPONENTIAL_H_

#include "rows.h"

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

#endif
