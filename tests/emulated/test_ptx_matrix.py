"""mma.sync, ldmatrix, stmatrix: every fragment against CuTe's layouts by one-hot probes, and products."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from emulated.test_ptx_memory import clean

from tilegen import emulator

LAYOUTS = json.loads((Path(__file__).parents[1] / "data" / "ptx_layouts.json").read_text())["insts"]
NUMPY: dict[str, Any] = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32, "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2, "s8": np.int8, "u8": np.uint8, "f64": np.float64, "f32": np.float32,
    "s32": np.int32,
}  # fmt: skip
# m, n, k, D and C, A, B, and the entry of ptx_layouts.json that has the same fragments.
FORMS = [
    (16, 8, 16, "f32", "f16", "f16", "sm_80:m16n8k16_f32_f16"),
    (16, 8, 16, "f16", "f16", "f16", "sm_80:m16n8k16_f16_f16"),
    (16, 8, 16, "f32", "bf16", "bf16", "sm_80:m16n8k16_f32_bf16"),
    (16, 8, 8, "f32", "f16", "f16", "sm_80:m16n8k8_f32_f16"),
    (16, 8, 8, "f16", "f16", "f16", "sm_80:m16n8k8_f32_f16"),
    (16, 8, 8, "f32", "bf16", "bf16", "sm_80:m16n8k8_f32_bf16"),
    (16, 8, 8, "f32", "tf32", "tf32", "sm_80:m16n8k8_f32_tf32"),
    (16, 8, 4, "f32", "tf32", "tf32", "sm_80:m16n8k4_f32_tf32"),
    (16, 8, 32, "s32", "s8", "s8", "sm_80:m16n8k32_s32_s8"),
    (16, 8, 32, "s32", "u8", "s8", "sm_80:m16n8k32_s32_s8"),
    (16, 8, 32, "s32", "u8", "u8", "sm_80:m16n8k32_s32_s8"),
    (16, 8, 16, "s32", "s8", "s8", "sm_80:m16n8k16_s32_s8"),
    (8, 8, 16, "s32", "s8", "s8", "sm_75:sm75_m8n8k16_s32_s8"),
    (16, 8, 32, "f32", "e4m3", "e4m3", "sm_89:m16n8k32_f32_e4m3"),
    (16, 8, 32, "f32", "e5m2", "e5m2", "sm_89:m16n8k32_f32_e5m2"),
    (16, 8, 32, "f32", "e4m3", "e5m2", "sm_89:m16n8k32_f32_e4m3"),
    (8, 8, 4, "f64", "f64", "f64", "sm_80:m8n8k4_f64"),
]
IDS = [f"m{m}n{n}k{k}_{d}_{a}_{b}" for m, n, k, d, a, b, _ in FORMS]


def registers(count: int, name: str) -> tuple[int, str, str]:
    """Number of registers for so many elements, their C++ type and their constraint."""
    if name == "f64":
        return count, "double", "d"
    if name in ("f32", "s32"):
        return count, "float" if name == "f32" else "int", "f" if name == "f32" else "r"
    return count * 8 * np.dtype(NUMPY[name]).itemsize // 32, "unsigned", "r"


def kernel(name: str, form: tuple[Any, ...], *, satfinite: str = "") -> str:
    """Each warp multiplies its own fragments, which lie lane by lane in memory."""
    m, n, k, d, a, b, _ = form
    parts = {
        "d": registers(m * n // 32, d),
        "a": registers(m * k // 32, a),
        "b": registers(k * n // 32, b),
    }
    parts["c"] = parts["d"]
    at, groups = 0, {}
    for key in "dabc":
        groups[key] = "{" + ", ".join(f"%{at + i}" for i in range(parts[key][0])) + "}"
        at += parts[key][0]
    loads = "".join(
        f"  {t} {key}[{c}]; for (int i = 0; i < {c}; i++) {key}[i] = p{key}[t * {c} + i];\n"
        for key, (c, t, _) in parts.items()
        if key != "d"
    )
    operands = {key: ", ".join(f'"{"=" if key == "d" else ""}{x}"({key}[{i}])' for i in range(c))
                for key, (c, _, x) in parts.items()}  # fmt: skip
    shape = f"mma.sync.aligned.m{m}n{n}k{k}.row.col{satfinite}.{d}.{a}.{b}.{d}"
    count, type_, _ = parts["d"]
    pointers = ", ".join(
        f"{'' if key == 'd' else 'const '}{parts[key][1]}* p{key}" for key in "dabc"
    )
    return (
        f'extern "C" __global__ void {name}({pointers}) {{\n'
        f"  const int t = threadIdx.x + blockDim.x * blockIdx.x;\n{loads}  {type_} d[{count}];\n"
        f'  asm volatile("{shape} {groups["d"]}, {groups["a"]}, {groups["b"]}, {groups["c"]};"\n'
        f"    : {operands['d']}\n    : {operands['a']}, {operands['b']}, {operands['c']});\n"
        f"  for (int i = 0; i < {count}; i++) pd[t * {count} + i] = d[i];\n}}\n"
    )


@cache
def program() -> emulator.Program:
    names = [f"k{i}" for i in range(len(FORMS))]
    return emulator.compile("".join(map(kernel, names, FORMS)), "cuda", names)


def scatter(matrices: np.ndarray, layout: Any) -> np.ndarray:
    """(warps, rows, cols) to (warps, lanes, elements) in register order."""
    places = np.array(layout["map"])
    return matrices[:, places[..., 0], places[..., 1]]


def gather(fragments: np.ndarray, layout: Any, rows: int, cols: int) -> np.ndarray:
    places = np.array(layout["map"])
    out = np.zeros((len(fragments), rows, cols), fragments.dtype)
    out[:, places[..., 0], places[..., 1]] = fragments
    return out


def words(fragments: np.ndarray, name: str) -> np.ndarray:
    _, kind, _ = registers(1, name)
    return (
        np.ascontiguousarray(fragments)
        .view(
            {"double": np.float64, "float": np.float32, "int": np.int32, "unsigned": np.uint32}[
                kind
            ]
        )
        .reshape(-1)
    )


def multiply(index: int, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Products of many warps in blocks of 256 threads: (warps, m, n)."""
    m, n, _, d, ta, tb, key = FORMS[index]
    layout = LAYOUTS[key]["operands"]
    warps = len(a)
    assert warps % 8 == 0
    out = np.zeros_like(words(scatter(c, layout["C"]), d))
    result = emulator.run(
        program(), entry=f"k{index}", grid=warps // 8, block=256, orders=(0,), races=False,
        args=[out, words(scatter(a, layout["A"]), ta), words(scatter(b, layout["B"]), tb),
              words(scatter(c, layout["C"]), d)],
    )  # fmt: skip
    assert not result.findings, str(result)
    fragments = result.arrays[0].view(NUMPY[d]).reshape(warps, 32, -1)
    return gather(fragments, layout["C"], m, n)


