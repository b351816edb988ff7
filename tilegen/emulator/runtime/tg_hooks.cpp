// Where accesses become known: the calls that -fsanitize=thread puts before each access of the kernel
// text, and the note_ functions that instruction semantics call. The real libtsan is never linked.
#include <stdio.h>

#include "tg_races.hpp"

namespace tg {
namespace {

[[noreturn]] void stray(const Place& at, uint32_t bytes, Touch how) {
  char where[128];
  explain_address(reinterpret_cast<uintptr_t>(at.pointer), where, sizeof where);
  fail_at("out-of-bounds", at.line, at.pc, "%s of %u bytes at %s", is_write(how) ? "write" : "read",
          bytes, where);
}

// The bits of a map of bytes, from `offset` on; at most 32 of them are asked for at once.
bool all_set(const uint8_t* bits, size_t offset, uint32_t n) {
  for (size_t i = offset; i < offset + n; i++)
    if (!(bits[i / 8] >> (i % 8) & 1)) return false;
  return true;
}

void note_output(Buffer& buffer, const Place& at, size_t offset, uint32_t bytes) {
  for (size_t i = offset; i < offset + bytes; i++) {
    uint8_t bit = uint8_t(1u << (i % 8));
    if (buffer.written[i / 8] & bit) {
      report_at("written-twice", at.line, at.pc, "byte %zu of argument %u, an output", i,
                buffer.argument);
      return;
    }
    buffer.written[i / 8] |= bit;
  }
}

void access_global(const Place& at, uint32_t bytes, Touch how) {
  const uint8_t* p = static_cast<const uint8_t*>(at.pointer);
  Buffer* buffer = find_buffer(p);
  if (!buffer) {
    if (in_image(p)) return;
    stray(at, bytes, how);
  }
  size_t offset = size_t(p - buffer->start);
  if (p < buffer->start || offset + bytes > buffer->size) stray(at, bytes, how);
  if (buffer->elements && !all_set(buffer->elements, offset, bytes)) {
    char where[128];
    explain_address(reinterpret_cast<uintptr_t>(p), where, sizeof where);
    report_at("out-of-bounds", at.line, at.pc, "%s of %u bytes at %s, between its elements",
              is_write(how) ? "write" : "read", bytes, where);
  }
  if (buffer->written && how != Touch::atomic && is_write(how))
    note_output(*buffer, at, offset, bytes);
  else if (buffer->written && how == Touch::atomic)
    for (size_t i = offset; i < offset + bytes; i++) buffer->written[i / 8] |= 1u << (i % 8);
  touch(*buffer->shadows, at, offset + reinterpret_cast<uintptr_t>(buffer->start) % 4, bytes, how);
}

void access(const Place& at, uint32_t bytes, Touch how) {
  size_t offset = size_t(static_cast<const uint8_t*>(at.pointer) - shared_start);
  if (offset < shared_size) {
    if (offset + bytes > shared_size) stray(at, bytes, how);
    touch(shared_shadows, at, offset, bytes, how);
  } else if (!in_stacks(at.pointer)) {
    access_global(at, bytes, how);
  }
}

void note(const void* pointer, uint32_t bytes, int line, Touch how) {
  if (!launch.races || bytes == 0) return;
  access({pointer, line, nullptr}, bytes, how);
}

__attribute__((noinline)) void hook_any(void* p, uint32_t bytes, Touch how, const void* pc,
                                        bool aligned) {
  if (!current || in_stacks(p)) return;
  if (aligned && reinterpret_cast<uintptr_t>(p) % bytes) {
    char where[128];
    explain_address(reinterpret_cast<uintptr_t>(p), where, sizeof where);
    fail_at("misaligned", 0, pc, "%s of %u bytes at %s", is_write(how) ? "write" : "read", bytes,
            where);
  }
  access({p, 0, pc}, bytes, how);
}

// One place of the text mostly goes to one array; which, is remembered for a few places.
constexpr uint32_t remembered = 64;
Buffer* recent[remembered];

inline bool settled_words(Shadow* words, uint32_t bytes, Touch how, uint32_t site) {
  for (uint32_t n = 0; n < bytes / 4; n++)
    // What has been noted of the first words is noted again by the long way, which changes nothing.
    if (!touch_settled(words[n], how == Touch::write, site)) return false;
  return true;
}

inline bool settled_global(uint8_t* p, uint32_t bytes, Touch how, uint32_t site) {
  Buffer*& known = recent[site / 4 % remembered];
  if (!known || p < known->start || size_t(p - known->start) + bytes > known->size) {
    known = find_buffer(p);
    return false;
  }
  if (known->elements || (known->written && how != Touch::read)) return false;
  size_t offset = size_t(p - known->start);
  if (reinterpret_cast<uintptr_t>(known->start) % 4) return false;
  return settled_words(known->shadows->words + offset / 4, bytes, how, site);
}

// A vector access of n bytes must lie at a multiple of n, as the hardware wants it. Whole words that
// nobody disputes, which most accesses are to, take the short way.
template <uint32_t bytes, bool aligned>
inline void hook(void* p, Touch how, const void* pc) {
  uint8_t* at = static_cast<uint8_t*>(p);
  size_t offset = size_t(at - shared_start);
  uint32_t site = site_of(0, pc);
  bool words = bytes >= 4 && reinterpret_cast<uintptr_t>(p) % bytes == 0;
  if (offset < shared_size) {
    if (launch.banks && current) lane_access(p, bytes, site, is_write(how));
    if (words && offset + bytes <= shared_size && current &&
        settled_words(shared_shadows.words + offset / 4, bytes, how, site))
      return;
  } else if (current && !in_stacks(p)) {
    if (launch.banks) lane_access(p, bytes, site, is_write(how));
    if (words && settled_global(at, bytes, how, site)) return;
  }
  hook_any(p, bytes, how, pc, aligned);
}

inline void hook_range(void* p, size_t bytes, Touch how, const void* pc) {
  if (!current || in_stacks(p) || bytes == 0) return;
  access({p, 0, pc}, uint32_t(bytes), how);
}

}  // namespace

void note_read(const void* p, uint32_t bytes, int line) { note(p, bytes, line, Touch::read); }
void note_write(void* p, uint32_t bytes, int line) { note(p, bytes, line, Touch::write); }
void note_atomic(void* p, uint32_t bytes, int line) { note(p, bytes, line, Touch::atomic); }
void note_async_read(const void* p, uint32_t bytes, int line) {
  note(p, bytes, line, Touch::async_read);
}
void note_pending_begin(void* p, uint32_t bytes, int line) { note(p, bytes, line, Touch::pending); }
void note_pending_end(void* p, uint32_t bytes) {
  if (launch.races && in_shared(p))
    end_pending(shared_shadows, size_t(static_cast<uint8_t*>(p) - shared_start), bytes);
}

}  // namespace tg

