#include "bulk.hpp"

#include <stdlib.h>

#include "tg_array.hpp"
#include "tg_job.hpp"

namespace tg_ptx {

namespace {

constexpr uint32_t map_magic = 0x74676d70;
constexpr uint32_t span_of[] = {0, 32, 64, 128};  // by the driver's swizzle enum

// One copy in flight. Plain copies are boxes of one dimension.
struct Copy {
  TensorMap map;
  int32_t at[5];
  uint32_t shared, bytes, barrier;
  bool store;
  uint8_t* before;  // of a store: its source when it was issued
  uint32_t thread, group;
  int line;
};

// Stores complete by the groups of the thread that issued them.
struct Pending {
  uint32_t thread, group;
};
tg::Array<Pending> pending;
uint32_t open_group[1024], known_read[1024], known_done[1024];  // groups of each thread
constexpr uint64_t group_key = 5;  // no shared address and no pointer is that small

// What a store has done by these times its issuer knows after waiting for it: no addresses are like that.
uint64_t read_key(uint32_t thread, uint32_t group) { return 1u << 30 | thread << 16 | (group & 0xffff); }
uint64_t done_key(uint32_t thread, uint32_t group) { return read_key(thread, group) | 1u << 31; }

void begin_block() {
  pending.clear();
  memset(open_group, 0, sizeof open_group);
  memset(known_read, 0, sizeof known_read);
  memset(known_done, 0, sizeof known_done);
}
void end_block() {}
__attribute__((constructor)) void register_bulk() { tg::on_block(begin_block, end_block); }

// Element (i0, i1, ...) of the box: its address in global memory, or null outside of the tensor.
uint8_t* element(const Copy& copy, const uint32_t* inside) {
  const TensorMap& map = copy.map;
  uint8_t* place = map.base;
  for (int d = 0; d < map.rank; d++) {
    const int64_t i = int64_t(copy.at[d]) + inside[d];
    if (i < 0 || i >= int64_t(map.dims[d])) return nullptr;
    place += i * int64_t(d ? map.strides[d - 1] : map.element_bytes);
  }
  return place;
}

template <class Visit>
void each_element(const Copy& copy, Visit visit) {
  const TensorMap& map = copy.map;
  uint32_t inside[5] = {}, count = 1;
  for (int d = 0; d < map.rank; d++) count *= map.box[d];
  for (uint32_t n = 0; n < count; n++) {
    const uint32_t to = swizzled(copy.shared + n * map.element_bytes, span_of[map.swizzle]);
    visit(static_cast<uint8_t*>(tg::shared_pointer(to)), element(copy, inside));
    for (int d = 0; d < map.rank && ++inside[d] == map.box[d]; d++) inside[d] = 0;
  }
}

void fill_nan(uint8_t* to, uint32_t bytes) { memset(to, 0xff, bytes); }

void run_load(void* arg) {
  Copy* copy = static_cast<Copy*>(arg);
  const uint32_t size = copy->map.element_bytes;
  each_element(*copy, [&](uint8_t* shared, uint8_t* global) {
    if (global) memcpy(shared, global, size);
    else if (copy->map.nan_fill) fill_nan(shared, size);
    else memset(shared, 0, size);
  });
  tg::note_pending_end(tg::shared_pointer(copy->shared), copy->bytes);
  mbarrier_complete_tx(copy->barrier, copy->bytes, copy->line);
  free(copy);
}

void run_store(void* arg) {
  Copy* copy = static_cast<Copy*>(arg);
  if (memcmp(copy->before, tg::shared_pointer(copy->shared), copy->bytes))
    tg::fail("data-race", copy->line,
             "shared memory at 0x%x was written while a bulk store still read it", copy->shared);
  const uint32_t size = copy->map.element_bytes;
  // To the race detector the engine reads and writes, unordered with everybody until the wait.
  tg::note_async_read(tg::shared_pointer(copy->shared), copy->bytes, copy->line);
  tg::sync_release(read_key(copy->thread, copy->group));
  each_element(*copy, [&](uint8_t* shared, uint8_t* global) {
    if (!global) return;
    tg::note_write(global, size, copy->line);
    memcpy(global, shared, size);
  });
  tg::sync_release(done_key(copy->thread, copy->group));
  for (uint32_t i = 0; i < pending.size; i++)
    if (pending[i].thread == copy->thread && pending[i].group == copy->group) {
      pending.erase(i, 1);
      break;
    }
  tg::notify(group_key);
  free(copy->before);
  free(copy);
}

// What both directions check; the rest of the record is the caller's.
Copy* make(uint64_t map_address, int rank, const int32_t* at, uint64_t shared, bool store, int line) {
  const char* what = "cp.async.bulk.tensor";
  Copy* copy = static_cast<Copy*>(calloc(1, sizeof(Copy)));
  const void* map = reinterpret_cast<const void*>(uintptr_t(map_address));
  if (map_address & 63) tg::fail("misaligned", line, "%s: the tensor map is not 64-byte aligned", what);
  memcpy(&copy->map, map, sizeof copy->map);
  if (copy->map.magic != map_magic)
    tg::fail("bad-tensor-map", line, "%s: there is no encoded tensor map at that address", what);
  if (copy->map.rank != rank)
    tg::fail("bad-tensor-map", line, "%s: %d coordinates for a tensor map of rank %d", what, rank,
             copy->map.rank);
  copy->bytes = copy->map.element_bytes;
  for (int d = 0; d < rank; d++) {
    copy->at[d] = at[d];
    copy->bytes *= copy->map.box[d];
  }
  copy->shared = shared32(shared, line);
  // 128 bytes with every swizzle: the pattern follows addresses (CUDA programming guide, "Swizzle pattern
  // pointer offset computation").
  tg::shared_access(copy->shared, copy->bytes, 128, store ? tg::Access::read : tg::Access::write, what,
                    line);
  copy->store = store;
  copy->line = line;
  return copy;
}

Copy* make_plain(uint64_t global, uint64_t shared, uint32_t bytes, bool store, int line) {
  const char* what = "cp.async.bulk";
  if (bytes % 16) tg::fail("bad-argument", line, "%s: %u bytes are no multiple of 16", what, bytes);
  void* place = reinterpret_cast<void*>(uintptr_t(global));
  tg::global_access(place, bytes, 16, store ? tg::Access::write : tg::Access::read, what, line);
  Copy* copy = static_cast<Copy*>(calloc(1, sizeof(Copy)));
  copy->map.element_bytes = 16;
  copy->map.rank = 2;
  copy->map.base = static_cast<uint8_t*>(place);
  copy->map.dims[0] = copy->map.box[0] = 1;
  copy->map.dims[1] = copy->map.box[1] = bytes / 16;
  copy->map.strides[0] = 16;
  copy->bytes = bytes;
  copy->shared = shared32(shared, line);
  tg::shared_access(copy->shared, bytes, 16, store ? tg::Access::read : tg::Access::write, what, line);
  copy->store = store;
  copy->line = line;
  return copy;
}

void issue_load(Copy* copy, uint64_t barrier, uint32_t blocks, const char* what) {
  if (blocks != 1)
    tg::fail("bad-argument", copy->line, "%s: multicast to blocks 0x%x: a cluster has one block here",
             what, blocks);
  copy->barrier = shared32(barrier, copy->line);
  mbarrier_meets_engine(copy->barrier, copy->line);
  void* to = tg::shared_pointer(copy->shared);
  tg::note_pending_begin(to, copy->bytes, copy->line);
  if (tg::launch.delayed) memset(to, 0xff, copy->bytes);
  tg::engine_submit(what, run_load, copy, true, copy->line);
}

void issue_store(Copy* copy, const char* what) {
  const void* from = tg::shared_pointer(copy->shared);
  tg::note_async_read(from, copy->bytes, copy->line);
  copy->before = static_cast<uint8_t*>(malloc(copy->bytes));
  memcpy(copy->before, from, copy->bytes);
  copy->thread = tg::current->linear;
  copy->group = open_group[copy->thread];
  pending.push({copy->thread, copy->group});
  tg::engine_submit(what, run_store, copy, true, copy->line);
}

struct GroupWait {
  uint32_t thread, before;  // groups with a smaller number must be done
};
bool groups_done(void* arg) {
  const GroupWait& wait = *static_cast<GroupWait*>(arg);
  for (const Pending& one : pending)
    if (one.thread == wait.thread && one.group < wait.before) return false;
  return true;
}

}  // namespace

void tensor_load(uint64_t to, uint64_t map, int rank, const int32_t* at, uint64_t barrier,
                 uint32_t blocks, int line) {
  issue_load(make(map, rank, at, to, false, line), barrier, blocks, "cp.async.bulk.tensor");
}
void tensor_store(uint64_t map, int rank, const int32_t* at, uint64_t from, int line) {
  issue_store(make(map, rank, at, from, true, line), "cp.async.bulk.tensor");
}
void bulk_load(uint64_t to, uint64_t from, uint32_t bytes, uint64_t barrier, uint32_t blocks, int line) {
  if (!bytes) return;
  issue_load(make_plain(from, to, bytes, false, line), barrier, blocks, "cp.async.bulk");
}
void bulk_store(uint64_t to, uint64_t from, uint32_t bytes, int line) {
  if (!bytes) return;
  issue_store(make_plain(to, from, bytes, true, line), "cp.async.bulk");
}

void bulk_commit_group() { open_group[tg::current->linear]++; }

void bulk_wait_group(uint32_t n, bool read, int line) {
  const uint32_t me = tg::current->linear, open = open_group[me];
  GroupWait wait{me, open > n ? open - n : 0};
  tg::wait_until(group_key, groups_done, &wait, "cp.async.bulk.wait_group", line);
  for (; known_read[me] < wait.before; known_read[me]++) tg::sync_acquire(read_key(me, known_read[me]));
  if (read) return;
  for (; known_done[me] < wait.before; known_done[me]++) tg::sync_acquire(done_key(me, known_done[me]));
}

const char* encode_tensor_map(void* map, uint32_t element_bytes, uint32_t rank, void* base,
                              const uint64_t* dims, const uint64_t* strides, const uint32_t* box,
                              uint32_t swizzle, bool nan_fill) {
  if (reinterpret_cast<uintptr_t>(map) & 63) return "the tensor map must be 64-byte aligned";
  if (element_bytes != 1 && element_bytes != 2 && element_bytes != 4 && element_bytes != 8)
    return "elements have 1, 2, 4 or 8 bytes";
  if (rank < 1 || rank > 5) return "the rank must be 1 to 5";
  if (reinterpret_cast<uintptr_t>(base) & 15) return "globalAddress must be a multiple of 16";
  if (swizzle > 3) return "the swizzle is not known";
  TensorMap out{};
  for (uint32_t d = 0; d < rank; d++) {
    if (!dims[d] || dims[d] > (uint64_t(1) << 32)) return "globalDim must be 1 to 2^32";
    if (!box[d] || box[d] > 256) return "boxDim must be 1 to 256";
    out.dims[d] = dims[d];
    out.box[d] = uint16_t(box[d]);
    if (d + 1 == rank) break;
    if (strides[d] % 16 || strides[d] >= (uint64_t(1) << 40))
      return "globalStrides must be multiples of 16 below 2^40";
    out.strides[d] = strides[d];
  }
  const uint32_t inner = box[0] * element_bytes;
  if (inner % 16) return "boxDim[0] must cover a multiple of 16 bytes";
  if (swizzle && inner > span_of[swizzle]) return "boxDim[0] covers more than the swizzle's span";
  out.magic = map_magic;
  out.element_bytes = uint8_t(element_bytes);
  out.rank = uint8_t(rank);
  out.swizzle = uint8_t(swizzle);
  out.nan_fill = nan_fill;
  out.base = static_cast<uint8_t*>(base);
  memset(map, 0, 128);
  memcpy(map, &out, sizeof out);
  return nullptr;
}

}  // namespace tg_ptx

namespace tg {

// Makes the map of an array argument (job.py, TensorMap): box, swizzle and fill lie in `integer`.
void tensor_map_argument(const Slot& slot, void* map, uint32_t number) {
  const JobArgument& about = *slot.about;
  const uint32_t rank = about.dimensions;
  uint64_t dims[5], strides[5];
  uint32_t box[5];
  for (uint32_t d = 0; d < rank && d < 5; d++) {
    dims[d] = uint64_t(about.shape[rank - 1 - d]);
    box[d] = uint32_t(about.integer >> (8 * d) & 0xff) + 1;
    if (d) strides[d - 1] = uint64_t(about.stride[rank - 1 - d]);
  }
  const char* wrong = tg_ptx::encode_tensor_map(map, about.item, rank, slot.pointer, dims, strides, box,
                                                uint32_t(about.integer >> 40 & 3), about.integer >> 44 & 1);
  if (wrong) fail("bad-argument", 0, "argument %u: %s", number, wrong);
}

}  // namespace tg
