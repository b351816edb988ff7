"""mma.sync's instructions as records: who holds which element, in which archs, by which document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilegen.backend import TypeCombination
from tilegen.hardware import Arch, Instruction
from tilegen.layout import FragmentLayout, Layout

PTX = "PTX ISA, Warp Level Matrix Multiply-Accumulate Instructions: mma, {section}"
# Lanes of a warp as groups of four: the group is a row of A and C and a column of B.
GROUPS = (4, 8)


def _fragment(
    rows: int, cols: int, lane: tuple[int, int], value: Sequence[tuple[int, int]]
) -> FragmentLayout:
    """Of the strides of lane % 4 and lane / 4, and of (extent, stride) of a lane's elements."""
    shape, stride = zip(*value, strict=True) if value else ((), ())
    return FragmentLayout(rows, cols, Layout(GROUPS, lane), Layout(shape, stride))


def _operands(
    m: int, n: int, k: int, packed: int
) -> tuple[FragmentLayout, FragmentLayout, FragmentLayout]:
    """Fragments of a shape whose lanes hold ``packed`` neighbours along K in one register.

    A register of A holds k = packed * (lane % 4) on, of row lane / 4; then come the row 8 below,
    where M is 16, and the second half of K, where there is one. B is the same with columns for rows,
    and C has two neighbours along N.
    """
    half = 4 * packed
    ks, rows = k // half, m // 8

    def held(extent: int, tiles: int) -> FragmentLayout:
        value = [(packed, extent), (tiles, 8), (ks, half * extent)]
        return _fragment(
            extent, k, (packed * extent, 1), [v for v in value if v[0] > 1] or [(1, 0)]
        )

    c = [(2, m), (rows, 8)]
    return held(m, rows), held(n, 1), _fragment(m, n, (2 * m, 1), [v for v in c if v[0] > 1])


@dataclass(frozen=True)
class _Kind:
    """One shape for some types."""

    shape: tuple[int, int, int]
    packed: int
    section: str
    features: str = "mma_80"


F16_8 = _Kind((16, 8, 8), 2, "Matrix Fragments for mma.m16n8k8", "mma_75")
F16_16 = _Kind((16, 8, 16), 2, "Matrix Fragments for mma.m16n8k16 with floating point type")
TF32_8 = _Kind((16, 8, 8), 1, "Matrix Fragments for mma.m16n8k8")
BYTES_32 = _Kind((16, 8, 32), 4, "Matrix Fragments for mma.m16n8k32")
FP8_32 = replace(BYTES_32, features="mma_89")
F64_4 = _Kind((8, 8, 4), 1, "Matrix Fragments for mma.m8n8k4 with .f64 floating point type")

FAMILIES = {"f64": "fma", "s32": "fma", "f16": "mma_f16"}


def _instruction(kind: _Kind, a: str, b: str, acc: str) -> Instruction:
    m, n, k = kind.shape
    fragments = _operands(m, n, k, kind.packed)
    return Instruction(
        name=f"m{m}n{n}k{k}",
        m=m,
        n=n,
        k=k,
        type_a=a,
        type_b=b,
        type_acc=acc,
        lanes=32,
        a=fragments[0],
        b=fragments[1],
        c=fragments[2],
        mnemonic=f"mma.sync.aligned.m{m}n{n}k{k}.row.col.{acc}.{a}.{b}.{acc}",
        doc=PTX.format(section=kind.section),
        family=FAMILIES.get(acc, "mma"),
    )


BYTES = ("s8", "u8")
FP8 = ("e4m3", "e5m2")
# In order of preference: the deeper of two shapes for the same types comes first.
_TABLE: tuple[tuple[_Kind, str, str, str], ...] = (
    (F16_16, "f16", "f16", "f32"),
    (F16_16, "bf16", "bf16", "f32"),
    (F16_16, "f16", "f16", "f16"),
    (TF32_8, "tf32", "tf32", "f32"),
    *((BYTES_32, a, b, "s32") for a in BYTES for b in BYTES),
    *((FP8_32, a, b, "f32") for a in FP8 for b in FP8),
    (F64_4, "f64", "f64", "f64"),
    (F16_8, "f16", "f16", "f32"),
    (F16_8, "f16", "f16", "f16"),
)
# Of mma.sync's own: which first came with which compute capability (PTX ISA, mma, 'Target ISA Notes').
BY_FEATURE = {
    feature: tuple(_instruction(k, a, b, acc) for k, a, b, acc in _TABLE if k.features == feature)
    for feature in ("mma_75", "mma_80", "mma_89")
}
MMA_75 = BY_FEATURE["mma_75"]
MMA_80 = (*BY_FEATURE["mma_80"], *MMA_75)
MMA_89 = (*BY_FEATURE["mma_80"], *BY_FEATURE["mma_89"], *MMA_75)

_FLOAT_OUTPUTS = {
    "f16": ("f16", "f32"),
    "bf16": ("bf16", "f32"),
    "tf32": ("f32",),
    "e4m3": ("bf16", "f16", "f32"),
    "e5m2": ("bf16", "f16", "f32"),
    "f64": ("f64",),
}
_WHOLE_OUTPUTS = (("s32", "s32"), ("s8", "s8"), ("u8", "u8"), ("f32", "f32"), ("s8", "f32"))


def combinations(instructions: Sequence[Instruction]) -> tuple[TypeCombination, ...]:
    """The products that these instructions offer, with the types of C and D."""
    out: dict[tuple[str, str, str], TypeCombination] = {}
    for i in instructions:
        key = i.type_a, i.type_b, i.type_acc
        kinds = _FLOAT_OUTPUTS.get(i.type_a, ())
        outputs = tuple((c, d) for c in kinds for d in kinds) or _WHOLE_OUTPUTS
        out.setdefault(key, TypeCombination(*key, outputs))
    return tuple(out.values())


def fp8_is_made_of_f16(arch: Arch) -> bool:
    """Whether compilers make mma.sync of fp8 from f16's: sm_90 alone, by docs/matrix-arithmetic.md."""
    return arch.name in ("sm_90", "sm_90a")


def turned(instruction: Instruction) -> Instruction:
    """The instruction of the transposed product: B's rows are its rows, and D is column-major."""
    m, n, c = instruction.m, instruction.n, instruction.c

    def crossed(layout: Layout) -> Layout:
        # A digit runs along rows or along columns, so its stride says which.
        return Layout(layout.shape, tuple(s // m if s >= m else s * n for s in layout.stride))

    return replace(
        instruction,
        m=n,
        n=m,
        type_a=instruction.type_b,
        type_b=instruction.type_a,
        a=instruction.b,
        b=instruction.a,
        c=FragmentLayout(n, m, crossed(c.lane), crossed(c.value)),
    )
