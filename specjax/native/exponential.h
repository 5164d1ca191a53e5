// Exponentials, logarithms, and the activations made of them, of vectors.

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

// log x of normal numbers above 0, to about one unit in the last place.
inline Floats Log(Floats x) {
  const Ints bits = (Ints)x, high = (bits & 0x7fffff) > 0x3504f3;  // above sqrt 2
  // x is 2^n m, with m from sqrt 1/2 to sqrt 2.
  const Ints exponent = (bits >> 23) - 127 - high;  // where high it is -1
  const Floats n = __builtin_convertvector(exponent, Floats);
  const Floats z = (Floats)((bits & 0x7fffff) | ((127 + high) << 23)) - 1.0f;
  Floats p = All(7.0376836e-2f);
  p = p * z - 1.1514610e-1f;
  p = p * z + 1.1676998e-1f;
  p = p * z - 1.2420141e-1f;
  p = p * z + 1.4249323e-1f;
  p = p * z - 1.6668057e-1f;
  p = p * z + 2.0000714e-1f;
  p = p * z - 2.4999994e-1f;
  p = p * z + 3.3333331e-1f;
  const Floats square = z * z;
  Floats y = p * z * square + n * -2.12194440e-4f;
  y = y - square * 0.5f;
  return (z + y) + n * 0.693359375f;
}

// log(1 + x) for x above -1.
inline Floats LogOnePlus(Floats x) {
  const Floats u = x + 1.0f, rounded = u - 1.0f;
  return Choose(rounded == 0.0f, x, Log(u) * (x / rounded));
}

inline Floats Sigmoid(Floats x) { return 1.0f / (1.0f + Exp(-x)); }

// The normal law's probability beyond x, erfc(x / sqrt 2) / 2, of x from 0 on: e^(-x^2/2)
// times a smooth function, which is a polynomial of (x - K) / (x + K) over x + K. The form
// is that of Shepherd and Laframboise (1981), "Chebyshev approximation of (1 + 2x) exp(x^2)
// erfc x in 0 <= x < inf"; the coefficients were fitted to scipy.special.erfcx for K = 2.5
// and x up to 13.5, beyond which e^(-x^2/2) is 0. It is
// within eight units in the last place up to 13.
inline Floats NormalTail(Floats x) {
  constexpr float kMiddle = 2.5f;
  x = Choose(x < 13.5f, x, All(13.5f));
  const Floats factor = 1.0f / (x + kMiddle), t = (x - kMiddle) * factor;
  Floats p = All(-1.56081631e-4f);
  p = p * t - 3.08763207e-4f;
  p = p * t + 6.84240949e-4f;
  p = p * t + 2.52159499e-3f;
  p = p * t - 1.6013548e-3f;
  p = p * t - 0.0163855962f;
  p = p * t + 9.23602469e-3f;
  p = p * t + 0.131986931f;
  p = p * t - 0.433692008f;
  p = p * t + 0.706656635f;
  // Of x the upper bits, whose square is exact, and the rest.
  const Floats high = (Floats)((Ints)x & ~0xfff), rest = (x - high) * (x + high) * 0.5f;
  const Floats less = 1.0f - rest * (1.0f - rest * (0.5f - rest * 0.16666667f));
  return Exp(high * high * -0.5f) * less * (p * factor);
}

enum class Activation : int32_t { kNone, kSilu, kGelu, kRelu, kExactGelu };

inline Floats Activated(Floats x, Activation by) {
  switch (by) {
    case Activation::kSilu:
      return x * Sigmoid(x);
    case Activation::kGelu:  // 1 + tanh u is 2 sigmoid(2 u)
      return x * Sigmoid((x * x * 0.044715f * x + x) * 1.59576912f);
    case Activation::kRelu:
      return Choose(x < 0.0f, Floats{}, x);
    case Activation::kExactGelu: {
      const Floats tail = NormalTail(Choose(x < 0.0f, -x, x));
      return x * Choose(x < 0.0f, tail, 1.0f - tail);
    }
    default:
      return x;
  }
}

#endif
