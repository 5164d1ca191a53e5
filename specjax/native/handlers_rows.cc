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

// The sizes of attention of queries [B, T, H D] to values [B, K, S, D]; what is wrong with
// them, or null.
const char* ReadSizes(const XLA_FFI_Buffer& q, const XLA_FFI_Buffer& values,
                      const XLA_FFI_Buffer& mask, Attention& of) {
  const int64_t *rows = q.dims, *cache = values.dims;
  if (q.rank != 3 || values.rank != 4)
    return "attention is of [B, T, H D] to [B, K, S, D]";
  of.B = rows[0], of.T = rows[1], of.H = rows[2] / cache[3];
  of.K = cache[1], of.D = cache[3], of.S = cache[2];
  if (cache[0] != of.B || rows[2] % of.D || of.H % of.K)
    return "the sizes of attention do not fit";
  if (mask.dtype != XLA_FFI_DataType_PRED) return "a mask is of bools";
  of.q = ArrayOf(q);
  of.mask = static_cast<const uint8_t*>(mask.data);
  of.masks = mask.dims[0];
  return nullptr;
}

int64_t CountBytes(const XLA_FFI_Buffer& buffer) {
  const bool half = buffer.dtype == XLA_FFI_DataType_BF16;
  const bool whole = buffer.dtype == XLA_FFI_DataType_S8;
  return CountNumbers(buffer) * (whole ? 1 : half ? 2 : 4);
}

// What `Attention` names, in its order, with the cache as it was; and as it will be. A
// cache in eight bits is followed by its scales.
const char* RowsAttention(Request& request) {
  const int64_t cached = request.CountOutputs() - 1;
  if ((cached != 2 && cached != 4) || !request.Has(10 + cached, 1 + cached))
    return kIncomplete;
  const XLA_FFI_Buffer& start = request.Input(7);
  Attention of{};
  const char* wrong =
      ReadSizes(request.Input(0), request.Output(2), request.Input(8), of);
  if (wrong) return wrong;
  if (of.T > of.S) return "attention has more tokens than slots";
  if (start.dtype != XLA_FFI_DataType_S32) return "slots are int32";
  const bool whole = request.Output(2).dtype == XLA_FFI_DataType_S8;
  if (whole != (cached == 4)) return "a cache in eight bits has scales, and no other";
  Array* inputs[] = {&of.k, &of.v, &of.q_scale, &of.k_scale, &of.cos, &of.sin};
  for (int i = 0; i < 6; ++i) *inputs[i] = ArrayOf(request.Input(1 + i));
  of.start = static_cast<const int32_t*>(start.data);
  of.bias = ArrayOf(request.Input(9));
  of.biases = of.bias.count ? request.Input(9).dims[0] : 1;
  of.keys = ArrayOf(request.Output(1)), of.values = ArrayOf(request.Output(2));
  if (whole) {
    of.key_scales = static_cast<float*>(request.Output(3).data);
    of.value_scales = static_cast<float*>(request.Output(4).data);
  }
  of.scale = request.Number("scale"), of.cap = request.Number("cap");
  of.eps = request.Number("eps"), of.offset = request.Number("offset");
  of.ring = request.Flag("ring");
  if (!request.IsComplete()) return kIncomplete;
  for (int64_t i = 1; i <= cached; ++i) {
    const XLA_FFI_Buffer &from = request.Input(9 + i), &to = request.Output(i);
    if (from.data != to.data) std::memcpy(to.data, from.data, CountBytes(to));
  }
  Attend(request.CountThreads(), of, ArrayOf(request.Output(0)));
  return nullptr;
}

// Queries, the mask, keys and values, which are only read.
const char* RowsAcross(Request& request) {
  if (!request.Has(4, 1)) return kIncomplete;
  Attention of{};
  const char* wrong =
      ReadSizes(request.Input(0), request.Input(3), request.Input(1), of);
  if (wrong) return wrong;
  of.keys = ArrayOf(request.Input(2)), of.values = ArrayOf(request.Input(3));
  of.biases = 1, of.scale = request.Number("scale");
  if (!request.IsComplete()) return kIncomplete;
  Attend(request.CountThreads(), of, ArrayOf(request.Output(0)));
  return nullptr;
}

