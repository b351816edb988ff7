"""Where asm statements may stand, and what the host compiler says of operands that do not fit."""

from __future__ import annotations

import numpy as np
import pytest

from tilegen import emulator
from tilegen.errors import CompileError

TEXT = """
template <class T, int N> struct Shift {
  static __device__ T of(T x) {
    T y;
    if (N > 2) asm("shl.b32 %0, %1, %2;" : "=r"(y) : "r"(x), "n"(N)); else asm("mov.b32 %0, %1;" : "=r"(y) : "r"(x));
    return y;
  }
};
#define TWICE(d) do { asm("{ .reg .pred p; setp.ne.u32 p, %0, 0; @p bra L; bra M; L: add.u32 %0, %0, %0; M: }" : "+r"(d)); } while (0)
enum { FOUR = 4 };
extern "C" __global__ void k(unsigned* o, const float2* f) {
  __shared__ unsigned s[32];
  unsigned t = threadIdx.x, v[2] = {t, 0};
  unsigned long long where;
  asm volatile("cvta.to.shared.u64 %0, %1;" : "=l"(where) : "l"(s));
  for (int i = 0; i < 2; i++)
    TWICE(v[0]);
  TWICE(v[0]);
  asm("add.s32 %0, %0, %1;" : "+r"(((int*)v)[1]) : "n"(FOUR - 6));
  float2 q;
  asm("mul.f32 %0, %2, %3; mul.f32 %1, %3, %3;" : "=f"(q.x), "=f"(q.y) : "f"(f[t].x), "f"(f->y));
  o[4 * t] = Shift<unsigned, 3>::of(v[0]) + Shift<int, 1>::of(1);
  o[4 * t + 1] = v[1]; o[4 * t + 2] = __float_as_uint(q.x + q.y); o[4 * t + 3] = (unsigned)where == (unsigned)__cvta_generic_to_shared(s);
}
"""


def test_templates_macros_branches_and_members() -> None:
    f = np.arange(64, dtype=np.float32).reshape(32, 2)
    result = emulator.run(TEXT, entry="k", grid=1, block=32, args=[np.zeros((32, 4), np.uint32), f])
    assert result.clean, str(result)
    out = result.arrays[0]
    assert np.array_equal(out[:, 0], np.arange(32) * 64 + 1)
    assert (out[:, 1] == 0xFFFFFFFE).all()
    assert np.array_equal(out[:, 2].copy().view(np.float32), f[:, 0] * f[0, 1] + f[0, 1] ** 2)
    assert (out[:, 3] == 1).all()


@pytest.mark.parametrize(
    ("letter", "expression"),
    [("r", "1.0f"), ("r", "true"), ("r", "(unsigned short)1"), ("r", "o"), ("l", "1"), ("f", "1"),
     ("f", "1.0"), ("d", "1.0f"), ("h", "1")],
)  # fmt: skip
def test_an_operand_of_another_type_does_not_compile(letter: str, expression: str) -> None:
    kind = {"h": "b16", "r": "b32", "l": "b64", "f": "f32", "d": "f64"}[letter]
    text = f"""extern "C" __global__ void k(unsigned* o) {{
  asm volatile("{{ .reg .{kind} t; mov.{kind} t, %0; }}" :: "{letter}"({expression}));
}}"""
    with pytest.raises(CompileError, match=f"constraint '{letter}'"):
        emulator.run(text, entry="k", grid=1, block=1, args=[np.zeros(1, np.uint32)])


def test_an_unknown_instruction_fails_where_it_would_run_and_nowhere_else() -> None:
    text = """extern "C" __global__ void k(unsigned* o, int take) {
  if (take)
    asm volatile("tcgen05.wait::ld.sync.aligned;");
  o[0] = 1;
}"""
    for take in (0, 1):
        result = emulator.run(text, entry="k", grid=1, block=1, args=[np.zeros(1, np.uint32), take])
        (found,) = result.findings
        assert found.kind == "unknown-instruction"
        assert found.line == 3
        assert "tcgen05.wait::ld.sync.aligned" in found.message
        # Read in every case, reached in one.
        assert bool(found.runs) == bool(take)
        assert result.arrays[0][0] == 1 - take
