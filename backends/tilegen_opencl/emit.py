"""The plan in OpenCL C's own words: every name that the templates use beyond the plan's numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilegen.plan import Argument, Entry, KernelPlan
from tilegen.tiling import CONTIGUOUS, compute_type, epilogue_operands

from .roles import Roles

C_TYPES = {"f64": "double", "f32": "float", "i64": "long", "s32": "int"}
SUFFIX = {"f64": "", "f32": "f"}


@dataclass(frozen=True)
class Width:
    """One vector width: its type and the spellings of its loads and stores."""

    width: int
    type: str
    vload: str
    vstore: str
    include: str
    local_include: str


@dataclass(frozen=True)
class Staged:
    """One operand's way through local memory, in the names of the text."""

    operand: str
    OPERAND: str
    axis: str
    fast: str
    fast_name: str
    first_range: str
    next_range: str
    vector: int
    type: str
    row_stride: int
    swizzle_rows: int
    swizzle_mask: int
    fragment: int
    store_include: str


@dataclass(frozen=True)
class Step:
    """One epilogue step as a call."""

    call: str


def vector_type(element: str, width: int) -> str:
    return element if width == 1 else f"{element}{width}"


def _width(element: str, width: int) -> Width:
    kind = "1" if width == 1 else "n"
    return Width(
        width=width,
        type=vector_type(element, width),
        vload=f"vload{width}",
        vstore=f"vstore{width}",
        include=f"_access_{kind}.cl.j2",
        local_include=f"_local_{kind}.cl.j2",
    )


def _parameter(argument: Argument, aliased: bool) -> str:
    if argument.kind in ("input", "output"):
        const = "const " if argument.kind == "input" else ""
        # C and D may be one array, and so may the residual and D.
        restrict = "" if aliased else "restrict "
        return f"__global {const}{C_TYPES[argument.type]} *{restrict}{argument.name}"
    return f"const {C_TYPES[argument.type]} {argument.name}"


def parameters(arguments: tuple[Argument, ...]) -> str:
    """A parameter list, a line for the sizes and one for each operand."""
    lines: list[list[str]] = [[]]
    for argument in arguments:
        starts_operand = argument.is_pointer or argument.kind == "scalar"
        if starts_operand and (not lines[-1] or not lines[-1][-1].startswith("const float")):
            lines.append([])
        lines[-1].append(_parameter(argument, argument.operand in ("c", "d", "residual")))
    return ",\n    ".join(", ".join(line) for line in lines if line)


def _call(entry: Entry, body: tuple[Argument, ...]) -> str:
    """The arguments with which an entry calls the body: steps it does not take are 1."""
    own = {argument.name for argument in entry.arguments}
    return ", ".join(a.name if a.name in own else "1" for a in body)


def _strides(roles: Roles, plan: KernelPlan) -> dict[str, str]:
    """For each operand, the names of its strides along rows, columns and k of the tile."""
    layout = plan.spec.layout

    def named(operand: str, axis: str) -> str:
        fast = CONTIGUOUS[operand][getattr(layout, operand)]
        return f"{operand}_step" if axis == fast else f"ld{operand}"

    row_axis, col_axis = ("n", "m") if roles.swapped else ("m", "n")
    return {
        "row_operand_row_stride": named(roles.rows, row_axis),
        "row_operand_k_stride": named(roles.rows, "k"),
        "col_operand_col_stride": named(roles.cols, col_axis),
        "col_operand_k_stride": named(roles.cols, "k"),
        "c_row_stride": named("c", row_axis),
        "c_col_stride": named("c", col_axis),
    }


def _literal(value: float, compute: str) -> str:
    return f"{float(value)!r}{SUFFIX[compute]}" if compute in SUFFIX else str(int(value))


def epilogue_steps(plan: KernelPlan, roles: Roles, compute: str) -> list[Step]:
    """The calls that turn ``value`` into D's value, in order; ``row`` and ``col`` are its place."""
    row_axis = "n" if roles.swapped else "m"
    steps = []
    for step in plan.epilogue:
        if step.op in ("bias", "scale"):
            where = "row" if step.along == row_axis else "col"
            steps.append(Step(f"{step.op}_along_{where}(value, {step.op}, row, col, count)"))
        elif step.op == "residual":
            steps.append(Step("add_residual(value, residual, ldresidual, row, col, count)"))
        elif step.op == "clamp":
            assert step.low is not None
            assert step.high is not None
            low, high = _literal(step.low, compute), _literal(step.high, compute)
            steps.append(Step(f"clamp_between(value, {low}, {high})"))
        else:
            steps.append(Step(f"{step.op}(value)"))
    return steps


