// A norm of a few rows: of what no product follows in the same call.

#include "rows.h"

namespace {

ffi::Error NormOfRows(ffi::AnyBuffer x, ffi::AnyBuffer scale, ffi::AnyBuffer bias,
                      ffi::Result<ffi::AnyBuffer> y, int32_t kind, float eps,
                      float offset) {
  Scratch scratch;
  const int64_t E = x.dimensions().back(), M = x.element_count() / E;
  const bool half = IsHalf(x.element_type());
  const Norm norm{Law(kind), eps, offset, Numbers(scale, scratch), Numbers(bias, scratch)};
  const float* rows = Numbers(x, scratch);
  auto* plain = static_cast<float*>(y->untyped_data());
  float* out = half ? scratch.Take(M * E) : plain;
  for (int64_t m = 0; m < M; ++m) Normalize(rows + m * E, norm, out + m * E, E, half);
  if (half) Deliver(out, reinterpret_cast<uint16_t*>(plain), M * E);
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(rows_norm, NormOfRows,
                              ffi::Ffi::Bind()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Attr<int32_t>("kind")
                                  .Attr<float>("eps")
                                  .Attr<float>("offset"));
