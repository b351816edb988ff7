// The emulator's runtime as kernels, vocabularies and instruction semantics see it.
//
// One fiber per GPU thread, one block after another, one operating-system thread. A fiber runs until
// it blocks: at a barrier, in a collective, or in wait_until(). Nothing here needs the C++ standard
// library at link time, and what includes this header must not either: no exceptions, no RTTI, no
// operator new, no function-local statics with constructors (use malloc, or Array of tg_array.hpp).
// Sources are compiled as C++17 with -fno-exceptions -fno-rtti -fno-threadsafe-statics.
//
// `line` is always the line of the kernel text that asked, as __LINE__ or __builtin_LINE() gives it.
#pragma once
#include <stddef.h>
#include <stdint.h>

// The kernel text is compiled with -fsanitize=thread in race mode, and so are inline functions of
// headers: functions that move data on a thread's behalf carry this mark and call the note_ functions.
#if defined(__SANITIZE_THREAD__)
#define TG_UNTRACED __attribute__((no_sanitize("thread")))
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TG_UNTRACED __attribute__((no_sanitize("thread")))
#endif
#endif
#if !defined(TG_UNTRACED)
#define TG_UNTRACED
#endif

namespace tg {

// ---- who runs ----------------------------------------------------------------------------------

struct Dim3 {
  unsigned x, y, z;
};

// The public part of a GPU thread. `linear` counts x fastest, then y, then z; warp = linear / warp
// size; lane = linear % warp size.
struct Thread {
  Dim3 index;
  uint32_t linear, lane, warp;
};

struct Launch {
  Dim3 grid, block;
  uint32_t warp_size;       // 32, or 64 on CDNA
  uint32_t dynamic_shared;  // bytes that the launch asks for
  uint32_t threads;         // block.x * block.y * block.z
  bool races;               // the race detector watches: the note_ functions do something
  bool delayed;             // asynchronous work completes as late as it legally may
  bool banks;               // accesses of warps are counted
  uint32_t arithmetic;      // of matrix instructions: 0 plain, others are models of hardware
};

extern Thread* current;      // the thread that runs now; null while none does
extern Dim3 block_index;     // the block that runs now
extern Launch launch;

// 32 random bits from the seed of this run's order: the same order gives the same bits.
uint32_t random_bits();

// ---- findings ----------------------------------------------------------------------------------

// Record a fault and end the run: the thread cannot go on. `kind` is one of the words that
// tilegen/emulator/findings.py lists, or a new one that is added there. The message is a sentence
// without line, block and thread, which are added.
[[noreturn]] void fail(const char* kind, int line, const char* format, ...)
    __attribute__((format(printf, 3, 4)));

// Record a fault and go on; the same kind at the same line is recorded once and counted.
void report(const char* kind, int line, const char* format, ...)
    __attribute__((format(printf, 3, 4)));

// ---- barriers ----------------------------------------------------------------------------------

// Which threads must come to a barrier or collective by the same line of the text.
enum class Aligned {
  none,   // no promise: shfl.sync, vote.sync, bar.warp.sync, barrier.sync
  warp,   // all lanes of each warp that comes: bar.sync, *.sync.aligned
  block,  // all threads of the block: __syncthreads()
};

constexpr int all_threads = -1;

// Barrier `id` (0 to 15) of the block: blocks the thread until `count` threads have arrived, or all
// of the block. Orders memory among those who wait, and after those who merely arrived.
void barrier(unsigned id, int count, Aligned aligned, int line);

// The same without waiting (bar.arrive).
void barrier_arrive(unsigned id, int count, Aligned aligned, int line);

enum class Reduction { count, all, any };

// A barrier that also reduces a predicate over the threads that come (__syncthreads_count, bar.red).
int barrier_reduce(unsigned id, int count, Reduction op, bool predicate, Aligned aligned, int line);

// Orders memory among the lanes of `mask` (__syncwarp, bar.warp.sync).
void sync_warp(uint64_t mask, int line);

// ---- collectives -------------------------------------------------------------------------------

// What the last to arrive computes with: every participant's argument, which lives on that
// participant's stack until the collective is over and may be read and written by compute().
struct Collective {
  uint64_t mask;      // the lanes that take part (a warp); all ones for a group of warps
  uint32_t first;     // linear id of args[0]'s thread
  uint32_t size;      // entries of args and threads: the warp's lanes, or the group's threads
  void** args;        // by lane; null where the lane takes no part
  Thread** threads;   // by lane; null where the lane takes no part
  int line;
};

using Compute = void (*)(Collective&);

// All lanes of `mask` rendezvous; the last to arrive calls compute once for all. Does not order
// memory. `what` names the instruction in errors. With Aligned::none, lanes that have exited are
// taken out of the mask, and lanes may come by different lines as long as `compute` is the same;
// with Aligned::warp every lane of the mask must come by this line. Lanes that come to something
// else than the others wait for, or are not in their own mask, end the run ("divergent-collective").
void warp_collective(const char* what, uint64_t mask, void* arg, Compute compute, Aligned aligned,
                     int line);

// The same for `warps` consecutive warps (a warpgroup: 4), of which the first is a multiple of it.
void group_collective(const char* what, unsigned warps, void* arg, Compute compute, int line);

// Inside compute: what the note_ functions and report() say from here on is said of `who`.
// Returns the one before.
Thread* act_as(Thread* who);

// ---- waiting for a condition -------------------------------------------------------------------

// Block the thread until ready(arg) is true. It is asked now, then whenever someone calls notify()
// with the same key; when nothing else can run either, the run ends with a deadlock report that
// names `what` and the line. Use it for mbarrier.try_wait, which may block: the loop round it then
// passes at once.
void wait_until(uint64_t key, bool (*ready)(void*), void* arg, const char* what, int line);
void notify(uint64_t key);

// One unsuccessful round of a polling loop (mbarrier.test_wait, an atomic that is read again): lets
// the others run. A thread that polls while nothing changes ends as a deadlock.
void polled(const char* what, int line);

// Something that polling threads may look for has changed.
void progress();

// ---- the shared window -------------------------------------------------------------------------

enum class Access { read, write, atomic };

// The 32-bit address of the block's first shared byte. Not zero, so that a null is never valid, and a
// multiple of 1024, so that alignments and swizzles are those of the offsets.
constexpr uint32_t shared_base = 1024;

bool is_shared(const void* pointer);

// Generic pointer to 32-bit shared address (cvta.to.shared); one past the end is allowed.
uint32_t shared_address(const void* pointer, int line);

// 32-bit shared address to generic pointer, without a check (cvta.shared).
void* shared_pointer(uint32_t address);

// Address for an access of `bytes` bytes by instruction `what`: ends the run if it lies outside the
// block's shared memory ("out-of-bounds") or is no multiple of `align` ("misaligned"). Does not note
// the access for the race detector.
void* shared_access(uint32_t address, uint32_t bytes, uint32_t align, Access access, const char* what,
                    int line);

// The same check for a pointer into global memory, which must lie within one of the launch's
// buffers (or in generic space: in shared or local memory).
void global_access(const void* pointer, uint32_t bytes, uint32_t align, Access access,
                   const char* what, int line);

// Count the bank conflicts of one phase: `n` lanes that access `bytes` bytes each, at 32-bit shared
// addresses, in the same cycle. The first phase of an instruction counts it as an access.
void bank_access(const uint32_t* addresses, unsigned n, uint32_t bytes, bool writes, bool first,
                 int line);
// An access of `current` by an instruction that each lane runs by itself; counted with its warp's.
void count_access(const void* p, uint32_t bytes, bool writes, int line);

// ---- race detector -----------------------------------------------------------------------------
// Accesses made by instructions on behalf of `current` (or of act_as). All do nothing outside race
// mode. Pointers are generic; shared and global memory are watched.

void note_read(const void* pointer, uint32_t bytes, int line);
void note_write(void* pointer, uint32_t bytes, int line);
// Atomics do not race with each other, but with plain accesses.
void note_atomic(void* pointer, uint32_t bytes, int line);
// What a relaxed atomic orders (call it after note_atomic): it publishes what the thread did before its
// last memory_fence(), and what others did before theirs as far as it knows of them, and takes over what others published at this address. Acquire and release
// instructions call sync_acquire and sync_release with the address instead.
void atomic_sync(const void* pointer);
// __threadfence() and its kin, fence.acq_rel and fence.sc.
void memory_fence();

// A read through the async proxy (operands of wgmma, source of a TMA store): generic writes before
// it also need a proxy_fence() on the way, by their writer or by one that they are ordered before.
void note_async_read(const void* pointer, uint32_t bytes, int line);
// fence.proxy.async by the current thread.
void proxy_fence();

// The destination of asynchronous work, from issue to completion: whoever touches it between is
// reported. note_pending_end is called by the thread (or engine job) that completes the work.
void note_pending_begin(void* pointer, uint32_t bytes, int line);
void note_pending_end(void* pointer, uint32_t bytes);

// Synchronisation objects: whatever `current` did before a release happens before what any thread
// does after a later acquire of the same key. Keys are shared addresses or pointers, as integers.
void sync_release(uint64_t key);
void sync_acquire(uint64_t key);
void sync_forget(uint64_t key);
// What was released at one key so far moves to another: the arrivals of a phase, when it is complete.
void sync_pass(uint64_t from, uint64_t to);

// ---- asynchronous copies -----------------------------------------------------------------------

// cp.async: copies src_bytes, then zeros up to `bytes`, from global to shared memory. The data
// arrives at the wait for its group (delayed runs) or at once; the destination is pending until then.
// Checks both addresses; alignment is `bytes` (4, 8 or 16).
void async_copy(uint32_t shared, const void* global, uint32_t bytes, uint32_t src_bytes, int line);
void async_commit_group();
// Complete all but the newest n committed groups of this thread; wait_all also takes the uncommitted.
void async_wait_group(uint32_t n);
void async_wait_all();
// Call done(arg) when all copies that this thread has issued so far have completed
// (cp.async.mbarrier.arrive). In delayed runs that is as late as the scheduler can make it.
void async_when_complete(void (*done)(void*), void* arg, int line);

// ---- the asynchronous engine (TMA) -------------------------------------------------------------

// Hand over work that completes later: when nothing else can run, or at random moments and out of
// order in seeded orders; at once if the launch is not delayed. `run` is called once, with no
// current thread to block; note_ functions, sync_release and notify work in it and are said of the
// engine, ordered after what `current` did before the submit. A block that ends with a job not yet
// done and `must_finish` set is reported ("async-in-flight").
void engine_submit(const char* what, void (*run)(void*), void* arg, bool must_finish, int line);

// ---- per-block state of instruction semantics --------------------------------------------------

// Register hooks, once, before the launch (from a function marked __attribute__((constructor))):
// `begin` when a block starts, `end` when its last thread has exited (report what is in flight).
void on_block(void (*begin)(), void (*end)());

}  // namespace tg
