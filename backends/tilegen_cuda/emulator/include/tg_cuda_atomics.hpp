// CUDA's atomic functions. All fibers share one processor, so plain arithmetic is atomic; what remains
// is to check the address, to tell the race detector, and to let others run where a loop polls.
#pragma once

// Applies op(old) to *p and gives old. A poll (an update that changed nothing) lets others run.
template <class T, class Op>
TG_DEVICE T tg_atomic(T* p, Op op, bool polls, const char* what, int line) {
  tg::global_access(p, sizeof(T), sizeof(T), tg::Access::atomic, what, line);
  tg::note_atomic(p, sizeof(T), line);
  tg::atomic_sync(p);
  T old = *p, value = op(old);
  *p = value;
  if (__builtin_memcmp(&old, &value, sizeof(T)))
    tg::progress();
  else if (polls)
    tg::polled(what, line);
  return old;
}

template <class T>
struct tg_same {
  using type = T;
};
#define TG_ATOMIC(name, polls, expression)                                                     \
  template <class T>                                                                          \
  TG_DEVICE T name(T* p, typename tg_same<T>::type v, TG_LINE) {                              \
    return tg_atomic(                                                                         \
        p, [=](T old) TG_UNTRACED -> T { (void)v; return T(expression); }, polls, #name, line); \
  }                                                                                           \
  template <class T>                                                                          \
  TG_DEVICE T name##_block(T* p, typename tg_same<T>::type v, TG_LINE) {                      \
    return name(p, v, line);                                                                  \
  }                                                                                           \
  template <class T>                                                                          \
  TG_DEVICE T name##_system(T* p, typename tg_same<T>::type v, TG_LINE) {                     \
    return name(p, v, line);                                                                  \
  }
TG_ATOMIC(atomicAdd, true, old + v)
TG_ATOMIC(atomicSub, true, old - v)
TG_ATOMIC(atomicExch, true, v)
TG_ATOMIC(atomicMin, false, v < old ? v : old)
TG_ATOMIC(atomicMax, false, old < v ? v : old)
TG_ATOMIC(atomicAnd, true, old & v)
TG_ATOMIC(atomicOr, true, old | v)
TG_ATOMIC(atomicXor, true, old ^ v)
TG_ATOMIC(atomicInc, false, old >= v ? 0 : old + 1)
TG_ATOMIC(atomicDec, false, old == 0 || old > v ? v : old - 1)

template <class T>
TG_DEVICE T atomicCAS(T* p, typename tg_same<T>::type compare, typename tg_same<T>::type v, TG_LINE) {
  return tg_atomic(
      p, [=](T old) TG_UNTRACED -> T { return old == compare ? v : old; }, true, "atomicCAS", line);
}
