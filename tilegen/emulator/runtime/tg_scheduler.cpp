// Which thread runs: a fiber keeps the processor until it blocks, then the next one is picked.
//
// Order 0 tries warps and lanes forwards, order 1 backwards. Seeded orders are skewed: warps stand in
// a random order, reshuffled at each barrier, and the first that can run runs as far as it can. A
// uniform choice at each switch would keep the warps in step and miss what a fast warp can overtake.
#include <stdio.h>
#include <sys/mman.h>

#include "tg_internal.hpp"

namespace tg {

Thread* current;
Dim3 block_index;
Launch launch;
Array<Fiber> fibers;
Array<Warp> warps;
uint32_t alive;
uint64_t switches;

namespace {

constexpr size_t stack_bytes = 256 * 1024, guard_bytes = 4096;
uint8_t* stacks;
size_t stacks_size;
void (*kernel_of_block)();

Warp* order[max_threads];   // warps in the order in which they are tried
uint64_t can_run[max_threads / 64];  // one bit for each place in that order
uint32_t can_run_words;

uint64_t random_state;
uint32_t idle_polls;  // rounds of polling since something last changed

void mark(Warp& warp) {
  uint64_t bit = 1ull << (warp.position % 64);
  if (warp.runnable)
    can_run[warp.position / 64] |= bit;
  else
    can_run[warp.position / 64] &= ~bit;
}

Warp* first_runnable_warp() {
  for (uint32_t i = 0; i < can_run_words; i++)
    if (can_run[i]) return order[i * 64 + __builtin_ctzll(can_run[i])];
  return nullptr;
}

Fiber* pick_lane(const Warp& warp) {
  uint64_t lanes = warp.runnable;
  if (job->order == 0) return warp.lanes[__builtin_ctzll(lanes)];
  if (job->order == 1) return warp.lanes[63 - __builtin_clzll(lanes)];
  uint32_t turn = random_bits() & 63;
  uint64_t turned = (lanes >> turn) | (turn ? lanes << (64 - turn) : 0);
  return warp.lanes[(__builtin_ctzll(turned) + turn) & 63];
}

// The lane behind the one that ran last for a poller: two pollers of a warp would else only ever pass
// the turn to each other.
Fiber* next_lane(Warp& warp) {
  uint32_t turn = (warp.after_poll + 1) & 63;
  uint64_t turned = (warp.runnable >> turn) | (turn ? warp.runnable << (64 - turn) : 0);
  warp.after_poll = (__builtin_ctzll(turned) + turn) & 63;
  return warp.lanes[warp.after_poll];
}

Fiber* pick() {
  Warp* warp = first_runnable_warp();
  return warp ? pick_lane(*warp) : nullptr;
}

// Whoever waits for a condition is asked again: conditions may hold without a notify().
bool recheck_all() {
  bool found = false;
  for (Fiber& fiber : fibers) {
    if (fiber.exited || !fiber.ready || !fiber.ready(fiber.ready_arg)) continue;
    make_runnable(&fiber);
    found = true;
  }
  return found;
}

[[noreturn]] void report_deadlock() {
  char text[480];
  size_t used = 0;
  int line = 0;
  const Fiber* first = nullptr;
  for (uint32_t i = 0, groups = 0; i < fibers.size && groups < 8; groups++) {
    const Fiber& fiber = fibers[i];
    uint32_t last = i;
    while (last + 1 < fibers.size && fibers[last + 1].exited == fiber.exited &&
           (fiber.exited || (fibers[last + 1].wait_line == fiber.wait_line &&
                             fibers[last + 1].waits_for == fiber.waits_for)))
      last++;
    const char* separator = used ? "; " : "";
    int n;
    if (fiber.exited) {
      n = snprintf(text + used, sizeof text - used, "%sthreads %u-%u have exited", separator, i, last);
    } else {
      if (!first) first = &fiber, line = fiber.wait_line;
      n = snprintf(text + used, sizeof text - used, "%sthreads %u-%u wait at %s, line %d", separator,
                   i, last, fiber.waits_for ? fiber.waits_for : "nothing", fiber.wait_line);
    }
    used += n > 0 ? size_t(n) : 0;
    if (used >= sizeof text) break;
    i = last + 1;
  }
  current = const_cast<Fiber*>(first);
  fail("deadlock", line, "nobody can go on: %s", text);
}

// Finds the next fiber and switches to it; comes back when `from` is picked again.
void run_next(Fiber* from) {
  if (job->order >= 2 && (random_bits() & 15) == 0) engine_step();
  Fiber* next = pick();
  while (!next && (engine_step() || complete_watched() || recheck_all())) next = pick();
  if (!next) report_deadlock();
  current = next;
  if (next == from) return;
  switches++;
  switch_to(from, next);
}

void fiber_main() {
  kernel_of_block();
  Fiber* fiber = self();
  check_copies(fiber);
  fiber->exited = true;
  fiber->home->runnable &= ~(1ull << fiber->lane);
  fiber->home->alive &= ~(1ull << fiber->lane);
  mark(*fiber->home);
  alive--;
  progress();
  thread_exits(fiber);
  if (alive == 0) {
    check_async_end();
    while (engine_step()) {
    }
    current = nullptr;
    switch_to(fiber, nullptr);
  }
  run_next(fiber);
  __builtin_unreachable();
}

}  // namespace

uint32_t random_bits() {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return uint32_t(random_state >> 11);
}

bool in_stacks(const void* p) {
  return size_t(static_cast<const uint8_t*>(p) - stacks) < stacks_size;
}

// In them, or just below the first one, where it runs over.
bool near_stacks(const void* p) {
  return in_stacks(p) || size_t(stacks - static_cast<const uint8_t*>(p)) < stack_bytes;
}

void make_runnable(Fiber* fiber) {
  fiber->waits_for = nullptr;
  fiber->ready = nullptr;
  fiber->home->runnable |= 1ull << fiber->lane;
  mark(*fiber->home);
}

void block_current(const char* what, int line) {
  Fiber* fiber = self();
  fiber->waits_for = what;
  fiber->wait_line = line;
  fiber->home->runnable &= ~(1ull << fiber->lane);
  mark(*fiber->home);
  run_next(fiber);
}

void wait_until(uint64_t key, bool (*ready)(void*), void* arg, const char* what, int line) {
  while (!ready(arg)) {
    Fiber* fiber = self();
    fiber->wait_key = key;
    fiber->ready = ready;
    fiber->ready_arg = arg;
    block_current(what, line);
  }
}

void notify(uint64_t key) {
  progress();
  for (Fiber& fiber : fibers)
    if (fiber.ready && fiber.wait_key == key && fiber.ready(fiber.ready_arg)) make_runnable(&fiber);
}

void progress() { idle_polls = 0; }

void polled(const char* what, int line) {
  Fiber* fiber = self();
  fiber->wait_line = line;
  if (++idle_polls > 64 * fibers.size + 1024) {
    bool moved = engine_step() || complete_watched();
    if (!moved && idle_polls > 256 * fibers.size + 8192) {
      for (Fiber& other : fibers)
        if (!other.exited && !other.waits_for) other.waits_for = what;
      report_deadlock();
    }
  }
  // Stays runnable, but behind everybody else: round robin, so that a poller starves nobody.
  static uint32_t turn;
  uint64_t bit = 1ull << fiber->lane;
  fiber->home->runnable &= ~bit;
  Fiber* next = nullptr;
  for (uint32_t i = 0; i < warps.size && !next; i++) {
    turn = (turn + 1) % warps.size;
    if (warps[turn].runnable) next = next_lane(warps[turn]);
  }
  fiber->home->runnable |= bit;
  mark(*fiber->home);
  if (!next) {
    if (!engine_step()) complete_watched();
    return;
  }
  switches++;
  current = next;
  switch_to(fiber, next);
}

void shuffle_warps() {
  if (job->order >= 2) {
    for (uint32_t i = warps.size - 1; i > 0; i--) {
      uint32_t other = random_bits() % (i + 1);
      Warp* held = order[i];
      order[i] = order[other];
      order[other] = held;
    }
  }
  for (uint32_t i = 0; i < warps.size; i++) {
    order[i]->position = i;
    mark(*order[i]);
  }
}

void make_threads() {
  random_state = 0x9E3779B97F4A7C15ull * (job->order + 1) + 12345;
  uint32_t count = launch.threads, lanes = launch.warp_size;
  fibers.assign_zero(count);
  warps.assign_zero((count + lanes - 1) / lanes);
  can_run_words = (warps.size + 63) / 64;
  for (uint32_t i = 0; i < count; i++) {
    Fiber& fiber = fibers[i];
    fiber.linear = i;
    fiber.lane = i % lanes;
    fiber.warp = i / lanes;
    fiber.home = &warps[fiber.warp];
    fiber.index = {i % launch.block.x, i / launch.block.x % launch.block.y,
                   i / launch.block.x / launch.block.y};
    fiber.home->lanes[fiber.lane] = &fiber;
    fiber.home->full |= 1ull << fiber.lane;
  }
  for (uint32_t i = 0; i < warps.size; i++)
    order[i] = &warps[job->order == 1 ? warps.size - 1 - i : i];
  stacks_size = count * stack_bytes;
  stacks = static_cast<uint8_t*>(mmap(nullptr, stacks_size, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (stacks == MAP_FAILED) fail("crash", 0, "no memory for the stacks of %u threads", count);
  for (uint32_t i = 0; i < count; i++) mprotect(stacks + i * stack_bytes, guard_bytes, PROT_NONE);
}

void run_block(Dim3 index, void (*kernel)()) {
  block_index = index;
  kernel_of_block = kernel;
  alive = fibers.size;
  progress();
  for (Warp& warp : warps) {
    warp.alive = warp.runnable = warp.full;
    warp.waiting = 0;
  }
  for (Fiber& fiber : fibers) {
    fiber.exited = false;
    fiber.waits_for = nullptr;
    fiber.ready = nullptr;
    fiber.wait_line = 0;
    // Stacks begin at different places of their pages, or all would want the same cache lines.
    size_t shift = fiber.linear * 192 % guard_bytes;
    prepare(&fiber, stacks + fiber.linear * stack_bytes + guard_bytes,
            stack_bytes - guard_bytes - shift, fiber_main);
  }
  shuffle_warps();
  run_next(nullptr);
}

}  // namespace tg
