"""The plan in CUDA C++'s own words: every name that the templates use beyond the plan's numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tilegen.dtypes import DTYPES
from tilegen.entries import Argument, in_lines, passed_on
from tilegen.plan import KernelPlan
from tilegen.roles import Roles
from tilegen.tiling import CONTIGUOUS, epilogue_operands, operand_type

from .host_notes import host_notes, namespace
from .types import ARGUMENT_TYPES, SPELLINGS

NOTHING = "_nothing.cu.j2"


@dataclass(frozen=True)
class Step:
    """One epilogue step as an expression of ``value``."""

    call: str


@dataclass(frozen=True)
class AsyncCopy:
    """One width of cp.async; 16 bytes may pass by the first-level cache."""

    bytes: int
    cache: str


@dataclass(frozen=True)
class Staged:
    """One operand's way through shared memory, in the names of the text."""

    operand: str
    OPERAND: str
    axis: str
    fast: str
    fast_name: str
    vector: int
    vector_bytes: int
    element_bytes: int
    row_stride: int
    swizzled: bool
    swizzle_rows: int
    swizzle_mask: int
    swizzle_shift: int
    fragment: int
    include: str
    store_include: str
    fetch_first: str
    fetch_next: str
    fetch_now: str


SAYS = {
    "wide": "contiguous axes are contiguous in memory and whole vectors are aligned",
    "narrow": "any alignment; a step of 0 broadcasts along a contiguous axis",
}


def _parameter(argument: Argument) -> str:
    if argument.kind in ("input", "output"):
        const = "const " if argument.kind == "input" else ""
        # C and D may be one array, and so may the residual and D.
        restrict = "" if argument.operand in ("c", "d", "residual") else "__restrict__ "
        return f"{const}{ARGUMENT_TYPES[argument.type]} *{restrict}{argument.name}"
    if argument.kind == "workspace":
        return f"{ARGUMENT_TYPES[argument.type]} *__restrict__ {argument.name}"
    return f"const {ARGUMENT_TYPES[argument.type]} {argument.name}"


def parameters(arguments: tuple[Argument, ...]) -> str:
    """A parameter list, a line for the sizes and one for each operand."""
    return ",\n    ".join(", ".join(map(_parameter, line)) for line in in_lines(arguments))


def _literal(value: float, kind: str) -> str:
    if kind in SPELLINGS:
        return f"{float(value)!r}{SPELLINGS[kind].suffix}"
    return f"{int(value)}LL"


def epilogue_steps(
    plan: KernelPlan,
    roles: Roles,
    value: str = "value",
    widened: Callable[[str, str], str] = lambda kind, what: what,
) -> tuple[list[Step], list[str]]:
    """The expressions that turn ``value`` into D's value, in order, and the functions they call.

    The value's place is ``row``, ``col + v``.

    Parameters
    ----------
    widened : callable
        Of the type and the expression of a stored element, that of its value.
    """
    row_axis, compute = "n" if roles.swapped else "m", plan.spec.types.compute
    steps, functions = [], []
    for step in plan.epilogue:
        if step.op in ("bias", "scale", "residual"):
            place = "row" if step.along == row_axis else "col + v"
            at = "row * ldresidual + col + v" if step.op == "residual" else place
            read = widened(operand_type(plan.spec, step.op), f"{step.op}[{at}]")
            steps.append(Step(f"{value} {'*' if step.op == 'scale' else '+'} {read}"))
            continue
        functions.append(f"_epilogue_{step.op}.cu.j2")
        if step.op == "clamp":
            assert step.low is not None
            assert step.high is not None
            low, high = _literal(step.low, compute), _literal(step.high, compute)
            steps.append(Step(f"clamp_between({value}, {low}, {high})"))
        else:
            steps.append(Step(f"{step.op}({value})"))
    return steps, list(dict.fromkeys(functions))


def c_names(plan: KernelPlan, roles: Roles) -> dict[str, str]:
    """How C is read where D's rows and columns run: its strides, and whether whole vectors may be."""
    along = CONTIGUOUS["c"][plan.spec.layout.c] == roles.names["col_axis"]
    return {
        "c_row_stride": "ldc" if along else "c_step",
        "c_col_stride": "c_step" if along else "ldc",
        "c_wide": "WIDE" if along else "false",
    }


def async_copies(widths: Iterable[int]) -> list[AsyncCopy]:
    """A function of the text for each width in bytes."""
    return [AsyncCopy(n, "cg" if n == 16 else "ca") for n in sorted(widths)]


