"""Inline PTX: what the translation says of constraints, what it refuses, and the lines it keeps."""

from __future__ import annotations

import re

import pytest

from tilegen.emulator.ptx import ERROR, REFUSAL, WARNING, Finding, translate

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"


def found(ptx: str, operands: str = "", *, volatile: bool = True) -> list[Finding]:
    word = "volatile " if volatile else ""
    return list(translate(f'asm {word}("{ptx}" {operands});').findings)


def one(ptx: str, operands: str = "", *, volatile: bool = True) -> Finding:
    (finding,) = found(ptx, operands, volatile=volatile)
    return finding


GOOD = [
    ("add.u32 %0, %1, %2;", ': "=r"(x) : "r"(a), "n"(3)'),
    ("add.u32 %0, %0, 1;", ': "+r"(x)'),
    ("add.f32 %0, %1, %1;", ': "=r"(x) : "r"(a)'),
    ("st.global.f32 [%0], %1;", ':: "l"(p), "f"(x) : "memory"'),
    ("ld.global.u8 %0, [%1];", ': "=r"(x) : "l"(p) : "memory"'),
    ("cvt.u16.u32 %0, %1;", ': "=h"(x) : "r"(a)'),
    ("{ .reg .pred p; setp.ne.b32 p, %1, 0; @p mov.u32 %0, 1; @!p mov.u32 %0, 2; }", ': "=r"(x) : "r"(a)'),
    ("{ .reg .b32 n; mov.u32 n, 3; L: sub.u32 n, n, 1; bra L; }", ""),
    ("", '::: "memory"'),
    (MMA, ': "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3) : "r"(a), "r"(a), "r"(a), "r"(a), "r"(b), "r"(b)'),
]  # fmt: skip


@pytest.mark.parametrize(("ptx", "operands"), GOOD, ids=[p or "empty" for p, _ in GOOD])
def test_correct_statements_have_no_finding(ptx: str, operands: str) -> None:
    assert found(ptx, operands) == []


# As CUTLASS, FlashAttention, Marlin, DeepGEMM, DeepEP and others write it.
WILD = [
    ("{ .reg .pred p; setp.ne.b32 p, %5, 0; mov.b32 %0, %6; mov.b32 %1, %6; mov.b32 %2, %6; mov.b32 %3, %6;"
     " @p ld.global.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4]; }",
     ': "=r"(x), "=r"(x), "=r"(x), "=r"(x) : "l"(p), "r"(ok), "r"(z) : "memory"'),
    ("{ .reg .pred p; setp.ne.b32 p, %0, 0; @p cp.async.ca.shared.global.L2::128B [%1], [%2], %3; }",
     ':: "r"(ok), "r"(s), "l"(p), "n"(16) : "memory"'),
    ("{ .reg .u64 smem_ptr; cvta.to.shared.u64 smem_ptr, %1; cvt.u32.u64 %0, smem_ptr; }", ': "=r"(s) : "l"(p)'),
    ("ld.global.acquire.gpu.b32 %0, [%1];", ': "=r"(x) : "l"(p) : "memory"'),
    ("ld.relaxed.gpu.global.L1::no_allocate.s32 %0, [%1];", ': "=r"(x) : "l"(p) : "memory"'),
    ("ld.global.nc.L1::no_allocate.L2::256B.v4.s32 {%0,%1,%2,%3}, [%4];",
     ': "=r"(x), "=r"(x), "=r"(x), "=r"(x) : "l"(p) : "memory"'),
    ("atom.add.release.gpu.global.s32 %0, [%1], %2;", ': "=r"(x) : "l"(p), "r"(v) : "memory"'),
    ("red.release.gpu.global.add.s32 [%0], %1;", ':: "l"(p), "r"(v) : "memory"'),
    ("red.global.v4.f32.add [%0], {%1, %1, %1, %1};", ':: "l"(p), "f"(v) : "memory"'),
    ("{ .reg .f16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, low; }", ': "=f"(x) : "r"(h)'),
    ("{ .reg .b32 %%rx; .reg .pred %%px; elect.sync %%rx|%%px, %2; @%%px mov.s32 %1, 1; mov.s32 %0, %%rx; }",
     ': "+r"(lane), "+r"(is) : "r"(0xffffffff)'),
    ("{ .reg .b32 remAddr32; mapa.shared::cluster.u32 remAddr32, %0, %1; mbarrier.arrive.shared::cluster.b64 _, [remAddr32]; }",
     ':: "r"(a), "r"(b) : "memory"'),
    ("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;", ': "=l"(x)'),
    ("prefetch.tensormap [%0];", ':: "l"(p) : "memory"'),
    ("lop3.b32 %0, %1, %2, %3, %4;", ': "=r"(x) : "r"(a), "n"(1), "n"(2), "n"((0xf0 & 0xcc) | 0xaa)'),
    ("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %2, %2, %2}, {%2, %2}, {%3, %3};",
     ': "=r"(x), "=r"(y) : "r"(a), "r"(c)'),
    ("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint"
     " [%0], [%1, {%4, %4, %4}], [%2], %3, %5;", ':: "r"(a), "l"(p), "r"(b), "h"(m), "r"(c), "l"(h) : "memory"'),
    ("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];",
     ':: "r"(a), "l"(p), "r"(n), "r"(b) : "memory"'),
    ("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2, %3; selp.b32 %0, 1, 0, p; }",
     ': "=r"(x) : "r"(b), "r"(ph), "r"(ticks) : "memory"'),
    ("{ .reg .pred p; setp.ne.s32 p, %1, 0; vote.ballot.sync.b32 %0, p, %2; }",
     ': "=r"(x) : "r"(v), "r"(mask)'),
    ("fma.rn.bf16x2 %0, %1, %2, %3;", ': "=r"(x) : "r"(a), "r"(b), "r"(c)'),
    ("mov.u64 %0, %globaltimer;", ': "=l"(x)'),
]  # fmt: skip


