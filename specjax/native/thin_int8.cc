// y [M, N] = (x [M, K] W [K, N]) s on a CPU, as thin.cc computes it, of whole numbers of
// eight bits, a scale s for each column: a quarter of what float32 takes to read. So too
// where W is stored transposed, [N, K].
//
// Sums are of float32, in thin.cc's order: a row does not depend on how many there are.

#include "xla/ffi/api/ffi.h"

// Of thin.cc the templates alone: its own functions are in a library of theirs.
#pragma push_macro("XLA_FFI_DEFINE_HANDLER_SYMBOL")
#undef XLA_FFI_DEFINE_HANDLER_SYMBOL
#define XLA_FFI_DEFINE_HANDLER_SYMBOL(...)
#include "thin.cc"
#pragma pop_macro("XLA_FFI_DEFINE_HANDLER_SYMBOL")

// A class of its own, by which thin.cc's templates find what is below.
struct Whole {
  int8_t number;
};

typedef int8_t Bytes __attribute__((vector_size(kLanes), aligned(1), may_alias));
typedef int16_t Shorts __attribute__((vector_size(kBytes / 2)));
typedef int32_t Wide __attribute__((vector_size(kBytes)));

// Twice as wide at a time: of four times GCC makes single numbers.
inline Floats Load(const Whole* p) {
  const Bytes bytes = *reinterpret_cast<const Bytes*>(p);
  const Shorts shorts = __builtin_convertvector(bytes, Shorts);
  return __builtin_convertvector(__builtin_convertvector(shorts, Wide), Floats);
}

inline float One(const Whole* p) { return p->number; }

// Multiplied here and not by what follows, where a sum might be fused with it.
inline void Scale(float* y, const float* scale, int64_t M, int64_t N) {
  for (int64_t m = 0; m < M; ++m)
    for (int64_t n = 0; n < N; ++n) y[m * N + n] *= scale[n];
}

template <bool kTransposed>
ffi::Error ThinInt8(ffi::ThreadPool pool, ffi::Buffer<ffi::F32> x,
                    ffi::Buffer<ffi::S8> w, ffi::Buffer<ffi::F32> scale,
                    ffi::ResultBuffer<ffi::F32> y) {
  if (ffi::Error error = Check<kTransposed>(x, w, y); error.failure()) return error;
  auto [m, k, n] = std::tuple(x.dimensions()[0], x.dimensions()[1], y->dimensions()[1]);
  if (static_cast<int64_t>(scale.element_count()) != n) {
    return ffi::Error::InvalidArgument("a thin product has a scale for each output");
  }
  auto* numbers = reinterpret_cast<const Whole*>(w.untyped_data());
  float* out = y->typed_data();
  ffi::Error error = Run<kTransposed>(pool, x.typed_data(), numbers, out, m, k, n);
  if (error.success()) Scale(out, scale.typed_data(), m, n);
  return error;
}

auto BoundInt8() {
  return ffi::Ffi::Bind()
      .Ctx<ffi::ThreadPool>()
      .Arg<ffi::Buffer<ffi::F32>>()
      .Arg<ffi::Buffer<ffi::S8>>()
      .Arg<ffi::Buffer<ffi::F32>>()
      .Ret<ffi::Buffer<ffi::F32>>();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(thin_int8, ThinInt8<false>, BoundInt8());
XLA_FFI_DEFINE_HANDLER_SYMBOL(thin_int8_transposed, ThinInt8<true>, BoundInt8());
