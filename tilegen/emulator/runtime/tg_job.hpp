// What the parent hands to the child and gets back, in one file: job, arguments, data, results.
// tilegen/emulator/job.py writes and reads the same records.
#pragma once
#include <stdint.h>

namespace tg {

constexpr uint32_t job_magic = 0x74676a31;

enum JobFlags : uint32_t { job_races = 1, job_delay = 2, job_banks = 4, job_poison = 8 };
// Bits 8 to 15 of the flags: which arithmetic matrix instructions have (ptx/matrix.hpp).
constexpr int job_arithmetic = 8;

struct Job {
  uint32_t magic, flags;
  uint32_t grid[3], block[3];
  uint32_t warp_size, dynamic_shared, shared_limit;  // limit 0: none
  uint32_t order;                                    // 0 forward, 1 reverse, 2... seeded
  uint32_t entry, arguments;
  uint32_t loop_ms, time_ms;  // processor time of one thread without a switch, and of the whole run
  uint64_t results;           // where in the file the findings go
};

enum ArgumentKind : uint32_t { arg_int, arg_float, arg_bytes, arg_buffer };
// Flags; floating and integral say what the elements are, large that the integer is 2**63 or more.
constexpr uint32_t arg_written_once = 1, arg_floating = 2, arg_integral = 4, arg_large = 8;

struct JobArgument {
  uint32_t kind, flags;
  int64_t integer;
  double real;
  uint64_t data, bytes;    // where in the file, and how much: a buffer's span, or raw bytes
  uint64_t origin;         // element [0, 0, ...] is so far into the span
  uint32_t align, item;    // of the pointer; bytes of an element
  uint32_t dimensions, alias;  // alias: 1 + the argument whose memory this is; 0: its own
  int64_t shape[8], stride[8];  // stride in bytes
};

struct Result {
  uint32_t magic, findings, access_sites, unused;
  uint64_t switches, barriers, collectives, shared_bytes, races;
  uint64_t stretches, parted;  // of warps between two barriers; those in which its lanes part
  double seconds;  // processor time of the launch alone
};
// Result is followed by so many findings, then by so many sites.
struct Finding {
  char kind[32];
  int32_t line, other_line;
  uint32_t count, block[3], thread, warp, lane, has_thread;
  uint64_t pc, other_pc;  // where the line is 0: an address in the program
  char message[512];
};

// A place in the text (a site of tg_races.hpp) that accesses memory, and what its warps asked for.
constexpr uint32_t access_writes = 1, access_global = 2;
constexpr uint32_t no_argument = ~0u;
struct AccessSite {
  uint32_t site, kind;
  uint32_t argument, unused;  // whose array a global access, or the source of a copy to shared memory, is
  uint64_t accesses, bytes;   // of warps; of all their lanes together
  uint64_t served, extra;     // shared: phases, cycles beyond one a phase; global: sectors, those beyond the fewest
  uint64_t low, high;         // shared: the bytes from the first to the one behind the last
};

// What the driver says of one entry.
struct Slot {
  const JobArgument* about;
  void* pointer;  // of a buffer, or to raw bytes
};
struct Entry {
  const char* name;
  uint32_t parameters;
  void (*call)(const Slot*);
};

}  // namespace tg

extern const tg::Entry tg_entries[];
extern const uint32_t tg_entry_count;
