// CUDA's warp functions: shuffles, votes, matches and reductions.
#pragma once

struct tg_shuffle {
  const void* value;
  void* result;
  unsigned bytes;
  int mode, by, width;  // mode 0 index, 1 up, 2 down, 3 xor
};

TG_DEVICE void tg_shuffle_all(tg::Collective& all) {
  // Results go to other variables than values, so the order of the lanes does not matter.
  for (unsigned lane = 0; lane < all.size; lane++) {
    if (!all.args[lane]) continue;
    tg_shuffle& mine = *static_cast<tg_shuffle*>(all.args[lane]);
    int first = int(lane) / mine.width * mine.width, last = first + mine.width - 1;
    int from = mine.mode == 0   ? first + (mine.by & (mine.width - 1))
               : mine.mode == 1 ? int(lane) - mine.by
               : mine.mode == 2 ? int(lane) + mine.by
                                : int(lane) ^ mine.by;
    bool outside = mine.mode == 1 ? from < first : from > last;
    if (outside) from = int(lane);
    if (from < 0 || from >= int(all.size) || !all.args[from]) {
      tg::Thread* before = tg::act_as(all.threads[lane]);
      tg::report("inactive-lane", all.line, "shuffle from lane %d, which takes no part", from);
      tg::act_as(before);
      __builtin_memset(mine.result, 0xFF, mine.bytes);
      continue;
    }
    __builtin_memcpy(mine.result, static_cast<tg_shuffle*>(all.args[from])->value, mine.bytes);
  }
}

template <class T>
TG_DEVICE T tg_shuffled(const char* what, unsigned mask, T value, int mode, int by, int width,
                        int line) {
  if (width < 1 || width > 32 || (width & (width - 1)))
    tg::fail("bad-argument", line, "%s: width %d is no power of two up to 32", what, width);
  T result;
  tg_shuffle mine = {&value, &result, sizeof(T), mode, by, width};
  tg::warp_collective(what, mask, &mine, tg_shuffle_all, tg::Aligned::none, line);
  return result;
}
template <class T>
TG_DEVICE T __shfl_sync(unsigned mask, T value, int from, int width = 32, TG_LINE) {
  return tg_shuffled("__shfl_sync", mask, value, 0, from, width, line);
}
template <class T>
TG_DEVICE T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32, TG_LINE) {
  return tg_shuffled("__shfl_up_sync", mask, value, 1, int(by), width, line);
}
template <class T>
TG_DEVICE T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32, TG_LINE) {
  return tg_shuffled("__shfl_down_sync", mask, value, 2, int(by), width, line);
}
template <class T>
TG_DEVICE T __shfl_xor_sync(unsigned mask, T value, int by, int width = 32, TG_LINE) {
  return tg_shuffled("__shfl_xor_sync", mask, value, 3, by, width, line);
}

struct tg_vote {
  bool predicate;
  unsigned ballot;
};
TG_DEVICE void tg_vote_all(tg::Collective& all) {
  unsigned ballot = 0;
  for (unsigned lane = 0; lane < all.size; lane++)
    if (all.args[lane] && static_cast<tg_vote*>(all.args[lane])->predicate) ballot |= 1u << lane;
  for (unsigned lane = 0; lane < all.size; lane++)
    if (all.args[lane]) static_cast<tg_vote*>(all.args[lane])->ballot = ballot;
}
TG_DEVICE unsigned __ballot_sync(unsigned mask, int predicate, TG_LINE) {
  tg_vote mine = {predicate != 0, 0};
  tg::warp_collective("__ballot_sync", mask, &mine, tg_vote_all, tg::Aligned::none, line);
  return mine.ballot;
}
TG_DEVICE int __any_sync(unsigned mask, int predicate, TG_LINE) {
  return __ballot_sync(mask, predicate, line) != 0;
}
TG_DEVICE int __all_sync(unsigned mask, int predicate, TG_LINE) {
  return __ballot_sync(mask, !predicate, line) == 0;
}
// Which lanes run together is up to the hardware; alone is always a possible answer.
TG_DEVICE unsigned __activemask() { return 1u << tg::current->lane; }

struct tg_match {
  const void* value;
  unsigned bytes, mask;
};
TG_DEVICE void tg_match_all(tg::Collective& all) {
  for (unsigned lane = 0; lane < all.size; lane++) {
    if (!all.args[lane]) continue;
    tg_match& mine = *static_cast<tg_match*>(all.args[lane]);
    mine.mask = 0;
    for (unsigned other = 0; other < all.size; other++)
      if (all.args[other] && !__builtin_memcmp(static_cast<tg_match*>(all.args[other])->value,
                                               mine.value, mine.bytes))
        mine.mask |= 1u << other;
  }
}
template <class T>
TG_DEVICE unsigned __match_any_sync(unsigned mask, T value, TG_LINE) {
  tg_match mine = {&value, sizeof(T), 0};
  tg::warp_collective("__match_any_sync", mask, &mine, tg_match_all, tg::Aligned::none, line);
  return mine.mask;
}

template <class T>
struct tg_reduction {
  T value;
  int op;
};
template <class T>
TG_DEVICE void tg_reduce_all(tg::Collective& all) {
  bool first = true;
  T result = 0;
  for (unsigned lane = 0; lane < all.size; lane++) {
    if (!all.args[lane]) continue;
    const tg_reduction<T>& one = *static_cast<tg_reduction<T>*>(all.args[lane]);
    T v = one.value;
    result = first          ? v
             : one.op == 0 ? T(result + v)
             : one.op == 1 ? (v < result ? v : result)
             : one.op == 2 ? (result < v ? v : result)
             : one.op == 3 ? T(result & v)
             : one.op == 4 ? T(result | v)
                           : T(result ^ v);
    first = false;
  }
  for (unsigned lane = 0; lane < all.size; lane++)
    if (all.args[lane]) static_cast<tg_reduction<T>*>(all.args[lane])->value = result;
}
#define TG_REDUCE(name, type, op)                                                           \
  TG_DEVICE type name(unsigned mask, type value, TG_LINE) {                                 \
    tg_reduction<type> mine = {value, op};                                                  \
    tg::warp_collective(#name, mask, &mine, tg_reduce_all<type>, tg::Aligned::none, line);   \
    return mine.value;                                                                      \
  }
TG_REDUCE(__reduce_add_sync, unsigned, 0)
TG_REDUCE(__reduce_add_sync, int, 0)
TG_REDUCE(__reduce_min_sync, unsigned, 1)
TG_REDUCE(__reduce_min_sync, int, 1)
TG_REDUCE(__reduce_max_sync, unsigned, 2)
TG_REDUCE(__reduce_max_sync, int, 2)
TG_REDUCE(__reduce_and_sync, unsigned, 3)
TG_REDUCE(__reduce_or_sync, unsigned, 4)
TG_REDUCE(__reduce_xor_sync, unsigned, 5)
