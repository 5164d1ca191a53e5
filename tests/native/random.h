// Numbers for the programs here: the same on every processor.

#ifndef SPECJAX_TESTS_RANDOM_H_
#define SPECJAX_TESTS_RANDOM_H_

#include <cstring>
#include <vector>

#include "vectors.h"

// From -1 to 1, of a linear congruential generator.
inline float Random() {
  static uint32_t state = 1;
  state = state * 1664525 + 1013904223;
  return static_cast<float>(static_cast<int32_t>(state) >> 8) / (1 << 23);
}

inline void Set(float* to, float value) { *to = value; }
inline void Set(uint16_t* to, float value) {
  uint32_t word;
  std::memcpy(&word, &value, sizeof word);
  *to = word >> 16;
}
inline void Set(Whole* to, float value) { to->number = 2 * value; }  // sums stay small

template <class T>
std::vector<T> Numbers(int64_t count, float scale = 1) {
  std::vector<T> numbers(count);
  for (T& number : numbers) Set(&number, scale * Random());
  return numbers;
}

#endif
