// What XLA calls.

#include "requests.h"

#include "handlers_laws.cc"
#include "handlers_rows.cc"
#include "handlers_thin.cc"

const void* Request::Find(const char* name, XLA_FFI_DataType type) const {
  const XLA_FFI_Attrs& all = frame_->attrs;
  const size_t length = std::strlen(name);
  for (int64_t i = 0; i < all.size; ++i) {
    if (all.names[i]->len != length || std::memcmp(all.names[i]->ptr, name, length))
      continue;
    auto* scalar = static_cast<const XLA_FFI_Scalar*>(all.attrs[i]);
    const bool fits = all.types[i] == XLA_FFI_AttrType_SCALAR && scalar->dtype == type;
    return fits ? scalar->value : nullptr;
  }
  return nullptr;
}

namespace {

// Discards an error that does not matter; returns whether there was one.
bool Failed(const XLA_FFI_Api* api, XLA_FFI_Error* error) {
  if (!error) return false;
  XLA_FFI_Error_Destroy_Args destroy{XLA_FFI_Error_Destroy_Args_STRUCT_SIZE, nullptr,
                                     error};
  api->XLA_FFI_Error_Destroy(&destroy);
  return true;
}

}  // namespace

int Request::CountThreads() const {
  int64_t count = 1;
  XLA_FFI_ThreadPool_NumThreads_Args asked{
      XLA_FFI_ThreadPool_NumThreads_Args_STRUCT_SIZE, nullptr, frame_->ctx, &count};
  const XLA_FFI_Api* api = frame_->api;
  return Failed(api, api->XLA_FFI_ThreadPool_NumThreads(&asked)) ? 1 : count;
}

bool Request::Schedule(XLA_FFI_Task* f, void* data) const {
  XLA_FFI_ThreadPool_Schedule_Args task{XLA_FFI_ThreadPool_Schedule_Args_STRUCT_SIZE,
                                        nullptr, frame_->ctx, f, data};
  const XLA_FFI_Api* api = frame_->api;
  return !Failed(api, api->XLA_FFI_ThreadPool_Schedule(&task));
}

XLA_FFI_Error* Handle(XLA_FFI_CallFrame* frame, Handler* run) {
  XLA_FFI_Extension_Base* extension = frame->extension_start;
  if (extension && extension->type == XLA_FFI_Extension_Metadata) {
    XLA_FFI_Metadata* about =
        reinterpret_cast<XLA_FFI_Metadata_Extension*>(extension)->metadata;
    about->api_version = XLA_FFI_Api_Version{XLA_FFI_Api_Version_STRUCT_SIZE, nullptr,
                                             XLA_FFI_API_MAJOR, XLA_FFI_API_MINOR};
    about->traits = 0;
#if defined(XLA_FFI_UNKNOWN_TYPE_ID)
    about->state_type_id = XLA_FFI_UNKNOWN_TYPE_ID;
#endif
    return nullptr;
  }
  const char* why = "a handler is for execution alone";
  Request request(frame);
  if (frame->stage == XLA_FFI_ExecutionStage_EXECUTE) why = run(request);
  if (!why) return nullptr;
  XLA_FFI_Error_Create_Args error{XLA_FFI_Error_Create_Args_STRUCT_SIZE, nullptr, why,
                                  XLA_FFI_Error_Code_INVALID_ARGUMENT};
  return frame->api->XLA_FFI_Error_Create(&error);
}
