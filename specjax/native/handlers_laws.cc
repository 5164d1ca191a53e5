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
  const XLA_FFI_Buffer& logits = request.Input(at);
  const bool any = CountNumbers(logits) > 0;
  return Laws{any ? numbers(0) : nullptr, Width(logits), numbers(1), numbers(2),
              numbers(3), Read<int32_t>(request.Input(at + 4)), numbers(5)};
}

const char kWrongCall[] = "an input, an output or an attribute is missing";

// Logits and temperatures.
const char* LawsStandardize(Request& request) {
  if (!request.Has(2, 5)) return kWrongCall;
  const XLA_FFI_Buffer& logits = request.Input(0);
  const int64_t M = CountRows(logits), B = CountNumbers(request.Input(1));
  if (!M || !B || M % B) return "logits are of rows, some for each temperature";
  auto numbers = [&](int64_t i) { return Read<float>(request.Output(i)); };
  const Laws laws{Read<float>(logits), Width(logits), numbers(0), numbers(1),
                  numbers(2), Read<int32_t>(request.Output(3)), numbers(4)};
  Standardize(request.CountThreads(), laws, M, Read<float>(request.Input(1)), B);
  return nullptr;
}

// Laws and uniforms.
const char* LawsSample(Request& request) {
  if (!request.Has(7, 1)) return kWrongCall;
  Sample(request.CountThreads(), ReadLaws(request, 0), CountRows(request.Input(0)),
         Read<float>(request.Input(6)), Read<int32_t>(request.Output(0)));
  return nullptr;
}

// Laws and Gumbel variables.
const char* LawsDistinct(Request& request) {
  if (!request.Has(7, 1)) return kWrongCall;
  const XLA_FFI_Buffer& ids = request.Output(0);
  SampleDistinct(request.CountThreads(), ReadLaws(request, 0),
                 CountRows(request.Input(0)), Read<float>(request.Input(6)), Width(ids),
                 Read<int32_t>(ids));
  return nullptr;
}

constexpr int64_t kTrial = 15;  // inputs

// Laws of the target and of the draft, the places of its ids if they are some of all,
// tokens and num; why not, or null.
const char* ReadTrial(const Request& request, Trial& of) {
  const XLA_FFI_Buffer &place = request.Input(12), &tokens = request.Input(13);
  of = Trial{tokens.dims[0],
             Width(tokens),
             Width(request.Input(0)),
             ReadLaws(request, 0),
             ReadLaws(request, 6),
             Read<int32_t>(tokens),
             Read<int32_t>(request.Input(14))};
  if (CountNumbers(place)) of.draft.place = Read<int32_t>(place);
  const bool target = CountRows(request.Input(0)) == of.B * (of.G + 1);
  const bool draft =
      !of.draft.logits || (CountRows(request.Input(6)) == of.B * of.G &&
                           (CountNumbers(place) ? CountNumbers(place) : of.draft.width) == of.V);
  return target && draft ? nullptr : "laws do not fit the draft";
}

// A trial, n and uniforms.
const char* LawsResidual(Request& request) {
  if (!request.Has(kTrial + 2, 1)) return kWrongCall;
  Trial of;
  if (const char* why = ReadTrial(request, of)) return why;
  SampleResidual(request.CountThreads(), of, Read<int32_t>(request.Input(kTrial)),
                 Read<float>(request.Input(kTrial + 1)),
                 Read<int32_t>(request.Output(0)));
  return nullptr;
}

// A trial, and uniforms for drafted tokens and for the one that is added.
const char* LawsBlock(Request& request) {
  if (!request.Has(kTrial + 2, 3)) return kWrongCall;
  Trial of;
  if (const char* why = ReadTrial(request, of)) return why;
  VerifyBlock(request.CountThreads(), of, Read<float>(request.Input(kTrial)),
              Read<float>(request.Input(kTrial + 1)), Read<int32_t>(request.Output(0)),
              Read<float>(request.Output(1)), Read<int32_t>(request.Output(2)));
  return nullptr;
}

// A trial, parents, and uniforms as of a block.
const char* LawsTraverse(Request& request) {
  const bool replaced = request.Flag("replaced");
  if (!request.Has(kTrial + 3, 4) || !request.IsComplete()) return kWrongCall;
  Trial of;
  if (const char* why = ReadTrial(request, of)) return why;
  auto numbers = [&](int64_t i) { return Read<float>(request.Input(kTrial + i)); };
  auto whole = [&](int64_t i) { return Read<int32_t>(request.Output(i)); };
  const Traversal how{Read<int32_t>(request.Input(kTrial)),
                      replaced,
                      numbers(1),
                      numbers(2),
                      whole(0),
                      whole(1),
                      Read<float>(request.Output(2)),
                      whole(3)};
  Traverse(request.CountThreads(), of, how);
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

// Keys.
const char* KeysGumbel(Request& request) {
  if (!request.Has(1, 1)) return kWrongCall;
  const XLA_FFI_Buffer& numbers = request.Output(0);
  Gumbels(request.CountThreads(), Read<uint32_t>(request.Input(0)), CountRows(numbers),
          Width(numbers), Read<float>(numbers));
  return nullptr;
}

}  // namespace

SPECJAX_HANDLER(laws_standardize, LawsStandardize)
SPECJAX_HANDLER(laws_sample, LawsSample)
SPECJAX_HANDLER(laws_residual, LawsResidual)
SPECJAX_HANDLER(laws_block, LawsBlock)
SPECJAX_HANDLER(laws_traverse, LawsTraverse)
SPECJAX_HANDLER(laws_distinct, LawsDistinct)
SPECJAX_HANDLER(keys_gumbel, KeysGumbel)
SPECJAX_HANDLER(keys_fold, KeysFold)
SPECJAX_HANDLER(keys_uniform, KeysUniform)
