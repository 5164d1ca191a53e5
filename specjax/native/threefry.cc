// Threefry-2x32 of 20 rounds (Salmon et al. 2011), as jax.random uses it.

#include "exponential.h"
#include "laws.h"

namespace {

// Two words, or two vectors of words.
template <class W>
struct Pair {
  W first, second;
};

template <class W>
inline Pair<W> Hash(const uint32_t* key, W x, W y) {
  constexpr int kTurns[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  const uint32_t keys[3] = {key[0], key[1], key[0] ^ key[1] ^ 0x1bd11bda};
  x += keys[0], y += keys[1];
#pragma GCC unroll 5
  for (uint32_t i = 0; i < 5; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const int turn = kTurns[i % 2][j];
      x += y;
      y = (y << turn | y >> (32 - turn)) ^ x;
    }
    x += keys[(i + 1) % 3];
    y += keys[(i + 2) % 3] + (i + 1);
  }
  return Pair<W>{x, y};
}

// 23 random bits of a number from 1 to 2.
template <class W>
inline W MantissaOf(Pair<W> words) {
  return (words.first ^ words.second) >> 9 | 0x3f800000;
}

// Uniforms in [0, 1) of a key, from number `first` on.
inline Floats UniformsFrom(const uint32_t* key, uint32_t first) {
  Words low;
  for (int lane = 0; lane < kLanes; ++lane) low[lane] = first + lane;
  return (Floats)MantissaOf(Hash<Words>(key, Words{}, low)) - 1.0f;
}

}  // namespace

void Fold(const uint32_t* keys, const int32_t* data, int64_t N, bool outer,
          int64_t count, uint32_t* folded) {
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t number = data[i % N], *key = keys + 2 * (outer ? i / N : i);
    const auto out = Hash<uint32_t>(key, 0, number);
    folded[2 * i] = out.first, folded[2 * i + 1] = out.second;
  }
}

void Uniforms(const uint32_t* keys, int64_t count, int64_t each, float* numbers) {
  for (int64_t i = 0; i < count; ++i)
    for (int64_t k = 0; k < each; ++k) {
      const uint32_t word = MantissaOf(Hash<uint32_t>(keys + 2 * i, 0, k));
      float number;
      std::memcpy(&number, &word, sizeof number);
      numbers[i * each + k] = number - 1;
    }
}

void Gumbels(int threads, const uint32_t* keys, int64_t count, int64_t V,
             float* numbers) {
  OverParts(threads, count, V, [&](int64_t row, int64_t from, int64_t to) {
    const uint32_t* key = keys + 2 * row;
    for (int64_t i = from; i < to; i += kLanes) {
      const Floats high = UniformsFrom(key, i), low = UniformsFrom(key, V + i);
      // Of 46 bits where it is small, and there never 0.
      const Floats finer = high + low * 1.1920929e-7f + 1.17549435e-38f;
      const Floats u = Choose(high >= 0.5f, high, finer);
      PutSome(numbers + row * V + i, -Log(-LogOnePlus(-u)), to - i);
    }
  });
}
