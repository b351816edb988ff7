// Asynchronous copies and the objects that wait for them (PTX ISA, "Data Movement and Conversion
// Instructions: Asynchronous copy", "mbarrier").
#pragma once
#include "memory.hpp"

namespace tg_ptx {

// ---- cp.async ----------------------------------------------------------------------------------

// .cg copies 16 bytes, .ca 4, 8 or 16; the size may come from a template's argument.
template <uint32_t... allowed>
inline void check_copy_size(uint32_t bytes, int line) {
  if (!((bytes == allowed) || ...))
    tg::fail("bad-argument", line, "cp.async: a copy of %u bytes", bytes);
}
inline void cp_async(uint64_t shared, uint64_t global, uint32_t bytes, uint32_t src_bytes, int line) {
  if (src_bytes > bytes)
    tg::fail("bad-argument", line, "cp.async: the source size %u is larger than the copy's %u bytes",
             src_bytes, bytes);
  tg::async_copy(shared32(shared, line), reinterpret_cast<const void*>(uintptr_t(global)), bytes,
                 src_bytes, line);
}
// cp.async.mbarrier.arrive: the barrier's pending count falls when this thread's copies have landed;
// without .noinc it first rises by one, so that the count is unchanged in the end.
void cp_async_mbarrier_arrive(uint64_t barrier, bool no_increment, int line);

// ---- mbarrier ----------------------------------------------------------------------------------

void mbarrier_init(uint64_t barrier, uint32_t count, int line);
void mbarrier_inval(uint64_t barrier, int line);
void mbarrier_expect_tx(uint64_t barrier, uint32_t bytes, int line);
void mbarrier_complete_tx(uint64_t barrier, uint32_t bytes, int line);
// Arrives `count` times, after expecting `bytes` more; the state names the phase that this was in.
uint64_t mbarrier_arrive(uint64_t barrier, uint32_t count, uint32_t bytes, bool drop, int line);
uint32_t mbarrier_pending_count(uint64_t state);
// Whether the phase of `state`, or the phase with this parity, has completed. try_wait may block, and
// here does until it has: the loop round it passes at once, and what never completes is a deadlock.
bool mbarrier_wait(uint64_t barrier, uint64_t state, bool parity, bool may_block, int line);
// Fails unless there is an mbarrier at the address; reports one that the async proxy may not see yet.
void mbarrier_meets_engine(uint32_t address, int line);
// fence.mbarrier_init
void mbarrier_init_fence();

inline uint32_t mapa(uint32_t address, uint32_t rank, int line) {
  if (rank) tg::fail("bad-argument", line, "mapa of block %u: a cluster has one block here", rank);
  return address;
}

}  // namespace tg_ptx
