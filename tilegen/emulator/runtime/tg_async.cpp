// Asynchronous work: cp.async of each thread, and jobs of the engine that moves tensors.
#include "tg_races.hpp"

namespace tg {
namespace {

struct EngineJob {
  const char* what;
  void (*run)(void*);
  void* arg;
  bool must_finish;
  int line;
  Engine engine;
};
Array<EngineJob> jobs;

void copy_now(Copy& copy) {
  if (copy.copied) return;
  memcpy(copy.to, copy.from, copy.from_bytes);
  memset(copy.to + copy.from_bytes, 0, copy.bytes - copy.from_bytes);
  copy.copied = true;
}

// The first `count` copies of the fiber have completed.
void retire(Fiber* fiber, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    copy_now(fiber->copies[i]);
    note_pending_end(fiber->copies[i].to, fiber->copies[i].bytes);
  }
  fiber->copies.erase(0, count);
  uint32_t kept = 0;
  for (uint32_t end : fiber->groups)
    if (end > count) fiber->groups[kept++] = end - count;
    else if (end == 0 || end <= count) continue;
  fiber->groups.size = kept;
  kept = 0;
  for (WhenComplete watcher : fiber->watchers) {
    watcher.after = watcher.after > count ? watcher.after - count : 0;
    if (watcher.after)
      fiber->watchers[kept++] = watcher;
    else
      watcher.done(watcher.arg);
  }
  fiber->watchers.size = kept;
}

}  // namespace

void async_copy(uint32_t shared, const void* global, uint32_t bytes, uint32_t src_bytes, int line) {
  uint8_t* to = static_cast<uint8_t*>(
      shared_access(shared, bytes, bytes, Access::write, "cp.async", line));
  const uint8_t* from = static_cast<const uint8_t*>(global);
  if (src_bytes > bytes)
    fail("bad-argument", line, "cp.async: src-size %u is more than cp-size %u", src_bytes, bytes);
  if (src_bytes) {
    if (reinterpret_cast<uintptr_t>(from) % bytes)
      fail("misaligned", line, "cp.async: the source is no multiple of %u", bytes);
    global_access(from, src_bytes, 1, Access::read, "cp.async", line);
    note_read(from, src_bytes, line);
  }
  if (launch.banks) lane_copy(to, bytes, from, src_bytes, site_of(line, nullptr));
  note_pending_begin(to, bytes, line);
  Copy copy = {to, from, bytes, src_bytes, false};
  // Seeded orders let each copy arrive early or late; what its reader sees before the wait is poison.
  bool late = launch.delayed && (job->order < 2 || random_bits() & 1);
  if (late)
    memset(to, 0xFF, bytes);
  else
    copy_now(copy);
  self()->copies.push(copy);
}

void async_commit_group() { self()->groups.push(self()->copies.size); }

void async_wait_group(uint32_t n) {
  Fiber* fiber = self();
  if (fiber->groups.size <= n) return;
  uint32_t complete = fiber->groups.size - n;
  uint32_t count = fiber->groups[complete - 1];
  fiber->groups.erase(0, complete);
  retire(fiber, count);
}

void async_wait_all() { 
  Fiber* fiber = self();
  fiber->groups.clear();
  retire(fiber, fiber->copies.size);
}

void async_when_complete(void (*done)(void*), void* arg, int) {
  Fiber* fiber = self();
  if (fiber->copies.empty())
    done(arg);
  else
    fiber->watchers.push({done, arg, fiber->copies.size});
}

bool complete_watched() {
  for (Fiber& fiber : fibers) {
    if (fiber.watchers.empty()) continue;
    Thread* before = act_as(&fiber);
    uint32_t count = fiber.watchers[0].after;
    retire(&fiber, count);
    act_as(before);
    return true;
  }
  return false;
}

void check_copies(Fiber* fiber) {
  if (!fiber->watchers.empty()) retire(fiber, fiber->watchers[fiber->watchers.size - 1].after);
  if (!fiber->copies.empty())
    report("async-in-flight", 0, "the thread ends with %u cp.async in flight: no wait for them",
           fiber->copies.size);
  fiber->copies.clear();
  fiber->groups.clear();
}

void engine_submit(const char* what, void (*run)(void*), void* arg, bool must_finish, int line) {
  EngineJob submitted = {};
  submitted.what = what;
  submitted.run = run;
  submitted.arg = arg;
  submitted.must_finish = must_finish;
  submitted.line = line;
  submitted.engine.as = *current;
  engine_snapshot(submitted.engine);
  jobs.push(submitted);
  if (!launch.delayed)
    while (engine_step()) {
    }
}

bool engine_step() {
  if (jobs.empty()) return false;
  // Tensor copies may overtake each other.
  uint32_t which = job->order >= 2 && (random_bits() & 1) ? random_bits() % jobs.size : 0;
  EngineJob next = jobs[which];
  jobs.erase(which, 1);
  Thread* before = act_as(&next.engine.as);
  engine_begin(next.engine);
  next.run(next.arg);
  engine_end();
  act_as(before);
  return true;
}

void check_async_end() {
  for (EngineJob& left : jobs)
    if (left.must_finish)
      report("async-in-flight", left.line, "the block ends while %s is in flight", left.what);
}

void reset_async() { jobs.clear(); }

}  // namespace tg
