// A call by XLA: buffers by their places, attributes by their names. It is read by XLA's
// C interface, which is stable, as its C++ headers take a compiler six seconds.

#ifndef SPECJAX_REQUESTS_H_
#define SPECJAX_REQUESTS_H_

#include "rows.h"
#include "xla/ffi/api/c_api.h"

class Request {
 public:
  explicit Request(const XLA_FFI_CallFrame* frame) : frame_(frame) {}

  bool Has(int64_t inputs, int64_t outputs) const {
    return frame_->args.size == inputs && frame_->rets.size == outputs;
  }
  int64_t CountOutputs() const { return frame_->rets.size; }

  // Of those that it has.
  const XLA_FFI_Buffer& Input(int64_t i) const {
    return *static_cast<const XLA_FFI_Buffer*>(frame_->args.args[i]);
  }
  const XLA_FFI_Buffer& Output(int64_t i) const {
    return *static_cast<const XLA_FFI_Buffer*>(frame_->rets.rets[i]);
  }

  // Attributes; 0 if one is missing, and the request is not complete.
  bool Flag(const char* name) { return Value<bool>(name, XLA_FFI_DataType_PRED); }
  float Number(const char* name) { return Value<float>(name, XLA_FFI_DataType_F32); }
  int32_t Whole(const char* name) { return Value<int32_t>(name, XLA_FFI_DataType_S32); }
  bool IsComplete() const { return complete_; }

  // The threads that XLA has, this one among them.
  int CountThreads() const;

  // f() on one of XLA's threads. Returns false if there is none.
  bool Schedule(XLA_FFI_Task* f, void* data) const;

 private:
  template <class T>
  T Value(const char* name, XLA_FFI_DataType type) {
    const void* value = Find(name, type);
    if (value) return *static_cast<const T*>(value);
    complete_ = false;
    return T();
  }
  const void* Find(const char* name, XLA_FFI_DataType type) const;

  const XLA_FFI_CallFrame* frame_;
  bool complete_ = true;
};

inline int64_t CountNumbers(const XLA_FFI_Buffer& buffer) {
  int64_t count = 1;
  for (int64_t i = 0; i < buffer.rank; ++i) count *= buffer.dims[i];
  return count;
}

inline Array ArrayOf(const XLA_FFI_Buffer& buffer) {
  return Array{buffer.data, CountNumbers(buffer),
               buffer.dtype == XLA_FFI_DataType_BF16};
}

// Does what XLA asks of a handler: tells its version, or runs it. It returns null, or why
// it cannot.
using Handler = const char*(Request&);
XLA_FFI_Error* Handle(XLA_FFI_CallFrame* frame, Handler* run);

#define SPECJAX_HANDLER(name, run)                          \
  extern "C" XLA_FFI_Error* name(XLA_FFI_CallFrame* frame) { \
    return Handle(frame, run);                               \
  }

#endif
