// The shadow of memory, between the race detector and those who tell it of accesses.
#pragma once
#include "tg_internal.hpp"

namespace tg {

// What was last done to four bytes, or to one byte of a word that is split.
struct Shadow {
  // generic: written through the generic proxy. engine: by asynchronous work, which a barrier of the
  // threads does not order.
  enum : uint16_t { pending = 1, generic = 2, atomic = 4, split = 8, engine = 16 };
  uint32_t write_clock;    // 0: never written
  uint32_t read_clock[2];  // 0: no such reader since the write
  uint32_t write_site, read_site[2];
  uint16_t writer, reader[2], flags;
};

struct Shadows {
  Shadow *words, *bytes;  // bytes: made when a word is first split
  size_t words_count;
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

// A place in the text as 32 bits: a line with the top bit set, or an address in the program, which is
// linked to lie low.
constexpr uint32_t site_is_line = 1u << 31;
inline uint32_t site_of(int line, const void* pc) {
  return line ? uint32_t(line) | site_is_line : uint32_t(reinterpret_cast<uintptr_t>(pc));
}

// Clocks count over the whole launch. `block_begin` is when this block began, `block_floor` when all
// its threads last met at a barrier.
extern uint32_t block_begin, block_floor;
extern uint32_t* clock_now;  // of each thread

// Whether a thread's work at this time is ordered before everything that the block does now; 0 is no
// work at all. What earlier blocks did is not: on the device they run beside this one.
inline bool settled(uint32_t clock) {
  return clock == 0 || clock - block_begin < block_floor - block_begin;
}

// The frequent case: nobody has done anything to the word since the last barrier but read it. False: it
// is another case, and nothing has been noted.
inline bool touch_settled(Shadow& s, bool write, uint32_t site) {
  constexpr uint16_t special = Shadow::pending | Shadow::split | Shadow::engine | Shadow::atomic;
  if ((s.flags & special) || !settled(s.write_clock)) return false;
  uint32_t me = current->linear, clock = clock_now[me];
  if (write) {
    if (!settled(s.read_clock[0]) || !settled(s.read_clock[1])) return false;
    s.read_clock[0] = s.read_clock[1] = 0;
    s.write_clock = clock;
    s.write_site = site;
    s.writer = uint16_t(me);
    s.flags = Shadow::generic;
    return true;
  }
  int slot = settled(s.read_clock[0]) || s.reader[0] == me ? 0 : 1;
  s.read_clock[slot] = clock;
  s.read_site[slot] = site;
  s.reader[slot] = uint16_t(me);
  return true;
}

void make_shadows(Shadows& area, size_t bytes);
extern Shadows shared_shadows;
void touch(Shadows& area, const Place& at, size_t offset, uint32_t bytes, Touch how);
void end_pending(Shadows& area, size_t offset, uint32_t bytes);
void check_proxy(const Shadow& s, const Place& at, uint32_t me);

}  // namespace tg
