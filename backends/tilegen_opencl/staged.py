"""Operands on their way through local memory, in the names of the work-group form's text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilegen.plan import KernelPlan
from tilegen.roles import Roles

from .memory import Memory
from .types import REGISTER_TYPES, STORAGE, build_options, vector_type, widened

# Of a continued line of the store.
INDENT = " " * 16


@dataclass(frozen=True)
class Local:
    """One vector width of local memory: its types there and in sums, and how both are spelled."""

    width: int
    type: str
    place_type: str
    vload: str
    vstore: str
    include: str


@dataclass(frozen=True)
class Staged:
    """One operand's way through local memory, in the names of the text."""

    operand: str
    OPERAND: str
    axis: str
    fast: str
    fast_name: str
    rows: str
    first_range: str
    next_range: str
    vector: int
    pointer: str
    type: str
    load: str
    loads: str
    widened: str
    widened_type: str
    places: int
    vstore: str
    square: str
    row_stride: int
    swizzle_rows: int
    swizzle_mask: int
    swizzle_shift: int
    swizzled: bool
    fragment: int
    fetch_include: str
    store_include: str


def staged(plan: KernelPlan, roles: Roles, memory: Memory) -> dict[str, Any]:
    """The names that only the work-group form's template uses."""
    spec, packed = plan.spec, plan.instruction.k > 1
    element = REGISTER_TYPES[spec.types.acc]
    place = "uint" if packed else element
    both = [_staged(plan, roles, memory, tile.operand) for tile in plan.shared]
    by_name = {s.operand: s for s in both}
    widths = {int(plan.numbers["COL_VECTOR"]), *(s.fragment for s in both)}
    return {
        "packed": packed,
        "build_options": build_options(plan.instruction),
        "place_type": "word" if packed else "element",
        "place_storage": place,
        "depth": "WORDS_K" if packed else "BLOCK_K",
        "place_says": "word k of row x" if packed else "the element of row x at depth k",
        "widths": [_local(element, place, width) for width in sorted(widths)],
        "c_aligned": "aligned" if spec.layout.c == spec.layout.d else "0",
        "staged": both,
        "row_staged": by_name[roles.rows],
        "col_staged": by_name[roles.cols],
        "single_stage": plan.pipeline.stages == 1,
        "shared_bytes": plan.budget.shared_bytes,
        # Of the widest access, staging or reading.
        "tile_alignment": max(n for s in both for n in (s.places, s.fragment))
        * plan.shared[0].element_bytes,
    }


def _local(element: str, place: str, width: int) -> Local:
    return Local(
        width=width,
        type=vector_type(element, width),
        place_type=vector_type(place, width),
        vload=f"vload{width}",
        vstore=f"vstore{width}",
        include=f"_local_{'1' if width == 1 else 'n'}.cl.j2",
    )


def _staged(plan: KernelPlan, roles: Roles, memory: Memory, operand: str) -> Staged:
    tile = next(t for t in plan.shared if t.operand == operand)
    copy = next(c for c in plan.copies if c.operand == operand)
    axis, packed = "M" if operand == "a" else "N", plan.instruction.k
    place = f"block_{'row' if operand == roles.rows else 'col'}, {axis}"
    kind, acc = getattr(plan.spec.types, operand), plan.spec.types.acc
    # Elements travel as they are stored, so that nothing waits for them before the tile is multiplied.
    load = memory.load(operand, acc if kind == acc else "bits", copy.elements)
    square = packed > 1 and not copy.transposes
    turned = "words" if packed > 1 else "turned"
    store = "square" if square else turned if copy.transposes else "straight"
    places = copy.elements // packed if copy.transposes else copy.elements
    if packed > 1:
        words = vector_type("uint", places)
        value, value_type = f"as_{words}(fetched[i])", words
    else:
        value = widened(kind, acc, "fetched[i]", copy.elements)
        value_type = vector_type(REGISTER_TYPES[acc], copy.elements)

    def ranges(k: str) -> str:
        return f"{place}, {k}, k_end" if copy.transposes else f"{k}, k_end, {place}"

    return Staged(
        operand=operand,
        OPERAND=operand.upper(),
        axis=axis,
        fast="BLOCK_K" if copy.transposes else f"BLOCK_{axis}",
        fast_name="K" if copy.transposes else axis,
        rows="WORDS_K" if square else "BLOCK_K",
        first_range=ranges("0"),
        next_range=ranges("next"),
        vector=copy.elements,
        pointer=STORAGE[kind].pointer,
        type=load.type,
        load=load.name,
        loads=" * MMA_K" if square else "",
        widened=value,
        widened_type=value_type,
        places=places,
        vstore=f"vstore{places}(widened, 0, parts);" if places > 1 else "parts[0] = widened;",
        square=_square(load.element, copy.elements, packed) if square else "",
        row_stride=tile.row_stride,
        swizzle_rows=tile.swizzle_rows,
        swizzle_mask=tile.swizzle_mask,
        swizzle_shift=tile.swizzle_shift,
        swizzled=tile.swizzle_mask > 0,
        fragment=tile.vector,
        fetch_include=f"_fetch_{'square' if square else 'vector'}.cl.j2",
        store_include=f"_store_{store}.cl.j2",
    )


def _square(element: str, width: int, packed: int) -> str:
    """Rows of ``width`` bytes as as many words, byte j of each from row j; a line for each word."""
    column = [""] if width == 1 else [f".s{x:x}" for x in range(width)]
    words = [", ".join(f"row[{j}]{part}" for j in range(packed)) for part in column]
    listed = f",\n{INDENT}".join(words)
    return f"as_{vector_type('uint', width)}(({element}{width * packed})(\n{INDENT}{listed}))"
