// The operations on a few rows.

#include "operations.h"
#include "requests.h"

namespace {

// The matrix of three inputs: numbers, scales, bias; the latter may be empty. dynamic:
// whether whole numbers multiply whole numbers, and are stored by outputs.
Matrix ReadMatrix(const Request& request, int64_t at, bool transposed, bool dynamic,
                  Scratch& scratch) {
  const XLA_FFI_Buffer& w = request.Input(at);
  const Kind kind = w.dtype == XLA_FFI_DataType_S8     ? Kind::kWhole
                    : w.dtype == XLA_FFI_DataType_BF16 ? Kind::kHalf
                                                       : Kind::kFloat;
  dynamic = dynamic && kind == Kind::kWhole;
  const bool turned = transposed || dynamic;
  return Matrix{kind,
                turned,
                dynamic,
                w.dims[turned],
                w.dims[!turned],
                w.data,
                Numbers(ArrayOf(request.Input(at + 1)), scratch),
                Numbers(ArrayOf(request.Input(at + 2)), scratch)};
}

// A norm, whose scale is input `at`, followed by its bias.
Norm ReadNorm(Request& request, int64_t at, Scratch& scratch) {
  return Norm{Law(request.Whole("kind")), request.Number("eps"),
              request.Number("offset"), Numbers(ArrayOf(request.Input(at)), scratch),
              Numbers(ArrayOf(request.Input(at + 1)), scratch)};
}

const char kIncomplete[] = "an input or an attribute is missing";

// x, scale and bias of the norm.
const char* RowsNorm(Request& request) {
  if (!request.Has(3, 1)) return kIncomplete;
  Scratch scratch;
  const Norm norm = ReadNorm(request, 1, scratch);
  if (!request.IsComplete()) return kIncomplete;
  const XLA_FFI_Buffer& x = request.Input(0);
  NormOfRows(ArrayOf(x), x.dims[x.rank - 1], norm, ArrayOf(request.Output(0)));
  return nullptr;
}

// x, residual, scale and bias of the norm, and matrices.
const char* RowsProducts(Request& request) {
  const int64_t count = request.CountOutputs();
  if (!request.Has(4 + 3 * count, count)) return kIncomplete;
  const bool transposed = request.Flag("transposed");
  const bool dynamic = request.Flag("dynamic");
  Scratch scratch;
  const Norm norm = ReadNorm(request, 2, scratch);
  if (!request.IsComplete()) return kIncomplete;
  const XLA_FFI_Buffer& x = request.Input(0);
  const int64_t K = x.dims[x.rank - 1];
  if (!CountNumbers(x)) return "there are no rows";
  std::vector<Matrix> matrices;
  std::vector<Array> y;
  for (int64_t i = 0; i < count; ++i) {
    matrices.push_back(ReadMatrix(request, 4 + 3 * i, transposed, dynamic, scratch));
    if (matrices[i].K != K) return "a matrix does not fit its rows";
    y.push_back(ArrayOf(request.Output(i)));
  }
  const Array residual = ArrayOf(request.Input(1));
  Products(request.CountThreads(), ArrayOf(x), K, norm, matrices, residual, y);
  return nullptr;
}

// x, scale and bias of the norm, and matrices. gated: whether the first of them is a
// gate's. add: whether x is added.
const char* RowsFeedForward(Request& request) {
  const bool gated = request.Flag("gated"), add = request.Flag("add");
  const bool dynamic = request.Flag("dynamic");
  if (!request.Has(3 + 3 * (2 + gated), 1)) return kIncomplete;
  Scratch scratch;
  FeedForward layer{ReadNorm(request, 1, scratch), request.Whole("activation"),
                    gated, add, {}};
  if (!request.IsComplete()) return kIncomplete;
  const XLA_FFI_Buffer& x = request.Input(0);
  const int64_t K = x.dims[x.rank - 1];
  if (!CountNumbers(x)) return "there are no rows";
  for (int i = 0; i < 2 + gated; ++i)
    layer.matrices.push_back(ReadMatrix(request, 3 + 3 * i, false, dynamic, scratch));
  const Matrix &first = layer.matrices.front(), &in = layer.matrices[gated];
  if (first.K != K || in.K != K || first.N != in.N || layer.matrices.back().K != in.N)
    return "matrices of a feed-forward layer do not fit";
  Feed(request.CountThreads(), ArrayOf(x), layer, ArrayOf(request.Output(0)));
  return nullptr;
}

// What `Attention` names, in its order, with the cache as it was; and as it will be.
const char* RowsAttention(Request& request) {
  if (!request.Has(12, 3)) return kIncomplete;
  const XLA_FFI_Buffer &start = request.Input(7), &mask = request.Input(8);
  const XLA_FFI_Buffer &q = request.Input(0), &values = request.Output(2);
  const int64_t *rows = q.dims, *cache = values.dims;
  if (q.rank != 3 || values.rank != 4)
    return "attention is of [B, T, H D] to [B, K, S, D]";
  Attention of{rows[0], rows[1], rows[2] / cache[3], cache[1], cache[3], cache[2]};
  if (cache[0] != of.B || rows[2] % of.D || of.H % of.K || of.T > of.S)
    return "the sizes of attention do not fit";
  if (start.dtype != XLA_FFI_DataType_S32 || mask.dtype != XLA_FFI_DataType_PRED)
    return "slots are int32, and a mask is of bools";
  Array* inputs[] = {&of.q, &of.k, &of.v, &of.q_scale, &of.k_scale, &of.cos, &of.sin};
  for (int i = 0; i < 7; ++i) *inputs[i] = ArrayOf(request.Input(i));
  of.start = static_cast<const int32_t*>(start.data);
  of.mask = static_cast<const uint8_t*>(mask.data);
  of.masks = mask.dims[0];
  of.bias = ArrayOf(request.Input(9));
  of.biases = of.bias.count ? request.Input(9).dims[0] : 1;
  of.keys = ArrayOf(request.Output(1)), of.values = ArrayOf(request.Output(2));
  of.scale = request.Number("scale"), of.cap = request.Number("cap");
  of.eps = request.Number("eps"), of.offset = request.Number("offset");
  of.ring = request.Flag("ring");
  if (!request.IsComplete()) return kIncomplete;
  for (int i : {1, 2}) {
    const XLA_FFI_Buffer &from = request.Input(9 + i), &to = request.Output(i);
    const bool half = to.dtype == XLA_FFI_DataType_BF16;
    if (from.data != to.data)
      std::memcpy(to.data, from.data, CountNumbers(to) * (half ? 2 : 4));
  }
  Attend(request.CountThreads(), of, ArrayOf(request.Output(0)));
  return nullptr;
}

}  // namespace

SPECJAX_HANDLER(rows_norm, RowsNorm)
SPECJAX_HANDLER(rows_products, RowsProducts)
SPECJAX_HANDLER(rows_feed_forward, RowsFeedForward)
SPECJAX_HANDLER(rows_attention, RowsAttention)
