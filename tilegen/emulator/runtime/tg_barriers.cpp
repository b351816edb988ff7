// Barriers of the block, and rendezvous of warps and groups of warps.
#include "tg_internal.hpp"

namespace tg {

uint64_t barriers_passed, collectives_run;

namespace {

struct Barrier {
  int want;
  int line;
  Aligned aligned;
  Array<Fiber*> arrived, waiting;
  Array<int> lines;  // of arrived
  uint64_t came[max_threads / 32];  // lanes of each warp that have arrived
  bool reduces;
  Reduction reduction;
};
Barrier barriers[max_barriers];

struct Group {
  uint32_t arrived;
  Compute compute;
  int line;
  void* args[max_threads];
};
Group groups[max_threads / 32];
Thread* threads_of_group[max_threads];

void clear(Barrier& barrier) {
  barrier.arrived.clear();
  barrier.waiting.clear();
  barrier.lines.clear();
  memset(barrier.came, 0, sizeof barrier.came);
}

// What those who merely arrive at a barrier publish, to the race detector; no shared address is so small.
uint64_t arrivals_key(const Barrier& barrier) { return 64 + uint64_t(&barrier - barriers); }

// Aligned barriers are executed by whole warps: all lanes that have not exited, at one place of the text.
void check_whole_warps(const Barrier& barrier) {
  uint64_t seen[max_threads / 32] = {};
  int lines[max_threads / 32] = {};
  for (uint32_t i = 0; i < barrier.arrived.size; i++) {
    Fiber* fiber = barrier.arrived[i];
    if (seen[fiber->warp] && lines[fiber->warp] != barrier.lines[i])
      fail("divergent-barrier", barrier.lines[i],
           "lanes of warp %u come to one barrier at lines %d and %d", fiber->warp,
           lines[fiber->warp], barrier.lines[i]);
    seen[fiber->warp] |= 1ull << fiber->lane;
    lines[fiber->warp] = barrier.lines[i];
  }
  for (Warp& warp : warps) {
    uint32_t number = uint32_t(&warp - warps.data);
    if (seen[number] && warp.alive & ~seen[number])
      fail("divergent-barrier", lines[number],
           "only lanes 0x%llx of warp %u come to the barrier, of 0x%llx",
           static_cast<unsigned long long>(seen[number]), number,
           static_cast<unsigned long long>(warp.alive));
  }
}

// Those who wait come after each other and after what the others did before they arrived, not after
// what those have done since.
void order_waiting(Barrier& barrier) {
  join_threads(barrier.waiting.data, barrier.waiting.size);
  if (barrier.arrived.size == barrier.waiting.size) return;
  for (Fiber* fiber : barrier.waiting) {
    Thread* before = act_as(fiber);
    sync_acquire(arrivals_key(barrier));
    act_as(before);
  }
  sync_forget(arrivals_key(barrier));
}

void release(Barrier& barrier) {
  barriers_passed++;
  progress();
  if (barrier.aligned != Aligned::none) check_whole_warps(barrier);
  if (barrier.reduces) {
    int count = 0;
    for (Fiber* fiber : barrier.arrived) count += fiber->predicate;
    int value = barrier.reduction == Reduction::count ? count
                : barrier.reduction == Reduction::any ? count > 0
                                                      : count == int(barrier.arrived.size);
    for (Fiber* fiber : barrier.waiting) fiber->reduced = value;
  }
  if (launch.races) {
    if (barrier.waiting.size == fibers.size)
      join_block();
    else
      order_waiting(barrier);
  }
  if (barrier.want == all_threads) accesses_of_block();
  for (Fiber* fiber : barrier.waiting) make_runnable(fiber);
  clear(barrier);
  shuffle_warps();
}

void check_no_rendezvous(Fiber* fiber, int line) {
  const Warp& warp = *fiber->home;
  for (uint32_t i = 0; i < warp.waiting; i++)
    if (warp.rendezvous[i].mask >> fiber->lane & 1)
      fail("divergent-collective", line,
           "the thread comes to a barrier while lanes of its warp wait for it in %s at line %d",
           warp.rendezvous[i].what, warp.rendezvous[i].line);
}

void report_exited(int line) {
  report("divergent-barrier", line,
         "%u of the block's %u threads never come to this barrier: they have exited",
         fibers.size - alive, fibers.size);
}

// Note the arrival; true: the barrier is complete and has been released.
bool arrive(unsigned id, int count, Aligned aligned, int line, bool waits, bool reduces,
            Reduction reduction) {
  if (id >= max_barriers) fail("bad-barrier", line, "barrier %u: a block has %u", id, max_barriers);
  Fiber* fiber = self();
  Barrier& barrier = barriers[id];
  if (count != all_threads && (count <= 0 || count % int(launch.warp_size)))
    fail("bad-barrier", line, "barrier %u: count %d is no multiple of the warp size", id, count);
  check_no_rendezvous(fiber, line);
  if (barrier.arrived.empty()) {
    barrier.want = count;
    barrier.line = line;
    barrier.aligned = aligned;
    barrier.reduces = reduces;
    barrier.reduction = reduction;
  } else {
    if (barrier.want != count)
      fail("divergent-barrier", line, "barrier %u: count %d here and %d at line %d", id, count,
           barrier.want, barrier.line);
    if (aligned == Aligned::block && barrier.line != line)
      fail("divergent-barrier", line, "other threads of the block wait at line %d", barrier.line);
    if (barrier.reduces != reduces || (reduces && barrier.reduction != reduction))
      fail("divergent-barrier", line, "barrier %u is used with another reduction at line %d", id,
           barrier.line);
  }
  uint64_t& came = barrier.came[fiber->warp];
  if (came >> fiber->lane & 1)
    fail("divergent-barrier", line,
         "the thread arrives at barrier %u again, and its first arrival still waits for others", id);
  came |= 1ull << fiber->lane;
  barrier.arrived.push(fiber);
  barrier.lines.push(line);
  if (waits)
    barrier.waiting.push(fiber);
  else
    sync_release(arrivals_key(barrier));
  if (count == all_threads && alive < fibers.size) report_exited(line);
  uint32_t needed = count == all_threads ? alive : uint32_t(count);
  if (barrier.arrived.size < needed) return false;
  release(barrier);
  return true;
}

void join_lanes(Collective& collective) {
  if (!launch.races) return;
  Fiber* who[max_lanes];
  uint32_t count = 0;
  for (uint32_t i = 0; i < collective.size; i++)
    if (collective.threads[i]) who[count++] = static_cast<Fiber*>(collective.threads[i]);
  join_threads(who, count);
}

void complete(Warp& warp, uint32_t index) {
  Rendezvous meeting = warp.rendezvous[index];
  warp.rendezvous[index] = warp.rendezvous[--warp.waiting];
  Collective collective;
  void* args[max_lanes];
  Thread* threads[max_lanes];
  collective.mask = meeting.mask;
  collective.first = uint32_t(&warp - warps.data) * launch.warp_size;
  collective.size = launch.warp_size;
  collective.args = args;
  collective.threads = threads;
  collective.line = meeting.line;
  for (uint32_t i = 0; i < launch.warp_size; i++) {
    bool part = meeting.mask >> i & 1;
    args[i] = part ? warp.args[i] : nullptr;
    threads[i] = part ? warp.lanes[i] : nullptr;
  }
  collectives_run++;
  progress();
  meeting.compute(collective);
  for (uint64_t left = meeting.mask; left; left &= left - 1) {
    Fiber* fiber = warp.lanes[__builtin_ctzll(left)];
    if (fiber->waits_for) make_runnable(fiber);
  }
}

}  // namespace

void barrier(unsigned id, int count, Aligned aligned, int line) {
  if (!arrive(id, count, aligned, line, true, false, Reduction::count))
    block_current(id ? "bar.sync" : "__syncthreads", line);
}

void barrier_arrive(unsigned id, int count, Aligned aligned, int line) {
  arrive(id, count, aligned, line, false, false, Reduction::count);
}

int barrier_reduce(unsigned id, int count, Reduction op, bool predicate, Aligned aligned, int line) {
  Fiber* fiber = self();
  fiber->predicate = predicate;
  if (!arrive(id, count, aligned, line, true, true, op)) block_current("bar.red", line);
  return fiber->reduced;
}

void sync_warp(uint64_t mask, int line) {
  warp_collective("__syncwarp", mask, nullptr, join_lanes, Aligned::none, line);
}

void warp_collective(const char* what, uint64_t mask, void* arg, Compute compute, Aligned aligned,
                     int line) {
  Fiber* fiber = self();
  Warp& warp = *fiber->home;
  uint64_t mine = 1ull << fiber->lane;
  mask &= warp.full;
  if (!(mask & mine))
    fail("divergent-collective", line, "%s: the calling lane is not in its own mask 0x%llx", what,
         static_cast<unsigned long long>(mask));
  if (aligned == Aligned::none)
    mask &= warp.alive;
  else if (mask & ~warp.alive)
    fail("divergent-collective", line, "%s: lanes 0x%llx have exited", what,
         static_cast<unsigned long long>(mask & ~warp.alive));
  warp.args[fiber->lane] = arg;
  for (uint32_t i = 0; i < warp.waiting; i++) {
    Rendezvous& meeting = warp.rendezvous[i];
    if (!(meeting.mask & mine)) continue;
    bool same_place = meeting.line == line || aligned == Aligned::none;
    if (meeting.compute != compute || !same_place)
      fail("divergent-collective", line,
           "the lane comes to %s while lanes 0x%llx of its warp wait for it in %s at line %d", what,
           static_cast<unsigned long long>(meeting.arrived), meeting.what, meeting.line);
    if (meeting.mask != mask)
      fail("divergent-collective", line, "%s: mask 0x%llx here and 0x%llx at line %d", what,
           static_cast<unsigned long long>(mask), static_cast<unsigned long long>(meeting.mask),
           meeting.line);
    meeting.arrived |= mine;
    if (meeting.arrived != meeting.mask) {
      block_current(what, line);
      return;
    }
    complete(warp, i);
    return;
  }
  warp.rendezvous[warp.waiting] = {mask, mine, what, compute, aligned, line};
  if (++warp.waiting && mask == mine) {
    complete(warp, warp.waiting - 1);
    return;
  }
  block_current(what, line);
}

void group_collective(const char* what, unsigned wanted, void* arg, Compute compute, int line) {
  Fiber* fiber = self();
  uint32_t size = wanted * launch.warp_size, number = fiber->linear / size, first = number * size;
  if (first + size > fibers.size)
    fail("divergent-collective", line, "%s needs %u whole warps; the block has threads up to %u", what,
         wanted, fibers.size);
  Group& group = groups[number];
  if (group.arrived && (group.compute != compute || group.line != line))
    fail("divergent-collective", line, "%s: other threads of the warpgroup wait at line %d", what,
         group.line);
  check_no_rendezvous(fiber, line);
  group.compute = compute;
  group.line = line;
  group.args[fiber->linear - first] = arg;
  if (++group.arrived < size) {
    block_current(what, line);
    return;
  }
  group.arrived = 0;
  for (uint32_t i = 0; i < size; i++) threads_of_group[i] = &fibers[first + i];
  Collective collective = {~0ull, first, size, group.args, threads_of_group, line};
  collectives_run++;
  progress();
  compute(collective);
  for (uint32_t i = 0; i < size; i++)
    if (fibers[first + i].waits_for) make_runnable(&fibers[first + i]);
}

Thread* act_as(Thread* who) {
  Thread* before = current;
  current = who;
  return before;
}

void reset_barriers() {
  for (Barrier& barrier : barriers) clear(barrier);
  for (Group& group : groups) group.arrived = 0;
}

// Whoever waits for a thread that has gone is told, or goes on without it.
void thread_exits(Fiber* fiber) {
  Warp& warp = *fiber->home;
  for (uint32_t i = 0; i < warp.waiting; i++) {
    Rendezvous& meeting = warp.rendezvous[i];
    if (!(meeting.mask >> fiber->lane & 1)) continue;
    if (meeting.aligned != Aligned::none)
      fail("divergent-collective", meeting.line, "%s: lane %u has exited without it", meeting.what,
           fiber->lane);
    meeting.mask &= ~(1ull << fiber->lane);
    if (meeting.mask == meeting.arrived) complete(warp, i);
    break;
  }
  for (Barrier& barrier : barriers) {
    if (barrier.arrived.empty() || barrier.want != all_threads) continue;
    report_exited(barrier.line);
    if (barrier.arrived.size == alive) release(barrier);
  }
}

}  // namespace tg