# In the order of their definition: the two later ones call the earlier.
FUNCTIONS = ("relu", "clamp", "silu", "gelu", "gelu_tanh", "bias", "scale", "residual")


SAYS = {
    "wide": "contiguous axes are contiguous in memory",
    "aligned": "contiguous axes are contiguous in memory and whole vectors are aligned",
    "narrow": "any alignment; a step of 0 broadcasts along a contiguous axis",
}


def context(plan: KernelPlan) -> Mapping[str, Any]:
    """Everything that the two templates name."""
    spec, roles = plan.spec, Roles.of(plan.spec)
    element = C_TYPES[spec.types.acc]
    vector = int(plan.numbers["VECTOR" if not plan.shared else "COL_VECTOR"])
    body = max((entry.arguments for entry in plan.main_entries), key=len)
    staged = [_staged(plan, roles, tile.operand) for tile in plan.shared]
    widths = {vector, *(s.vector for s in staged), *(s.fragment for s in staged)}
    by_name = {s.operand: s for s in staged}
    packs_rows = CONTIGUOUS[roles.cols][getattr(spec.layout, roles.cols)] != "k"
    return {
        "R": "N" if roles.swapped else "M",
        "C": "M" if roles.swapped else "N",
        "row_axis": "n" if roles.swapped else "m",
        "col_axis": "m" if roles.swapped else "n",
        "r": roles.rows,
        "c_": roles.cols,
        "batched": spec.batch == "strided",
        "element": element,
        "vector": vector_type(element, vector),
        "vload": f"vload{vector}",
        "vstore": f"vstore{vector}",
        "value_load": f"load_v{vector}",
        "value_store": f"store_v{vector}",
        "widths": [_width(element, width) for width in sorted(widths)],
        "fma": "fma" if "fast_fma" in plan.arch.features else "mad",
        "operands": ["a", "b", "c", "d", *epilogue_operands(spec)],
        "parameters": parameters(body),
        "body_name": f"{spec.name}_tile",
        "entries": [
            {
                "name": entry.name,
                "says": SAYS[
                    "aligned" if plan.shared and entry.variant == "wide" else entry.variant
                ],
                "parameters": parameters(entry.arguments),
                "call": _call(entry, body),
                "wide": "1" if entry.variant == "wide" else "0",
            }
            for entry in plan.main_entries
        ],
        "steps": epilogue_steps(plan, roles, compute_type(spec)),
        "functions": [
            f"_epilogue_{name}.cl.j2" for name in FUNCTIONS if name in {s.op for s in spec.epilogue}
        ],
        "pack_include": "_pack_rows.cl.j2" if packs_rows else "_pack_columns.cl.j2",
        "c_aligned": "aligned" if spec.layout.c == spec.layout.d else "0",
        "staged": staged,
        "row_staged": by_name.get(roles.rows),
        "col_staged": by_name.get(roles.cols),
        "single_stage": plan.pipeline.stages == 1,
        "shared_bytes": plan.budget.shared_bytes,
        **_strides(roles, plan),
    }


def _staged(plan: KernelPlan, roles: Roles, operand: str) -> Staged:
    tile = next(t for t in plan.shared if t.operand == operand)
    copy = next(c for c in plan.copies if c.operand == operand)
    axis = "M" if operand == "a" else "N"
    place = f"block_{'row' if operand == roles.rows else 'col'}, {axis}"

    def ranges(k: str) -> str:
        return f"{place}, {k}, k_end" if copy.transposes else f"{k}, k_end, {place}"

    return Staged(
        operand=operand,
        OPERAND=operand.upper(),
        axis=axis,
        fast="BLOCK_K" if copy.transposes else f"BLOCK_{axis}",
        fast_name="K" if copy.transposes else axis,
        first_range=ranges("0"),
        next_range=ranges("next"),
        vector=copy.elements,
        type=vector_type(C_TYPES[plan.spec.types.acc], copy.elements),
        row_stride=tile.row_stride,
        swizzle_rows=tile.swizzle_rows,
        swizzle_mask=tile.swizzle_mask,
        fragment=tile.vector,
        store_include=f"_store_{'turned' if copy.transposes else 'straight'}.cl.j2",
    )
