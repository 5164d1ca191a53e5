// Vectors of numbers, as wide as the processor's, and how they are read and added. They
// are those of GCC and Clang. Where GCC makes several instructions of what the processor
// has one for, a builtin of GCC names it: <immintrin.h> would take 0.7 s in every unit.

#ifndef SPECJAX_VECTORS_H_
#define SPECJAX_VECTORS_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#if defined(__AVX512F__)
constexpr int kBytes = 64, kRegisters = 32;
#elif defined(__AVX__)
constexpr int kBytes = 32, kRegisters = 16;
#elif defined(__aarch64__)
constexpr int kBytes = 16, kRegisters = 32;
#else
constexpr int kBytes = 16, kRegisters = 16;
#endif
constexpr int kLanes = kBytes / 4;

typedef float Floats __attribute__((vector_size(kBytes), aligned(4), may_alias));
typedef uint32_t Words __attribute__((vector_size(kBytes), aligned(4), may_alias));
typedef uint16_t Halves __attribute__((vector_size(kBytes / 2), aligned(2), may_alias));
typedef int8_t Bytes __attribute__((vector_size(kLanes), aligned(1), may_alias));
typedef int16_t Shorts __attribute__((vector_size(kBytes / 2)));
typedef int32_t Wide __attribute__((vector_size(kBytes)));
typedef float Lanes __attribute__((vector_size(kBytes)));  // aligned, for templates

// A weight of eight bits: a class of its own, by which templates find what is below.
struct Whole {
  int8_t number;
};

// kLanes numbers of 16 or eight bits as numbers of 32 bits.
#if defined(__AVX2__) && !defined(__clang__)
typedef int16_t OfHalves __attribute__((vector_size(kBytes / 2)));
typedef char OfBytes __attribute__((vector_size(16)));

inline Words Widened(const Halves* p) {
  const auto halves = (OfHalves)*p;
#if defined(__AVX512F__)
  return (Words)__builtin_ia32_pmovzxwd512_mask(halves, Wide{}, -1);
#else
  return (Words)__builtin_ia32_pmovzxwd256(halves);
#endif
}
inline Wide Widened(const Bytes* p) {
#if defined(__AVX512F__)
  return (Wide)__builtin_ia32_pmovsxbd512_mask((OfBytes)*p, Wide{}, -1);
#else
  typedef int64_t Two __attribute__((vector_size(16)));  // eight bytes, and eight unused
  return (Wide)__builtin_ia32_pmovsxbd256((OfBytes)Two{(int64_t)*p, 0});
#endif
}
#else
inline Words Widened(const Halves* p) { return __builtin_convertvector(*p, Words); }
// Twice as wide at a time: of four times GCC makes single numbers.
inline Wide Widened(const Bytes* p) {
  return __builtin_convertvector(__builtin_convertvector(*p, Shorts), Wide);
}
#endif

// kLanes numbers as floats. A bfloat16 is the upper half of a float.
inline Floats Load(const float* p) { return *reinterpret_cast<const Floats*>(p); }
inline Floats Load(const uint16_t* p) {
  return (Floats)(Widened(reinterpret_cast<const Halves*>(p)) << 16);
}
inline Floats Load(const Whole* p) {
  return __builtin_convertvector(Widened(reinterpret_cast<const Bytes*>(p)), Floats);
}

inline float One(const float* p) { return *p; }
inline float One(const uint16_t* p) {
  const uint32_t word = static_cast<uint32_t>(*p) << 16;
  float value;
  std::memcpy(&value, &word, sizeof value);
  return value;
}
inline float One(const Whole* p) { return p->number; }

inline void Put(float* to, Floats value) { *reinterpret_cast<Floats*>(to) = value; }

// The first `count` lanes, of which there may be fewer than a vector has; 0 beyond.
template <class T>
inline Floats LoadSome(const T* p, int64_t count) {
  if (count >= kLanes) return Load(p);
  T numbers[kLanes] = {};
  std::memcpy(numbers, p, count * sizeof *p);
  return Load(numbers);
}

inline void PutSome(float* to, Floats value, int64_t count) {
  std::memcpy(to, &value, std::min<int64_t>(count, kLanes) * sizeof *to);
}

template <int kSize>
struct Vector {
  typedef float Type __attribute__((vector_size(kSize)));
};

// The sum over a vector's lanes: halves are added until one number is left.
template <int kSize>
inline float SumOf(typename Vector<kSize>::Type v) {
  if constexpr (kSize == 8) {
    return v[0] + v[1];
  } else {
    typename Vector<kSize / 2>::Type halves[2];
    std::memcpy(halves, &v, kSize);
    return SumOf<kSize / 2>(halves[0] + halves[1]);
  }
}

inline float Sum(Floats v) { return SumOf<kBytes>(v); }

// Of vectors in which a number is the sum of kBlock lanes: one in which it is that of
// half as many, a's numbers before b's.
template <int kBlock, class V, size_t... kLane>
inline V Folded(V a, V b, std::index_sequence<kLane...>) {
  constexpr int kHalf = kBlock / 2;
#if defined(__clang__) || __GNUC__ >= 12
  return __builtin_shufflevector(a, b, int(kLane / kHalf * kBlock + kLane % kHalf)...) +
         __builtin_shufflevector(
             a, b, int(kLane / kHalf * kBlock + kLane % kHalf + kHalf)...);
#else
  const Wide first = {int(kLane / kHalf * kBlock + kLane % kHalf)...};
  return __builtin_shuffle(a, b, first) + __builtin_shuffle(a, b, first + kHalf);
#endif
}

// The sum over each of kBlock vectors' lanes, as `Sum` adds them, in the lanes of the
// first.
template <int kBlock = kLanes, class V>
inline void Fold(V* v) {
  if constexpr (kBlock > 1) {
#pragma GCC unroll 16
    for (int i = 0; i < kBlock / 2; ++i)
      v[i] = Folded<kBlock>(v[2 * i], v[2 * i + 1], std::make_index_sequence<kLanes>());
    Fold<kBlock / 2>(v);
  }
}

// The sums of kLanes vectors, of which only the first kCount are not 0.
template <int kCount, class V>
[[gnu::noinline]] V FoldFirst(V* v) {
  for (int i = kCount; i < kLanes; ++i) v[i] = V{};
  Fold(v);
  return v[0];
}

constexpr int RoundUp(int count, int to) { return (count + to - 1) / to * to; }

// The sums of kCount vectors, kLanes of them in a vector. v: of RoundUp(kCount, kLanes).
template <int kCount, class V>
inline void FoldAll(V* v, V* sums) {
  constexpr int kHalf = kLanes / 2, kQuarter = kLanes / 4;
  *sums = FoldFirst<kCount <= kQuarter ? kQuarter : kCount <= kHalf ? kHalf : kLanes>(v);
  if constexpr (kCount > kLanes) FoldAll<kCount - kLanes>(v + kLanes, sums + 1);
}

#endif
