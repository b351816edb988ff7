// Bank conflicts: of instructions that say which lanes go together, and of plain accesses, whose lanes
// run one after another here and are put together again by what they did since they last met.
#include "tg_races.hpp"

namespace tg {

Array<BankSite> bank_sites;

namespace {

constexpr uint32_t banks = 32;

// One plain access of one lane to shared memory.
struct LaneAccess {
  uint32_t site, address, bytes, lane, order;
};
Array<LaneAccess> seen[max_threads];  // by thread
Array<LaneAccess> mixed;

BankSite& site_record(uint32_t site) {
  static uint32_t last;
  if (last < bank_sites.size && bank_sites[last].site == site) return bank_sites[last];
  for (last = 0; last < bank_sites.size; last++)
    if (bank_sites[last].site == site) return bank_sites[last];
  return bank_sites.push({site, 0, 0, 0});
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

void count(uint32_t site, const uint32_t* addresses, uint32_t n, uint32_t bytes) {
  BankSite& record = site_record(site);
  record.phases++;
  record.conflicts += extra_cycles(addresses, n, bytes);
}

// What a warp asks for at once: 32 lanes of 4 bytes, 16 of 8, 8 of 16 go in one phase each.
void count_warp(const LaneAccess* accesses, uint32_t n) {
  uint32_t bytes = accesses[0].bytes, lanes = bytes <= 4 ? 32 : 128 / bytes;
  uint32_t addresses[max_lanes];
  for (uint32_t i = 0; i < n;) {
    uint32_t phase = accesses[i].lane / lanes, together = 0;
    while (i < n && accesses[i].lane / lanes == phase) addresses[together++] = accesses[i++].address;
    count(accesses[0].site, addresses, together, bytes);
  }
}

int compare(const LaneAccess& a, const LaneAccess& b) {
  if (a.site != b.site) return a.site < b.site ? -1 : 1;
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
      order = i && mine[from + i].site == mine[from + i - 1].site ? order + 1 : 0;
      mixed.push(mine[from + i]).order = order;
    }
  }
  qsort(mixed.data, mixed.size, sizeof(LaneAccess), compare_any);
  for (uint32_t i = 0; i < mixed.size;) {
    uint32_t end = i + 1;
    while (end < mixed.size && mixed[end].site == mixed[i].site && mixed[end].order == mixed[i].order)
      end++;
    count_warp(mixed.data + i, end - i);
    i = end;
  }
}

void count_since_meeting(Warp& warp) {
  LaneAccess together[max_lanes];
  for (uint32_t i = 0;; i++) {
    uint32_t n = 0;
    bool same = true;
    for (uint32_t lane = 0; lane < launch.warp_size; lane++) {
      if (!warp.lanes[lane]) continue;
      const Array<LaneAccess>& mine = seen[warp.lanes[lane]->linear];
      if (i >= mine.size) continue;
      same = same && (n == 0 || mine[i].site == together[0].site);
      together[n++] = mine[i];
    }
    if (n == 0) break;
    if (!same) {
      count_diverged(warp, i);
      break;
    }
    count_warp(together, n);
  }
  for (uint32_t lane = 0; lane < launch.warp_size; lane++)
    if (warp.lanes[lane]) seen[warp.lanes[lane]->linear].clear();
}

}  // namespace

void bank_access(const uint32_t* addresses, unsigned n, uint32_t bytes, int line) {
  if (launch.banks) count(site_of(line, nullptr), addresses, n, bytes);
}

void bank_note(uint32_t offset, uint32_t bytes, uint32_t site) {
  seen[current->linear].push({site, shared_base + offset, bytes, current->lane, 0});
}

void banks_of_block() {
  if (!launch.banks) return;
  for (Warp& warp : warps) count_since_meeting(warp);
}

}  // namespace tg