@pytest.mark.parametrize(("ptx", "operands"), WILD, ids=[p[:60] for p, _ in WILD])
def test_ptx_of_other_peoples_kernels(ptx: str, operands: str) -> None:
    assert found(ptx, operands) == []


BAD = [
    ("add.u32 %0, %0, %1;", ': "=r"(x) : "r"(a)', '%0 is read by add.u32 but is marked "=": write "+"'),
    (MMA, ': "=f"(d0), "+f"(d1), "+f"(d2), "+f"(d3) : "r"(a), "r"(a), "r"(a), "r"(a), "r"(b), "r"(b)', '"="'),
    ("fma.rn.f16x2 %0, %1, %1, %2;", ': "=r"(x) : "r"(a), "f"(b)', '"r" would suit'),
    ("add.u32 %0, %%tid.x, 1;", ': "=r"(x)', "only mov reads special registers"),
    ("add.u32 %1, %1, 1;", ': "+r"(x) : "r"(a)', "%1 is an input but add.u32 writes it"),
    ("add.u32 %0, %1, 1;", ': "=r"(x), "=r"(y) : "r"(a)', "read by add.u32"),
    ("mov.u32 %0, 1;", ': "=r"(x), "=r"(y)', "%1 is an output"),
    ("add.u32 %0, %1, %2;", ': "=r"(x) : "r"(a)', "%2 is no operand of this asm statement; the last is %1"),
    ("add.u64 %0, %1, %2;", ': "=l"(x) : "l"(a), "r"(b)', '"l" would suit'),
    ("add.s32 %0, %1, 1;", ': "=r"(x) : "f"(a)', "takes .s32 where %1 stands"),
    ("add.f64 %0, %1, %1;", ': "=d"(x) : "f"(a)', '"d" would suit'),
    ("{ .reg .s32 q; add.f32 q, %0, %0; }", ':: "f"(x)', "q stands: it is declared .s32"),
    ("{ .reg .b32 q, t; add.u32 t, q, 1; }", "", "q is read by add.u32 before anything wrote it"),
    ("ld.global.u32 %0, [%1];", ': "=r"(x) : "r"(a) : "memory"', "64-bit address"),
    ("cp.async.wait_group %0;", ':: "r"(n) : "memory"', 'use "n"'),
    ("mov.u32 %0, 1;", ': "=r"(x), "=q"(y)', "is not known"),
    ("{ .reg .b32 a; } mov.u32 %0, a;", ': "=r"(x)', "a is not declared"),
    ("bra L;", "", "the label L is not in this asm statement"),
    ("add.u32 %1, %0, 1;", ': "=r"(x) : "n"(3)', "a constant"),
]  # fmt: skip


@pytest.mark.parametrize(("ptx", "operands", "words"), BAD, ids=[w for *_, w in BAD])
def test_constraint_faults(ptx: str, operands: str, words: str) -> None:
    findings = found(ptx, operands)
    assert any(words in f.message for f in findings), findings
    assert {f.kind for f in findings} == {"constraint"}
    assert {f.severity for f in findings} == {ERROR}


