"""An mma_sync plan in CUDA C++'s own words: every name that its template uses beyond the numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilegen.dtypes import DTYPES
from tilegen.entries import Argument, Entry, passed_on
from tilegen.plan import KernelPlan
from tilegen.roles import Roles
from tilegen.tiling import epilogue_operands, main_arguments

from .emit import NOTHING, async_copies, c_names, epilogue_steps, parameters
from .host_notes import host_notes, namespace
from .mma import OUT_PAD
from .mma_entries import REDUCE_THREADS, reduce_vector, widths
from .mma_reads import Ldmatrix, Reads
from .mma_tiles import OperandTile
from .mma_wholes import wholes
from .types import SPELLINGS, STORED

# What an epilogue computes in: s32 in 64 bits, so that nothing leaves them.
VALUES = {"f32": "float", "f64": "double", "s32": "i64"}
# A register of sums, its letter in asm, and the type of one sum outside of the instruction.
SUMS = {
    "f32": ("float", "f", "float"),
    "f64": ("double", "d", "double"),
    "s32": ("int", "r", "int"),
    "f16": ("unsigned", "r", "float"),
}
WAITS = {
    0: "this thread's copies",
    1: "this thread's copies, but for those of the latest group",
}
SAYS = {
    "wide": "contiguous axes are contiguous in memory, and 16 bytes at a time are aligned",
    "by8": "as above, aligned to 8 bytes",
    "by4": "as above, aligned to 4 bytes",
    "narrow": "any alignment; a step of 0 broadcasts along a contiguous axis",
    "reduce_wide": "after the wide entry",
    "reduce_narrow": "after the others",
}


@dataclass(frozen=True)
class Staged:
    """One operand's way to its fragments, in the names of the text."""

    operand: str
    OPERAND: str
    axis: str
    slow: str
    fast: str
    fast_name: str
    chunk: int
    row_stride: int
    fast_threads: int
    swizzled: bool
    swizzle_rows: int
    swizzle_mask: int
    swizzle_shift: int
    registers: int
    registers_name: str
    advance: str
    rounded: bool
    copy_include: str
    slow_first: str
    fast_first: str
    extent_left: str
    k_stride: str
    bring_first: str
    bring_next: str
    bring_only: str
    load_include: str
    reads: Reads


def context(plan: KernelPlan) -> Mapping[str, Any]:
    """Everything that the mma_sync form's template names."""
    spec, roles, mma = plan.spec, Roles.of(plan.spec), plan.instruction
    conversions = _Conversions(spec.types.compute)
    asynchronous = plan.pipeline.waits == "cp_async_group"
    tiles = {o: OperandTile.of(o, spec, mma) for o in ("a", "b")}
    staged = [_staged(plan, roles, tiles[o], asynchronous) for o in ("a", "b")]
    by_name = {s.operand: s for s in staged}
    row, col = by_name[roles.rows], by_name[roles.cols]
    sum_type, letter, sum_value = SUMS[spec.types.acc]
    sums = mma.registers("c") if spec.types.acc != "f64" else mma.c.values
    split, size = spec.split_k > 1, DTYPES[spec.types.a].bytes
    if spec.types.acc == "f16":
        conversions.widened("f16", "")
    out = {
        "beta_value": "beta" if spec.types.compute != "s32" else "static_cast<value>(beta)",
        "old_value": conversions.widened(spec.types.c, "old.at[v]"),
        "narrowed_result": conversions.narrowed(spec.types.d, "result"),
    }
    steps, functions = epilogue_steps(plan, roles, "result", conversions.widened)
    interleaved = tiles[roles.cols].interleaved
    stages = plan.pipeline.stages
    in_flight = max(0, stages - 2)
    return {
        **roles.names,
        **c_names(plan, roles),
        **out,
        **_entries(plan),
        **_multiply_add(plan, letter, sums, row.registers, col.registers),
        "host_notes": host_notes(plan),
        "namespace": namespace(spec),
        "batched": spec.batch == "strided",
        "times_batch": " * batch" if spec.batch == "strided" else "",
        "split": split,
        "operands": ["a", "b"] if split else ["a", "b", "c", "d", *epilogue_operands(spec)],
        "out_operands": ["c", "d", *epilogue_operands(spec)],
        "staged": staged,
        "registers": [] if asynchronous else staged,
        "row": row,
        "col": col,
        "row_warp": "/ WARPS_M" if roles.swapped else "% WARPS_M",
        "col_warp": "% WARPS_M" if roles.swapped else "/ WARPS_M",
        "a_element": STORED[spec.types.a],
        "b_element": STORED[spec.types.b],
        "c_element": STORED[spec.types.c],
        "d_element": STORED[spec.types.d],
        "fragment_type": "double" if spec.types.acc == "f64" else "unsigned",
        "sum_type": sum_type,
        "sum_value": sum_value,
        "sum_registers": sums,
        "value_type": "value",
        "value_spelling": VALUES[spec.types.compute],
        "exp2": SPELLINGS[spec.types.compute].exp2 if spec.types.compute in SPELLINGS else "",
        "fabs": SPELLINGS[spec.types.compute].fabs if spec.types.compute in SPELLINGS else "",
        "async": asynchronous,
        "depth_says": "a part of K; a second kernel adds the parts up"
        if split
        else "the whole of K",
        "swizzled": any(s.swizzled for s in staged),
        "wholes": wholes(plan, asynchronous),
        "copies_say": "asynchronous copies" if asynchronous else "loads through registers",
        "async_copies": async_copies(((4, 8, 16) if size < 8 else (8, 16)) if asynchronous else ()),
        "chunk_include": f"_mma_{'copy' if asynchronous else 'fetch'}_chunk.cu.j2",
        "by_8": size < 8,
        "by_4": size < 4,
        "copy_by_8_include": "_mma_copy_by_8.cu.j2" if size < 8 else NOTHING,
        "copy_by_4_include": "_mma_copy_by_4.cu.j2" if size < 4 else NOTHING,
        "copy_elements_include": f"_mma_copy_elements_{'gathered' if size < 4 else 'async'}.cu.j2",
        "element_bytes": size,
        "in_flight": in_flight,
        "wait_says": WAITS.get(
            in_flight, f"this thread's copies, but for the latest {in_flight} groups"
        ),
        "loop_include": f"_mma_loop_{'pipelined' if stages > 1 else 'single'}.cu.j2",
        "store_include": NOTHING if asynchronous else "_mma_store_next.cu.j2",
        "prologue_says": ", and all stages but one are filled" if stages > 1 else "",
        "odd_steps": plan.fragments.a.cols % 2 == 1,
        "b_start": plan.shared[1].start,
        "shared_bytes": plan.budget.shared_bytes,
        "dynamic": int(plan.numbers["DYNAMIC_BYTES"]) > 0,
        "ldmatrices": _ldmatrices(staged),
        "pair_include": f"_mma_pair_{_pairs(plan, interleaved)}.cu.j2",
        # A lane's four columns of two fragments lie side by side where bytes were turned in pairs.
        "pair_col": "p / 2 * 16 + static_cast<int>(threadIdx.x) % 4 * 4 + p % 2 * 2"
        if interleaved
        else "p * 8 + static_cast<int>(threadIdx.x) % 4 * 2",
        "sum_row": _sum_row(roles, tiles[roles.rows]),
        "steps": steps,
        "functions": functions,
        "conversions": conversions.includes,
        "out_include": f"_mma_out_{'partial' if split else plan.numbers['EPILOGUE']}.cu.j2",
        "out_pad": OUT_PAD,
        "plane_index": "(split * batch + batch_index)" if spec.batch == "strided" else "split",
        "reduce_threads": REDUCE_THREADS,
        "reduce_vector": reduce_vector(spec),
    }


