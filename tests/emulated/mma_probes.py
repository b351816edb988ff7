"""One-hot probes of an mma.sync instruction through a whole kernel, on the emulator or on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np

import tilegen as tg
from tilegen.dtypes import DTYPES
from tilegen.hardware import Instruction
from tilegen_cuda.archs import ARCHS
from tilegen_cuda.mma import of_arch

# Each product of types in each of its instructions.
INSTRUCTIONS = of_arch(ARCHS["sm_89"])
# Those that are probed with D column-major too: one for each shape of fragments, and mixed types.
SWAPPED = [
    i
    for i in INSTRUCTIONS
    if (i.name, i.type_a, i.type_b, i.type_acc)
    in (
        ("m16n8k16", "f16", "f16", "f32"),
        ("m16n8k16", "f16", "f16", "f16"),
        ("m16n8k8", "tf32", "tf32", "f32"),
        ("m16n8k32", "s8", "u8", "s32"),
        ("m16n8k32", "e4m3", "e5m2", "f32"),
        ("m8n8k4", "f64", "f64", "f64"),
        ("m16n8k8", "f16", "f16", "f32"),
    )
]
PROBES = [*((i, "row") for i in INSTRUCTIONS), *((i, "col") for i in SWAPPED)]
assert len(PROBES) == 15 + 7
WARPS = (2, 4)
# Where A and B lie as the instruction reads them, or one of them across; then in both kinds of D.
LAYOUTS = {"row": {"a": "row", "b": "row", "d": "row"}, "col": {"a": "col", "b": "col", "d": "col"}}


def name(x: Instruction | str) -> str:
    """Of a parameter: an instruction, or D's majorness."""
    return x if isinstance(x, str) else f"{x.name}-{x.type_a}-{x.type_b}-{x.type_acc}"


def spec(instruction: Instruction, d: str) -> tg.TileSpec:
    """Blocks of 2 x 4 warps of one MMA each: 256 threads; columns of 16 where bytes are turned in pairs."""
    i = instruction
    swapped = d == "col"
    m, n = (i.n, i.m) if swapped else (i.m, i.n)
    if DTYPES[i.type_a].bytes == 1:
        m, n = max(m, 16), max(n, 16)
    a, b = (i.type_b, i.type_a) if swapped else (i.type_a, i.type_b)
    return tg.TileSpec(
        block=(WARPS[0] * m, WARPS[1] * n, i.k),
        warp=(m, n),
        batch="strided",
        layout=LAYOUTS[d],
        types={"a": a, "b": b, "acc": i.type_acc, "c": i.type_acc, "d": i.type_acc},
        pins={"cuda": {"form": "mma_sync", "instruction": i.name}},
    )


def probe(kernel: tg.Kernel) -> int:
    """One 1 in A at (i, k) and one in B at (k, j): D must hold exactly one 1, at (i, j).

    Every (i, k) and every (k, j) is visited.

    Returns
    -------
    int
        The number of probes, one batch each.
    """
    plan = kernel.plan
    assert plan.threads == 256
    (m, n, depth), types = plan.block, plan.spec.types
    k, place = (x.ravel() for x in np.mgrid[:depth, : max(m, n)])
    # Another column for the same row at each k.
    i, j, probes = place % m, (place + k) % n, np.arange(len(k))
    assert len({*zip(i, k, strict=True)}) == m * depth
    assert len({*zip(k, j, strict=True)}) == depth * n
    a = _operand((len(k), m, depth), types.a, plan.spec.layout.a)
    b = _operand((len(k), depth, n), types.b, plan.spec.layout.b)
    a[probes, i, k] = 1
    b[probes, k, j] = 1
    d = np.asarray(kernel(a, b))
    assert d.shape == (len(k), m, n)
    found = np.argwhere(d)
    assert np.array_equal(found, np.stack([probes, i, j], axis=1))
    assert (d[probes, i, j] == 1).all()
    return len(k)


def _operand(shape: tuple[int, int, int], kind: str, majorness: str) -> np.ndarray[Any, Any]:
    batch, rows, cols = shape
    if majorness == "row":
        return np.zeros(shape, DTYPES[kind].numpy)
    return np.zeros((batch, cols, rows), DTYPES[kind].numpy).transpose(0, 2, 1)
