// Instructions among the lanes of a warp and the threads of a block (PTX ISA, "shfl.sync", "vote.sync",
// "match.sync", "redux.sync", "elect.sync", "bar", "barrier.cluster", "Special Registers").
#pragma once
#include "tg_runtime.hpp"
#include "types.hpp"

namespace tg_ptx {

// Where an instruction that the translator does not know would have run.
[[noreturn]] inline void refuse(const char* message, int line) { tg::fail("unknown-instruction", line, "%s", message); }

// What special registers show, read outside of the race detector's sight: it is no memory of theirs.
TG_UNTRACED inline tg::Thread thread() { return *tg::current; }
TG_UNTRACED inline tg::Dim3 block() { return tg::block_index; }
TG_UNTRACED inline tg::Launch launch() { return tg::launch; }
TG_UNTRACED inline uint32_t warps_of_block() {
  return (tg::launch.threads + tg::launch.warp_size - 1) / tg::launch.warp_size;
}
// A clock that only ever goes on: the number of times it has been read.
uint64_t ticks();

enum class Shuffle { up, down, bfly, idx };
// `c` holds the clamp in bits 0-4 and the segment mask in bits 8-12.
uint32_t shfl(Shuffle mode, uint32_t a, uint32_t b, uint32_t c, uint32_t mask, bool* in_range, int line);

enum class Vote { all, any, uni, ballot };
uint32_t vote(Vote mode, bool predicate, uint32_t mask, int line);

uint32_t match_any(uint64_t value, uint32_t mask, int line);
uint32_t match_all(uint64_t value, uint32_t mask, bool* all, int line);

enum class Reduce { add, min_s, max_s, min_u, max_u, and_, or_, xor_ };
uint32_t redux(Reduce op, uint32_t value, uint32_t mask, int line);

// The lane that is elected: the lowest of the mask, on every call.
uint32_t elect(uint32_t mask, bool* elected, int line);

void bar_sync(uint32_t id, bool all, uint32_t count, bool aligned, int line);
void bar_arrive(uint32_t id, uint32_t count, bool aligned, int line);
uint32_t bar_red(tg::Reduction op, uint32_t id, bool all, uint32_t count, bool predicate, bool aligned,
                 int line);

// A cluster of one block: its barrier is a split one of all threads of the block.
void cluster_arrive(bool relaxed, int line);
void cluster_wait(int line);

inline void check_register_count(uint32_t count, int line) {
  if (count < 24 || count > 256 || count % 8)
    tg::fail("bad-argument", line, "setmaxnreg: %u is no multiple of 8 from 24 to 256", count);
}

}  // namespace tg_ptx
