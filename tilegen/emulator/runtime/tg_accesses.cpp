// What warps ask of memory: of instructions that say which lanes go together, and of plain accesses, whose
// lanes run one after another here and are put together again by what they did since they last met.
#include "tg_races.hpp"

namespace tg {

Array<AccessSite> access_sites;
uint64_t stretches, parted;

namespace {

constexpr uint32_t banks = 32;
// What global memory moves at least (CUDA C++ Best Practices Guide, Coalesced Access to Global Memory).
constexpr uint64_t sector = 32;

// One access of one lane; `place` is its site, kind and argument.
struct Origin {
  uint32_t site, kind, argument;
  bool operator==(const Origin& b) const {
    return site == b.site && kind == b.kind && argument == b.argument;
  }
};
struct LaneAccess {
  Origin place;
  uint64_t address;
  uint32_t bytes, lane, order;
};
Array<LaneAccess> seen[max_threads];  // by thread
Array<LaneAccess> mixed;

AccessSite& record_of(const Origin& place) {
  static uint32_t last;
  auto is = [&](const AccessSite& s) { return Origin{s.site, s.kind, s.argument} == place; };
  if (last < access_sites.size && is(access_sites[last])) return access_sites[last];
  for (last = 0; last < access_sites.size; last++)
    if (is(access_sites[last])) return access_sites[last];
  AccessSite fresh = {};
  fresh.site = place.site;
  fresh.kind = place.kind;
  fresh.argument = place.argument;
  fresh.low = ~uint64_t(0);
  return access_sites.push(fresh);
}

// The lanes of one phase ask for words of the banks; each bank serves one word at a time.
uint32_t extra_cycles(const uint32_t* addresses, uint32_t n, uint32_t bytes) {
  uint32_t words[banks][banks];
  uint8_t used[banks] = {};
  uint32_t worst = 1;
  for (uint32_t i = 0; i < n; i++) {
    for (uint32_t b = 0; b < (bytes < 4 ? 4 : bytes); b += 4) {
      uint32_t word = (addresses[i] + b) / 4, bank = word % banks;
      bool known = false;
      for (uint32_t k = 0; k < used[bank] && !known; k++) known = words[bank][k] == word;
      if (known || used[bank] == banks) continue;
      words[bank][used[bank]++] = word;
      if (used[bank] > worst) worst = used[bank];
    }
  }
  return worst - 1;
}

void count_phase(AccessSite& record, const uint32_t* addresses, uint32_t n, uint32_t bytes) {
  record.served++;
  record.extra += extra_cycles(addresses, n, bytes);
  record.bytes += uint64_t(n) * bytes;
  for (uint32_t i = 0; i < n; i++) {
    uint64_t from = addresses[i] - shared_base;
    if (from < record.low) record.low = from;
    if (from + bytes > record.high) record.high = from + bytes;
  }
}

// Global memory moves the sectors that hold any byte; the fewest are those of as many bytes in a row.
void count_sectors(AccessSite& record, const LaneAccess* accesses, uint32_t n) {
  uint64_t from[max_lanes], bytes = accesses[0].bytes;
  for (uint32_t i = 0; i < n; i++) {
    uint32_t at = i;
    for (; at && from[at - 1] > accesses[i].address; at--) from[at] = from[at - 1];
    from[at] = accesses[i].address;
  }
  uint64_t held = 0, touched = 0, end = 0, next = 0;  // bytes, sectors; the first of each not yet counted
  for (uint32_t i = 0; i < n; i++) {
    uint64_t to = from[i] + bytes, first = from[i] / sector, last = (to - 1) / sector;
    if (to > end) held += to - (from[i] > end ? from[i] : end);
    if (to > end) end = to;
    if (last >= next) touched += last + 1 - (first > next ? first : next);
    if (last >= next) next = last + 1;
  }
  record.bytes += n * bytes;
  record.served += touched;
  record.extra += touched - (held + sector - 1) / sector;
}

// What a warp asks for at once. In shared memory 32 lanes of 4 bytes, 16 of 8, 8 of 16 go in one phase each.
void count_warp(const LaneAccess* accesses, uint32_t n) {
  AccessSite& record = record_of(accesses[0].place);
  record.accesses++;
  if (record.kind & access_global) return count_sectors(record, accesses, n);
  uint32_t bytes = accesses[0].bytes, lanes = bytes <= 4 ? 32 : 128 / bytes;
  uint32_t addresses[max_lanes];
  for (uint32_t i = 0; i < n;) {
    uint32_t phase = accesses[i].lane / lanes, together = 0;
    while (i < n && accesses[i].lane / lanes == phase)
      addresses[together++] = uint32_t(accesses[i++].address);
    count_phase(record, addresses, together, bytes);
  }
}

int compare(const LaneAccess& a, const LaneAccess& b) {
  if (a.place.site != b.place.site) return a.place.site < b.place.site ? -1 : 1;
  if (a.place.kind != b.place.kind) return a.place.kind < b.place.kind ? -1 : 1;
  if (a.place.argument != b.place.argument) return a.place.argument < b.place.argument ? -1 : 1;
  if (a.order != b.order) return a.order < b.order ? -1 : 1;
  return a.lane < b.lane ? -1 : a.lane > b.lane;
}
int compare_any(const void* a, const void* b) {
  return compare(*static_cast<const LaneAccess*>(a), *static_cast<const LaneAccess*>(b));
}

// Lanes that went different ways: what they did the n-th time at one site, they did together.
void count_diverged(Warp& warp, uint32_t from) {
  mixed.clear();
  for (uint32_t lane = 0; lane < launch.warp_size; lane++) {
    if (!warp.lanes[lane]) continue;
    Array<LaneAccess>& mine = seen[warp.lanes[lane]->linear];
    if (from >= mine.size) continue;
    uint32_t n = mine.size - from;
    for (uint32_t i = 0; i < n; i++) mine[from + i].order = i;
    qsort(mine.data + from, n, sizeof(LaneAccess), compare_any);
    for (uint32_t i = 0, order = 0; i < n; i++) {
      order = i && mine[from + i].place == mine[from + i - 1].place ? order + 1 : 0;
      mixed.push(mine[from + i]).order = order;
    }
  }
  qsort(mixed.data, mixed.size, sizeof(LaneAccess), compare_any);
  for (uint32_t i = 0; i < mixed.size;) {
    uint32_t end = i + 1;
    while (end < mixed.size && mixed[end].place == mixed[i].place && mixed[end].order == mixed[i].order)
      end++;
    count_warp(mixed.data + i, end - i);
    i = end;
  }
}

void count_since_meeting(Warp& warp) {
  LaneAccess together[max_lanes];
  uint32_t least = ~0u, most = 0;
  for (uint32_t lane = 0; lane < launch.warp_size; lane++) {
    if (!warp.lanes[lane]) continue;
    uint32_t size = seen[warp.lanes[lane]->linear].size;
    least = size < least ? size : least;
    most = size > most ? size : most;
  }
  stretches += most > 0;
  bool parts = least < most;
  for (uint32_t i = 0;; i++) {
    uint32_t n = 0;
    bool same = true;
    for (uint32_t lane = 0; lane < launch.warp_size; lane++) {
      if (!warp.lanes[lane]) continue;
      const Array<LaneAccess>& mine = seen[warp.lanes[lane]->linear];
      if (i >= mine.size) continue;
      same = same && (n == 0 || mine[i].place == together[0].place);
      together[n++] = mine[i];
    }
    if (n == 0) break;
    if (!same) {
      parts = true;
      count_diverged(warp, i);
      break;
    }
    count_warp(together, n);
  }
  parted += parts;
  for (uint32_t lane = 0; lane < launch.warp_size; lane++)
    if (warp.lanes[lane]) seen[warp.lanes[lane]->linear].clear();
}

}  // namespace

void bank_access(const uint32_t* addresses, unsigned n, uint32_t bytes, bool writes, bool first,
                 int line) {
  if (!launch.banks) return;
  AccessSite& record = record_of({site_of(line, nullptr), writes ? access_writes : 0, no_argument});
  record.accesses += first;
  count_phase(record, addresses, n, bytes);
}

void lane_access(const void* p, uint32_t bytes, uint32_t site, bool writes) {
  uint32_t kind = writes ? access_writes : 0;
  size_t offset = size_t(static_cast<const uint8_t*>(p) - shared_start);
  if (offset < shared_size) {
    Origin place = {site, kind, no_argument};
    seen[current->linear].push({place, shared_base + offset, bytes, current->lane, 0});
    return;
  }
  const Buffer* buffer = find_buffer(p);
  Origin place = {site, kind | access_global, buffer ? buffer->argument : no_argument};
  seen[current->linear].push({place, reinterpret_cast<uintptr_t>(p), bytes, current->lane, 0});
}

void lane_copy(const void* to, uint32_t bytes, const void* from, uint32_t from_bytes, uint32_t site) {
  const Buffer* buffer = from_bytes ? find_buffer(from) : nullptr;
  uint32_t argument = buffer ? buffer->argument : no_argument;
  if (from_bytes) lane_access(from, from_bytes, site, false);
  uint64_t address = shared_base + uint64_t(static_cast<const uint8_t*>(to) - shared_start);
  Origin place = {site, access_writes, argument};
  seen[current->linear].push({place, address, bytes, current->lane, 0});
}

void count_access(const void* p, uint32_t bytes, bool writes, int line) {
  if (launch.banks && current && !in_stacks(p)) lane_access(p, bytes, site_of(line, nullptr), writes);
}

void accesses_of_block() {
  if (!launch.banks) return;
  for (Warp& warp : warps) count_since_meeting(warp);
}

}  // namespace tg