REFUSED = [
    "foo.u32 %0, %1, %2;", "add.u8 %0, %1, %2;", "add.u32.foo %0, %1, %2;", "add.u32 %0, %1;",
    "mul.u32 %0, %1, %2;", "mad.f32 %0, %1, %1, %1;", "div.f32 %0, %1, %1;", "max.relu.f16x2 %0, %1, %1;", "fma.f32 %0, %1, %1, %1;", "cvt.f16.f32 %0, %1;", "cvt.s32.f32 %0, %1;",
    "cvt.rn.s32.s32 %0, %1;", "setp.lt.b32 p, %0, %1;", "setp.ltu.s32 p, %0, %1;",
    "mma.sync.aligned.m16n8k16.row.row.f32.f16.f16.f32 {%0}, {%0}, {%0}, {%0};",
    "mma.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {%0}, {%0}, {%0}, {%0};",
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f16 {%0}, {%0}, {%0}, {%0};",
    "mma.m16n8k16.row.col.f32.f16.f16.f32 {%0}, {%0}, {%0}, {%0};",
    "ldmatrix.sync.aligned.m8n8.x3.shared.b16 {%0}, [%1];", "ldmatrix.sync.aligned.m8n8.x1.b16 {%0, %1}, [%1];",
    "cp.async.cg.shared.global [%0], [%1], 8;", "cp.async.ca.shared.global [%0], [%1], 2;",
    "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%0], [%1], 16;", "activemask.b32 %0;",
    "wgmma.mma_async.sync.aligned.m64n12k16.f32.f16.f16 {%0}, %1, %1, 1, 1, 1, 0, 0;",
    "wgmma.mma_async.sync.aligned.m64n8k8.f32.f16.f16 {%0}, %1, %1, 1, 1, 1, 0, 0;",
    "ld.param.u32 %0, [x];", "exit;", "tcgen05.alloc.sync.aligned;", "fence.proxy.tensormap::generic.acquire.gpu;",
    "mbarrier.arrive.noComplete.shared.b64 _, [%0], 1;", "ex2.f32 %0, %1;", "ld.global.v4.u64 {%0,%0,%0,%0}, [%1];",
]  # fmt: skip


@pytest.mark.parametrize("ptx", REFUSED)
def test_what_is_not_known_is_refused_by_name_and_never_passes(ptx: str) -> None:
    text = f'\n\nasm volatile("nanosleep.u32 1;\\n"\n  "{ptx}" : "=r"(x) : "r"(a) : "memory");'
    result = translate(text)
    refused = [f for f in result.findings if f.severity == REFUSAL or "registers" in f.message]
    assert refused, result.findings
    name = ptx.split()[0].rstrip(";").split(".")[0]
    assert refused[0].line == 4
    assert name in refused[0].message
    assert "tg_ptx::refuse(" in result.text
    if refused[0].severity == REFUSAL:
        assert result.refusals[0] == refused[0]


WARNED = [
    ("ld.shared.u32 %0, [%1];", ': "=r"(x) : "r"(a)', "missing-clobber"),
    ("cp.async.wait_all;", "", "missing-clobber"),
    ("bar.sync 0;", "", "missing-clobber"),
    ("{ .reg .b32 t; } .reg .b32 u; mov.b32 u, 1;", "", "asm-scope"),
    ("L: mov.u32 %0, 1;", ': "=r"(x)', "asm-scope"),
]


@pytest.mark.parametrize(("ptx", "operands", "kind"), WARNED)
def test_warnings(ptx: str, operands: str, kind: str) -> None:
    finding = one(ptx, operands)
    assert finding.kind == kind
    assert finding.severity == WARNING


def test_an_asm_with_an_effect_is_volatile() -> None:
    shuffle = 'shfl.sync.idx.b32 %0, %1, 0, 31, -1;", '
    assert one(shuffle[:-3], ': "=r"(x) : "r"(a)', volatile=False).kind == "not-volatile"
    assert found("add.u32 %0, %1, 1;", ': "=r"(x) : "r"(a)', volatile=False) == []
    # Without outputs it is volatile anyway.
    assert found("bar.sync 0;", '::: "memory"', volatile=False) == []


TEXT = """#define LOAD(x, p) \\
  asm volatile("ld.u32 %0, [%1];" \\
    : "=r"(x) \\
    : "l"(p) : "memory")
void f() {
  int a; asm("mov.u32 %0,"
      " 7;"  // seven
      : "=r"(a)); g(a);
  LOAD(a, p);
  asm volatile("{\\n"
    ".reg .u32 t;\\n"
    "foo.u32 t;\\n"
    "}");
  h();
}
"""


def test_lines_and_everything_around_are_kept() -> None:
    result = translate(TEXT)
    lines = result.text.split("\n")
    assert len(lines) == len(TEXT.split("\n"))
    assert lines[0] == "#define LOAD(x, p) \\"
    assert lines[1].startswith("  do {")
    assert [line.endswith("\\") for line in lines[:4]] == [True, True, True, False]
    assert "asm" not in result.text
    assert lines[7].strip() == "; g(a);"
    assert lines[13] == "  h();"
    assert [f.line for f in result.findings] == [12]
    # In a macro the line is that of the use; elsewhere it is the instruction's own.
    assert "__LINE__ + 2)" in lines[9]
    assert re.search(r"__LINE__\)", lines[1])


def test_text_without_asm_is_untouched() -> None:
    text = 'int main() { return f("asm"); } // asm("x")\n'
    assert translate(text).text == text


def test_labels_and_registers_get_names_of_their_own() -> None:
    text = translate(
        'asm("{ .reg .u32 a; { .reg .u32 a; mov.u32 a, 2; L: bra L; } L: mov.u32 a, 1; bra L; }");'
    ).text
    assert "__label__ tg_l0, tg_l1;" in text
    assert re.search(r"tg_r1 = uint32_t\(0x2u\)", text)
    assert re.search(r"tg_r0 = uint32_t\(0x1u\)", text)
    assert text.index("goto tg_l0") < text.index("tg_l1:") < text.index("goto tg_l1")
