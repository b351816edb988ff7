// Where the kernel's data lies: buffers between guard pages, the shared window, checks of addresses.
#include <stdio.h>
#include <sys/mman.h>

#include "tg_races.hpp"

// The program's own image, as the linker lays it out.
extern "C" char __executable_start, _end;
// The ends of the shared window (tg_window.cpp, tg_dynamic.cpp).
extern "C" __thread unsigned char tg_shared_window[], tg_dynamic_shared[];

namespace tg {

Array<Buffer> buffers;
uint8_t* shared_start;
uint32_t shared_size;

namespace {

constexpr size_t page = 4096, guard = 16 * page;

// What lies round a buffer's span. No two buffers have the same, so that copying it shows.
uint8_t canary(const Buffer& buffer) { return uint8_t(0xA5 + 7 * buffer.argument); }

// Spans of which only the rows are there: their gaps take no memory, and nothing marks them but the
// map of the elements.
constexpr uint64_t sparse_bytes = 64 << 20;

uint64_t element_count(const JobArgument& about) {
  uint64_t count = 1;
  for (uint32_t d = 0; d < about.dimensions; d++) count *= uint64_t(about.shape[d]);
  return count;
}

bool is_sparse(const JobArgument& about) {
  return about.bytes > sparse_bytes && element_count(about) * about.item < about.bytes / 4;
}

// Calls f with where each element begins in the span.
template <class F>
void for_each_element(const JobArgument& about, F f) {
  int64_t at[8] = {};
  for (uint64_t i = element_count(about); i > 0; i--) {
    int64_t offset = int64_t(about.origin);
    for (uint32_t d = 0; d < about.dimensions; d++) offset += at[d] * about.stride[d];
    f(size_t(offset), at);
    for (uint32_t d = about.dimensions; d-- > 0;) {
      if (++at[d] < about.shape[d]) break;
      at[d] = 0;
    }
  }
}

void copy_span(const JobArgument& about, uint8_t* to, const uint8_t* from) {
  if (!is_sparse(about)) {
    memcpy(to, from, about.bytes);
    return;
  }
  for_each_element(about,
                   [&](size_t at, const int64_t*) { memcpy(to + at, from + at, about.item); });
}

uint8_t* map(size_t bytes, int protection) {
  void* p = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) fail("bad-argument", 0, "no memory for a buffer of %zu bytes", bytes);
  return static_cast<uint8_t*>(p);
}

// Which bytes of the span belong to elements; null where all do.
uint8_t* mark_elements(const JobArgument& about) {
  if (element_count(about) * about.item == about.bytes) return nullptr;
  uint8_t* bits = static_cast<uint8_t*>(zeroed(about.bytes / 8 + 1));
  for_each_element(about, [&](size_t offset, const int64_t*) {
    for (size_t b = offset; b < offset + about.item; b++) bits[b / 8] |= 1u << (b % 8);
  });
  return bits;
}

void make_buffer(uint32_t number, const JobArgument& about, const uint8_t* data) {
  Buffer buffer = {};
  buffer.about = &about;
  buffer.argument = number;
  buffer.size = about.bytes;
  // The span ends as near to the guard page as the pointer's alignment allows; backwards, it begins
  // as near to the one below.
  size_t room = (about.bytes + about.align + page - 1) / page * page;
  uint8_t* area = map(room + 2 * guard, PROT_NONE);
  buffer.low = area + guard;
  buffer.high = buffer.low + room;
  if (mprotect(buffer.low, room, PROT_READ | PROT_WRITE)) fail("bad-argument", 0, "mprotect failed");
  uintptr_t lowest = reinterpret_cast<uintptr_t>(buffer.low) + about.origin;
  uintptr_t highest = lowest + room - about.bytes;
  uintptr_t pointer = job->order == 1 ? (lowest + about.align - 1) / about.align * about.align
                                      : highest / about.align * about.align;
  buffer.pointer = reinterpret_cast<uint8_t*>(pointer);
  buffer.start = buffer.pointer - about.origin;
  memset(buffer.low, canary(buffer), size_t(buffer.start - buffer.low));
  uint8_t* end = buffer.start + about.bytes;
  memset(end, canary(buffer), size_t(buffer.high - end));
  copy_span(about, buffer.start, data + about.data);
  if (launch.races) {
    buffer.elements = mark_elements(about);
    buffer.shadows = static_cast<Shadows*>(calloc(1, sizeof(Shadows)));
    // The first word of the shadow is that of the first element, at a multiple of four.
    make_shadows(*buffer.shadows, about.bytes + 4);
    if (about.flags & arg_written_once)
      buffer.written = static_cast<uint8_t*>(zeroed(about.bytes / 8 + 1));
  }
  buffers.push(buffer);
}

const char* verb(Access access) {
  return access == Access::read ? "read" : access == Access::write ? "write" : "atomic";
}

}  // namespace

