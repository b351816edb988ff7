"""The matrix instructions of sm_90a, each as a kernel text of its own, and where their elements lie.

Shared by the tests and by docs/matrix_floats.py, which runs the same texts on a device: no import here
needs tilegen. Fragments: PTX ISA, "Matrix Fragments for mma.m16n8k...", "Register Fragments and Matrix
Layouts" of wgmma, "Strides" of a matrix without swizzle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
NUMPY: dict[str, Any] = {
    "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16), "tf32": np.dtype(np.float32),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn), "e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "f32": np.dtype(np.float32), "f64": np.dtype(np.float64), "s8": np.dtype(np.int8),
    "u8": np.dtype(np.uint8), "s32": np.dtype(np.int32),
}  # fmt: skip
# By type: what carries it in a register: C++ type, constraint, bytes.
_SUMS = {
    "f32": ("float", "f", 4),
    "f16": ("unsigned", "r", 4),
    "s32": ("int", "r", 4),
    "f64": ("double", "d", 8),
}


@dataclass(frozen=True)
class Form:
    """One matrix instruction.

    Attributes
    ----------
    kind : str
        ``"mma"`` (mma.sync, a warp) or ``"wgmma"`` (a warpgroup; A and B in shared memory).
    m, n, k : int
    d, a, b : str
        PTX names of the types; C has D's.
    saturate : bool
        ``.satfinite`` of integers.
    """

    kind: str
    m: int
    n: int
    k: int
    d: str
    a: str
    b: str
    saturate: bool = False

    @property
    def name(self) -> str:
        kinds = ".".join([self.d, self.a, self.b] + ([self.d] if self.kind == "mma" else []))
        end = ".satfinite" if self.saturate else ""
        return f"{'mma.sync' if self.kind == 'mma' else 'wgmma'}.m{self.m}n{self.n}k{self.k}{end}.{kinds}"

    @property
    def entry(self) -> str:
        return self.name.replace(".", "_")

    @property
    def is_float(self) -> bool:
        return self.d != "s32"

    @property
    def threads(self) -> int:
        """That execute one instruction."""
        return 32 if self.kind == "mma" else 128


def _mma(
    shape: tuple[int, int, int], d: str, a: str, b: str = "", *, saturate: bool = False
) -> Form:
    return Form("mma", *shape, d, a, b or a, saturate)


def _wgmma(n: int, k: int, d: str, a: str, b: str = "") -> Form:
    return Form("wgmma", 64, n, k, d, a, b or a)


_EIGHT_BITS = (("e4m3", "e4m3"), ("e5m2", "e5m2"), ("e4m3", "e5m2"), ("e5m2", "e4m3"))
FORMS: tuple[Form, ...] = (
    *(_mma((16, 8, k), d, a) for d, a in (("f32", "f16"), ("f16", "f16"), ("f32", "bf16")) for k in (8, 16)),
    *(_mma((16, 8, k), "f32", "tf32") for k in (4, 8)),
    *(_mma((16, 8, 32), "f32", a, b) for a, b in _EIGHT_BITS),
    *(_mma((16, 8, 32), "f16", a) for a in ("e4m3", "e5m2")),
    *(_mma((16, 8, 16), "f32", a) for a in ("e4m3", "e5m2")),
    _mma((8, 8, 4), "f64", "f64"),
    *(_mma((16, 8, k), "f64", "f64") for k in (4, 8, 16)),
    *(_mma((16, 8, 32), "s32", a, b) for a in ("s8", "u8") for b in ("s8", "u8")),
    _mma((16, 8, 32), "s32", "s8", saturate=True),
    _mma((16, 8, 16), "s32", "s8"),
    _mma((8, 8, 16), "s32", "s8"),
    *(_wgmma(n, 16, "f32", a) for a in ("f16", "bf16") for n in (8, 64)),
    _wgmma(8, 16, "f16", "f16"),
    *(_wgmma(n, 8, "f32", "tf32") for n in (8, 64)),
    *(_wgmma(n, 32, "f32", "e4m3") for n in (8, 64)),
    _wgmma(8, 32, "f32", "e5m2"),
    _wgmma(8, 32, "f32", "e4m3", "e5m2"),
    _wgmma(8, 32, "f16", "e4m3"),
    *(_wgmma(8, 32, "s32", a) for a in ("s8", "u8")),
)  # fmt: skip


# ---- where elements lie -------------------------------------------------------------------------


def places_a(form: Form, packed: int) -> tuple[Array, Array]:
    """Rows and columns of A, each (lanes, elements), in the order of a lane's registers."""
    lane, i = np.ogrid[:32, : form.m * form.k // 32]
    group, thread, reg = lane >> 2, lane & 3, i // packed
    if form.m == 8:
        return group + 0 * i, thread * packed + i
    return group + 8 * (reg & 1), thread * packed + i % packed + 4 * packed * (reg >> 1)


def places_b(form: Form, packed: int) -> tuple[Array, Array]:
    lane, i = np.ogrid[:32, : form.k * form.n // 32]
    return (lane & 3) * packed + i % packed + 4 * packed * (i // packed), (lane >> 2) + 0 * i


def places_d(form: Form) -> tuple[Array, Array]:
    """Rows and columns of D, each (threads, elements)."""
    t, i = np.ogrid[: form.threads, : form.m * form.n // form.threads]
    lane = t % 32
    return t // 32 * 16 + lane // 4 + 8 * (i // 2 % 2), 8 * (i // 4) + lane % 4 * 2 + i % 2


def words(values: Array) -> Array:
    """As one row of the registers or words of shared memory that hold them."""
    flat = np.ascontiguousarray(values).reshape(-1)
    return flat.view(np.uint32 if flat.dtype.itemsize < 8 else np.float64)


def _core_matrices(x: Array) -> Array:
    """(..., mn, k) to the order of a K-major operand without swizzle: 8 rows of 16 bytes by 16 bytes."""
    chunk = 16 // x.dtype.itemsize
    *outer, mn, k = x.shape
    return x.reshape(*outer, mn // 8, 8, k // chunk, chunk).swapaxes(-3, -2)


def images(form: Form, a: Array, b: Array, c: Array) -> tuple[Array, Array, Array]:
    """What the kernel reads, of A (steps, count, m, k), B (steps, count, k, n), C (count, m, n)."""
    rows, cols = places_d(form)
    sums = words(c[:, rows, cols])
    if form.kind == "wgmma":
        return words(_core_matrices(a)), words(_core_matrices(b.swapaxes(-2, -1))), sums
    packed = max(1, 4 // a.dtype.itemsize)
    (i, x), (y, j) = places_a(form, packed), places_b(form, packed)
    return words(a[:, :, i, x]), words(b[:, :, y, j]), sums


def matrices(form: Form, count: int, d: Array) -> Array:
    """What the kernel wrote, as (count, m, n) of D's type."""
    rows, cols = places_d(form)
    out = np.zeros((count, form.m, form.n), NUMPY[form.d])
    out[:, rows, cols] = d.view(NUMPY[form.d]).reshape(count, form.threads, -1)
    return out


# ---- texts --------------------------------------------------------------------------------------


def text(form: Form) -> str:
    """A kernel ``entry(D, A, B, C, steps)``: D = C + A[0] B[0] + A[1] B[1] + ..., one instruction each."""
    return _mma_text(form) if form.kind == "mma" else _wgmma_text(form)


def _list(first: int, count: int) -> str:
    return "{" + ", ".join(f"%{first + i}" for i in range(count)) + "}"


def _mma_text(form: Form) -> str:
    sum_type, sum_letter, sum_bytes = _SUMS[form.d]
    type_, letter = ("double", "d") if form.a == "f64" else ("unsigned", "r")
    size, each = NUMPY[form.a].itemsize, 8 if form.a == "f64" else 4
    na, nb = form.m * form.k // 32 * size // each, form.k * form.n // 32 * size // each
    nd = form.m * form.n // 32 * NUMPY[form.d].itemsize // sum_bytes
    finite = ".satfinite" if form.saturate else ""
    mnemonic = (
        f"mma.sync.aligned.m{form.m}n{form.n}k{form.k}.row.col{finite}"
        f".{form.d}.{form.a}.{form.b}.{form.d}"
    )
    sums = ", ".join(f'"+{sum_letter}"(d[{i}])' for i in range(nd))
    ins = ", ".join(
        [f'"{letter}"(a[{i}])' for i in range(na)] + [f'"{letter}"(b[{i}])' for i in range(nb)]
    )
    return f"""extern "C" __global__ void {form.entry}({sum_type}* D, const {type_}* A, const {type_}* B,
    const {sum_type}* C, int steps) {{
  const int t = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
  {sum_type} d[{nd}];
  {type_} a[{na}], b[{nb}];
  for (int i = 0; i < {nd}; i++) d[i] = C[t * {nd} + i];
  for (int s = 0; s < steps; s++) {{
    for (int i = 0; i < {na}; i++) a[i] = A[(s * threads + t) * {na} + i];
    for (int i = 0; i < {nb}; i++) b[i] = B[(s * threads + t) * {nb} + i];
    asm volatile("{mnemonic} {_list(0, nd)}, {_list(nd, na)}, {_list(nd + na, nb)}, {_list(0, nd)};"
                 : {sums}
                 : {ins});
  }}
  for (int i = 0; i < {nd}; i++) D[t * {nd} + i] = d[i];
}}
"""


def _wgmma_text(form: Form) -> str:
    sum_type, sum_letter, _ = _SUMS[form.d]
    nd = form.n // 4 if form.d == "f16" else form.n // 2
    size = NUMPY[form.a].itemsize
    ends = "" if not form.is_float else ", 1, 1" + (", 0, 0" if size == 2 else "")
    mnemonic = f"wgmma.mma_async.sync.aligned.m64n{form.n}k{form.k}.{form.d}.{form.a}.{form.b}"
    sums = ",\n        ".join(
        ", ".join(f'"+{sum_letter}"(d[{i}])' for i in range(at, min(at + 8, nd)))
        for at in range(0, nd, 8)
    )
    return f"""// K-major, no swizzle: 128 bytes from one 8 x 16 bytes to the next along K, 256 along M and N.
__device__ __forceinline__ unsigned long long descriptor(const void* tile) {{
  const unsigned address = (unsigned)__cvta_generic_to_shared(tile);
  return address >> 4 | (unsigned long long)(128 >> 4) << 16 | (unsigned long long)(256 >> 4) << 32;
}}

extern "C" __global__ void __launch_bounds__(128) {form.entry}({sum_type}* D, const unsigned* A,
    const unsigned* B, const {sum_type}* C, int steps) {{
  __shared__ __align__(1024) unsigned a[512];
  __shared__ __align__(1024) unsigned b[{8 * form.n}];
  const int t = threadIdx.x;
  {sum_type} d[{nd}];
  for (int i = 0; i < {nd}; i++) d[i] = C[(blockIdx.x * 128 + t) * {nd} + i];
  for (int s = 0; s < steps; s++) {{
    const int at = s * gridDim.x + blockIdx.x;
    __syncthreads();
    for (int i = t; i < 512; i += 128) a[i] = A[at * 512 + i];
    for (int i = t; i < {8 * form.n}; i += 128) b[i] = B[at * {8 * form.n} + i];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("{{.reg .pred p; setp.ne.b32 p, %{nd + 2}, 0;"
        " {mnemonic} {_list(0, nd)}, %{nd}, %{nd + 1}, p{ends};}}"
      : {sums}
      : "l"(descriptor(a)), "l"(descriptor(b)), "r"(1) : "memory");
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  }}
  for (int i = 0; i < {nd}; i++) D[(blockIdx.x * 128 + t) * {nd} + i] = d[i];
}}
"""
