"""Loads, stores, atomics and asynchronous copies of inline PTX, and the faults that they can have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilegen import emulator

HEAD = """
__device__ unsigned at(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
"""


def run(
    body: str, args: list[Any], *, threads: int = 32, grid: int = 1, **more: Any
) -> emulator.EmulatorRun:
    """A kernel `k` whose parameters stand in the first line of the body."""
    parameters, _, rest = body.strip().partition("\n")
    text = f'{HEAD}extern "C" __global__ void k({parameters}) {{\n  unsigned t = threadIdx.x;\n{rest}\n}}\n'
    return emulator.run(text, "cuda", entry="k", grid=grid, block=threads, args=args, **more)


def clean(body: str, args: list[Any], **more: Any) -> list[np.ndarray]:
    result = run(body, args, **more)
    assert not result.findings, str(result)
    return list(result.arrays)


def kinds(body: str, args: list[Any], **more: Any) -> set[str]:
    return {f.kind for f in run(body, args, **more).findings}


WORDS = np.arange(64, dtype=np.uint32) * 0x01010101 + 0x80


def test_widths_and_signs_of_loads() -> None:
    body = """
int* o, const unsigned* a
  int x, y; unsigned z; unsigned short h;
  const void* p = a + t;
  asm volatile("ld.global.s8 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.s16 %0, [%1 + 2];" : "=r"(y) : "l"(p) : "memory");
  asm volatile("ld.u8 %0, [%1+1];" : "=r"(z) : "l"(p) : "memory");
  asm volatile("ld.global.b8 %0, [%1+3];" : "=h"(h) : "l"(p) : "memory");
  o[4 * t] = x; o[4 * t + 1] = y; o[4 * t + 2] = z; o[4 * t + 3] = h;"""
    out, _ = clean(body, [np.zeros(128, np.int32), WORDS])
    parts = WORDS[:32]
    want = np.stack(
        [parts.view(np.int8)[::4], parts.view(np.int16)[1::2], parts.view(np.uint8)[1::4],
         parts.view(np.uint8)[3::4]], axis=1,
    )  # fmt: skip
    assert np.array_equal(out.reshape(32, 4), want.astype(np.int32))


def test_vectors_in_global_and_shared_memory() -> None:
    body = """
unsigned* o, const unsigned* a
  __shared__ uint4 s[32];
  unsigned x, y, z, w; unsigned long long u, v;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(x), "=r"(y), "=r"(z), "=r"(w) : "l"(a + 4 * t) : "memory");
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" :: "r"(at(&s[t])), "r"(w), "r"(z), "r"(y), "r"(x) : "memory");
  __syncthreads();
  asm volatile("ld.shared.v2.u64 {%0, %1}, [%2];" : "=l"(u), "=l"(v) : "r"(at(&s[31 - t])) : "memory");
  asm volatile("{ .reg .b64 g; cvta.to.global.u64 g, %0; st.global.v2.b64 [g], {%1, %2}; }" :: "l"(o + 4 * t), "l"(u), "l"(v) : "memory");"""
    a = np.arange(128, dtype=np.uint32)
    out, _ = clean(body, [np.zeros(128, np.uint32), a])
    assert np.array_equal(out.reshape(32, 4), a.reshape(32, 4)[::-1, ::-1])


def test_address_arithmetic_wraps_and_reaches_back() -> None:
    body = """
unsigned* o, const unsigned* a
  unsigned x;
  asm volatile("{ .reg .u64 p; mad.wide.u32 p, %2, 4, %1; ld.global.u32 %0, [p + -8]; }" : "=r"(x) : "l"(a + 2), "r"(t) : "memory");
  asm volatile("st.global.u32 [%0], %1;" :: "l"(o + t), "r"(x) : "memory");"""
    out, _ = clean(body, [np.zeros(32, np.uint32), WORDS])
    assert np.array_equal(out, WORDS[:32])


def test_a_predicate_keeps_a_load_from_happening() -> None:
    body = """
unsigned* o, const unsigned* a, int n
  unsigned x = 77;
  asm volatile("{ .reg .pred p; setp.lt.s32 p, %2, %3; @p ld.global.u32 %0, [%1]; @!p mov.u32 %0, 5; }" : "+r"(x) : "l"(a + t), "r"((int)t), "r"(n) : "memory");
  o[t] = x;"""
    a = np.arange(20, dtype=np.uint32)
    out, _ = clean(body, [np.zeros(32, np.uint32), a, 20])
    assert np.array_equal(out, np.r_[a, np.full(12, 5)])


ATOMICS = [
    ("add.u32", lambda x: x.sum()), ("max.s32", lambda x: x.view(np.int32).max()),
    ("min.u32", np.min), ("and.b32", np.bitwise_and.reduce), ("or.b32", np.bitwise_or.reduce),
    ("xor.b32", np.bitwise_xor.reduce),
]  # fmt: skip


@pytest.mark.parametrize(("name", "model"), ATOMICS, ids=[n for n, _ in ATOMICS])
@pytest.mark.parametrize("space", ["global", "shared"])
def test_atomics(name: str, model: Any, space: str) -> None:
    first = {"add.u32": 0, "max.s32": 1 << 31, "min.u32": 0xFFFFFFFF, "and.b32": 0xFFFFFFFF}.get(
        name, 0
    )
    body = f"""