void* zeroed(size_t bytes) { return map(bytes ? bytes : 1, PROT_READ | PROT_WRITE); }

void make_buffers() {
  const uint8_t* data = reinterpret_cast<const uint8_t*>(job);
  const JobArgument* arguments = reinterpret_cast<const JobArgument*>(job + 1);
  for (uint32_t i = 0; i < job->arguments; i++)
    if (arguments[i].kind == arg_buffer && !arguments[i].alias) make_buffer(i, arguments[i], data);
}

// __shared__ means thread_local to the compiler: the program's own thread-local segment is exactly the
// block's shared memory, static variables first, then the dynamic part, of which the launch asks for
// some. In a program (unlike a library) the segment has a fixed place, so an access costs no call.
void find_shared_memory() {
  shared_start = tg_shared_window;
  shared_size = uint32_t(tg_dynamic_shared + job->dynamic_shared - shared_start);
  if (job->dynamic_shared > dynamic_reserve)
    fail("shared-limit", 0, "the launch asks for %u bytes of dynamic shared memory, of at most %u",
         job->dynamic_shared, dynamic_reserve);
  if (job->shared_limit && shared_size > job->shared_limit)
    fail("shared-limit", 0, "%u bytes of shared memory, of at most %u", shared_size,
         job->shared_limit);
  if (reinterpret_cast<uintptr_t>(shared_start) % shared_alignment)
    fail("crash", 0, "the shared window is not aligned");
}

void poison_shared() {
  if (job->flags & job_poison) memset(shared_start, 0xFF, shared_size);
}

Buffer* find_buffer(const void* p) {
  static uint32_t last;
  uintptr_t a = reinterpret_cast<uintptr_t>(p);
  for (uint32_t i = 0; i < buffers.size; i++) {
    Buffer& buffer = buffers[last];
    if (a >= reinterpret_cast<uintptr_t>(buffer.low) - guard &&
        a < reinterpret_cast<uintptr_t>(buffer.high) + guard)
      return &buffer;
    last = last + 1 < buffers.size ? last + 1 : 0;
  }
  return nullptr;
}

bool in_image(const void* p) {
  const char* at = static_cast<const char*>(p);
  return at >= &__executable_start && at < &_end;
}

// Says in words where an address lies; false: near nothing that is known.
bool explain_address(uintptr_t address, char* text, size_t size) {
  if (Buffer* buffer = find_buffer(reinterpret_cast<void*>(address))) {
    long long from = static_cast<long long>(address - reinterpret_cast<uintptr_t>(buffer->start));
    if (from < 0)
      snprintf(text, size, "%lld bytes before the first of argument %u", -from, buffer->argument);
    else if (from >= static_cast<long long>(buffer->size))
      snprintf(text, size, "%lld bytes past the end of argument %u (%zu bytes)",
               from - static_cast<long long>(buffer->size), buffer->argument, buffer->size);
    else
      snprintf(text, size, "byte %lld of argument %u", from, buffer->argument);
    return true;
  }
  long long from = static_cast<long long>(address - reinterpret_cast<uintptr_t>(shared_start));
  if (shared_start && from > -(1 << 20) && from < (1 << 20)) {
    snprintf(text, size, "shared byte %lld of %u", from, shared_size);
    return true;
  }
  if (address < 65536)
    snprintf(text, size, "address 0x%llx, near null", static_cast<unsigned long long>(address));
  else
    snprintf(text, size, "address 0x%llx, outside every buffer",
             static_cast<unsigned long long>(address));
  return false;
}

