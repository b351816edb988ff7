// mbarrier objects. Their state lies here; shared memory holds a word that shows whether it is still
// the object that init left there.
#include "tg_array.hpp"
#include "async.hpp"

namespace tg_ptx {

namespace {

struct Barrier {
  uint32_t address, expected, pending;
  int64_t bytes;   // transactions still to come
  uint32_t phase;  // phases completed so far
  uint32_t maker;  // the thread that ran init
  bool fenced;     // by a fence.mbarrier_init of that thread
};
tg::Array<Barrier> barriers;

void forget_barriers() { barriers.clear(); }
void nothing() {}
__attribute__((constructor)) void register_barriers() { tg::on_block(forget_barriers, nothing); }

constexpr uint64_t mark = 0x6d62617272696572ull;
constexpr int64_t most_bytes = (1 << 20) - 1;
constexpr uint32_t most_arrivals = (1u << 20) - 1;

// What has arrived is known to those who wait once its phase is complete: until then it is kept apart.
uint64_t completed_key(uint32_t address) { return uint64_t(address) + 1; }

uint64_t word_of(uint32_t address) { return mark ^ address; }

Barrier* find(uint32_t address) {
  for (Barrier& barrier : barriers)
    if (barrier.address == address) return &barrier;
  return nullptr;
}

Barrier& at(uint32_t address, const char* what, int line) {
  void* place = tg::shared_access(address, 8, 8, tg::Access::atomic, what, line);
  Barrier* barrier = find(address);
  if (!barrier)
    tg::fail("bad-mbarrier", line, "%s: there is no mbarrier at shared address 0x%x (no init before it)",
             what, address);
  uint64_t word;
  memcpy(&word, place, 8);
  if (word != word_of(address))
    tg::fail("bad-mbarrier", line, "%s: the mbarrier at shared address 0x%x was overwritten", what, address);
  // To the race detector only init writes: whoever uses the object must be ordered after that.
  if (tg::current) tg::note_read(place, 8, line);
  return *barrier;
}

// Completes the phase if nothing is missing. Inside it a count of zero cannot be: init refuses it.
void settle(Barrier& barrier) {
  if (barrier.pending || barrier.bytes) return;
  barrier.phase++;
  barrier.pending = barrier.expected;
  tg::sync_pass(barrier.address, completed_key(barrier.address));
  tg::notify(barrier.address);
  tg::progress();
}

void change_bytes(Barrier& barrier, int64_t change, const char* what, int line) {
  barrier.bytes += change;
  if (barrier.bytes > most_bytes || barrier.bytes < -most_bytes)
    tg::fail("bad-mbarrier", line, "%s: %lld bytes pending at the mbarrier at 0x%x, the limit is %lld", what,
             static_cast<long long>(barrier.bytes), barrier.address, static_cast<long long>(most_bytes));
}

void arrive(Barrier& barrier, uint32_t count, const char* what, int line) {
  if (count > barrier.pending)
    tg::fail("bad-mbarrier", line, "%s: %u arrivals at the mbarrier at 0x%x, which waits for %u of %u", what,
             count, barrier.address, barrier.pending, barrier.expected);
  barrier.pending -= count;
  settle(barrier);
}

struct Deferred {
  uint32_t address;
  int line;
};
void arrive_later(void* arg) {
  const Deferred later = *static_cast<Deferred*>(arg);
  free(arg);
  Barrier& barrier = at(later.address, "cp.async.mbarrier.arrive", later.line);
  tg::sync_release(later.address);
  arrive(barrier, 1, "cp.async.mbarrier.arrive", later.line);
}

struct Wait {
  uint32_t address, phase;  // the phase's number, or its parity
  bool parity;
};
bool completed(void* arg) {
  const Wait& wait = *static_cast<Wait*>(arg);
  const Barrier* barrier = find(wait.address);
  if (!barrier) return true;
  return wait.parity ? (barrier->phase & 1) != (wait.phase & 1) : barrier->phase != wait.phase;
}

}  // namespace

// The async proxy completes transactions of an object that init made through the generic one (CUDA
// programming guide, "Asynchronous data copies using the Tensor Memory Accelerator": a fence makes the
// new barrier visible to the async proxy).
void mbarrier_meets_engine(uint32_t address, int line) {
  if (at(address, "mbarrier", line).fenced) return;
  tg::note_async_read(tg::shared_pointer(address), 8, line);
}

void mbarrier_init_fence() {
  for (Barrier& barrier : barriers) barrier.fenced |= barrier.maker == tg::current->linear;
}

void mbarrier_init(uint64_t where, uint32_t count, int line) {
  const uint32_t address = shared32(where, line);
  void* place = tg::shared_access(address, 8, 8, tg::Access::write, "mbarrier.init", line);
  if (count == 0 || count > most_arrivals)
    tg::fail("bad-mbarrier", line, "mbarrier.init: a count of %u, must be 1 to %u", count, most_arrivals);
  if (find(address))
    tg::fail("bad-mbarrier", line, "mbarrier.init: there is an mbarrier at 0x%x already", address);
  barriers.push(Barrier{address, count, count, 0, 0, tg::current->linear, false});
  const uint64_t word = word_of(address);
  memcpy(place, &word, 8);
  tg::note_write(place, 8, line);
}

void mbarrier_inval(uint64_t where, int line) {
  const uint32_t address = shared32(where, line);
  Barrier& barrier = at(address, "mbarrier.inval", line);
  barriers.erase(uint32_t(&barrier - barriers.begin()), 1);
  tg::sync_forget(address);
  tg::sync_forget(completed_key(address));
}

void mbarrier_expect_tx(uint64_t where, uint32_t bytes, int line) {
  change_bytes(at(shared32(where, line), "mbarrier.expect_tx", line), bytes, "mbarrier.expect_tx", line);
}

void mbarrier_complete_tx(uint64_t where, uint32_t bytes, int line) {
  const uint32_t address = shared32(where, line);
  Barrier& barrier = at(address, "complete_tx", line);
  tg::sync_release(address);
  change_bytes(barrier, -int64_t(bytes), "complete_tx", line);
  settle(barrier);
}

uint64_t mbarrier_arrive(uint64_t where, uint32_t count, uint32_t bytes, bool drop, int line) {
  const uint32_t address = shared32(where, line);
  Barrier& barrier = at(address, "mbarrier.arrive", line);
  tg::sync_release(address);
  const uint64_t state = uint64_t(barrier.pending) << 32 | barrier.phase;
  if (bytes) change_bytes(barrier, bytes, "mbarrier.arrive.expect_tx", line);
  if (drop) {
    if (count > barrier.expected)
      tg::fail("bad-mbarrier", line, "mbarrier.arrive_drop: %u of %u", count, barrier.expected);
    barrier.expected -= count;
  }
  arrive(barrier, count, "mbarrier.arrive", line);
  return state;
}

uint32_t mbarrier_pending_count(uint64_t state) { return uint32_t(state >> 32); }

bool mbarrier_wait(uint64_t where, uint64_t state, bool parity, bool may_block, int line) {
  const char* what = may_block ? "mbarrier.try_wait" : "mbarrier.test_wait";
  const uint32_t address = shared32(where, line);
  at(address, what, line);
  Wait wait{address, uint32_t(state), parity};
  if (may_block) {
    tg::wait_until(address, completed, &wait, what, line);
  } else if (!completed(&wait)) {
    tg::polled(what, line);
    if (!completed(&wait)) return false;
  }
  tg::sync_acquire(completed_key(address));
  return true;
}

void cp_async_mbarrier_arrive(uint64_t where, bool no_increment, int line) {
  const uint32_t address = shared32(where, line);
  Barrier& barrier = at(address, "cp.async.mbarrier.arrive", line);
  if (!no_increment) barrier.pending++;
  Deferred* later = static_cast<Deferred*>(malloc(sizeof(Deferred)));
  *later = {address, line};
  tg::async_when_complete(arrive_later, later, line);
}

}  // namespace tg_ptx
