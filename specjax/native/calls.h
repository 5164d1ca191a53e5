// A function by reference: for calls while it lives, where it was made or elsewhere.

#ifndef SPECJAX_CALLS_H_
#define SPECJAX_CALLS_H_

template <class... Arguments>
class Call {
 public:
  template <class F>
  Call(const F& f) : function_(&f), call_(&Run<F>) {}
  void operator()(Arguments... arguments) const { call_(function_, arguments...); }

 private:
  template <class F>
  static void Run(const void* function, Arguments... arguments) {
    (*static_cast<const F*>(function))(arguments...);
  }
  const void* function_;
  void (*call_)(const void*, Arguments...);
};

#endif
