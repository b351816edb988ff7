// The race detector: vector clocks, and what was last done to each word of shared and global memory.
//
// The kernel text is compiled with -fsanitize=thread, whose calls before each access end in
// tg_hooks.cpp, which asks here. Clocks count over the whole launch and never go back, which makes the
// frequent case cheap: `block_floor` is a time before which everything in this block is ordered (its
// last barrier of all threads), so only accesses since then need the vectors.
//
// Blocks run one after another, but on the device they run together: what a thread of an earlier block
// did to global memory is ordered only if that block published it and this block has acquired that.
#include "tg_races.hpp"

#include <stdio.h>

namespace tg {

uint32_t race_count;
uint32_t block_begin = 1, block_floor = 1;
uint32_t* clock_now;
Shadows shared_shadows;

namespace {

constexpr uint32_t engines = 16;  // columns for asynchronous work, beside those of the threads

// What one thread, or one synchronisation object, knows: for each thread, the clock up to which that
// thread's work is ordered before it.
struct Knowledge {
  uint32_t* clocks;  // launch.threads + engines of them
  uint32_t floor;    // rows are cleared lazily: valid if this is block_floor
};
// What a block has published, or this block has taken over from another: the work of all its threads
// before `floor`, and of some up to later times.
struct Latest {
  uint32_t who, clock;
};
struct Published {
  uint32_t block, floor;
  Array<Latest> later;
};
struct SyncObject {
  uint64_t key;
  uint32_t* clocks;
  Array<Published> blocks;  // that released it
};

uint32_t width;
uint32_t latest = 1;  // the latest time anyone has reached
uint32_t block_number;
Array<uint32_t> block_begins;  // for each block so far
Array<Published> taken;        // what this block has acquired of others
Array<uint32_t> taken_at;      // by block: 1 + its place in `taken`, or 0

Array<Knowledge> knowledge;
uint32_t engine_floor[engines], engine_now[engines], engine_next;
bool engine_used;
Array<Array<uint32_t>> fence_times;  // fence.proxy.async of each thread, ascending
// What each thread knew at its last one; behind the clocks, the floor and the thread's clock of that time.
Array<uint32_t*> proxy_fenced;
// What each thread knew at its last memory fence; behind the clocks, the floor of that time.
Array<uint32_t*> fenced;
Array<uint32_t> last_fence;  // of each thread in this block, 0: none
bool any_fence;
Array<SyncObject> objects;
Array<uint32_t> object_table;  // open addressing: index + 1 into objects
Engine* running_engine;

uint32_t* known_to(uint32_t thread) {
  Knowledge& mine = knowledge[thread];
  if (!mine.clocks) mine.clocks = static_cast<uint32_t*>(calloc(width, sizeof(uint32_t)));
  if (mine.floor != block_floor) {
    memset(mine.clocks, 0, launch.threads * sizeof(uint32_t));
    memcpy(mine.clocks + launch.threads, engine_floor, sizeof engine_floor);
    mine.floor = block_floor;
  }
  return mine.clocks;
}

struct Actor {
  uint32_t id, clock;
};
Actor actor() {
  if (running_engine)
    return {launch.threads + running_engine->column, engine_now[running_engine->column]};
  return {current->linear, clock_now[current->linear]};
}
uint32_t* actor_knows() {
  return running_engine ? running_engine->clocks : known_to(current->linear);
}

// The barrier of all threads that the actor's work comes after. Asynchronous work may run past later ones.
uint32_t actor_floor() { return running_engine ? running_engine->floor : block_floor; }

bool block_ordered(uint32_t who, uint32_t clock) {
  uint32_t low = 0, high = block_begins.size;
  while (high - low > 1) {
    uint32_t middle = (low + high) / 2;
    (block_begins[middle] <= clock ? low : high) = middle;
  }
  if (low == block_number) return true;
  if (!taken_at[low]) return false;
  const Published& from = taken[taken_at[low] - 1];
  if (who < launch.threads && clock < from.floor) return true;
  for (const Latest& one : from.later)
    if (one.who == who) return clock <= one.clock;
  return false;
}

void publish(Published& to, uint32_t who, uint32_t clock) {
  for (Latest& one : to.later)
    if (one.who == who) {
      if (clock > one.clock) one.clock = clock;
      return;
    }
  to.later.push({who, clock});
}

// What this block publishes at the object.
Published& own_part(SyncObject& object, uint32_t floor) {
  if (object.blocks.empty() || object.blocks[object.blocks.size - 1].block != block_number)
    object.blocks.push({block_number, 0, {}});
  Published& mine = object.blocks[object.blocks.size - 1];
  if (floor > mine.floor) mine.floor = floor;
  return mine;
}

void forget_blocks(SyncObject& object) {
  for (Published& one : object.blocks) free(one.later.data);
  object.blocks.clear();
}

// Objects of shared memory and of barriers never leave their block.
bool crosses_blocks(uint64_t key) {
  return key >> 32 && !in_shared(reinterpret_cast<void*>(key));
}

// Whether what `who` did at `clock` happens before what the acting thread does now.
bool ordered(uint32_t who, uint32_t clock, uint32_t me) {
  if (clock < block_begin) return block_ordered(who, clock);
  if (who == me) return true;
  if (who < launch.threads && clock < actor_floor()) return true;
  return actor_knows()[who] >= clock;
}

void tell(const Place& at, const char* what, uint32_t other, uint32_t clock, uint32_t site) {
  race_count++;
  char where[128], who[64];
  explain_address(reinterpret_cast<uintptr_t>(at.pointer), where, sizeof where);
  if (clock < block_begin)
    snprintf(who, sizeof who, "another block's thread %u", other);
  else if (other >= launch.threads)
    snprintf(who, sizeof who, "an asynchronous copy");
  else
    snprintf(who, sizeof who, "thread %u", other);
  report_pair("data-race", site_of(at.line, at.pc), site, "%s at %s; the other is %s", what, where,
              who);
}

void check_write_before(const Shadow& s, const Place& at, Touch touch, uint32_t me) {
  if (!s.write_clock) return;
  bool mine_atomic = touch == Touch::atomic;
  if ((s.flags & Shadow::pending) && touch != Touch::pending)
    tell(at, is_write(touch) ? "write into the destination of a copy in flight"
                             : "read of the destination of a copy in flight",
         s.writer, s.write_clock, s.write_site);
  else if (!ordered(s.writer, s.write_clock, me) && !(mine_atomic && (s.flags & Shadow::atomic)))
    tell(at, is_write(touch) ? "write after write" : "read after write", s.writer, s.write_clock,
         s.write_site);
}

void touch_entry(Shadow& s, const Place& at, Touch touch, Actor me) {
  if (!is_write(touch)) {
    if (s.read_clock[0] == me.clock && s.reader[0] == me.id) return;
    check_write_before(s, at, touch, me.id);
    if (me.id >= launch.threads) s.flags |= Shadow::engine;
    if (touch == Touch::async_read && (s.flags & Shadow::generic)) check_proxy(s, at, me.id);
    // Of the readers, keep two that are not ordered with each other: a write that is ordered after
    // the later of two ordered reads is ordered after both.
    int slot = !s.read_clock[0] || ordered(s.reader[0], s.read_clock[0], me.id) ? 0 : 1;
    s.read_clock[slot] = me.clock;
    s.read_site[slot] = site_of(at.line, at.pc);
    s.reader[slot] = uint16_t(me.id);
    return;
  }
  check_write_before(s, at, touch, me.id);
  for (int i = 0; i < 2; i++)
    if (s.read_clock[i] && !ordered(s.reader[i], s.read_clock[i], me.id))
      tell(at, "write after read", s.reader[i], s.read_clock[i], s.read_site[i]);
  s.read_clock[0] = s.read_clock[1] = 0;
  s.write_clock = me.clock;
  s.write_site = site_of(at.line, at.pc);
  s.writer = uint16_t(me.id);
  uint16_t how = touch == Touch::pending  ? Shadow::pending
                 : touch == Touch::atomic ? Shadow::generic | Shadow::atomic
                                          : Shadow::generic;
  if (me.id >= launch.threads) how |= Shadow::engine;
  s.flags = uint16_t((s.flags & Shadow::split) | how);
}

// Where a key is, or would be, in the table.
uint32_t slot_of(uint64_t key) {
  uint32_t at = uint32_t(key * 0x9E3779B97F4A7C15ull >> 40) % object_table.size;
  while (object_table[at] && objects[object_table[at] - 1].key != key)
    at = at + 1 == object_table.size ? 0 : at + 1;
  return at;
}

void rehash(uint32_t size) {
  object_table.assign_zero(size);
  for (uint32_t i = 0; i < objects.size; i++) object_table[slot_of(objects[i].key)] = i + 1;
}

// A word whose bytes were not all touched alike keeps one entry for each of them.
Shadow* bytes_of(Shadows& area, size_t word) {
  if (!area.bytes)
    area.bytes = static_cast<Shadow*>(zeroed(area.words_count * 4 * sizeof(Shadow)));
  Shadow* bytes = area.bytes + word * 4;
  Shadow& whole = area.words[word];
  if (!(whole.flags & Shadow::split)) {
    for (int i = 0; i < 4; i++) bytes[i] = whole;
    whole.flags |= Shadow::split;
  }
  return bytes;
}

}  // namespace

void check_proxy(const Shadow& s, const Place& at, uint32_t me) {
  if (s.writer >= launch.threads || s.write_clock < block_begin) return;
  const Array<uint32_t>& fences = fence_times[s.writer];
  const uint32_t* known = actor_knows();
  auto knows = [&](uint32_t who, uint32_t clock) {
    return who == me || clock <= known[who] || clock < actor_floor();
  };
  for (uint32_t i = 0; i < fences.size; i++)
    if (fences[i] >= s.write_clock && knows(s.writer, fences[i])) return;
  // The fence of a thread that the write was known to does as well, anywhere on the way to this read:
  // it must be in this block (Lustig et al., "Mixed-proxy extensions for the NVIDIA PTX memory
  // consistency model", 5.4), and nothing in the PTX ISA wants it on the writer's side.
  for (uint32_t who = 0; who < launch.threads; who++)
    if (const uint32_t* then = proxy_fenced[who])
      if (knows(who, then[width + 1]) && (s.write_clock < then[width] || s.write_clock <= then[s.writer]))
        return;
  race_count++;
  char where[128];
  explain_address(reinterpret_cast<uintptr_t>(at.pointer), where, sizeof where);
  report_at("missing-proxy-fence", at.line, at.pc,
            "the async proxy reads %s, which thread %u wrote without a fence.proxy.async on the way "
            "from the write to the read",
            where, s.writer);
}

void touch(Shadows& area, const Place& at, size_t offset, uint32_t bytes, Touch how) {
  Actor me = actor();
  size_t end = offset + bytes;
  Place place = at;
  while (offset < end) {
    size_t word = offset / 4;
    uint32_t first = uint32_t(offset % 4);
    uint32_t n = uint32_t(end - offset) < 4 - first ? uint32_t(end - offset) : 4 - first;
    Shadow& whole = area.words[word];
    if (n == 4 && !(whole.flags & Shadow::split)) {
      touch_entry(whole, place, how, me);
    } else {
      Shadow* each = bytes_of(area, word);
      for (uint32_t i = first; i < first + n; i++) {
        place.pointer = static_cast<const uint8_t*>(at.pointer) + (word * 4 + i - (end - bytes));
        touch_entry(each[i], place, how, me);
      }
      if (n == 4 && is_write(how)) {
        whole = each[0];
        whole.flags &= uint16_t(~Shadow::split);
      }
    }
    offset += n;
    place.pointer = static_cast<const uint8_t*>(at.pointer) + (offset - (end - bytes));
  }
}

void end_pending(Shadows& area, size_t offset, uint32_t bytes) {
  Actor me = actor();
  for (size_t at = offset; at < offset + bytes; at++) {
    Shadow& whole = area.words[at / 4];
    Shadow& s = whole.flags & Shadow::split ? area.bytes[at] : whole;
    s.flags &= uint16_t(~(Shadow::pending | Shadow::generic));
    if (me.id >= launch.threads) s.flags |= Shadow::engine;
    s.write_clock = me.clock;
    s.writer = uint16_t(me.id);
  }
}

void make_shadows(Shadows& area, size_t bytes) {
  area.words_count = (bytes + 3) / 4;
  area.words = static_cast<Shadow*>(zeroed(area.words_count * sizeof(Shadow)));
}

void races_begin_launch() {
  width = launch.threads + engines;
  clock_now = static_cast<uint32_t*>(calloc(launch.threads, sizeof(uint32_t)));
  make_shadows(shared_shadows, shared_size);
  knowledge.assign_zero(launch.threads);
  fence_times.assign_zero(launch.threads);
  proxy_fenced.assign_zero(launch.threads);
  fenced.assign_zero(launch.threads);
  last_fence.assign_zero(launch.threads);
  object_table.assign_zero(1024);
}

void races_begin_block() {
  block_begin = block_floor = ++latest;
  block_number = block_begins.size;
  block_begins.push(block_begin);
  for (Published& one : taken) free(one.later.data);
  taken.clear();
  taken_at.assign_zero(block_begins.size);
  for (uint32_t i = 0; i < launch.threads; i++) clock_now[i] = block_begin;
  for (uint32_t i = 0; i < engines; i++) engine_floor[i] = engine_now[i] = 0;
  for (Array<uint32_t>& fences : fence_times) fences.clear();
  for (uint32_t*& clocks : proxy_fenced) free(clocks), clocks = nullptr;
  for (uint32_t*& clocks : fenced) free(clocks), clocks = nullptr;
  last_fence.assign_zero(launch.threads);
  any_fence = false;
  memset(static_cast<void*>(shared_shadows.words), 0,
         shared_shadows.words_count * sizeof(Shadow));
  // Objects in shared memory go with the block; those in global memory stay.
  uint32_t kept = 0;
  for (SyncObject& object : objects) {
    if (crosses_blocks(object.key)) {
      objects[kept++] = object;
      continue;
    }
    forget_blocks(object);
    free(object.blocks.data);
    free(object.clocks);
  }
  objects.size = kept;
  rehash(object_table.size);
}

void join_block() {
  if (engine_used)
    for (uint32_t t = 0; t < launch.threads; t++) {
      const uint32_t* clocks = known_to(t);
      for (uint32_t i = 0; i < engines; i++)
        if (clocks[launch.threads + i] > engine_floor[i]) engine_floor[i] = clocks[launch.threads + i];
    }
  block_floor = ++latest;
  for (uint32_t i = 0; i < launch.threads; i++) clock_now[i] = block_floor;
}

void join_threads(Fiber** who, uint32_t count) {
  if (count == 0) return;
  uint32_t* all = known_to(who[0]->linear);
  for (uint32_t i = 1; i < count; i++) {
    const uint32_t* other = known_to(who[i]->linear);
    for (uint32_t k = 0; k < width; k++) all[k] = other[k] > all[k] ? other[k] : all[k];
  }
  for (uint32_t i = 0; i < count; i++) all[who[i]->linear] = clock_now[who[i]->linear];
  for (uint32_t i = 1; i < count; i++)
    memcpy(known_to(who[i]->linear), all, width * sizeof(uint32_t));
  ++latest;
  for (uint32_t i = 0; i < count; i++) clock_now[who[i]->linear] = latest;
}

namespace {

SyncObject* find_object(uint64_t key, bool make) {
  uint32_t at = slot_of(key);
  if (object_table[at]) return &objects[object_table[at] - 1];
  if (!make) return nullptr;
  if ((objects.size + 1) * 2 > object_table.size) {
    rehash(object_table.size * 2);
    at = slot_of(key);
  }
  SyncObject object = {};
  object.key = key;
  object.clocks = static_cast<uint32_t*>(calloc(width, sizeof(uint32_t)));
  objects.push(object);
  object_table[at] = objects.size;
  return &objects[objects.size - 1];
}

}  // namespace

void sync_release(uint64_t key) {
  if (!launch.races) return;
  SyncObject& object = *find_object(key, true);
  const uint32_t* mine = actor_knows();
  Actor me = actor();
  for (uint32_t i = 0; i < width; i++)
    if (mine[i] > object.clocks[i]) object.clocks[i] = mine[i];
  if (me.clock > object.clocks[me.id]) object.clocks[me.id] = me.clock;
  if (crosses_blocks(key)) {
    const uint32_t floor = actor_floor();
    Published& out = own_part(object, floor);
    for (uint32_t i = 0; i < width; i++)
      if (mine[i] >= (i < launch.threads ? floor : block_begin)) publish(out, i, mine[i]);
    publish(out, me.id, me.clock);
  }
  if (running_engine)
    engine_now[running_engine->column] = ++latest;
  else
    clock_now[current->linear] = ++latest;
}

void sync_acquire(uint64_t key) {
  if (!launch.races) return;
  SyncObject* object = find_object(key, false);
  if (!object) return;
  uint32_t* mine = actor_knows();
  for (uint32_t i = 0; i < width; i++)
    if (object->clocks[i] > mine[i]) mine[i] = object->clocks[i];
  for (const Published& other : object->blocks) {
    if (other.block == block_number) continue;
    uint32_t& at = taken_at[other.block];
    if (!at) {
      taken.push({other.block, 0, {}});
      at = taken.size;
    }
    Published& known = taken[at - 1];
    if (other.floor > known.floor) known.floor = other.floor;
    for (const Latest& one : other.later) publish(known, one.who, one.clock);
  }
}

void sync_forget(uint64_t key) {
  if (!launch.races) return;
  if (SyncObject* object = find_object(key, false)) {
    memset(object->clocks, 0, width * sizeof(uint32_t));
    forget_blocks(*object);
  }
}

void sync_pass(uint64_t from, uint64_t to) {
  if (!launch.races || !find_object(from, false)) return;
  // Making one may move the others.
  SyncObject& target = *find_object(to, true);
  SyncObject& source = *find_object(from, false);
  for (uint32_t i = 0; i < width; i++)
    if (source.clocks[i] > target.clocks[i]) target.clocks[i] = source.clocks[i];
  memset(source.clocks, 0, width * sizeof(uint32_t));
}

void memory_fence() {
  if (!launch.races || running_engine) return;
  const uint32_t me = current->linear;
  uint32_t*& clocks = fenced[me];
  if (!clocks) clocks = static_cast<uint32_t*>(malloc((width + 1) * sizeof(uint32_t)));
  memcpy(clocks, known_to(me), width * sizeof(uint32_t));
  clocks[me] = last_fence[me] = clock_now[me];
  clocks[width] = block_floor;
  any_fence = true;
  clock_now[me] = ++latest;
}

// An atomic publishes what its thread knew at its own last fence, and what others did before their last
// fences as far as it knows of those: each thread's fence, a barrier, one thread's atomic is usual.
void atomic_sync(const void* pointer) {
  if (!launch.races || running_engine) return;
  uint64_t key = reinterpret_cast<uintptr_t>(pointer);
  if (any_fence) {
    const uint32_t me = current->linear, *mine = known_to(me), *then = fenced[me];
    SyncObject& object = *find_object(key, true);
    Published* out = crosses_blocks(key) ? &own_part(object, then ? then[width] : 0) : nullptr;
    for (uint32_t i = 0; i < width; i++) {
      uint32_t clock = then ? then[i] : 0;
      const uint32_t fence = i < launch.threads ? last_fence[i] : 0;
      if (fence > clock && (fence < block_floor || mine[i] >= fence)) clock = fence;
      if (clock > object.clocks[i]) object.clocks[i] = clock;
      const bool covered = i < launch.threads && out && clock < out->floor;
      if (out && clock >= block_begin && !covered) publish(*out, i, clock);
    }
  }
  sync_acquire(key);
}

void proxy_fence() {
  if (!launch.races || running_engine) return;
  Array<uint32_t>& fences = fence_times[current->linear];
  const uint32_t me = current->linear, clock = clock_now[me];
  fences.push(clock);
  uint32_t*& then = proxy_fenced[me];
  if (!then) then = static_cast<uint32_t*>(malloc((width + 2) * sizeof(uint32_t)));
  memcpy(then, known_to(me), width * sizeof(uint32_t));
  then[me] = then[width + 1] = clock;
  then[width] = block_floor;
  // What the thread writes from now on is later.
  clock_now[me] = ++latest;
}

void engine_snapshot(Engine& engine) {
  if (!launch.races) return;
  engine_used = true;
  engine.column = engine_next++ % engines;
  engine.floor = block_floor;
  engine.clocks = static_cast<uint32_t*>(malloc(width * sizeof(uint32_t)));
  memcpy(engine.clocks, known_to(current->linear), width * sizeof(uint32_t));
  engine.clocks[current->linear] = clock_now[current->linear];
  clock_now[current->linear] = ++latest;
}

void engine_begin(Engine& engine) {
  if (!launch.races) return;
  engine_now[engine.column] = ++latest;
  running_engine = &engine;
}

void engine_end() {
  if (!running_engine) return;
  free(running_engine->clocks);
  running_engine = nullptr;
}

}  // namespace tg
