"""Bulk copies, their waits and proxies, and what barriers, mbarriers and fences hand over to others."""

from __future__ import annotations

import numpy as np
import pytest
from emulated.test_ptx_memory import clean, kinds, run

PROXY_FENCE = 'asm volatile("fence.proxy.async.shared::cta;" ::: "memory");'
INIT_FENCE = 'asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");'
WORDS = np.arange(256, dtype=np.uint32) + 1

LOAD = """
unsigned* o, const unsigned* a
  __shared__ __align__(128) unsigned s[256];
  __shared__ __align__(8) unsigned long long full;
  if (t == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(at(&full)) : "memory");
    FENCE
  }
  __syncthreads();
  if (t == 0) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 1024;" :: "r"(at(&full)) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 1024, [%2];" :: "r"(at(s)), "l"(a), "r"(at(&full)) : "memory");
  }
  asm volatile("{ .reg .pred p; W: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0; @!p bra W; }" :: "r"(at(&full)) : "memory");
  for (int i = t; i < 256; i += 32) o[i] = s[255 - i];"""


@pytest.mark.parametrize("fence", [PROXY_FENCE, INIT_FENCE])
def test_a_plain_bulk_load_brings_every_byte(fence: str) -> None:
    out, _ = clean(LOAD.replace("FENCE", fence), [np.zeros(256, np.uint32), WORDS])
    assert np.array_equal(out, WORDS[::-1])


def test_the_async_proxy_must_be_told_of_a_new_mbarrier() -> None:
    found = run(LOAD.replace("FENCE", ""), [np.zeros(256, np.uint32), WORDS])
    assert {f.kind for f in found.findings} == {"missing-proxy-fence"}


STORE = """
unsigned* o
  __shared__ __align__(128) unsigned s[256];
  for (int round = 0; round < 2; round++) {
    for (int i = t; i < 256; i += 32) s[i] = 1000 * round + i;
    PROXY_FENCE
    __syncthreads();
    if (t == 0) asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 1024; cp.async.bulk.commit_group;" :: "l"(o + 256 * round), "r"(at(s)) : "memory");
    WAIT
    __syncthreads();
  }
  END""".replace("PROXY_FENCE", PROXY_FENCE)
WAIT_READ, WAIT = (
    f'if (t == 0) asm volatile("cp.async.bulk.wait_group{read} 0;" ::: "memory");'
    for read in (".read", "")
)


def bulk_stores(wait: str, end: str) -> str:
    return STORE.replace("WAIT", wait).replace("END", end)


def test_bulk_stores_write_the_output_once_and_their_source_is_free_after_the_wait() -> None:
    (out,) = clean(bulk_stores(WAIT_READ, WAIT), [np.zeros(512, np.uint32)], outputs=[0])
    assert np.array_equal(out, [1000 * r + i for r in range(2) for i in range(256)])


def test_a_bulk_store_that_nobody_waits_for_still_reads_its_source() -> None:
    assert "data-race" in kinds(bulk_stores("", WAIT), [np.zeros(512, np.uint32)])
    same_again = bulk_stores("", WAIT).replace("1000 * round", "0")
    assert "data-race" in kinds(same_again, [np.zeros(512, np.uint32)])


def test_a_bulk_store_counts_as_a_write_of_the_engine() -> None:
    twice = bulk_stores(WAIT, "").replace("o + 256 * round", "o")
    assert "written-twice" in kinds(twice, [np.zeros(256, np.uint32)], outputs=[0])
    # Having been read is not yet having been written.
    early = bulk_stores(WAIT_READ, "if (t == 0) o[3] = 5;") + WAIT
    assert "data-race" in kinds(early, [np.zeros(512, np.uint32)])
    late = bulk_stores(WAIT, "if (t == 0) o[3] = 5;")
    assert kinds(late, [np.zeros(512, np.uint32)]) == set()


@pytest.mark.parametrize(
    ("before", "between", "after", "kind"),
    [
        ("", PROXY_FENCE, "", set()),
        ("", "", PROXY_FENCE, set()),
        ("", "", "", {"missing-proxy-fence"}),
        (PROXY_FENCE, "", "", {"missing-proxy-fence"}),
    ],
    ids=["by the writer", "by the reader", "none", "too early"],
)
def test_a_proxy_fence_stands_on_the_way_from_the_write_to_the_read(
    before: str, between: str, after: str, kind: set[str]
) -> None:
    body = f"""
unsigned* o
  __shared__ __align__(128) unsigned s[32];
  {before}
  s[t] = 3 * t;
  {between}
  __syncthreads();
  if (t == 0) {{
    {after}
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 128; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" :: "l"(o), "r"(at(s)) : "memory");
  }}"""
    result = run(body, [np.zeros(32, np.uint32)])
    assert {f.kind for f in result.findings} == kind
    assert np.array_equal(result.arrays[0], 3 * np.arange(32))