def context(plan: KernelPlan) -> Mapping[str, Any]:
    """Everything that the FMA form's template names."""
    spec, roles = plan.spec, Roles.of(plan.spec)
    spelling = SPELLINGS[spec.types.acc]
    size = DTYPES[spec.types.acc].bytes
    body = max((entry.arguments for entry in plan.main_entries), key=len)
    steps, functions = epilogue_steps(plan, roles)
    staged = [_staged(plan, roles, tile.operand) for tile in plan.shared]
    by_name = {s.operand: s for s in staged}
    behind = {c.operand for c in plan.copies if c.mechanism == "cp_async"}
    registers = [s for s in staged if s.operand not in behind]
    widths = {size, *(by_name[o].vector_bytes for o in behind)} if behind else set[int]()
    stages = plan.pipeline.stages
    return {
        **roles.names,
        **c_names(plan, roles),
        "host_notes": host_notes(plan),
        "namespace": namespace(spec),
        "batched": spec.batch == "strided",
        "operands": ["a", "b", "c", "d", *epilogue_operands(spec)],
        "element": spelling.type,
        "value_type": "element",
        "fma": spelling.fma,
        "exp2": spelling.exp2,
        "fabs": spelling.fabs,
        "staged": staged,
        "registers": registers,
        "row_staged": by_name[roles.rows],
        "col_staged": by_name[roles.cols],
        "async": bool(behind),
        "async_copies": async_copies(widths),
        "in_flight": max(0, stages - 2),
        "pipelined": stages > 1,
        "commit_include": "_commit.cu.j2" if behind else NOTHING,
        "wait_include": "_wait.cu.j2" if behind else NOTHING,
        "store_include": "_store_next.cu.j2" if registers else NOTHING,
        "prologue_says": ", and all stages but one are filled" if stages > 1 else "",
        "loop_says": "the next tile travels while this one is multiplied"
        if stages == 2
        else f"the tile {stages - 1} ahead travels while this one is multiplied"
        if stages > 1
        else "one tile after the other",
        "b_start": plan.shared[1].start // size,
        "shared_bytes": plan.budget.shared_bytes,
        "dynamic": int(plan.numbers["DYNAMIC_BYTES"]) > 0,
        "unroll": plan.numbers["UNROLL_K"],
        # Left to itself, ptxas aims at more blocks and spills a few bytes to get there.
        "min_blocks": int(plan.numbers["MIN_BLOCKS"]),
        "parameters": parameters(body),
        "body_name": f"{spec.name}_tile",
        "entries": [
            {
                "name": entry.name,
                "says": SAYS[entry.variant],
                "parameters": parameters(entry.arguments),
                "call": passed_on(entry, body),
                "wide": "true" if entry.variant == "wide" else "false",
            }
            for entry in plan.main_entries
        ],
        "steps": steps,
        "functions": functions,
    }


def _staged(plan: KernelPlan, roles: Roles, operand: str) -> Staged:
    tile = next(t for t in plan.shared if t.operand == operand)
    copy = next(c for c in plan.copies if c.operand == operand)
    axis, name = "M" if operand == "a" else "N", operand
    place = f"block_{'row' if operand == roles.rows else 'col'}, {axis}"
    behind = copy.mechanism == "cp_async"

    def call(k: str, stage: str) -> str:
        ranges = f"{place}, {k}, k_end" if copy.transposes else f"{k}, k_end, {place}"
        target = f"{name}_tiles{stage}" if behind else f"fetched_{name}"
        verb = "copy" if behind else "fetch"
        return f"{verb}_{name}<WIDE>({target}, {name}, ld{name}, {name}_step, {ranges})"

    return Staged(
        operand=name,
        OPERAND=name.upper(),
        axis=axis,
        fast="BLOCK_K" if copy.transposes else f"BLOCK_{axis}",
        fast_name="K" if copy.transposes else axis,
        vector=copy.elements,
        vector_bytes=copy.elements * tile.element_bytes,
        element_bytes=tile.element_bytes,
        row_stride=tile.row_stride,
        swizzled=tile.swizzle_mask > 0,
        swizzle_rows=tile.swizzle_rows,
        swizzle_mask=tile.swizzle_mask,
        swizzle_shift=tile.swizzle_shift,
        fragment=tile.vector,
        include="_copy_tile_async.cu.j2" if behind else "_fetch_tile.cu.j2",
        store_include=f"_store_{'turned' if copy.transposes else 'straight'}.cu.j2",
        fetch_first=call("first", f" + stage * {name.upper()}_STAGE"),
        fetch_next=call("next", f" + next_stage * {name.upper()}_STAGE"),
        fetch_now=call("k0", ""),
    )
