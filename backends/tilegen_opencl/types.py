"""Element types in OpenCL C: how each is stored, widened to registers and narrowed back."""

from __future__ import annotations

from dataclasses import dataclass

from tilegen.backend import TypeCombination
from tilegen.dtypes import DTYPES
from tilegen.hardware import Arch, Instruction
from tilegen.spec import TileSpec
from tilegen.tiling import compute_type

# Of values in registers; an epilogue of s32 is computed in 64 bits and saturates at its store.
REGISTER_TYPES = {"f64": "double", "f32": "float", "s32": "int", "s64": "long"}
SUFFIX = {"f64": "", "f32": "f"}
FLOATS = tuple(
    TypeCombination(t, t, "f32", tuple((c, d) for c in (t, "f32") for d in (t, "f32")))
    for t in ("f16", "bf16")
)
WHOLE_OUTPUTS = (("s32", "s32"), ("s8", "s8"), ("u8", "u8"), ("f32", "f32"), ("s8", "f32"))
COMBINATIONS = (
    TypeCombination("f32", "f32", "f32", (("f32", "f32"),)),
    TypeCombination("f64", "f64", "f64", (("f64", "f64"),)),
    *FLOATS,
    *(TypeCombination(a, b, "s32", WHOLE_OUTPUTS) for a in ("s8", "u8") for b in ("s8", "u8")),
)


@dataclass(frozen=True)
class Storage:
    """How a type lies in global memory.

    Attributes
    ----------
    pointer : str
        What a pointer to it points to.
    bits : str
        The type in which an element travels unconverted; the pointer's own but for f16, of which
        a device without fp16 has no values.
    says : str
        For the text's comments.
    """

    pointer: str
    bits: str
    says: str


STORAGE = {
    "f64": Storage("double", "double", "double"),
    "f32": Storage("float", "float", "float"),
    "f16": Storage("half", "ushort", "half"),
    "bf16": Storage("ushort", "ushort", "bfloat16 (the upper half of a float)"),
    "s8": Storage("char", "char", "char"),
    "u8": Storage("uchar", "uchar", "uchar"),
    "s32": Storage("int", "int", "int"),
}


def vector_type(element: str, width: int) -> str:
    """``float16`` of float and 16; a vector of one is its element."""
    return element if width == 1 else f"{element}{width}"


def value_type(spec: TileSpec) -> str:
    """The type of values in the epilogue: the compute type, s32 in 64 bits."""
    compute = compute_type(spec)
    return "s64" if compute == "s32" else compute


def widened(storage: str, target: str, bits: str, width: int) -> str:
    """The expression that turns ``bits``, a private variable of stored elements, into values."""
    kind = vector_type(REGISTER_TYPES[target], width)
    if storage == target:
        return bits
    if storage == "f16":
        return f"vload_half{_w(width)}(0, (const __private half *)&{bits})"
    if storage == "bf16":
        return f"as_{kind}(convert_{vector_type('uint', width)}({bits}) << 16)"
    return f"convert_{kind}({bits})"


def loaded(storage: str, target: str, at: str, width: int) -> str:
    """The expression that loads ``width`` stored elements at offset ``at`` of ``from``, as values."""
    if storage == "f16" and target != "bits":
        return f"vload_half{_w(width)}({at}, from)"
    if storage == "f16":
        bits = "(__global const ushort *)from"
        return f"({bits})[{at}]" if width == 1 else f"vload{width}({at}, {bits})"
    plain = f"from[{at}]" if width == 1 else f"vload{width}({at}, from)"
    return plain if target == "bits" else widened(storage, target, plain, width)


def narrowed(storage: str, source: str, value: str, width: int) -> str:
    """The expression that rounds values to a stored type; f16 has none, it is rounded as stored."""
    if storage == source:
        return value
    if storage == "bf16":
        return f"narrow_bf16_v{width}({value})"
    rounding = "_rte" if source in SUFFIX else ""
    return f"convert_{vector_type(STORAGE[storage].bits, width)}_sat{rounding}({value})"


def stored(storage: str, source: str, value: str, at: str, width: int, aligned: bool) -> str:
    """The statement that stores ``width`` values at element ``at`` of ``to``."""
    if storage == "f16":
        whole = "vstorea_half" if aligned else "vstore_half"
        return f"{whole}{_w(width)}_rte({value}, {at}, to);"
    what = narrowed(storage, source, value, width)
    if width == 1:
        return f"to[{at}] = {what};"
    if aligned:
        return f"*(__global {vector_type(STORAGE[storage].bits, width)} *)to = {what};"
    return f"vstore{width}({what}, {at}, to);"


def converted(source: str, target: str, value: str, width: int) -> str:
    """The expression that turns values of one register type into another."""
    if source == target:
        return value
    rounding = "_rte" if target in SUFFIX else ""
    return f"convert_{vector_type(REGISTER_TYPES[target], width)}{rounding}({value})"


def multiply_add(instruction: Instruction, arch: Arch) -> str:
    """How x * y + sum is spelled: ``fma`` where it is an instruction, else ``mad`` or operators."""
    if not DTYPES[instruction.type_acc].is_float:
        return instruction.mnemonic if instruction.k > 1 else "x * y + sum"
    return f"{'fma' if fused(instruction.type_acc, arch) else 'mad'}(x, y, sum)"


def fused(acc: str, arch: Arch) -> bool:
    """Whether the arch has a multiply-add of one rounding for this type."""
    return ("fast_fma64" if acc == "f64" else "fast_fma") in arch.features


def dot_product(x: str, y: str) -> str:
    """The built-in that multiplies four bytes of ``x`` with four of ``y``, as an int.

    Its sum of four products takes 19 bits at most, so nothing saturates or wraps in it.
    """
    sign = {"s8": "s", "u8": "u"}
    call = f"dot_4x8packed_{sign[x]}{sign[y]}"
    return f"(int){call}_uint(x, y)" if x == y == "u8" else f"{call}_int(x, y)"


def needs(spec: TileSpec, instruction: Instruction | None = None) -> frozenset[str]:
    """Features that types and instruction ask of a device; f16 is only stored, which every one can."""
    out = {"fp64"} if "f64" in spec.types.model_dump().values() else set()
    if instruction is not None and instruction.k > 1:
        out.add("integer_dot")
    return frozenset(out)


def build_options(instruction: Instruction) -> str:
    """What the compiler must be told: the built-ins for bytes came with OpenCL C 3.0."""
    return "-cl-std=CL3.0" if instruction.k > 1 else ""


def _w(width: int) -> str:
    return "" if width == 1 else str(width)