// A table and numbers of its rows; one below 0 counts from the end, one beyond an end is
// the nearest row.
const char* RowsTake(Request& request) {
  if (!request.Has(2, 1)) return kIncomplete;
  const XLA_FFI_Buffer &table = request.Input(0), &tokens = request.Input(1);
  if (table.rank != 2 || tokens.dtype != XLA_FFI_DataType_S32)
    return "rows are of a table, by numbers that are int32";
  const int64_t size = table.dtype == XLA_FFI_DataType_F32    ? 4
                       : table.dtype == XLA_FFI_DataType_BF16 ? 2
                                                              : 1;
  const int64_t V = table.dims[0], bytes = table.dims[1] * size;
  auto* from = static_cast<const char*>(table.data);
  auto* to = static_cast<char*>(request.Output(0).data);
  auto* rows = static_cast<const int32_t*>(tokens.data);
  for (int64_t i = 0; i < CountNumbers(tokens); ++i) {
    const int64_t row = rows[i] < 0 ? rows[i] + V : rows[i];
    std::memcpy(to + i * bytes,
                from + std::max<int64_t>(0, std::min(row, V - 1)) * bytes, bytes);
  }
  return nullptr;
}

template <class T>
void Move(const XLA_FFI_Buffer& keys, const XLA_FFI_Buffer& values,
          const int32_t* start, const int32_t* path, int64_t count) {
  const int64_t B = keys.dims[0], K = keys.dims[1], D = keys.dims[2], S = keys.dims[3];
  for (int64_t b = 0; b < B; ++b) {
    const int64_t begin = std::max<int64_t>(0, std::min<int64_t>(start[b], S - count));
    for (int64_t i = 0; i < count; ++i) {
      const int64_t to = begin + i, from = (start[b] + path[b * count + i]) % S;
      if (to == from || from < 0) continue;
      for (int64_t h = b * K; h < (b + 1) * K; ++h) {
        T* key = static_cast<T*>(keys.data) + h * D * S;
        for (int64_t d = 0; d < D; ++d) key[d * S + to] = key[d * S + from];
        T* value = static_cast<T*>(values.data) + h * S * D;
        std::copy_n(value + from * D, D, value + to * D);
      }
    }
  }
}

// The slots of a path, start and the path, keys [B, K, D, S] and values [B, K, S, D], to
// the slots from start on. A node of a path is no earlier in its tree than on the path, so
// that none is written over before it is read.
const char* RowsKeep(Request& request) {
  if (!request.Has(4, 2)) return kIncomplete;
  const XLA_FFI_Buffer &start = request.Input(0), &path = request.Input(1);
  const XLA_FFI_Buffer &keys = request.Output(0), &values = request.Output(1);
  const int64_t count = path.dims[1], size = request.Whole("bytes");
  if (keys.rank != 4 || values.rank != 4 || path.dims[0] != keys.dims[0] ||
      values.dims[2] != keys.dims[3] || values.dims[3] != keys.dims[2] ||
      count > keys.dims[3])
    return "the slots of a path do not fit the cache";
  for (int i : {0, 1}) {
    const XLA_FFI_Buffer &from = request.Input(2 + i), &to = request.Output(i);
    if (from.data != to.data) std::memcpy(to.data, from.data, CountNumbers(to) * size);
  }
  const auto run = size == 4 ? &Move<uint32_t> : size == 2 ? &Move<uint16_t> : &Move<uint8_t>;
  run(keys, values, static_cast<int32_t*>(start.data), static_cast<int32_t*>(path.data),
      count);
  return request.IsComplete() ? nullptr : kIncomplete;
}

}  // namespace

SPECJAX_HANDLER(rows_keep, RowsKeep)
SPECJAX_HANDLER(rows_take, RowsTake)
SPECJAX_HANDLER(rows_norm, RowsNorm)
SPECJAX_HANDLER(rows_products, RowsProducts)
SPECJAX_HANDLER(rows_feed_forward, RowsFeedForward)
SPECJAX_HANDLER(rows_across, RowsAcross)
SPECJAX_HANDLER(rows_attention, RowsAttention)