unsigned* o, const unsigned* a
  __shared__ unsigned s; unsigned old = 0;
  if (t == 0) {{ s = {first}u; o[0] = {first}u; }}
  __syncthreads();
  if (t & 1) asm volatile("atom.{space}.{name} %0, [%1], %2;" : "=r"(old) : "{"r" if space == "shared" else "l"}"({"at(&s)" if space == "shared" else "o"}), "r"(a[t]) : "memory");
  else asm volatile("red.relaxed.cta.{space}.{name} [%0], %1;" :: "{"r" if space == "shared" else "l"}"({"at(&s)" if space == "shared" else "o"}), "r"(a[t]) : "memory");
  __syncthreads();
  if (t == 0 && {int(space == "shared")}) o[0] = s;"""
    a = np.random.default_rng(1).integers(0, 1 << 32, 32, dtype=np.uint32)
    out, _ = clean(body, [np.zeros(1, np.uint32), a])
    assert int(out[0]) == int(model(a)) & 0xFFFFFFFF


def test_compare_and_swap_and_float_add() -> None:
    body = """
unsigned* o, float* f
  unsigned old, mine = t; float was;
  asm volatile("atom.global.cas.b32 %0, [%1], %2, %3;" : "=r"(old) : "l"(o), "r"(0u), "r"(mine + 1) : "memory");
  o[1 + t] = old;
  asm volatile("atom.add.f32 %0, [%1], %2;" : "=f"(was) : "l"(f), "f"(0.5f) : "memory");"""
    out, f = clean(body, [np.zeros(33, np.uint32), np.zeros(1, np.float32)], orders=(0,))
    assert out[0] == 1
    assert out[1] == 0
    assert (out[2:] == 1).all()
    assert f[0] == 16


PIPE = """
float* o, const float* a, int n
  alignas(16) __shared__ float s[2][128];
  unsigned p = at(&s[0][4 * t]), q = at(&s[1][4 * t]);
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], %2;" :: "r"(p), "l"(a + 4 * t), "n"(16) : "memory");
  asm volatile("cp.async.commit_group;" ::: "memory");
  int bytes = 4 * (int)t < n ? 16 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;\\ncp.async.commit_group;" :: "r"(q), "l"(a + 4 * t), "r"(bytes) : "memory");
  asm volatile("cp.async.wait_group %0;" :: "n"(1) : "memory");
  __syncthreads();
  o[t] = s[0][127 - t];
  asm volatile("cp.async.wait_all;" ::: "memory");
  __syncthreads();
  o[32 + t] = s[1][4 * t] + s[1][127];"""


def test_asynchronous_copies_with_zeros() -> None:
    a = np.arange(1, 129, dtype=np.float32)
    out, _ = clean(PIPE, [np.zeros(64, np.float32), a, 64])
    assert np.array_equal(out[:32], a[::-1][:32])
    assert np.array_equal(out[32:], np.where(np.arange(32) < 16, a[::4], 0))


@pytest.mark.parametrize(
    ("before", "after"),
    [('wait_group %0;" :: "n"(1)', 'wait_group %0;" :: "n"(2)'), ("cp.async.wait_all", "// ")],
)
def test_a_wrong_wait_is_found(before: str, after: str) -> None:
    broken = PIPE.replace(before, after)
    assert broken != PIPE
    assert run(broken, [np.zeros(64, np.float32), np.arange(1, 129, dtype=np.float32), 64]).findings


def test_ignore_src_and_small_copies() -> None:
    body = """
float* o, const float* a
  __shared__ float s[32];
  asm volatile("{ .reg .pred p; setp.ge.u32 p, %2, 20; cp.async.ca.shared.global [%0], [%1], 4, p; cp.async.wait_all; }" :: "r"(at(&s[t])), "l"(a + t), "r"(t) : "memory");
  __syncthreads();
  o[t] = s[t];"""
    a = np.arange(1, 33, dtype=np.float32)
    out, _ = clean(body, [np.zeros(32, np.float32), a])
    assert np.array_equal(out, np.where(np.arange(32) < 20, a, 0))


FAULTS = {
    "out-of-bounds": 'unsigned* o\n  asm volatile("st.global.u32 [%0], %1;" :: "l"(o + t + 1), "r"(t) : "memory");',
    "misaligned": 'unsigned* o\n  asm volatile("st.global.u32 [%0 + 2], %1;" :: "l"(o + t), "r"(t) : "memory");',
    "wrong-space": 'unsigned* o\n  __shared__ unsigned s[32]; s[t] = 0;\n  asm volatile("st.shared.u32 [%0], %1;" :: "l"(&s[t]), "r"(t) : "memory");',
    "data-race": 'unsigned* o\n  __shared__ unsigned s[32];\n  unsigned x;\n  asm volatile("st.shared.u32 [%0], %1;" :: "r"(at(&s[t])), "r"(t) : "memory");\n  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(at(&s[31 - t])) : "memory");\n  o[t] = x;',
}


@pytest.mark.parametrize("kind", FAULTS)
def test_faults_are_named(kind: str) -> None:
    found = run(FAULTS[kind], [np.zeros(32, np.uint32)]).findings
    assert kind in {f.kind for f in found}, found
    # HEAD, its blank line and the kernel's first two lines stand before the body.
    assert all(f.line is None or f.line > 3 for f in found)