def _sum_row(roles: Roles, tile: OperandTile) -> str:
    axis, group = "N" if roles.swapped else "M", "static_cast<int>(threadIdx.x) % LANES / 4"
    if tile.interleaved:
        return f"i * MMA_{axis} + {group} * 2 + half"
    return f"i * MMA_{axis} + half * 8 + {group}"


def _pairs(plan: KernelPlan, interleaved: bool) -> str:
    if plan.spec.types.acc == "f16":
        return "packed"
    return "interleaved" if interleaved else "straight"


class _Conversions:
    """The functions between stored elements and values, as the text comes to need them."""

    def __init__(self, compute: str) -> None:
        self._compute = compute
        self.includes: list[str] = []

    def _needs(self, name: str) -> None:
        include = f"_{name}.cu.j2"
        if include not in self.includes:
            self.includes.append(include)

    def widened(self, kind: str, what: str) -> str:
        """The expression of a stored element as a value."""
        if kind in ("f16", "bf16"):
            self._needs(f"widen_{kind}")
            return f"widen_{kind}({what})"
        return what if kind == self._compute != "s32" else f"static_cast<value>({what})"

    def narrowed(self, kind: str, what: str) -> str:
        """The expression of a value as it is stored."""
        if kind == self._compute != "s32":
            return what
        self._needs(f"narrow_{kind}")
        return f"narrow_{kind}({what})"


