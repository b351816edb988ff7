"""Instructions among lanes and threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from emulated.test_ptx_memory import clean, run

LANES = np.arange(32)
DATA = np.random.default_rng(3).integers(0, 1 << 32, 32, dtype=np.uint32)


def shuffled(mode: str, b: int, c: int) -> tuple[np.ndarray, np.ndarray]:
    """Source lanes and predicates, as the document's table has them."""
    clamp, segment = c & 31, c >> 8 & 31
    sources, inside = [], []
    for lane in range(32):
        high, low = (lane & segment) | (clamp & ~segment), lane & segment
        j = {"up": lane - b, "down": lane + b, "bfly": lane ^ b, "idx": low | (b & ~segment)}[mode]
        ok = j >= high if mode == "up" else j <= high
        sources.append(j if ok else lane)
        inside.append(ok)
    return np.array(sources), np.array(inside)


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
@pytest.mark.parametrize(("b", "width"), [(1, 32), (3, 8), (16, 32), (5, 16)])
def test_shfl(mode: str, b: int, width: int) -> None:
    c = (32 - width) << 8 | (0 if mode == "up" else 31)
    body = f"""
unsigned* o, const unsigned* a
  unsigned x, p;
  asm volatile("{{ .reg .pred p; shfl.sync.{mode}.b32 %0|p, %2, {b}, {c:#x}, 0xffffffff; selp.u32 %1, 1, 0, p; }}" : "=r"(x), "=r"(p) : "r"(a[t]));
  o[2 * t] = x; o[2 * t + 1] = p;"""
    out = clean(body, [np.zeros(64, np.uint32), DATA])[0].reshape(32, 2)
    sources, inside = shuffled(mode, b, c)
    assert np.array_equal(out[:, 0], DATA[sources])
    assert np.array_equal(out[:, 1], inside)


def test_a_shuffle_from_an_inactive_lane_is_found() -> None:
    body = """
unsigned* o
  unsigned x = 0;
  if (t < 16) asm volatile("shfl.sync.idx.b32 %0, %1, 20, 31, 0xffff;" : "=r"(x) : "r"(t));
  o[t] = x;"""
    found = run(body, [np.zeros(32, np.uint32)]).findings
    assert {f.kind for f in found} == {"inactive-lane"}
    assert found[0].line == 6


def test_vote_match_redux_elect() -> None:
    body = """
unsigned* o, const unsigned* a
  unsigned b, all, any, uni, m, lane, r, mine = a[t] % 5;
  asm volatile("{ .reg .pred p, q; setp.gt.u32 p, %4, 2; vote.sync.ballot.b32 %0, p, -1; vote.sync.all.pred q, p, -1; selp.u32 %1, 1, 0, q;"
    " vote.sync.any.pred q, !p, -1; selp.u32 %2, 1, 0, q; vote.sync.uni.pred q, p, -1; selp.u32 %3, 1, 0, q; }" : "=r"(b), "=r"(all), "=r"(any), "=r"(uni) : "r"(mine));
  asm volatile("match.any.sync.b32 %0, %1, 0xffffffff;" : "=r"(m) : "r"(mine));
  asm volatile("redux.sync.add.u32 %0, %1, 0xffffffff;" : "=r"(r) : "r"(mine));
  asm volatile("{ .reg .pred p; elect.sync %0|p, 0xffffffff; @!p mov.u32 %0, 99; }" : "=r"(lane) :);
  o[t] = b; o[32 + t] = all; o[64 + t] = any; o[96 + t] = uni; o[128 + t] = m; o[160 + t] = r; o[192 + t] = lane;"""
    out = clean(body, [np.zeros(224, np.uint32), DATA])[0].reshape(7, 32)
    mine = DATA % 5
    bits = 1 << LANES
    assert (out[0] == ((mine > 2) * bits).sum()).all()
    assert (out[1] == 0).all()
    assert (out[2] == 1).all()
    assert (out[3] == 0).all()
    assert np.array_equal(out[4], [((mine == x) * bits).sum() for x in mine])
    assert (out[5] == mine.sum()).all()
    assert np.array_equal(out[6], np.where(LANES == 0, 0, 99))


SPECIAL = {
    "%tid.x": lambda t: t % 8, "%tid.y": lambda t: t // 8, "%ntid.y": lambda t: 8 + 0 * t,
    "%laneid": lambda t: t % 32, "%lanemask_lt": lambda t: (1 << t % 32) - 1,
    "%lanemask_ge": lambda t: 0x100000000 - (1 << t % 32), "%warpid": lambda t: t // 32,
    "%lanemask_eq": lambda t: 1 << t % 32, "%lanemask_gt": lambda t: 0x100000000 - (2 << t % 32),
    "%lanemask_le": lambda t: (2 << t % 32) - 1,
}  # fmt: skip


def test_special_registers() -> None:
    from tilegen import emulator

    reads = "\n".join(
        f'  asm("mov.u32 %0, %{name};" : "=r"(x)); o[{i} * 64 + t] = x;'
        for i, name in enumerate(SPECIAL)
    )
    text = f'extern "C" __global__ void k(unsigned* o) {{ unsigned x, t = threadIdx.x + 8 * threadIdx.y;\n{reads} }}'
    result = emulator.run(
        text, entry="k", grid=1, block=(8, 8), args=[np.zeros(64 * len(SPECIAL), np.uint32)]
    )
    assert not result.findings
    rows = result.arrays[0].reshape(len(SPECIAL), 64)
    for row, (name, model) in zip(rows, SPECIAL.items(), strict=True):
        assert np.array_equal(row, model(np.arange(64)) & 0xFFFFFFFF), name


