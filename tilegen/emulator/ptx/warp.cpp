#include "warp.hpp"

namespace tg_ptx {

uint64_t ticks() {
  static uint64_t count = 0;
  return ++count;
}

namespace {

void check_mask(uint32_t mask, const char* what, int line) {
  if (!(mask >> tg::current->lane & 1))
    tg::fail("divergent-collective", line, "%s by lane %u, which its mask 0x%x does not name", what,
             tg::current->lane, mask);
}

struct ShuffleArgs {
  Shuffle mode;
  uint32_t a, b, c, out;
  bool in_range;
};

void shuffle(tg::Collective& warp) {
  uint32_t out[32];
  bool in_range[32];
  for (uint32_t lane = 0; lane < 32; lane++) {
    if (!warp.args[lane]) continue;
    const ShuffleArgs& args = *static_cast<ShuffleArgs*>(warp.args[lane]);
    const int b = int(args.b & 31), clamp = int(args.c & 31), segment = int(args.c >> 8 & 31);
    const int highest = (int(lane) & segment) | (clamp & ~segment), lowest = int(lane) & segment;
    int from = 0;
    bool ok = false;
    switch (args.mode) {
      case Shuffle::up: from = int(lane) - b; ok = from >= highest; break;
      case Shuffle::down: from = int(lane) + b; ok = from <= highest; break;
      case Shuffle::bfly: from = int(lane) ^ b; ok = from <= highest; break;
      case Shuffle::idx: from = lowest | (b & ~segment); ok = from <= highest; break;
    }
    if (!ok) from = int(lane);
    if (!warp.args[from]) {
      tg::act_as(warp.threads[lane]);
      tg::fail("inactive-lane", warp.line,
               "shfl.sync: lane %u reads lane %d, which takes no part", lane, from);
    }
    out[lane] = static_cast<ShuffleArgs*>(warp.args[from])->a;
    in_range[lane] = ok;
  }
  for (uint32_t lane = 0; lane < 32; lane++) {
    if (!warp.args[lane]) continue;
    static_cast<ShuffleArgs*>(warp.args[lane])->out = out[lane];
    static_cast<ShuffleArgs*>(warp.args[lane])->in_range = in_range[lane];
  }
}

// vote, match, redux and elect: every lane gives a value and gets one.
struct GatherArgs {
  uint64_t value;
  uint32_t out;
  bool flag;
};
GatherArgs& of(tg::Collective& warp, int lane) { return *static_cast<GatherArgs*>(warp.args[lane]); }
template <class F>
void each(tg::Collective& warp, F visit) {
  for (int lane = 0; lane < 32; lane++)
    if (warp.args[lane]) visit(lane, of(warp, lane));
}

template <Vote mode>
void vote_compute(tg::Collective& warp) {
  uint32_t ballot = 0, present = 0;
  each(warp, [&](int lane, GatherArgs& args) {
    present |= 1u << lane;
    ballot |= uint32_t(args.value) << lane;
  });
  const bool all = ballot == present, any = ballot != 0;
  const uint32_t out = mode == Vote::ballot ? ballot
                       : mode == Vote::all  ? all
                       : mode == Vote::any  ? any
                                            : all || !any;
  each(warp, [&](int, GatherArgs& args) { args.out = out; });
}
void match_compute(tg::Collective& warp) {
  each(warp, [&](int, GatherArgs& mine) {
    mine.out = 0;
    mine.flag = true;
    each(warp, [&](int lane, GatherArgs& other) {
      if (other.value == mine.value) mine.out |= 1u << lane;
      else mine.flag = false;
    });
  });
}
template <Reduce op>
void redux_compute(tg::Collective& warp) {
  bool first = true;
  uint32_t sum = 0;
  each(warp, [&](int, GatherArgs& args) {
    const uint32_t x = uint32_t(args.value);
    if (first) sum = x;
    else switch (op) {
      case Reduce::add: sum += x; break;
      case Reduce::min_s: sum = int32_t(x) < int32_t(sum) ? x : sum; break;
      case Reduce::max_s: sum = int32_t(x) > int32_t(sum) ? x : sum; break;
      case Reduce::min_u: sum = x < sum ? x : sum; break;
      case Reduce::max_u: sum = x > sum ? x : sum; break;
      case Reduce::and_: sum &= x; break;
      case Reduce::or_: sum |= x; break;
      case Reduce::xor_: sum ^= x; break;
    }
    first = false;
  });
  each(warp, [&](int, GatherArgs& args) { args.out = sum; });
}
void elect_compute(tg::Collective& warp) {
  int leader = -1;
  each(warp, [&](int lane, GatherArgs& args) {
    if (leader < 0) leader = lane;
    args.out = uint32_t(leader);
    args.flag = lane == leader;
  });
}

GatherArgs gather(const char* what, uint64_t value, uint32_t mask, tg::Compute compute, int line) {
  check_mask(mask, what, line);
  GatherArgs args{value, 0, false};
  tg::warp_collective(what, mask, &args, compute, tg::Aligned::none, line);
  return args;
}

constexpr tg::Compute votes[] = {vote_compute<Vote::all>, vote_compute<Vote::any>,
                                 vote_compute<Vote::uni>, vote_compute<Vote::ballot>};
constexpr tg::Compute reductions[] = {
    redux_compute<Reduce::add>,   redux_compute<Reduce::min_s>, redux_compute<Reduce::max_s>,
    redux_compute<Reduce::min_u>, redux_compute<Reduce::max_u>, redux_compute<Reduce::and_>,
    redux_compute<Reduce::or_>,   redux_compute<Reduce::xor_>};

}  // namespace

uint32_t shfl(Shuffle mode, uint32_t a, uint32_t b, uint32_t c, uint32_t mask, bool* in_range, int line) {
  check_mask(mask, "shfl.sync", line);
  ShuffleArgs args{mode, a, b, c, 0, false};
  tg::warp_collective("shfl.sync", mask, &args, shuffle, tg::Aligned::none, line);
  *in_range = args.in_range;
  return args.out;
}

uint32_t vote(Vote mode, bool predicate, uint32_t mask, int line) {
  return gather("vote.sync", predicate, mask, votes[int(mode)], line).out;
}

uint32_t match_any(uint64_t value, uint32_t mask, int line) {
  return gather("match.any.sync", value, mask, match_compute, line).out;
}

uint32_t match_all(uint64_t value, uint32_t mask, bool* all, int line) {
  const GatherArgs args = gather("match.all.sync", value, mask, match_compute, line);
  *all = args.flag;
  return args.flag ? args.out : 0;
}

uint32_t redux(Reduce op, uint32_t value, uint32_t mask, int line) {
  return gather("redux.sync", value, mask, reductions[int(op)], line).out;
}

uint32_t elect(uint32_t mask, bool* elected, int line) {
  const GatherArgs args = gather("elect.sync", 0, mask, elect_compute, line);
  *elected = args.flag;
  return args.out;
}

// ---- barriers ----------------------------------------------------------------------------------

namespace {

int checked_count(bool all, uint32_t count, const char* what, int line) {
  if (all) return tg::all_threads;
  if (count == 0 || count % tg::launch.warp_size)
    tg::fail("bad-barrier", line, "%s: a count of %u is no multiple of the warp's %u threads", what, count,
             tg::launch.warp_size);
  return int(count);
}

tg::Aligned promise(bool aligned) { return aligned ? tg::Aligned::warp : tg::Aligned::none; }

struct ClusterBarrier {
  uint32_t arrived, phase;
  uint32_t joined[1024];  // by thread: the phase that it last arrived in
} cluster;
constexpr uint64_t cluster_key = 3;  // no shared address and no pointer is that small

void cluster_begin() { cluster = {}; }
void cluster_end() {}
__attribute__((constructor)) void register_cluster() { tg::on_block(cluster_begin, cluster_end); }

bool cluster_passed(void* phase) { return cluster.phase != *static_cast<uint32_t*>(phase); }

}  // namespace

void bar_sync(uint32_t id, bool all, uint32_t count, bool aligned, int line) {
  tg::barrier(id, checked_count(all, count, "bar.sync", line), promise(aligned), line);
}

void bar_arrive(uint32_t id, uint32_t count, bool aligned, int line) {
  tg::barrier_arrive(id, checked_count(false, count, "bar.arrive", line), promise(aligned), line);
}

uint32_t bar_red(tg::Reduction op, uint32_t id, bool all, uint32_t count, bool predicate, bool aligned,
                 int line) {
  const int threads = checked_count(all, count, "bar.red", line);
  return uint32_t(tg::barrier_reduce(id, threads, op, predicate, promise(aligned), line));
}

void cluster_arrive(bool relaxed, int) {
  if (!relaxed) tg::sync_release(cluster_key);
  cluster.joined[tg::current->linear] = cluster.phase;
  if (++cluster.arrived == tg::launch.threads) {
    cluster.arrived = 0;
    cluster.phase++;
    tg::notify(cluster_key);
  }
}

void cluster_wait(int line) {
  uint32_t* joined = &cluster.joined[tg::current->linear];
  tg::wait_until(cluster_key, cluster_passed, joined, "barrier.cluster.wait", line);
  tg::sync_acquire(cluster_key);
}

}  // namespace tg_ptx
