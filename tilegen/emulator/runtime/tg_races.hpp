// The shadow of memory, between the race detector and those who tell it of accesses.
#pragma once
#include "tg_internal.hpp"

namespace tg {

// What was last done to four bytes, or to one byte of a word that is split.
struct Shadow {
  enum : uint16_t { pending = 1, generic = 2, atomic = 4, split = 8 };
  uint32_t write_clock;    // 0: never written
  uint32_t read_clock[2];  // 0: no such reader since the write
  uint16_t writer, reader[2], flags;
};

struct Shadows {
  Shadow *words, *bytes;  // bytes: made when a word is first split
  uint32_t words_count;
};

enum class Touch { read, write, atomic, async_read, pending };
inline bool is_write(Touch touch) {
  return touch == Touch::write || touch == Touch::atomic || touch == Touch::pending;
}

// An access: where, and by which line or code address of the kernel.
struct Place {
  const void* pointer;
  int line;
  const void* pc;
};

void make_shadows(Shadows& area, size_t bytes);
Shadows& shadows_of_shared();
void touch(Shadows& area, const Place& at, size_t offset, uint32_t bytes, Touch how);
void end_pending(Shadows& area, size_t offset, uint32_t bytes);
void check_proxy(const Shadow& s, const Place& at, uint32_t me);

}  // namespace tg