def small(rng: np.random.Generator, shape: tuple[int, ...], name: str) -> np.ndarray:
    low = 0 if name == "u8" else -3
    return rng.integers(low, 4, shape).astype(NUMPY[name])


@pytest.mark.parametrize("index", range(len(FORMS)), ids=IDS)
def test_every_element_of_a_and_b_is_where_the_layout_says(index: int) -> None:
    """One-hot: A has a single one, at (i, x); B has its own number in row x; only row i of D shows it."""
    m, n, k, d, ta, tb, _ = FORMS[index]
    count = m * k
    a = np.zeros((count, m, k), NUMPY[ta])
    a.reshape(count, -1)[np.arange(count), np.arange(count)] = 1
    b = np.zeros((count, k, n), NUMPY[tb])
    marks = (np.arange(k)[:, None] * 3 + np.arange(n)) % 7 + 1
    b[:] = marks.astype(NUMPY[tb])
    got = multiply(index, a, b, np.zeros((count, m, n), NUMPY[d])).astype(np.float64)
    want = np.zeros((count, m, n))
    for at in range(count):
        want[at, at // k] = marks[at % k]
    assert np.array_equal(got, want)


@pytest.mark.parametrize("index", range(len(FORMS)), ids=IDS)
def test_products_of_small_integers_are_exact(index: int) -> None:
    m, n, k, d, ta, tb, _ = FORMS[index]
    rng = np.random.default_rng(index)
    a, b, c = small(rng, (16, m, k), ta), small(rng, (16, k, n), tb), small(rng, (16, m, n), d)
    got = multiply(index, a, b, c).astype(np.float64)
    assert np.array_equal(got, a.astype(np.float64) @ b.astype(np.float64) + c.astype(np.float64))


def test_the_default_arithmetic_is_f32_in_the_order_of_k() -> None:
    index = 0
    m, n, k, *_ = FORMS[index]
    rng = np.random.default_rng(7)
    a, b = (rng.standard_normal(s).astype(np.float16) for s in ((16, m, k), (16, k, n)))
    c = rng.standard_normal((16, m, n)).astype(np.float32)
    want = c.copy()
    for x in range(k):
        want += a[:, :, x, None].astype(np.float32) * b[:, None, x].astype(np.float32)
    assert np.array_equal(multiply(index, a, b, c), want)


def test_tf32_ignores_the_low_bits_and_integers_wrap_or_saturate() -> None:
    index = IDS.index("m16n8k8_f32_tf32_tf32")
    m, n, k, *_ = FORMS[index]
    a = np.full((8, m, k), 1 + 2.0**-11, np.float32)
    ones = np.ones((8, k, n), np.float32)
    assert (multiply(index, a, ones, np.zeros((8, m, n), np.float32)) == k).all()
    form = FORMS[IDS.index("m16n8k32_s32_s8_s8")]
    most = np.iinfo(np.int32).max
    for word, want in (("", most + 32 - 2**32), (".satfinite", most)):
        text = kernel("k", form, satfinite=word)
        bytes_ = np.full(128, 0x01010101, np.uint32)
        args = [np.zeros(128, np.int32), bytes_, bytes_[:64], np.full(128, most, np.int32)]
        result = emulator.run(text, entry="k", grid=1, block=32, args=args)
        assert not result.findings
        assert (result.arrays[0] == want).all()


def test_ldmatrix_by_a_generic_address() -> None:
    body = """
unsigned* o, const unsigned short* a
  alignas(16) __shared__ unsigned short s[32][8]; unsigned x;
  for (int i = 0; i < 8; i++) s[t][i] = a[8 * t + i];
  __syncthreads();
  asm volatile("ldmatrix.sync.aligned.x1.m8n8.b16 {%0}, [%1];" : "=r"(x) : "l"(&s[t][0]) : "memory");
  o[t] = x;"""
    a = np.arange(256, dtype=np.uint16)
    out = clean(body, [np.zeros(32, np.uint32), a])[0]
    assert np.array_equal(out.view(np.uint16), a[:64])


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix_and_stmatrix(count: int, transposed: bool) -> None:
    trans = ".trans" if transposed else ""
    regs = ", ".join(f"%{i}" for i in range(count))
    outs = ", ".join(f'"=r"(r[{i}])' for i in range(count))
    ins = ", ".join(f'"r"(r[{i}])' for i in range(count))
    body = f"""
unsigned* o, unsigned short* back, const unsigned short* a
  alignas(16) __shared__ unsigned short s[32][8]; alignas(16) __shared__ unsigned short u[32][8]; unsigned r[4];
  for (int i = 0; i < 8; i++) {{ s[t][i] = a[8 * t + i]; u[t][i] = 0; }}
  __syncthreads();
  asm volatile("ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{regs}}}, [%{count}];" : {outs} : "r"(at(&s[t][0])) : "memory");
  for (int i = 0; i < {count}; i++) o[{count} * t + i] = r[i];
  asm volatile("stmatrix.sync.aligned.m8n8.x{count}{trans}.shared::cta.b16 [%0], {{{", ".join(f"%{i + 1}" for i in range(count))}}};" :: "r"(at(&u[t][0])), {ins} : "memory");
  __syncthreads();
  for (int i = 0; i < 8; i++) back[8 * t + i] = u[t][i];"""
    a = np.random.default_rng(5).integers(0, 1 << 16, (32, 8), dtype=np.uint16)
    out, back, _ = clean(body, [np.zeros(32 * count, np.uint32), np.zeros((32, 8), np.uint16), a])
    layout = LAYOUTS[f"sm_75:ldmatrix_x1{'_trans' if transposed else ''}_b16"]["operands"]["M"]
    places = np.array(layout["map"])
    got = out.view(np.uint16).reshape(32, count, 2)
    for i in range(count):
        matrix = a[8 * i : 8 * i + 8]
        assert np.array_equal(got[:, i], matrix[places[..., 0], places[..., 1]])
    assert np.array_equal(back[: 8 * count], a[: 8 * count])
    assert not back[8 * count :].any()


def test_movmatrix_transposes() -> None:
    body = """
unsigned* o, const unsigned* a
  unsigned x;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(x) : "r"(a[t]));
  o[t] = x;"""
    a = np.random.default_rng(6).integers(0, 1 << 32, 32, dtype=np.uint32)
    out = clean(body, [np.zeros(32, np.uint32), a])[0]
    assert np.array_equal(out.view(np.uint16).reshape(8, 8), a.view(np.uint16).reshape(8, 8).T)
