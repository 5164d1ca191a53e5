// Laws of logits, draws, and random numbers.

#include "laws.h"
#include "requests.h"

namespace {

template <class T>
T* Read(const XLA_FFI_Buffer& buffer) {
  return static_cast<T*>(buffer.data);
}

// The last axis, and the product of the others.
int64_t Width(const XLA_FFI_Buffer& buffer) { return buffer.dims[buffer.rank - 1]; }
int64_t CountRows(const XLA_FFI_Buffer& buffer) {
  return Width(buffer) ? CountNumbers(buffer) / Width(buffer) : 0;
}

// Logits, scale, top, tau, tie and lse, from input `at` on; without logits none.
Laws ReadLaws(const Request& request, int64_t at) {
  auto numbers = [&](int64_t i) { return Read<float>(request.Input(at + i)); };
  const bool any = CountNumbers(request.Input(at)) > 0;
  return Laws{any ? numbers(0) : nullptr, numbers(1), numbers(2), numbers(3),
              Read<int32_t>(request.Input(at + 4)), numbers(5)};
}

const char kWrongCall[] = "an input, an output or an attribute is missing";

// Logits and temperatures.
const char* LawsStandardize(Request& request) {
  if (!request.Has(2, 5)) return kWrongCall;
  const XLA_FFI_Buffer& logits = request.Input(0);
  const int64_t M = CountRows(logits), B = CountNumbers(request.Input(1));
  if (!M || !B || M % B) return "logits are of rows, some for each temperature";
  auto numbers = [&](int64_t i) { return Read<float>(request.Output(i)); };
  const Laws laws{Read<float>(logits), numbers(0), numbers(1), numbers(2),
                  Read<int32_t>(request.Output(3)), numbers(4)};
  Standardize(request.CountThreads(), laws, M, Width(logits),
              Read<float>(request.Input(1)), B);
  return nullptr;
}

// Laws and uniforms.
const char* LawsSample(Request& request) {
  if (!request.Has(7, 1)) return kWrongCall;
  const XLA_FFI_Buffer& logits = request.Input(0);
  Sample(request.CountThreads(), ReadLaws(request, 0), CountRows(logits), Width(logits),
         Read<float>(request.Input(6)), Read<int32_t>(request.Output(0)));
  return nullptr;
}

// Laws of the target and of the draft, tokens, num, n and uniforms.
const char* LawsResidual(Request& request) {
  if (!request.Has(16, 1)) return kWrongCall;
  auto whole = [&](int64_t i) { return Read<int32_t>(request.Input(i)); };
  const XLA_FFI_Buffer& tokens = request.Input(12);
  const int64_t B = tokens.dims[0], G = Width(tokens), V = Width(request.Input(0));
  if (CountRows(request.Input(0)) != B * (G + 1)) return "laws do not fit the draft";
  const Residual of{B,         G,         V,         ReadLaws(request, 0),
                    ReadLaws(request, 6), whole(12), whole(13),
                    whole(14), Read<float>(request.Input(15))};
  SampleResidual(request.CountThreads(), of, Read<int32_t>(request.Output(0)));
  return nullptr;
}

// Keys and data.
const char* KeysFold(Request& request) {
  const bool outer = request.Flag("outer");
  if (!request.Has(2, 1) || !request.IsComplete()) return kWrongCall;
  const int64_t N = CountNumbers(request.Input(1));
  Fold(Read<uint32_t>(request.Input(0)), Read<int32_t>(request.Input(1)), N, outer,
       CountNumbers(request.Output(0)) / 2, Read<uint32_t>(request.Output(0)));
  return nullptr;
}

// Keys.
const char* KeysUniform(Request& request) {
  if (!request.Has(1, 1)) return kWrongCall;
  const int64_t count = CountNumbers(request.Input(0)) / 2;
  const int64_t each = count ? CountNumbers(request.Output(0)) / count : 0;
  Uniforms(Read<uint32_t>(request.Input(0)), count, each,
           Read<float>(request.Output(0)));
  return nullptr;
}

}  // namespace

SPECJAX_HANDLER(laws_standardize, LawsStandardize)
SPECJAX_HANDLER(laws_sample, LawsSample)
SPECJAX_HANDLER(laws_residual, LawsResidual)
SPECJAX_HANDLER(keys_fold, KeysFold)
SPECJAX_HANDLER(keys_uniform, KeysUniform)