bool is_shared(const void* pointer) { return in_shared(pointer); }

uint32_t shared_address(const void* pointer, int line) {
  size_t offset = size_t(static_cast<const uint8_t*>(pointer) - shared_start);
  if (offset > shared_size)
    fail("out-of-bounds", line, "the pointer that becomes a shared address is not in shared memory");
  return shared_base + uint32_t(offset);
}

void* shared_pointer(uint32_t address) { return shared_start + int32_t(address - shared_base); }

void* shared_access(uint32_t address, uint32_t bytes, uint32_t align, Access access, const char* what,
                    int line) {
  uint32_t offset = address - shared_base;
  if (address < shared_base || offset > shared_size || bytes > shared_size - offset)
    fail("out-of-bounds", line, "%s: %s of %u bytes at shared offset %d, of %u", what, verb(access),
         bytes, int(offset), shared_size);
  if (address % align)
    fail("misaligned", line, "%s: shared offset %u is no multiple of %u", what, offset, align);
  return shared_start + offset;
}

void global_access(const void* pointer, uint32_t bytes, uint32_t align, Access access,
                   const char* what, int line) {
  if (bytes == 0) return;
  const uint8_t* p = static_cast<const uint8_t*>(pointer);
  char where[128];
  if (reinterpret_cast<uintptr_t>(p) % align) {
    explain_address(reinterpret_cast<uintptr_t>(p), where, sizeof where);
    fail("misaligned", line, "%s: %s, no multiple of %u", what, where, align);
  }
  Buffer* buffer = find_buffer(p);
  if (buffer ? p >= buffer->start && p + bytes <= buffer->start + buffer->size
             : (in_shared(p) && in_shared(p + bytes - 1)) || in_stacks(p) || in_image(p))
    return;
  explain_address(reinterpret_cast<uintptr_t>(p), where, sizeof where);
  fail("out-of-bounds", line, "%s: %s of %u bytes at %s", what, verb(access), bytes, where);
}

// A write beside a buffer that no guard page stopped, because the page is shared with the buffer.
void check_canaries() {
  for (Buffer& buffer : buffers) {
    uint8_t* stray = nullptr;
    for (uint8_t* p = buffer.low; p < buffer.start && !stray; p++)
      if (*p != canary(buffer)) stray = p;
    for (uint8_t* p = buffer.start + buffer.size; p < buffer.high && !stray; p++)
      if (*p != canary(buffer)) stray = p;
    if (!stray) continue;
    char where[128];
    explain_address(reinterpret_cast<uintptr_t>(stray), where, sizeof where);
    report("out-of-bounds", 0, "something was written %s", where);
  }
}

void check_written() {
  for (Buffer& buffer : buffers) {
    if (!buffer.written) continue;
    const JobArgument& about = *buffer.about;
    uint64_t missing = 0;
    char first[128] = "";
    for_each_element(about, [&](size_t offset, const int64_t* at) {
      bool whole = true;
      for (size_t b = offset; b < offset + about.item; b++)
        whole = whole && (buffer.written[b / 8] >> (b % 8) & 1);
      if (!whole && missing++ == 0)
        for (uint32_t d = 0; d < about.dimensions; d++) {
          size_t n = strlen(first);
          snprintf(first + n, sizeof first - n, d ? ", %lld" : "%lld",
                   static_cast<long long>(at[d]));
        }
    });
    if (missing)
      report("never-written", 0, "%llu of %llu elements of argument %u, the first [%s]",
             static_cast<unsigned long long>(missing),
             static_cast<unsigned long long>(element_count(about)),
             buffer.argument, first);
  }
}

void copy_back() {
  uint8_t* data = reinterpret_cast<uint8_t*>(job);
  for (Buffer& buffer : buffers)
    copy_span(*buffer.about, data + buffer.about->data, buffer.start);
}

}  // namespace tg
