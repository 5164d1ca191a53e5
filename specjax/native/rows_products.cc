// Products of a few rows with one matrix or several: y_i = norm(x) W_i + b_i, to which a
// residual may be added. The matrices are read in one pass, by all threads.

#include "rows.h"

namespace {

// kind, eps, offset: of the norm. transposed, dynamic: of all matrices.
ffi::Error Products(ffi::ThreadPool pool, ffi::AnyBuffer x, ffi::AnyBuffer residual,
                    ffi::AnyBuffer scale, ffi::AnyBuffer bias, ffi::RemainingArgs weights,
                    ffi::RemainingRets outputs, int32_t kind, float eps, float offset,
                    bool transposed, bool dynamic) {
  Scratch scratch;
  const int64_t K = x.dimensions().back(), M = x.element_count() / K;
  const bool half = IsHalf(x.element_type());
  Rows rows{M, K, Numbers(x, scratch)};
  if (M < 1) return ffi::Error::InvalidArgument("there are no rows");
  if (kind) {
    const Norm norm{Law(kind), eps, offset, Numbers(scale, scratch),
                    Numbers(bias, scratch)};
    float* normal = scratch.Take(M * K);
    for (int64_t m = 0; m < M; ++m)
      Normalize(rows.numbers + m * K, norm, normal + m * K, K, half);
    rows.numbers = normal;
  }
  if (dynamic) AddLevels(rows, scratch);
  std::vector<Matrix> matrices;
  std::vector<float*> sums;
  std::vector<uint16_t*> halves;
  for (size_t i = 0; i < outputs.size(); ++i) {
    auto matrix = ReadMatrix(weights, 3 * i, transposed, dynamic, scratch);
    auto output = outputs.get<ffi::AnyBuffer>(i);
    if (!matrix || !output || matrix->K != K)
      return ffi::Error::InvalidArgument("a matrix does not fit its rows");
    const bool stored = IsHalf((*output)->element_type());
    float* plain = static_cast<float*>((*output)->untyped_data());
    sums.push_back(stored ? scratch.Take(M * matrix->N) : plain);
    halves.push_back(stored ? reinterpret_cast<uint16_t*>(plain) : nullptr);
    matrices.push_back(*matrix);
  }
  const float* more = Numbers(residual, scratch);
  OverColumnsOf(pool.num_threads(), matrices, [&](size_t i, int64_t from, int64_t to) {
    const Matrix& w = matrices[i];
    MultiplyColumns(rows, w, sums[i], from, to, half && halves[i]);
    for (int64_t m = 0; m < M; ++m) {
      float* row = sums[i] + m * w.N;
      if (more)
        for (int64_t n = from; n < to; ++n) row[n] = more[m * w.N + n] + row[n];
      if (halves[i]) Deliver(row + from, halves[i] + m * w.N + from, to - from);
    }
  });
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(rows_products, Products,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attr<int32_t>("kind")
                                  .Attr<float>("eps")
                                  .Attr<float>("offset")
                                  .Attr<bool>("transposed")
                                  .Attr<bool>("dynamic"));
