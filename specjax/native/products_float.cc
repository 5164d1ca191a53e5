// Products with weights of float32 and bfloat16.

#include "thin.h"

template void Multiply(const float*, const float*, float*, int64_t, int64_t, int64_t,
                       int64_t, int64_t);
template void MultiplyShare(Share, const float*, const float*, float*, int64_t, int64_t,
                            int64_t, int64_t, int64_t);
template void Multiply(const float*, const uint16_t*, float*, int64_t, int64_t, int64_t,
                       int64_t, int64_t);
template void MultiplyShare(Share, const float*, const uint16_t*, float*, int64_t, int64_t,
                            int64_t, int64_t, int64_t);
template void MultiplyTransposed(const float*, const float*, float*, int64_t, int64_t,
                                 int64_t, int64_t, int64_t);
template void MultiplyTransposed(const float*, const uint16_t*, float*, int64_t, int64_t,
                                 int64_t, int64_t, int64_t);
