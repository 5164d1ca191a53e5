// A norm of a few rows: of what no product follows in the same call.

#include "operations.h"

void NormOfRows(const Array& x, int64_t E, const Norm& norm, const Array& y) {
  Scratch scratch;
  const float* rows = Numbers(x, scratch);
  float* out = y.half ? scratch.Take(x.count) : static_cast<float*>(y.data);
  Norm unbiased = norm;
  unbiased.bias = nullptr;
  for (int64_t i = 0; i < x.count; i += E)
    Normalize(rows + i, unbiased, out + i, E, false);
  // Added here, where no product is fused with it.
  for (int64_t i = 0; i < x.count && norm.bias; i += E)
    for (int64_t e = 0; e < E; ++e) out[i + e] += norm.bias[e];
  if (y.half) Deliver(out, static_cast<uint16_t*>(y.data), x.count);
}