extern "C" {
#define TG_PC __builtin_return_address(0)
#define TG_HOOK(name, n, aligned)                                                              \
  void __tsan_##name##read##n(void* p) { tg::hook<n, aligned>(p, tg::Touch::read, TG_PC); }     \
  void __tsan_##name##write##n(void* p) { tg::hook<n, aligned>(p, tg::Touch::write, TG_PC); }   \
  void __tsan_##name##read_write##n(void* p) {                                                 \
    tg::hook<n, aligned>(p, tg::Touch::read, TG_PC);                                           \
    tg::hook<n, aligned>(p, tg::Touch::write, TG_PC);                                          \
  }
#define TG_HOOKS(n)        \
  TG_HOOK(, n, true)       \
  TG_HOOK(volatile_, n, true) \
  TG_HOOK(unaligned_, n, false) \
  TG_HOOK(unaligned_volatile_, n, false)
TG_HOOKS(1)
TG_HOOKS(2)
TG_HOOKS(4)
TG_HOOKS(8)
TG_HOOKS(16)
void __tsan_read_range(void* p, size_t n) { tg::hook_range(p, n, tg::Touch::read, TG_PC); }
void __tsan_write_range(void* p, size_t n) { tg::hook_range(p, n, tg::Touch::write, TG_PC); }
void* __tsan_memcpy(void* to, const void* from, size_t n) {
  tg::hook_range(const_cast<void*>(from), n, tg::Touch::read, TG_PC);
  tg::hook_range(to, n, tg::Touch::write, TG_PC);
  return memcpy(to, from, n);
}
void* __tsan_memmove(void* to, const void* from, size_t n) {
  tg::hook_range(const_cast<void*>(from), n, tg::Touch::read, TG_PC);
  tg::hook_range(to, n, tg::Touch::write, TG_PC);
  return memmove(to, from, n);
}
void* __tsan_memset(void* to, int value, size_t n) {
  tg::hook_range(to, n, tg::Touch::write, TG_PC);
  return memset(to, value, n);
}
// -fsanitize=bounds: an index beyond an array whose length the compiler knows, one of the thread's own
// among them, which no other check sees.
struct tg_type {
  uint16_t kind, bits;
  char name[];
};
struct tg_out_of_bounds {
  const char* file;
  uint32_t line, column;
  const tg_type *array, *index;
};
void __ubsan_handle_out_of_bounds(const tg_out_of_bounds* about, uintptr_t index) {
  if (!tg::current) return;
  bool in_text = strstr(about->file, "kernel.") != nullptr;
  tg::fail_at("out-of-bounds", in_text ? int(about->line) : 0, TG_PC, "index %lld of an array of type %s",
              static_cast<long long>(index), about->array->name);
}

// -fsanitize=alignment: the compiler checks each typed access before it is split into smaller ones.
struct tg_type_mismatch {
  const char* file;
  uint32_t line, column;
  const void* type;
  uint8_t log_alignment, kind;
};
void __ubsan_handle_type_mismatch_v1(const tg_type_mismatch* about, uintptr_t address) {
  if (!tg::current) return;
  char where[128];
  tg::explain_address(address, where, sizeof where);
  bool in_text = strstr(about->file, "kernel.") != nullptr;
  tg::fail_at("misaligned", in_text ? int(about->line) : 0, TG_PC, "access at %s, no multiple of %u",
              where, 1u << about->log_alignment);
}
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
}
