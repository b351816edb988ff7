"""The plan in OpenCL C's own words: every name that the templates use beyond the plan's numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilegen.entries import Argument, in_lines, passed_on
from tilegen.plan import KernelPlan
from tilegen.roles import Roles
from tilegen.tiling import CONTIGUOUS, epilogue_operands, operand_type

from .memory import Load, Memory
from .staged import staged
from .types import (
    REGISTER_TYPES,
    STORAGE,
    SUFFIX,
    converted,
    multiply_add,
    value_type,
    vector_type,
)

# Sizes and strides; everything else is an element type.
ARGUMENT_TYPES = {"i64": "long", **REGISTER_TYPES}


@dataclass(frozen=True)
class Step:
    """One epilogue step as a call."""

    call: str


def _parameter(argument: Argument, aliased: bool) -> str:
    if argument.kind in ("input", "output"):
        const = "const " if argument.kind == "input" else ""
        # C and D may be one array, and so may the residual and D.
        restrict = "" if aliased else "restrict "
        return f"__global {const}{STORAGE[argument.type].pointer} *{restrict}{argument.name}"
    return f"const {ARGUMENT_TYPES[argument.type]} {argument.name}"


def parameters(arguments: tuple[Argument, ...]) -> str:
    """A parameter list, a line for the sizes and one for each operand."""
    return ",\n    ".join(
        ", ".join(_parameter(a, a.operand in ("c", "d", "residual")) for a in line)
        for line in in_lines(arguments)
    )


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


def epilogue_steps(plan: KernelPlan, roles: Roles) -> tuple[list[Step], list[str]]:
    """The calls that turn ``value`` into D's value, in order, and the functions they call.

    ``row`` and ``col`` are the value's place in the tile.
    """
    row_axis, compute = "n" if roles.swapped else "m", value_type(plan.spec)
    steps, functions = [], []
    for step in plan.epilogue:
        if step.op in ("bias", "scale"):
            function = f"{step.op}_along_{'row' if step.along == row_axis else 'col'}"
            call = f"{function}(value, {step.op}, row, col, count)"
        elif step.op == "residual":
            function, call = step.op, "add_residual(value, residual, ldresidual, row, col, count)"
        elif step.op == "clamp":
            assert step.low is not None
            assert step.high is not None
            low, high = _literal(step.low, compute), _literal(step.high, compute)
            function, call = step.op, f"clamp_between(value, {low}, {high})"
        else:
            function, call = step.op, f"{step.op}(value)"
        steps.append(Step(call))
        functions.append(f"_epilogue_{function}.cl.j2")
    return steps, list(dict.fromkeys(functions))


SAYS = {
    "wide": "contiguous axes are contiguous in memory",
    "aligned": "contiguous axes are contiguous in memory and whole vectors are aligned",
    "narrow": "any alignment; a step of 0 broadcasts along a contiguous axis",
}


def context(plan: KernelPlan) -> Mapping[str, Any]:
    """Everything that every OpenCL template names."""
    spec, roles = plan.spec, Roles.of(plan.spec)
    element = REGISTER_TYPES[spec.types.acc]
    value = value_type(spec)
    staged_form = bool(plan.shared)
    vector = int(plan.numbers.get("COL_VECTOR") or plan.numbers["VECTOR"])
    body = max((entry.arguments for entry in plan.main_entries), key=len)
    memory = Memory(spec, aligned=staged_form)
    steps, functions = epilogue_steps(plan, roles)
    own = OWN[plan.form](plan, roles, memory)
    return {
        **roles.names,
        "batched": spec.batch == "strided",
        "element": element,
        "vector": vector_type(element, vector),
        "value_element": REGISTER_TYPES[value],
        "value_vector": vector_type(REGISTER_TYPES[value], vector),
        "sum_value": converted(spec.types.acc, value, "sum", vector),
        "vload": f"vload{vector}",
        "vstore": f"vstore{vector}",
        "multiply_add": multiply_add(plan.instruction, plan.arch),
        "operands": ["a", "b", "c", "d", *epilogue_operands(spec)],
        "parameters": parameters(body),
        "body_name": f"{spec.name}_tile",
        "entries": [
            {
                "name": entry.name,
                "says": SAYS[
                    "aligned" if staged_form and entry.variant == "wide" else entry.variant
                ],
                "parameters": parameters(entry.arguments),
                "call": passed_on(entry, body),
                "wide": "1" if entry.variant == "wide" else "0",
            }
            for entry in plan.main_entries
        ],
        "steps": steps,
        "functions": functions,
        "unaligned": ", 0" if staged_form else "",
        "c_load": memory.load("c", value, vector).name,
        "d_store": memory.store("d", value, vector).name,
        **_epilogue_operands(plan, memory, value, vector),
        **_strides(roles, plan),
        **own,
        # Last, when every part of the text has asked for the functions it calls.
        "loads": memory.loads,
        "stores": memory.stores,
        "narrowings": memory.narrowings,
    }


def _epilogue_operands(plan: KernelPlan, memory: Memory, value: str, vector: int) -> dict[str, str]:
    """How the epilogue reads its vectors and its matrix, and what it says of them."""
    out = {}
    for step in plan.epilogue:
        if step.op not in ("bias", "scale", "residual"):
            continue
        kind = operand_type(plan.spec, step.op)
        along_cols = step.op == "residual" or step.along == (
            "m" if plan.spec.layout.d == "col" else "n"
        )
        if along_cols:
            out[f"{step.op}_load"] = memory.load(step.op, value, vector).name
        one = Load.of(kind, value, 1, aligned=False).at(step.op, "row")
        out |= {
            f"{step.op}_pointer": STORAGE[kind].pointer,
            f"{step.op}_one": one,
            f"{step.op}_says": f"A vector of {STORAGE[kind].says}",
        }
    return out


def _vector_fragment(plan: KernelPlan, roles: Roles, memory: Memory) -> dict[str, Any]:
    spec, layout = plan.spec, plan.spec.layout
    vector, acc = int(plan.numbers["VECTOR"]), spec.types.acc
    rows_along_k = CONTIGUOUS[roles.rows][getattr(layout, roles.rows)] == "k"
    cols_along_k = CONTIGUOUS[roles.cols][getattr(layout, roles.cols)] == "k"
    warp_rows = f"WARP_{'N' if roles.swapped else 'M'}"
    padded = f"({warp_rows} + VECTOR - 1) / VECTOR * VECTOR"
    low = ", ".join(f"x.s{i:x}, y.s{i:x}" for i in range(vector // 2))
    high = ", ".join(f"x.s{i:x}, y.s{i:x}" for i in range(vector // 2, vector))
    return {
        "row_load": memory.load(roles.rows, acc, vector).name,
        "col_load": memory.load(roles.cols, acc, vector).name,
        "row_pack_include": f"_pack_rows_along_{'k' if rows_along_k else 'rows'}.cl.j2",
        "col_pack_include": f"_pack_cols_along_{'k' if cols_along_k else 'cols'}.cl.j2",
        "row_panel_row": "DEPTH" if rows_along_k else "1",
        "row_panel_k": "1" if rows_along_k else padded,
        "row_panel": f"{warp_rows} * ROW_PANEL_ROW" if rows_along_k else "DEPTH * ROW_PANEL_K",
        "turn_includes": ["_turn.cl.j2"] if cols_along_k else [],
        "interleaved_low": low,
        "interleaved_high": high,
        "private_bytes": plan.budget.private_bytes,
    }


def _sub_group(plan: KernelPlan, roles: Roles, memory: Memory) -> dict[str, Any]:
    spec, layout, acc = plan.spec, plan.spec.layout, plan.spec.types.acc
    rows_along_k = CONTIGUOUS[roles.rows][getattr(layout, roles.rows)] == "k"
    cols_along_k = CONTIGUOUS[roles.cols][getattr(layout, roles.cols)] == "k"
    vector = int(plan.numbers["COL_VECTOR"])
    source = next(c.elements for c in plan.copies if c.operand == roles.cols)
    warp_rows = f"WARP_{'N' if roles.swapped else 'M'}"
    asked = "required_sub_group_size" in plan.arch.features
    col_load = memory.load(roles.cols, acc, source)
    return {
        "sub_group_size": " __attribute__((intel_reqd_sub_group_size(LANES)))" if asked else "",
        "row_fast": "UNROLL_K" if rows_along_k else warp_rows,
        "row_slow": warp_rows if rows_along_k else "UNROLL_K",
        "row_fast_name": "K" if rows_along_k else warp_rows[-1],
        # Where a place in the tile's contiguous axis and the other one lies in rows and k.
        "row_of_place": "slow" if rows_along_k else "fast",
        "k_of_place": "fast" if rows_along_k else "slow",
        "slow_of_row": "i" if rows_along_k else "k",
        "fast_of_row": "k" if rows_along_k else "i",
        "row_load": memory.load(roles.rows, acc, 1).name,
        "row_pointer": STORAGE[getattr(spec.types, roles.rows)].pointer,
        "col_load": col_load.name,
        "col_pointer": STORAGE[getattr(spec.types, roles.cols)].pointer,
        "col_type": col_load.type,
        "source_vector": source,
        "cols_include": f"_cols_along_{'k' if cols_along_k else 'cols'}.cl.j2",
        "col_store": _into("loaded", source, "parts" if cols_along_k else "col_values[k] + j"),
        "sum_vector": "sums[i][j]" if vector == 1 else f"vload{vector}(0, sums[i] + j)",
    }


def _into(value: str, width: int, place: str) -> str:
    """The statement that writes a vector to consecutive private elements."""
    return f"*({place}) = {value};" if width == 1 else f"vstore{width}({value}, 0, {place});"


OWN = {"vector_fragment": _vector_fragment, "work_group": staged, "sub_group": _sub_group}

__all__ = ["Step", "context", "epilogue_steps", "parameters"]
