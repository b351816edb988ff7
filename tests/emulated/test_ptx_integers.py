"""Integer, logic, comparison and move instructions against Python integers."""

from __future__ import annotations

import numpy as np
import pytest
from emulated.ptx_cases import Array, Case, check


def signed(x: int, bits: int = 32) -> int:
    x &= (1 << bits) - 1
    return x - (1 << bits) if x >> (bits - 1) else x


def each(function, bits: int = 32):  # type: ignore[no-untyped-def]
    """A model on arrays from one on Python integers; the result wraps to so many bits."""

    def model(*inputs: Array) -> Array:
        mask = (1 << bits) - 1
        rows = zip(*(x.tolist() for x in inputs), strict=True)
        return np.array([int(function(*row)) & mask for row in rows], np.uint64)

    return model


def clamp(x: int, low: int, high: int) -> int:
    return max(low, min(high, x))


def bit_field(a: int, place: int, length: int, bits: int, is_signed: bool) -> int:
    place, length = place & 255, length & 255
    field = (a >> place) & ((1 << length) - 1)
    if is_signed and length:
        sign = (a >> min(place + length - 1, bits - 1)) & 1
        width = max(0, min(length, bits - place))
        if sign:
            field |= -1 << width
    return field


def insert(a: int, b: int, place: int, length: int, bits: int) -> int:
    place, length = place & 255, length & 255
    mask = ((1 << length) - 1) << place & ((1 << bits) - 1)
    return (b & ~mask) | ((a << place) & mask)


def permute(a: int, b: int, picks: list[int]) -> int:
    lanes = (a | b << 32).to_bytes(8, "little")
    out = 0
    for i, pick in enumerate(picks):
        byte = lanes[pick & 7]
        if pick & 8:
            byte = 255 if byte & 128 else 0
        out |= byte << (8 * i)
    return out


def lut3(a: int, b: int, c: int, table: int) -> int:
    out = 0
    for i in range(32):
        pick = (a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1)
        out |= (table >> pick & 1) << i
    return out


def last_one(x: int) -> int:
    return x.bit_length() - 1 if x else 0xFFFFFFFF


def dot4(a: int, b: int, c: int, sa: bool, sb: bool) -> int:
    for i in range(4):
        x, y = a >> 8 * i & 255, b >> 8 * i & 255
        c += (signed(x, 8) if sa else x) * (signed(y, 8) if sb else y)
    return c