def _staged(plan: KernelPlan, roles: Roles, tile: OperandTile, asynchronous: bool) -> Staged:
    shared = next(t for t in plan.shared if t.operand == tile.operand)
    x, axis = tile.operand, "M" if tile.operand == "a" else "N"
    block = "block_row" if tile.is_row else "block_col"
    _, fast_threads = tile.threads(plan.threads)
    extent, k_left = f"{x}_left", "k_left"
    lefts = (extent, k_left) if tile.along_k else (k_left, extent)

    def call(stage: str) -> str:
        target = f"{x}_tiles{stage}" if asynchronous else f"fetched_{x}, {x}_tiles{stage}"
        verb = "copy" if asynchronous else "fetch"
        return (
            f"{verb}_{x}<ACCESS>({target}, {x}_next, ld{x}, {x}_step, {x}_slow, {x}_fast, "
            f"{lefts[0]}, {lefts[1]})"
        )

    registers = plan.instruction.registers(x) if tile.element_bytes < 8 else 1
    along_k, across = (f"(k_begin + {x}_{d})" for d in ("fast", "slow"))
    return Staged(
        operand=x,
        OPERAND=x.upper(),
        axis=axis,
        slow=f"BLOCK_{axis}" if tile.along_k else "BLOCK_K",
        fast="BLOCK_K" if tile.along_k else f"BLOCK_{axis}",
        fast_name="K" if tile.along_k else axis,
        chunk=tile.chunk,
        row_stride=shared.row_stride,
        fast_threads=fast_threads,
        swizzled=shared.swizzle_mask > 0,
        swizzle_rows=shared.swizzle_rows,
        swizzle_mask=shared.swizzle_mask,
        swizzle_shift=shared.swizzle_shift,
        registers=registers,
        registers_name="ROW_REGISTERS" if tile.is_row else "COL_REGISTERS",
        advance=f"i += {tile.group}" if tile.group > 1 else "++i",
        rounded=getattr(plan.spec.types, x) == "tf32",
        copy_include="_mma_copy_tile.cu.j2" if asynchronous else "_mma_fetch_tile.cu.j2",
        slow_first=f"({block} + {x}_slow)" if tile.along_k else across,
        fast_first=along_k if tile.along_k else f"({block} + {x}_fast)",
        extent_left=f"left_of({axis}, {block}, BLOCK_{axis})",
        k_stride=f"{x}_step" if tile.along_k else f"ld{x}",
        bring_first=call(f" + stage * {x.upper()}_STAGE"),
        bring_next=call(f" + free_stage * {x.upper()}_STAGE"),
        bring_only=call(""),
        load_include=f"_mma_load_{LOADS[tile.way]}.cu.j2",
        reads=Reads.of(tile, registers),
    )


LOADS = {
    "ldmatrix": "matrices",
    "ldmatrix_trans": "matrices",
    "ldmatrix_pairs": "pairs",
    "words": "words",
}


def _ldmatrices(staged: list[Staged]) -> list[Ldmatrix]:
    """The ldmatrix functions that the operands call, each once."""
    named = {s.reads.ldmatrix.name: s.reads.ldmatrix for s in staged if s.reads.ldmatrix}
    return list(named.values())


def _multiply_add(
    plan: KernelPlan, letter: str, sums: int, row_registers: int, col_registers: int
) -> dict[str, str]:
    """The operands of the mma statement: D and C are one, A's registers are rows, B's columns."""
    first_row, first_col = sums, sums + row_registers
    listed = [
        ", ".join(f"%{i}" for i in range(first, first + count))
        for first, count in ((0, sums), (first_row, row_registers), (first_col, col_registers))
    ]
    held = "d" if plan.spec.types.acc == "f64" else "r"
    d, a, b = (f"{{{registers}}}" for registers in listed)
    inputs = [f'"{held}"(rows[{i}])' for i in range(row_registers)]
    inputs += [f'"{held}"(cols[{i}])' for i in range(col_registers)]
    return {
        "mnemonic": plan.instruction.mnemonic,
        "mma_registers": f"{d}, {a}, {b}, {d}",
        "mma_outputs": ", ".join(f'"+{letter}"(sums[{i}])' for i in range(sums)),
        "mma_inputs": ", ".join(inputs),
    }


def _entries(plan: KernelPlan) -> dict[str, Any]:
    spec = plan.spec
    body = max((e.arguments for e in plan.main_entries), key=len)
    reductions = [e for e in plan.entries if e.role == "reduce"]
    reduce = max((e.arguments for e in reductions), key=len, default=())
    body_name, reduce_name = f"{spec.name}_tile", f"{spec.name}_sum_up"
    accesses = dict(widths(spec))
    min_blocks = int(plan.numbers["MIN_BLOCKS"])
    # Left to itself, ptxas aims at more blocks and spills a few bytes to get there.
    launched = f"THREADS, {min_blocks}"

    def of(entry: Entry) -> dict[str, str]:
        main = entry.role == "main"
        wide = "true" if entry.variant.endswith("wide") else "false"
        return {
            "name": entry.name,
            "says": SAYS[entry.variant],
            "threads": launched if main else "REDUCE_THREADS",
            "parameters": parameters(entry.arguments),
            "body": body_name if main else reduce_name,
            "takes": str(accesses[entry.variant]) if main else wide,
            "call": passed_on(entry, body if main else reduce),
        }

    out = _out_arguments(plan)
    return {
        "parameters": parameters(body),
        "body_name": body_name,
        "reduce_name": reduce_name,
        "reduce_parameters": parameters(reduce),
        "entries": [of(entry) for entry in plan.entries],
        "out_parameters": parameters(out),
        "out_arguments": ", ".join(a.name for a in out),
    }


def _out_arguments(plan: KernelPlan) -> tuple[Argument, ...]:
    """What finishing a value takes: beta, C, D and the epilogue's operands, moved to their batch."""
    wanted = {"c", "d", *epilogue_operands(plan.spec)}
    return tuple(
        a
        for a in main_arguments(plan.spec, offsets=False, steps=True)
        if a.name == "beta" or (a.operand in wanted and not a.name.endswith("_batch_stride"))
    )
