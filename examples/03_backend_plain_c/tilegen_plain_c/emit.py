"""The plan in C's own words: every name that the template uses beyond the plan's numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilegen.plan import Argument, Entry, KernelPlan, PlannedStep
from tilegen.render import KernelSource
from tilegen.tiling import epilogue_operands

C_TYPES = {"f32": "float", "f64": "double", "i64": "long long"}
# Each function after those that it calls.
FUNCTIONS = ("relu", "clamp", "power_of_two", "silu", "gelu", "gelu_tanh")
EXPONENTIAL = {"silu", "gelu", "gelu_tanh"}
SAYS = {
    "wide": "contiguous axes are contiguous in memory",
    "narrow": "a step of 0 broadcasts along a contiguous axis",
}
RANGE = "const long long block_first, const long long block_count"


def parameter(argument: Argument) -> str:
    if argument.is_pointer:
        const = "const " if argument.kind == "input" else ""
        # C and D may be one array, and so may the residual and D.
        restrict = "" if argument.operand in ("c", "d", "residual") else "restrict "
        return f"{const}{C_TYPES[argument.type]} *{restrict}{argument.name}"
    return f"const {C_TYPES[argument.type]} {argument.name}"


def parameters(arguments: tuple[Argument, ...]) -> str:
    """A parameter list, a line for the sizes and one for each operand."""
    lines: list[list[str]] = [[]]
    for previous, argument in zip((None, *arguments), arguments, strict=False):
        after_scalar = previous is not None and previous.kind == "scalar"
        if argument.kind == "scalar" or (argument.is_pointer and not after_scalar):
            lines.append([])
        lines[-1].append(parameter(argument))
    return ",\n    ".join(", ".join(line) for line in lines)


def place(operand: str, majorness: str, row: str, col: str, step: str) -> str:
    """The index of an element."""
    slow, fast = (row, col) if majorness == "row" else (col, row)
    return f"{slow} * ld{operand} + {fast}{step}"


def step_value(step: PlannedStep, plan: KernelPlan) -> str:
    """``value`` after one step of the epilogue; m and n are its place."""
    match step.op:
        case "bias":
            return f"value + bias[{step.along}]"
        case "scale":
            return f"value * scale[{step.along}]"
        case "residual":
            return f"value + residual[{place('residual', plan.spec.layout.d, 'm', 'n', '')}]"
        case "clamp":
            return f"clamp(value, {float(step.low or 0)!r}, {float(step.high or 0)!r})"
        case _:
            return f"{step.op}(value)"


def _call(entry: Entry, body: tuple[Argument, ...]) -> str:
    own = {argument.name for argument in entry.arguments}
    return ", ".join(a.name if a.name in own else "1" for a in body)


def _names(plan: KernelPlan) -> dict[str, str]:
    """Strides of A and B by axis, and the places of C and D."""
    layout = plan.spec.layout
    a, b = ("lda", "a_step"), ("ldb", "b_step")
    a_m, a_k = a if layout.a == "row" else a[::-1]
    b_k, b_n = b if layout.b == "row" else b[::-1]
    return {
        "a_m": a_m,
        "a_k": a_k,
        "b_k": b_k,
        "b_n": b_n,
        "c_place": place("c", layout.c, "m", "n", " * c_step"),
        "d_place": place("d", layout.d, "m", "n", ""),
    }


def context(plan: KernelPlan) -> Mapping[str, Any]:
    spec = plan.spec
    body = next(e.arguments for e in plan.entries if e.variant == "narrow")
    used: set[str] = {step.op for step in spec.epilogue}
    if used & EXPONENTIAL:
        used.add("power_of_two")
    return {
        **_names(plan),
        "element": C_TYPES[spec.types.acc],
        "batched": spec.batch == "strided",
        "operands": ["a", "b", "c", "d", *epilogue_operands(spec)],
        "functions": [f"_{name}.c.j2" for name in FUNCTIONS if name in used],
        "steps": [{"value": step_value(step, plan)} for step in plan.epilogue],
        "body_name": f"{spec.name}_block",
        "parameters": parameters(body),
        "range": RANGE,
        "entries": [
            {
                "name": entry.name,
                "says": SAYS[entry.variant],
                "parameters": parameters(entry.arguments),
                "call": _call(entry, body),
            }
            for entry in plan.entries
        ],
    }


def launch_header(source: KernelSource) -> str:
    """Prototypes; a caller gives the blocks to compute, all of them or a part."""
    lines = [f"// {source.name}: blocks 0 to {source.entries[0].grid}, in any parts and order"]
    for entry in source.entries:
        lines.append(f"void {entry.name}(\n    {RANGE}, {parameters(entry.arguments)});")
    return "\n".join(lines) + "\n"
