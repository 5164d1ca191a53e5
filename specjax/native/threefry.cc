// Threefry-2x32 of 20 rounds (Salmon et al. 2011), as jax.random uses it.

#include "laws.h"

namespace {

struct Pair {
  uint32_t first, second;
};

Pair Hash(Pair key, Pair count) {
  constexpr int kTurns[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  const uint32_t keys[3] = {key.first, key.second, key.first ^ key.second ^ 0x1bd11bda};
  uint32_t x = count.first + keys[0], y = count.second + keys[1];
  for (uint32_t i = 0; i < 5; ++i) {
    for (int turn : kTurns[i % 2]) {
      x += y;
      y = (y << turn | y >> (32 - turn)) ^ x;
    }
    x += keys[(i + 1) % 3];
    y += keys[(i + 2) % 3] + i + 1;
  }
  return Pair{x, y};
}

}  // namespace

void Fold(const uint32_t* keys, const int32_t* data, int64_t N, bool outer,
          int64_t count, uint32_t* folded) {
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t* key = keys + 2 * (outer ? i / N : i);
    const uint32_t number = data[i % N];
    const Pair out = Hash(Pair{key[0], key[1]}, Pair{0, number});
    folded[2 * i] = out.first, folded[2 * i + 1] = out.second;
  }
}

void Uniforms(const uint32_t* keys, int64_t count, int64_t each, float* numbers) {
  for (int64_t i = 0; i < count; ++i)
    for (int64_t k = 0; k < each; ++k) {
      const Pair out = Hash(Pair{keys[2 * i], keys[2 * i + 1]},
                             Pair{uint32_t(uint64_t(k) >> 32), uint32_t(k)});
      // 23 random bits of a number from 1 to 2.
      const uint32_t word = (out.first ^ out.second) >> 9 | 0x3f800000;
      float number;
      std::memcpy(&number, &word, sizeof number);
      numbers[i * each + k] = number - 1;
    }
}
