#include "wgmma.hpp"

#include <stdlib.h>

#include "bulk.hpp"
#include "matrix.hpp"
#include "tg_array.hpp"

namespace tg_ptx {

namespace {

constexpr int threads = 128, m = 64;

constexpr int bytes_of(Element element) {
  return element == Element::f16 || element == Element::bf16 ? 2 : element == Element::tf32 ? 4 : 1;
}
constexpr bool is_integer(Element element) { return element == Element::s8 || element == Element::u8; }
constexpr int k_of(Element element) { return 32 / bytes_of(element); }

float decoded(Element element, const uint8_t* at) {
  uint16_t half;
  uint32_t word;
  switch (element) {
    case Element::f16: memcpy(&half, at, 2); return value<f16>(half);
    case Element::bf16: memcpy(&half, at, 2); return value<bf16>(half);
    case Element::tf32: memcpy(&word, at, 4); return value<tf32>(word);
    case Element::e4m3: return value<e4m3>(*at);
    case Element::e5m2: return value<e5m2>(*at);
    case Element::s8: return float(int8_t(*at));
    case Element::u8: return float(*at);
  }
  return 0;
}
const char* name_of(Element element) {
  constexpr const char* names[] = {"f16", "bf16", "tf32", "e4m3", "e5m2", "s8", "u8"};
  return names[int(element)];
}

// Element i of a thread's registers of D ("Register Fragments and Matrix Layouts": matrix D).
constexpr Place place_d(int thread, int i) {
  return {(thread / 32) * 16 + (thread % 32) / 4 + 8 * (i / 2 % 2), 8 * (i / 4) + (thread % 4) * 2 + i % 2};
}
// Element i of its registers of A, `packed` to a register.
constexpr Place place_a(int thread, int i, int packed) {
  const int reg = i / packed;
  return {(thread / 32) * 16 + (thread % 32) / 4 + 8 * (reg % 2),
          (thread % 4) * packed + i % packed + 4 * packed * (reg / 2)};
}

struct Args {
  WgmmaOp op;
  void* const* d;
  const uint32_t* registers;
  uint64_t a, b;
  bool scale_d;
  int line;
};

// An accumulator in flight: its values, and where they go when its last operation is waited for.
struct Accumulator {
  void* key;  // the first thread's first register
  int n, operations;
  Sum kind;
  float* values;  // 64 x n; of integers, their bits
  void** places;  // by thread, then register
};
struct Operation {
  WgmmaOp op;
  uint64_t a, b;
  bool a_shared;
  uint8_t *before_a, *before_b;  // shared operands when it was issued
  void* key;
  int line;
  uint32_t group;
};
struct Group {
  tg::Array<Accumulator> accumulators;
  tg::Array<Operation> operations;
  uint32_t open;  // the group that operations join now
};
Group groups[8];  // by warpgroup: 1024 threads at most
bool fenced[1024];

void begin_block() {
  for (Group& group : groups) {
    for (Operation& one : group.operations) free(one.before_a), free(one.before_b);
    for (Accumulator& one : group.accumulators) free(one.values), free(one.places);
    group.accumulators.clear();
    group.operations.clear();
    group.open = 0;
  }
  memset(fenced, 0, sizeof fenced);
}
void end_block() {
  for (Group& group : groups)
    if (!group.operations.empty())
      tg::report("async-in-flight", group.operations[0].line,
                 "the block ends with a wgmma that nobody waited for");
}
__attribute__((constructor)) void register_wgmma() { tg::on_block(begin_block, end_block); }

Group& group_of(const tg::Collective& warps) { return groups[warps.first / threads]; }
Args& of(const tg::Collective& warps, int thread) { return *static_cast<Args*>(warps.args[thread]); }

void check_descriptor(uint64_t descriptor, const char* name, int line) {
  if (descriptor >> 49 & 7)
    tg::fail("bad-descriptor", line,
             "descriptor of %s: the base offset is not 0; align tiles to the swizzle's pattern", name);
  if ((descriptor >> 14 & 3) | (descriptor >> 30 & 3) | (descriptor >> 46 & 7) | (descriptor >> 52 & 0x3ff))
    tg::fail("bad-descriptor", line, "descriptor of %s, 0x%016llx, has reserved bits set", name,
             static_cast<unsigned long long>(descriptor));
}

// The bytes of an operand in shared memory, row by row of its mn.
uint8_t* gathered(uint64_t descriptor, Element element, bool mn_major, int mn, bool note, int line) {
  const int bytes = bytes_of(element), k = k_of(element);
  uint8_t* out = static_cast<uint8_t*>(malloc(size_t(mn) * k * bytes));
  for (int i = 0; i < mn; i++)
    for (int x = 0; x < k; x++) {
      const uint32_t at = wgmma_address(descriptor, bytes, mn_major, i, x);
      void* from = tg::shared_access(at, bytes, bytes, tg::Access::read, "wgmma", line);
      if (note) tg::note_async_read(from, bytes, line);
      memcpy(out + (size_t(i) * k + x) * bytes, from, bytes);
    }
  return out;
}

int registers_of(const WgmmaOp& op) { return op.d == Sum::f16 ? op.n / 4 : op.n / 2; }

template <class Visit>
void each_sum(const Accumulator& acc, Visit visit) {
  const int registers = acc.kind == Sum::f16 ? acc.n / 4 : acc.n / 2;
  for (int thread = 0; thread < threads; thread++)
    for (int i = 0; i < acc.n / 2; i++) {
      const Place at = place_d(thread, i);
      const int reg = acc.kind == Sum::f16 ? i / 2 : i;
      uint8_t* place = static_cast<uint8_t*>(acc.places[thread * registers + reg]);
      visit(acc.values[at.row * acc.n + at.col], place + (acc.kind == Sum::f16 ? i % 2 * 2 : 0));
    }
}

Accumulator& accumulator(Group& group, const tg::Collective& warps) {
  const Args& first = of(warps, 0);
  for (Accumulator& one : group.accumulators)
    if (one.key == first.d[0]) {
      if (one.n != first.op.n || one.kind != first.op.d)
        tg::fail("bad-argument", first.line, "registers of D are in flight with another shape or type");
      return one;
    }
  const int registers = registers_of(first.op);
  Accumulator fresh{first.d[0], first.op.n, 0, first.op.d, nullptr, nullptr};
  fresh.values = static_cast<float*>(malloc(sizeof(float) * m * fresh.n));
  fresh.places = static_cast<void**>(malloc(sizeof(void*) * threads * registers));
  for (int thread = 0; thread < threads; thread++)
    memcpy(fresh.places + thread * registers, of(warps, thread).d, sizeof(void*) * registers);
  each_sum(fresh, [&](float& sum, uint8_t* place) {
    uint16_t half;
    if (fresh.kind == Sum::f16) memcpy(&half, place, 2), sum = value<f16>(half);
    else memcpy(&sum, place, 4);
    // Nobody may look before the wait: a NaN, or -1.
    memset(place, 0xff, fresh.kind == Sum::f16 ? 2 : 4);
  });
  return group.accumulators.push(fresh);
}

void check_agreement(const tg::Collective& warps) {
  const Args& first = of(warps, 0);
  for (int thread = 1; thread < threads; thread++) {
    const Args& other = of(warps, thread);
    if (other.b != first.b || other.scale_d != first.scale_d || (!first.registers && other.a != first.a))
      tg::fail("bad-argument", first.line,
               "descriptors or scale-d differ between threads 0 and %d of the warpgroup", thread);
  }
}

void multiply(const Args& args, const tg::Collective& warps, Operation& operation, float* sums) {
  const WgmmaOp& op = args.op;
  const int k = k_of(op.a), n = op.n, size_a = bytes_of(op.a), size_b = bytes_of(op.b);
  float* a = static_cast<float*>(malloc(sizeof(float) * size_t(k) * (m + n)));
  float* b = a + m * k;  // by k, then n
  if (args.registers) {
    const int packed = 4 / size_a;
    for (int thread = 0; thread < threads; thread++)
      for (int i = 0; i < k / 2; i++) {
        const Place at = place_a(thread, i, packed);
        const uint8_t* from = reinterpret_cast<const uint8_t*>(of(warps, thread).registers);
        a[at.row * k + at.col] = decoded(op.a, from + i * size_a);
      }
  } else {
    for (int i = 0; i < m * k; i++) a[i] = decoded(op.a, operation.before_a + size_t(i) * size_a);
  }
  for (int j = 0; j < n; j++)
    for (int x = 0; x < k; x++)
      b[x * n + j] = decoded(op.b, operation.before_b + (size_t(j) * k + x) * size_b);
  if (op.negate_a != op.negate_b)
    for (int i = 0; i < m * k; i++) a[i] = -a[i];
  if (!args.scale_d) memset(sums, 0, sizeof(float) * m * n);
  const char* d_name = op.d == Sum::f32 ? "f32" : op.d == Sum::f16 ? "f16" : "s32";
  const MatrixOp what{m, n, k, d_name, name_of(op.a), name_of(op.b), d_name, op.saturate, true};
  if (is_integer(op.a)) {
    int32_t* whole = reinterpret_cast<int32_t*>(a);
    for (int i = 0; i < k * (m + n); i++) whole[i] = int32_t(a[i]);
    matrix_arithmetic().s32(what, whole, whole + m * k, reinterpret_cast<int32_t*>(sums));
  } else {
    matrix_arithmetic().f32(what, a, b, sums);
    if (op.d == Sum::f16)
      for (int i = 0; i < m * n; i++) sums[i] = value<f16>(raw<f16>(sums[i]));
  }
  free(a);
}

void issue(tg::Collective& warps) {
  const Args& args = of(warps, 0);
  Group& group = group_of(warps);
  check_agreement(warps);
  if ((args.op.transpose_a || args.op.transpose_b) && bytes_of(args.op.a) != 2)
    tg::fail("bad-argument", args.line, "wgmma: only 16-bit operands may be M- or N-major");
  check_descriptor(args.b, "B", args.line);
  if (!args.registers) check_descriptor(args.a, "A", args.line);
  tg::Thread* before = tg::act_as(warps.threads[0]);
  Operation operation{args.op, args.a, args.b, !args.registers, nullptr, nullptr, args.d[0], args.line, group.open};
  if (operation.a_shared)
    operation.before_a = gathered(args.a, args.op.a, args.op.transpose_a, m, true, args.line);
  operation.before_b = gathered(args.b, args.op.b, args.op.transpose_b, args.op.n, true, args.line);
  tg::act_as(before);
  Accumulator& acc = accumulator(group, warps);
  acc.operations++;
  multiply(args, warps, operation, acc.values);
  group.operations.push(operation);
}

void commit(tg::Collective& warps) { group_of(warps).open++; }

void check_unchanged(const Operation& one, uint8_t* before, uint64_t descriptor, Element element,
                     bool mn_major, int mn, const char* name) {
  uint8_t* now = gathered(descriptor, element, mn_major, mn, false, one.line);
  if (memcmp(before, now, size_t(mn) * k_of(element) * bytes_of(element)))
    tg::fail("data-race", one.line, "shared memory of operand %s changed while the wgmma was in flight", name);
  free(now);
}

void retire(Group& group, Operation& one) {
  if (one.a_shared) check_unchanged(one, one.before_a, one.a, one.op.a, one.op.transpose_a, m, "A");
  check_unchanged(one, one.before_b, one.b, one.op.b, one.op.transpose_b, one.op.n, "B");
  free(one.before_a);
  free(one.before_b);
  for (uint32_t i = 0; i < group.accumulators.size; i++) {
    Accumulator& acc = group.accumulators[i];
    if (acc.key != one.key || --acc.operations) continue;
    each_sum(acc, [&](float& sum, uint8_t* place) {
      const uint16_t half = acc.kind == Sum::f16 ? raw<f16>(sum) : 0;
      if (acc.kind == Sum::f16) memcpy(place, &half, 2);
      else memcpy(place, &sum, 4);
    });
    free(acc.values);
    free(acc.places);
    group.accumulators.erase(i, 1);
    return;
  }
}

void wait(tg::Collective& warps) {
  Group& group = group_of(warps);
  const uint32_t n = *static_cast<uint32_t*>(warps.args[0]);
  const uint32_t done = group.open > n ? group.open - n : 0;
  while (!group.operations.empty() && group.operations[0].group < done) {
    retire(group, group.operations[0]);
    group.operations.erase(0, 1);
  }
  // The reads were noted as the first thread's, but each of the 128 may be the one that releases the
  // memory: their clocks are joined. A race inside a warpgroup across a wait can hide behind this.
  const uint64_t key = reinterpret_cast<uintptr_t>(&group);
  tg::Thread* before = tg::current;
  for (int pass = 0; pass < 2; pass++)
    for (int thread = 0; thread < threads; thread++) {
      tg::act_as(warps.threads[thread]);
      if (pass) tg::sync_acquire(key);
      else tg::sync_release(key);
    }
  tg::act_as(before);
}

}  // namespace

uint32_t wgmma_address(uint64_t descriptor, int element_bytes, bool mn_major, int mn, int k) {
  const int start = int(descriptor & 0x3fff) << 4, leading = int(descriptor >> 16 & 0x3fff) << 4,
            stride = int(descriptor >> 32 & 0x3fff) << 4, mode = int(descriptor >> 62);
  const int span = mode == 1 ? 128 : mode == 2 ? 64 : mode == 3 ? 32 : 0;
  const int chunk = 16 / element_bytes, row = span ? span : 16;  // elements of 16 bytes; bytes of a row
  int offset;
  if (!mn_major)
    offset = mn % 8 * row + mn / 8 * stride + k % chunk * element_bytes + k / chunk * (span ? 16 : leading);
  else if (!span)
    offset = mn % chunk * element_bytes + mn / chunk * stride + k % 8 * 16 + k / 8 * leading;
  else
    offset = mn % chunk * element_bytes + mn / chunk % (span / 16) * 16 + mn / (chunk * (span / 16)) * leading +
             k % 8 * span + k / 8 * stride;
  return swizzled(uint32_t(start + offset) & 0x3ffff, uint32_t(span));
}

void wgmma(const WgmmaOp& op, void* const* d, const uint32_t* registers, uint64_t a, uint64_t b,
           bool scale_d, int line) {
  if (!fenced[tg::current->linear])
    tg::fail("missing-fence", line, "wgmma.mma_async without a wgmma.fence before it");
  Args args{op, d, registers, a, b, scale_d, line};
  tg::group_collective("wgmma.mma_async", 4, &args, issue, line);
}
void wgmma_fence(int) { fenced[tg::current->linear] = true; }
void wgmma_commit_group(int line) {
  tg::group_collective("wgmma.commit_group", 4, nullptr, commit, line);
}
void wgmma_wait_group(uint32_t n, int line) {
  tg::group_collective("wgmma.wait_group", 4, &n, wait, line);
  fenced[tg::current->linear] = false;
}

}  // namespace tg_ptx