ARRIVE_AND_EXIT = """
unsigned* o
  __shared__ unsigned s[64];
  if (t >= 32) {
    s[t - 32] = 7 * t;
    asm volatile("bar.arrive 1, 64;" ::: "memory");
    MORE
    return;
  }
  asm volatile("bar.sync 1, 64;" ::: "memory");
  o[t] = s[31 - t] + s[32 + t];"""


def test_who_arrives_at_a_barrier_may_exit_and_hands_over_what_came_before() -> None:
    body = ARRIVE_AND_EXIT.replace(" + s[32 + t]", "").replace("MORE", "")
    (out,) = clean(body, [np.zeros(32, np.uint32)], threads=64)
    assert np.array_equal(out, 7 * (63 - np.arange(32)))


def test_what_follows_an_arrival_is_not_handed_over() -> None:
    body = ARRIVE_AND_EXIT.replace("MORE", "s[t] = 1;")
    assert kinds(body, [np.zeros(32, np.uint32)], threads=64) >= {"data-race"}


def test_a_second_arrival_does_not_count_for_others() -> None:
    body = """
unsigned* o
  o[t] = t;
  if (t >= 32)
    asm volatile("bar.arrive 1, 96; bar.arrive 1, 96;" ::: "memory");
  else
    asm volatile("bar.sync 1, 96;" ::: "memory");
  __syncthreads();"""
    assert kinds(body, [np.zeros(64, np.uint32)], threads=64) == {"divergent-barrier"}


def test_dynamic_shared_memory_is_aligned_behind_static_variables() -> None:
    body = """
unsigned* o
  __shared__ unsigned own;
  extern __shared__ __align__(1024) unsigned char dynamic[];
  if (t == 0) own = 9;
  dynamic[t] = t;
  __syncthreads();
  o[t] = at(dynamic) % 1024 + own + dynamic[31 - t];"""
    (out,) = clean(body, [np.zeros(32, np.uint32)], shared_bytes=64)
    assert np.array_equal(out, 9 + 31 - np.arange(32))


BLOCKS = """
unsigned* o, unsigned* parts, unsigned* ticket
  __shared__ unsigned last;
  parts[blockIdx.x * 64 + t] = t + 1;
  FENCE
  BARRIER
  if (t == 0) last = atomicAdd(ticket, 1u) == gridDim.x - 1;
  __syncthreads();
  if (last) {
    __threadfence();
    o[t] = parts[63 - t] + parts[64 + t] + parts[128 + t];
  }"""


def test_fence_barrier_and_ticket_order_blocks() -> None:
    args = [np.zeros(n, np.uint32) for n in (64, 192, 1)]
    body = BLOCKS.replace("FENCE", "__threadfence();").replace("BARRIER", "__syncthreads();")
    out = clean(body, args, threads=64, grid=3)[0]
    assert np.array_equal(out, 64 - np.arange(64) + 2 * (np.arange(64) + 1))


@pytest.mark.parametrize(("fence", "barrier"), [("", "__syncthreads();"), ("__threadfence();", "")])
def test_blocks_without_fence_or_barrier_race(fence: str, barrier: str) -> None:
    args = [np.zeros(n, np.uint32) for n in (64, 192, 1)]
    body = BLOCKS.replace("FENCE", fence).replace("BARRIER", barrier)
    assert "data-race" in kinds(body, args, threads=64, grid=3)


PHASES = """
unsigned* o
  __shared__ unsigned s[2];
  __shared__ __align__(8) unsigned long long b;
  if (t == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 2;" :: "r"(at(&b)) : "memory");
  __syncthreads();
  if (t < 32) {
    if (t == 0) s[0] = 5;
    if (t < 2) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(at(&b)) : "memory");
    __syncwarp();
    if (t == 0) {
      s[1] = 6;
      asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(at(&b)) : "memory");
    }
  } else if (t == 32) {
    asm volatile("{ .reg .pred p; W: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0; @!p bra W; }" :: "r"(at(&b)) : "memory");
    o[0] = s[WORD];
  }"""


def test_a_wait_takes_over_the_arrivals_of_its_phase() -> None:
    (out,) = clean(PHASES.replace("WORD", "0"), [np.zeros(1, np.uint32)], threads=64)
    assert out[0] == 5


def test_a_wait_does_not_take_over_arrivals_of_a_phase_that_is_open() -> None:
    found = kinds(PHASES.replace("WORD", "1"), [np.zeros(1, np.uint32)], threads=64)
    assert "data-race" in found


@pytest.mark.parametrize(("count", "ok"), [(232, True), (231, False), (16, False), (264, False)])
def test_register_counts(count: int, ok: bool) -> None:
    body = (
        f'\nunsigned* o\n  asm volatile("setmaxnreg.inc.sync.aligned.u32 {count};");\n  o[t] = t;'
    )
    result = run(body, [np.zeros(128, np.uint32)], threads=128)
    assert ({f.kind for f in result.findings} == {"bad-argument"}) != ok
    assert not ok or np.array_equal(result.arrays[0], np.arange(128))