s = signed
low16 = 0xFFFF
CASES = [
    Case("add.u32 %0, %1, %2;", "rrr", each(lambda a, b: a + b)),
    Case("add.s32 %0, %1, -5;", "rr", each(lambda a: a - 5)),
    Case("add.sat.s32 %0, %1, %2;", "rrr", each(lambda a, b: clamp(s(a) + s(b), -(1 << 31), (1 << 31) - 1))),
    Case("add.s64 %0, %1, %2;", "lll", each(lambda a, b: a + b, 64)),
    Case("add.u16 %0, %1, %2;", "hhh", each(lambda a, b: a + b, 16)),
    Case("sub.u32 %0, %1, %2;", "rrr", each(lambda a, b: a - b)),
    Case("sub.sat.s32 %0, %1, %2;", "rrr", each(lambda a, b: clamp(s(a) - s(b), -(1 << 31), (1 << 31) - 1))),
    Case("mul.lo.u32 %0, %1, %2;", "rrr", each(lambda a, b: a * b)),
    Case("mul.lo.s16 %0, %1, %2;", "hhh", each(lambda a, b: a * b, 16)),
    Case("mul.hi.u32 %0, %1, %2;", "rrr", each(lambda a, b: a * b >> 32)),
    Case("mul.hi.s32 %0, %1, %2;", "rrr", each(lambda a, b: s(a) * s(b) >> 32)),
    Case("mul.hi.u64 %0, %1, %2;", "lll", each(lambda a, b: a * b >> 64, 64)),
    Case("mul.wide.u32 %0, %1, %2;", "lrr", each(lambda a, b: a * b, 64)),
    Case("mul.wide.s32 %0, %1, %2;", "lrr", each(lambda a, b: s(a) * s(b), 64)),
    Case("mul.wide.s16 %0, %1, %2;", "rhh", each(lambda a, b: s(a, 16) * s(b, 16))),
    Case("mad.lo.s32 %0, %1, %2, %3;", "rrrr", each(lambda a, b, c: a * b + c)),
    Case("mad.hi.s32 %0, %1, %2, %3;", "rrrr", each(lambda a, b, c: (s(a) * s(b) >> 32) + c)),
    Case("mad.wide.s32 %0, %1, %2, %3;", "lrrl", each(lambda a, b, c: s(a) * s(b) + c, 64)),
    Case("mad.lo.u64 %0, %1, %2, %3;", "llll", each(lambda a, b, c: a * b + c, 64)),
    Case("div.s32 %0, %1, 7;", "rr", each(lambda a: int(abs(s(a)) // 7) * (-1 if s(a) < 0 else 1))),
    Case("div.u32 %0, %1, 7;", "rr", each(lambda a: a // 7)),
    Case("rem.s32 %0, %1, 7;", "rr", each(lambda a: (abs(s(a)) % 7) * (-1 if s(a) < 0 else 1))),
    Case("rem.u64 %0, %1, 1000003;", "ll", each(lambda a: a % 1000003, 64)),
    Case("abs.s32 %0, %1;", "rr", each(lambda a: abs(s(a)))),
    Case("neg.s32 %0, %1;", "rr", each(lambda a: -a)),
    Case("min.s32 %0, %1, %2;", "rrr", each(lambda a, b: min(s(a), s(b)))),
    Case("max.u32 %0, %1, %2;", "rrr", each(max)),
    Case("min.s64 %0, %1, %2;", "lll", each(lambda a, b: min(s(a, 64), s(b, 64)), 64)),
    Case("and.b32 %0, %1, %2;", "rrr", each(lambda a, b: a & b)),
    Case("or.b64 %0, %1, %2;", "lll", each(lambda a, b: a | b, 64)),
    Case("xor.b16 %0, %1, %2;", "hhh", each(lambda a, b: a ^ b, 16)),
    Case("not.b32 %0, %1;", "rr", each(lambda a: ~a)),
    Case("cnot.b32 %0, %1;", "rr", each(lambda a: a == 0)),
    Case("shl.b32 %0, %1, %2;", "rrr", each(lambda a, b: a << b if b < 32 else 0)),
    Case("shl.b64 %0, %1, %2;", "llr", each(lambda a, b: a << b if b < 64 else 0, 64)),
    Case("shr.u32 %0, %1, %2;", "rrr", each(lambda a, b: a >> min(b, 32))),
    Case("shr.s32 %0, %1, %2;", "rrr", each(lambda a, b: s(a) >> min(b, 32))),
    Case("shr.b64 %0, %1, %2;", "llr", each(lambda a, b: a >> min(b, 64), 64)),
    Case("shr.s16 %0, %1, %2;", "hhr", each(lambda a, b: s(a, 16) >> min(b, 16), 16)),
    Case("shf.l.wrap.b32 %0, %1, %2, %3;", "rrrr", each(lambda a, b, c: ((b << 32 | a) << (c & 31)) >> 32)),
    Case("shf.r.clamp.b32 %0, %1, %2, %3;", "rrrr", each(lambda a, b, c: (b << 32 | a) >> min(c, 32))),
    Case("shf.l.clamp.b32 %0, %1, %2, %3;", "rrrr", each(lambda a, b, c: ((b << 32 | a) << min(c, 32)) >> 32)),
    Case("popc.b32 %0, %1;", "rr", each(lambda a: a.bit_count())),
    Case("popc.b64 %0, %1;", "rl", each(lambda a: a.bit_count())),
    Case("clz.b32 %0, %1;", "rr", each(lambda a: 32 - a.bit_length())),
    Case("clz.b64 %0, %1;", "rl", each(lambda a: 64 - a.bit_length())),
    Case("brev.b32 %0, %1;", "rr", each(lambda a: int(f"{a:032b}"[::-1], 2))),
    Case("bfind.u32 %0, %1;", "rr", each(last_one)),
    Case("bfind.s32 %0, %1;", "rr", each(lambda a: last_one(a if s(a) >= 0 else ~a & 0xFFFFFFFF))),
    Case("bfind.shiftamt.u32 %0, %1;", "rr", each(lambda a: 31 - last_one(a) if a else 0xFFFFFFFF)),
    Case("bfe.u32 %0, %1, %2, %3;", "rrrr", each(lambda a, b, c: bit_field(a, b, c, 32, False))),
    Case("bfe.s32 %0, %1, %2, %3;", "rrrr", each(lambda a, b, c: bit_field(a, b, c, 32, True))),
    Case("bfe.s64 %0, %1, %2, %3;", "llrr", each(lambda a, b, c: bit_field(a, b, c, 64, True), 64)),
    Case("bfi.b32 %0, %1, %2, %3, %4;", "rrrrr", each(lambda a, b, c, d: insert(a, b, c, d, 32))),
    Case("bfi.b64 %0, %1, %2, %3, %4;", "lllrr", each(lambda a, b, c, d: insert(a, b, c, d, 64), 64)),
    *(
        Case(f"lop3.b32 %0, %1, %2, %3, {t:#x};", "rrrr", each(lambda a, b, c, t=t: lut3(a, b, c, t)))
        for t in (0xE8, 0x96, 0x6A, 0x01, 0xF8)
    ),
    Case("prmt.b32 %0, %1, %2, %3;", "rrrr", each(lambda a, b, c: permute(a, b, [c >> 4 * i & 15 for i in range(4)]))),
    Case("prmt.b32.f4e %0, %1, %2, %3;", "rrrr", each(lambda a, b, c: permute(a, b, [(c & 3) + i for i in range(4)]))),
    Case("prmt.b32.b4e %0, %1, %2, %3;", "rrrr", each(lambda a, b, c: permute(a, b, [((c & 3) - i) % 8 for i in range(4)]))),
    Case("prmt.b32.rc8 %0, %1, %2, %3;", "rrrr", each(lambda a, b, c: permute(a, b, [c & 3] * 4))),
    Case("prmt.b32.ecl %0, %1, %2, %3;", "rrrr", each(lambda a, b, c: permute(a, b, [max(i, c & 3) for i in range(4)]))),
    Case("prmt.b32.ecr %0, %1, %2, %3;", "rrrr", each(lambda a, b, c: permute(a, b, [min(i, c & 3) for i in range(4)]))),
    Case("prmt.b32.rc16 %0, %1, %2, %3;", "rrrr", each(lambda a, b, c: permute(a, b, [(c & 1) * 2, (c & 1) * 2 + 1] * 2))),
    Case("dp4a.s32.s32 %0, %1, %2, %3;", "rrrr", each(lambda a, b, c: dot4(a, b, c, True, True))),
    Case("dp4a.u32.s32 %0, %1, %2, %3;", "rrrr", each(lambda a, b, c: dot4(a, b, c, False, True))),
    # moves, packs and constants
    Case("mov.u32 %0, 0x7f;", "r", lambda: np.full(256, 0x7F)),
    Case("mov.b32 %0, 0f3F800000;", "r", lambda: np.full(256, 0x3F800000)),
    Case("mov.b64 %0, {%1, %2};", "lrr", each(lambda a, b: a | b << 32, 64)),
    Case("mov.b32 %0, {%1, %2};", "rhh", each(lambda a, b: a | b << 16)),
    Case("mov.b64 %0, {%1, %2, %3, %4};", "lhhhh", each(lambda a, b, c, d: a | b << 16 | c << 32 | d << 48, 64)),
    Case("{.reg .b32 a, b; mov.b64 {a, b}, %1; mov.b32 %0, b;}", "rl", each(lambda a: a >> 32)),
    Case("{.reg .b16 a<4>; mov.b64 {a0, a1, a2, a3}, %1; mov.b16 %0, a2;}", "hl", each(lambda a: a >> 32, 16)),
    # comparison, selection and predicates
    *(
        Case(f"{{.reg .pred p; setp.{c}.{t} p, %1, %2; selp.u32 %0, 1, 2, p;}}", "rrr", each(f))
        for c, t, f in [
            ("eq", "b32", lambda a, b: 1 if a == b else 2),
            ("lt", "s32", lambda a, b: 1 if s(a) < s(b) else 2),
            ("lt", "u32", lambda a, b: 1 if a < b else 2),
            ("lo", "u32", lambda a, b: 1 if a < b else 2),
            ("hs", "u32", lambda a, b: 1 if a >= b else 2),
            ("ge", "s32", lambda a, b: 1 if s(a) >= s(b) else 2),
        ]
    ),
    Case("{.reg .pred p, q, r; setp.ne.b32 r, %1, 0; setp.lt.and.s32 p|q, %1, %2, r; selp.u32 %0, 1, 0, p; @q add.u32 %0, %0, 2;}", "rrr", each(lambda a, b: (a != 0 and s(a) < s(b)) + 2 * (a != 0 and s(a) >= s(b)))),
    Case("{.reg .pred p, q; setp.ne.b32 q, %1, 0; setp.gt.or.s32 p, %1, %2, !q; selp.b32 %0, %1, %2, p;}", "rrr", each(lambda a, b: a if s(a) > s(b) or a == 0 else b)),
    Case("set.lt.u32.s32 %0, %1, %2;", "rrr", each(lambda a, b: -1 if s(a) < s(b) else 0)),
    Case("slct.s32.s32 %0, %1, %2, %3;", "rrrr", each(lambda a, b, c: a if s(c) >= 0 else b)),
    Case("{.reg .pred p, q, r; setp.gt.s32 p, %1, 0; setp.gt.s32 q, %2, 0; xor.pred r, p, q; not.pred r, r; selp.u32 %0, 1, 0, r;}", "rrr", each(lambda a, b: (s(a) > 0) == (s(b) > 0))),
    # control: count down from the low bits, and skip a part
    Case("{.reg .pred p; .reg .b32 n; and.b32 n, %1, 15; mov.u32 %0, 0; LOOP: setp.eq.u32 p, n, 0; @p bra DONE; add.u32 %0, %0, n; sub.u32 n, n, 1; bra.uni LOOP; DONE: }", "rr", each(lambda a: (a & 15) * ((a & 15) + 1) // 2)),
    Case("{.reg .pred p; setp.gt.u32 p, %1, 40; mov.u32 %0, 5; @!p bra SKIP; {.reg .b32 x; mov.b32 x, 9; mov.b32 %0, x;} SKIP: add.u32 %0, %0, 1;}", "rr", each(lambda a: 10 if a > 40 else 6)),
    # integer conversions
    Case("cvt.u32.u16 %0, %1;", "rh", each(lambda a: a)),
    Case("cvt.s32.s16 %0, %1;", "rh", each(lambda a: s(a, 16))),
    Case("cvt.s32.s8 %0, %1;", "rr", each(lambda a: s(a, 8))),
    Case("cvt.s64.s32 %0, %1;", "lr", each(lambda a: s(a), 64)),
    Case("cvt.u16.u32 %0, %1;", "hr", each(lambda a: a, 16)),
    Case("cvt.sat.s8.s32 %0, %1;", "rr", each(lambda a: clamp(s(a), -128, 127))),
    Case("cvt.sat.u8.s32 %0, %1;", "rr", each(lambda a: clamp(s(a), 0, 255))),
    Case("cvt.sat.s32.s64 %0, %1;", "rl", each(lambda a: clamp(s(a, 64), -(1 << 31), (1 << 31) - 1))),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_integers(case: Case) -> None:
    check(CASES, case)