def test_named_barriers_pass_data_between_two_warps() -> None:
    body = """
unsigned* o
  __shared__ unsigned s[32];
  if (t < 32) { s[t] = 3 * t; asm volatile("barrier.cta.arrive 1, 64;" ::: "memory"); }
  else if (t < 64) { asm volatile("bar.sync %0, %1;" :: "r"(1), "n"(64) : "memory"); o[t - 32] = s[63 - t]; }
  asm volatile("barrier.sync 0;" ::: "memory");
  unsigned n;
  asm volatile("{ .reg .pred p; setp.lt.u32 p, %1, 10; barrier.cta.red.popc.aligned.u32 %0, 2, p; }" : "=r"(n) : "r"(t) : "memory");
  asm volatile("bar.warp.sync 0xffffffff; membar.cta; fence.acq_rel.gpu;" ::: "memory");
  o[32 + t] = n;"""
    out = clean(body, [np.zeros(128, np.uint32)], threads=96)[0]
    assert np.array_equal(out[:32], 3 * LANES[::-1])
    assert (out[32:] == 10).all()


MBARRIER = """
unsigned* o
  __shared__ unsigned long long bar[2]; __shared__ unsigned s[32];
  unsigned full = at(&bar[0]), empty = at(&bar[1]);
  if (t == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 32;\\nmbarrier.init.shared.b64 [%1], 32; fence.mbarrier_init.release.cluster;" :: "r"(full), "r"(empty) : "memory");
  __syncthreads();
  for (int i = 0; i < 4; i++) {
    if (t < 32) {
      asm volatile("{ .reg .pred P1; LAB_WAIT: mbarrier.try_wait.parity.shared::cta.b64 P1, [%0], %1; @P1 bra.uni DONE; bra.uni LAB_WAIT; DONE: }" :: "r"(empty), "r"((i & 1) ^ 1) : "memory");
      s[t] = 10 * i + t;
      asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(full) : "memory");
    } else {
      unsigned ready = 0;
      while (!ready) asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }" : "=r"(ready) : "r"(full), "r"(i & 1) : "memory");
      o[32 * i + t - 32] = s[63 - t];
      asm volatile("{ .reg .b64 state; mbarrier.arrive.release.cta.shared::cta.b64 state, [%0]; }" :: "r"(empty) : "memory");
    }
  }"""


def test_mbarriers_between_a_producer_and_a_consumer() -> None:
    out = clean(MBARRIER, [np.zeros(128, np.uint32)], threads=64)[0].reshape(4, 32)
    assert np.array_equal(out, 10 * np.arange(4)[:, None] + LANES[::-1])


BROKEN = {
    "deadlock": ("(i & 1) ^ 1", "i & 1"),
    "data-race": ("while (!ready)", "while (i == 9)"),
    "bad-mbarrier": ("mbarrier.init.shared.b64 [%1], 32;", ""),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_mbarriers_are_found(kind: str) -> None:
    before, after = BROKEN[kind]
    assert before in MBARRIER
    found = run(MBARRIER.replace(before, after), [np.zeros(128, np.uint32)], threads=64).findings
    assert kind in {f.kind for f in found}, found


def test_mbarrier_states_and_counts() -> None:
    body = """
unsigned* o
  __shared__ unsigned long long bar; unsigned b = at(&bar), before, after; unsigned long long state;
  if (t == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(b), "r"(2) : "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 %0, [%1], %2;" : "=l"(state) : "r"(b), "r"(16) : "memory");
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], 1;" :: "r"(b) : "memory");
    asm volatile("{ .reg .pred p; mbarrier.test_wait.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }" : "=r"(before) : "r"(b), "l"(state) : "memory");
    asm volatile("mbarrier.complete_tx.shared::cta.b64 [%0], 16;" :: "r"(b) : "memory");
    asm volatile("{ .reg .pred p; mbarrier.try_wait.shared::cta.b64 p, [%1], %2, 1000; selp.u32 %0, 1, 0, p; }" : "=r"(after) : "r"(b), "l"(state) : "memory");
    o[0] = before; o[1] = after;
  }"""
    out = clean(body, [np.zeros(2, np.uint32)])[0]
    assert out.tolist() == [0, 1]


def test_cp_async_arrives_at_an_mbarrier() -> None:
    body = """
float* o, const float* a
  __shared__ unsigned long long bar; alignas(16) __shared__ float s[128]; unsigned b = at(&bar);
  if (t == 0) asm volatile("mbarrier.init.shared.b64 [%0], 32;" :: "r"(b) : "memory");
  __syncthreads();
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16; cp.async.mbarrier.arrive.noinc.shared.b64 [%2];" :: "r"(at(&s[4 * t])), "l"(a + 4 * t), "r"(b) : "memory");
  asm volatile("{ .reg .pred p; W: mbarrier.try_wait.parity.shared.b64 p, [%0], 0; @!p bra W; }" :: "r"(b) : "memory");
  o[t] = s[127 - t];
  asm volatile("cp.async.wait_all;" ::: "memory");"""
    a = np.arange(128, dtype=np.float32)
    out = clean(body, [np.zeros(32, np.float32), a])[0]
    assert np.array_equal(out, a[::-1][:32])


def divergent(text: str) -> dict[str, Any]:
    return {f.kind: f for f in run(text, [np.zeros(32, np.uint32)]).findings}


def test_a_divergent_collective_is_found() -> None:
    body = """
unsigned* o
  unsigned a = t, b;
  if (t != 5) asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(b) : "r"(a));
  o[t] = b;"""
    assert "divergent-collective" in divergent(body)
