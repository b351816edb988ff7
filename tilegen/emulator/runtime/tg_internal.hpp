// What the runtime's own sources share and nobody else sees.
#pragma once
#include "tg_array.hpp"
#include "tg_job.hpp"
#include "tg_runtime.hpp"

namespace tg {

constexpr uint32_t max_threads = 1024, max_lanes = 64, max_barriers = 16;
// The most dynamic shared memory that any device gives one block (227 KiB, compute capability 9.0:
// CUDA C++ Programming Guide, table of technical specifications).
constexpr uint32_t dynamic_reserve = 227 * 1024;
// What the shared window's first byte is aligned to, so that alignments and swizzles of generic
// pointers are those of shared addresses.
constexpr uint32_t shared_alignment = 1024;

// An asynchronous copy of one thread that has not completed.
struct Copy {
  uint8_t* to;
  const uint8_t* from;
  uint32_t bytes, from_bytes;
  bool copied;  // the data has arrived, and only nobody may know it yet
};
struct WhenComplete {
  void (*done)(void*);
  void* arg;
  uint32_t after;  // copies issued before it
};

struct Warp;

struct Fiber : Thread {
  void* stack_pointer;
  Warp* home;
  bool exited;
  const char* waits_for;  // null while it can run
  int wait_line;
  // wait_until()
  uint64_t wait_key;
  bool (*ready)(void*);
  void* ready_arg;
  // barrier_reduce() and the checks of a barrier
  bool predicate;
  int reduced;
  Array<Copy> copies;
  Array<uint32_t> groups;  // for each committed group, the copies up to its end
  Array<WhenComplete> watchers;
};

// Lanes that wait for each other in one collective.
struct Rendezvous {
  uint64_t mask, arrived;
  const char* what;
  Compute compute;
  Aligned aligned;
  int line;
};

struct Warp {
  Fiber* lanes[max_lanes];
  uint64_t full, alive, runnable;
  uint32_t position;  // in the order in which warps are tried
  void* args[max_lanes];
  Rendezvous rendezvous[max_lanes];
  uint32_t waiting;  // entries of rendezvous in use
  uint32_t after_poll;  // the lane that a poller let run last
};

extern Array<Fiber> fibers;
extern Array<Warp> warps;
extern uint32_t alive;  // threads of the block that have not exited
extern Job* job;

inline Fiber* self() { return static_cast<Fiber*>(current); }

// ---- tg_switch.cpp
void prepare(Fiber* fiber, uint8_t* stack, size_t bytes, void (*entry)());
void switch_to(Fiber* from, Fiber* to);  // null: the host's own stack

// ---- tg_scheduler.cpp
void make_threads();
void run_block(Dim3 index, void (*kernel)());
void block_current(const char* what, int line);
void make_runnable(Fiber* fiber);
void shuffle_warps();
extern uint64_t switches;

// ---- tg_barriers.cpp
void reset_barriers();
void thread_exits(Fiber* fiber);
extern uint64_t barriers_passed, collectives_run;

// ---- tg_async.cpp
bool engine_step();         // run one job of the engine; false: there was none
bool complete_watched();    // complete copies that someone watches; false: there were none
void reset_async();
void check_async_end();
void check_copies(Fiber* fiber);

// ---- tg_memory.cpp
struct Shadows;

// One argument's memory between its guard pages. `start` and `size` are the span of the elements.
struct Buffer {
  uint8_t *low, *high;  // what is mapped between the guard pages
  uint8_t* start;
  size_t size;
  uint8_t* pointer;         // what the kernel gets
  const JobArgument* about;
  uint32_t argument;
  uint8_t* elements;        // one bit a byte that belongs to an element; null: every byte does
  uint8_t* written;         // one bit a byte; null: it is not an output of the race run
  Shadows* shadows;         // of the race run
};
extern Array<Buffer> buffers;
extern uint8_t* shared_start;
extern uint32_t shared_size;

// Memory that is zero and takes room where it is written; it is never given back.
void* zeroed(size_t bytes);
void make_buffers();
void find_shared_memory();
void poison_shared();
bool explain_address(uintptr_t address, char* text, size_t size);
void check_canaries();
void check_written();
void copy_back();
inline bool in_shared(const void* p) {
  return size_t(static_cast<const uint8_t*>(p) - shared_start) < shared_size;
}
Buffer* find_buffer(const void* p);
bool in_stacks(const void* p);
bool near_stacks(const void* p);
bool in_image(const void* p);

// ---- tg_accesses.cpp
extern Array<AccessSite> access_sites;
extern uint64_t stretches, parted;
// An access of `current` to shared or global memory, whose lanes are put together later.
void lane_access(const void* p, uint32_t bytes, uint32_t site, bool writes);
// The same of both ends of one lane's asynchronous copy.
void lane_copy(const void* to, uint32_t bytes, const void* from, uint32_t from_bytes, uint32_t site);
void accesses_of_block();  // all threads have met, or are gone

// ---- tg_races.cpp
void races_begin_launch();
void races_begin_block();
void join_block();                               // all threads of the block meet
void join_threads(Fiber** who, uint32_t count);  // these do
struct Engine {
  uint32_t* clocks;  // what the issuer knew
  uint32_t floor;    // the block's last barrier of all threads, at that time
  uint32_t column;
  Thread as;
};
void engine_snapshot(Engine& engine);
void engine_begin(Engine& engine);
void engine_end();
extern uint32_t race_count;

// ---- tg_findings.cpp
// As report() and fail() of the public header, with the address of the code instead of a line.
void report_at(const char* kind, int line, const void* pc, const char* format, ...)
    __attribute__((format(printf, 4, 5)));
[[noreturn]] void fail_at(const char* kind, int line, const void* pc, const char* format, ...)
    __attribute__((format(printf, 4, 5)));
// A fault of two accesses, each a site of tg_races.hpp.
void report_pair(const char* kind, uint32_t site, uint32_t other, const char* format, ...)
    __attribute__((format(printf, 4, 5)));
[[noreturn]] void finish();
void watch_signals();

}  // namespace tg
