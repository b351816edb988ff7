#include "memory.hpp"

namespace tg_ptx {

namespace {

uint64_t key_of(const void* at) { return reinterpret_cast<uintptr_t>(at); }

}  // namespace

void* resolve(Space space, uint64_t address, uint32_t bytes, tg::Access access, const char* what,
              int line) {
  // Vectors must be aligned to their whole size, and so are at most 16 bytes here.
  if (space == Space::shared)
    return tg::shared_access(shared32(address, line), bytes, bytes, access, what, line);
  void* at = reinterpret_cast<void*>(uintptr_t(address));
  if (space == Space::global && tg::is_shared(at))
    tg::fail("wrong-space", line, "%s in global space of a pointer to shared memory", what);
  tg::global_access(at, bytes, bytes, access, what, line);
  return at;
}

void load_bytes(Space space, uint64_t address, void* to, uint32_t bytes, Order order, const char* what,
                int line) {
  const void* at = resolve(space, address, bytes, tg::Access::read, what, line);
  if (order == Order::weak) {
    tg::count_access(at, bytes, false, line);
    tg::note_read(at, bytes, line);
  } else {
    // A load that may wait for another thread's store: let the others run first.
    tg::polled(what, line);
    tg::note_atomic(const_cast<void*>(at), bytes, line);
    if (order == Order::acquire) tg::sync_acquire(key_of(at));
  }
  memcpy(to, at, bytes);
}

void store_bytes(Space space, uint64_t address, const void* from, uint32_t bytes, Order order,
                 const char* what, int line) {
  void* at = resolve(space, address, bytes, tg::Access::write, what, line);
  if (order == Order::weak) {
    tg::count_access(at, bytes, true, line);
    tg::note_write(at, bytes, line);
  } else {
    tg::note_atomic(at, bytes, line);
    if (order == Order::release) tg::sync_release(key_of(at));
  }
  memcpy(at, from, bytes);
  if (order != Order::weak) tg::progress();
}

void atomic_begin(Space space, uint64_t address, uint32_t bytes, Order order, void** at,
                  const char* what, int line) {
  *at = resolve(space, address, bytes, tg::Access::atomic, what, line);
  tg::note_atomic(*at, bytes, line);
  if (order == Order::acquire || order == Order::acq_rel) tg::sync_acquire(key_of(*at));
}

void atomic_end(Order order, void* at) {
  if (order == Order::release || order == Order::acq_rel) tg::sync_release(key_of(at));
  tg::progress();
}

}  // namespace tg_ptx
