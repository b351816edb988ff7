"""The vector-fragment form: one work-item packs panels and holds rows x vectors in registers; for CPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tilegen.backend import TypeCombination
from tilegen.dtypes import DTYPES
from tilegen.hardware import Arch, Instruction
from tilegen.layout import Layout
from tilegen.plan import (
    Access,
    Budget,
    Copy,
    Fragment,
    Fragments,
    KernelPlan,
    Ownership,
    Pipeline,
    RegisterUse,
    Role,
)
from tilegen.roles import Roles
from tilegen.rules import Candidate, Rule, Violation
from tilegen.spec import PinValue, TileSpec
from tilegen.tiling import (
    CONTIGUOUS,
    ceil_div,
    largest_divisor,
    main_entries,
    operand_type,
    planned_steps,
)

from .naming import as_spelled, kernel_name
from .types import COMBINATIONS, needs

# Of one work-item, which CPU runtimes keep on a thread's stack.
PRIVATE_LIMIT = 1024 * 1024
# Of a work-group: PoCL 3.1 keeps all its work-items' on one thread's stack of 8 MiB, and ends in a
# segmentation fault beyond it (7.1 MB ran, 8.4 did not).
GROUP_PRIVATE_LIMIT = 6 * 1024 * 1024


def packed_panel_fits(c: Candidate) -> Iterator[Violation]:
    """The packed panels and the partial sums of a work-item stay within its private memory."""
    used = int(c.numbers.get("private_bytes", 0))
    if PRIVATE_LIMIT >= used > GROUP_PRIVATE_LIMIT / max(1, c.threads):
        yield Violation(
            "private",
            "warp",
            c.spec.warp,
            f"the {c.threads} work-items of a group take {used} bytes of private memory each, and CPU "
            f"runtimes are asked for {GROUP_PRIVATE_LIMIT} for all of them",
        )
    if used > PRIVATE_LIMIT:
        yield Violation(
            "private",
            "warp",
            c.spec.warp,
            f"the packed panels and the partial sums of a work-item take {used} bytes of private "
            f"memory, and CPU runtimes are asked for {PRIVATE_LIMIT} at most",
        )


def fragment_divides(c: Candidate) -> Iterator[Violation]:
    """A pinned fragment divides the warp tile."""
    pin = c.spec.pins.get(c.backend, {}).get("fragment")
    if pin is None:
        return
    if not (isinstance(pin, tuple) and len(pin) == 2 and min(pin) >= 1):
        yield Violation("fragment", f"pins.{c.backend}.fragment", pin, "must be [rows, vectors]")
    elif c.instruction is not None and not c.numbers.get("fragment_divides", True):
        yield Violation(
            "fragment",
            f"pins.{c.backend}.fragment",
            pin,
            f"rows must divide the {c.numbers['tile_rows']} rows of the warp tile and vectors its "
            f"{c.numbers['tile_vectors']} vectors of {c.numbers['VECTOR']} elements",
        )


@dataclass(frozen=True)
class VectorFragment:
    """Rows x native vectors in registers, both operands packed in private memory."""

    name: str = "vector_fragment"
    rules: tuple[Rule, ...] = (packed_panel_fits, fragment_divides)

    def types(self, arch: Arch) -> Sequence[TypeCombination]:
        return COMBINATIONS

    def pins(self, arch: Arch) -> Mapping[str, Sequence[PinValue]]:
        return {"form": (self.name,), "fragment": ()}

    def derive(self, spec: TileSpec, arch: Arch) -> Candidate:
        roles = Roles.of(spec)
        warp_rows, warp_cols = roles.order(spec.warp)
        offered = [i for i in arch.instructions if i.n > 1 and i.type_acc == spec.types.acc]
        # Types without one are refused; the numbers still want some width.
        offered = offered or [i for i in arch.instructions if i.n > 1]
        instruction = next((i for i in offered if warp_cols % i.n == 0), None)
        narrowest = min(offered, key=lambda i: i.n)
        vector = (instruction or narrowest).n
        acc_bytes = DTYPES[spec.types.acc].bytes
        per_vector = ceil_div(vector * acc_bytes * 8, arch.registers.bits)
        vectors = max(1, warp_cols // vector)
        pin = spec.pins.get("opencl", {}).get("fragment")
        numbers: dict[str, object] = {"tile_rows": warp_rows, "tile_vectors": vectors}
        if isinstance(pin, tuple) and len(pin) == 2 and min(pin) >= 1:
            rows, wide = pin
            numbers["fragment_divides"] = warp_rows % rows == 0 and vectors % wide == 0
        else:
            rows, wide = _best_fragment(warp_rows, vectors, per_vector, arch.registers.per_lane)
        depth = ceil_div(spec.block[2], vector) * vector
        rows_along_k = CONTIGUOUS[roles.rows][getattr(spec.layout, roles.rows)] == "k"
        panel_rows = warp_rows if rows_along_k else ceil_div(warp_rows, vector) * vector
        panels = depth * (panel_rows + warp_cols) * acc_bytes
        sums = warp_rows * warp_cols * acc_bytes
        numbers |= {
            "VECTOR": vector,
            "ROWS": rows,
            "VECTORS": wide,
            "private_bytes": panels + sums,
        }
        threads = max(1, spec.warps[0]) * max(1, spec.warps[1])
        use = RegisterUse(
            "vector",
            accumulators=rows * wide * per_vector,
            operands=wide * per_vector + 1,
            staging=0,
            addressing=0,
            limit=arch.registers.per_lane,
        )
        notes = [
            f"the fragment of a work-item is {rows} rows x {wide} vector(s) of {vector}"
            + (", as pinned" if "fragment_divides" in numbers else "")
        ]
        if spec.thread is not None:
            notes.append(f"thread {list(spec.thread)} is for scalar lanes and is not used here")
        if spec.stages > 1:
            notes.append(f"stages {spec.stages} -> 1: one pair of panels is packed at a time")
        if spec.split_k > 1:
            notes.append(f"split_k {spec.split_k} -> 1: cores share the output tiles, not K")
        if use.spills:
            notes.append(
                f"{use.predicted} vector registers are predicted and there are {use.limit}: it spills"
            )
        return Candidate(
            spec=spec,
            backend="opencl",
            arch=arch,
            form=self,
            # The narrowest one stands in, so that the rule can name what the warp tile must meet.
            instruction=_oriented(as_spelled(instruction or narrowest, arch), roles),
            threads=threads,
            lanes=(1, 1),
            registers=(use,),
            needs=needs(spec),
            numbers=dict(numbers),
            notes=tuple(notes),
        )

    def plan(self, candidate: Candidate) -> KernelPlan:
        spec, arch, numbers = candidate.spec, candidate.arch, candidate.numbers
        roles = Roles.of(spec)
        assert candidate.instruction is not None
        vector, rows, wide = numbers["VECTOR"], numbers["ROWS"], numbers["VECTORS"]
        (bm, bn, bk), (wm, wn) = spec.block, spec.warp
        (warps_m, warps_n), use = spec.warps, candidate.registers[0]
        warp_rows, warp_cols = roles.order(spec.warp)
        counts_c = roles.order((warp_rows, warp_cols // vector))
        per_vector = use.accumulators // (rows * wide)
        turned = CONTIGUOUS[roles.cols][getattr(spec.layout, roles.cols)] == "k"
        one, many = (1, vector) if not roles.swapped else (vector, 1), warp_cols // vector
        scalar = Fragment(warp_rows, bk, 1, 1, (1, 1))
        panel = Fragment(many, bk, vector, wide * per_vector, (vector, 1))
        fragments = Fragments(
            a=panel if roles.swapped else scalar,
            b=scalar if roles.swapped else panel,
            c=Fragment(*counts_c, vector, use.accumulators, one),
        )
        wide_accesses = [
            Access(o, vector, DTYPES[operand_type(spec, o)].bytes) for o in ("a", "b", "c", "d")
        ]
        entries = main_entries(spec, wide_accesses, offsets=True, threads=candidate.threads)
        return KernelPlan(
            spec=spec,
            backend="opencl",
            arch=arch,
            form=self.name,
            template="vector_fragment.cl.j2",
            name=kernel_name(spec, arch, f"f{rows}x{wide * vector}"),
            instruction=candidate.instruction,
            block=spec.block,
            warp=spec.warp,
            warps=spec.warps,
            thread=roles.order((rows, wide * vector)),
            passes=roles.order((warp_rows // rows, warp_cols // (wide * vector))),
            threads=candidate.threads,
            split_k=1,
            fragments=fragments,
            ownership={
                "a": Ownership(
                    bm,
                    bk,
                    Layout((warps_m, warps_n), (wm, 0)),
                    Layout((1,), (0,)),
                    Layout((wm, bk), (1, bm)),
                    copies=warps_n,
                ),
                "b": Ownership(
                    bn,
                    bk,
                    Layout((warps_m, warps_n), (0, wn)),
                    Layout((1,), (0,)),
                    Layout((wn, bk), (1, bn)),
                    copies=warps_m,
                ),
                "c": Ownership(
                    bm,
                    bn,
                    Layout((warps_m, warps_n), (wm, bm * wn)),
                    Layout((1,), (0,)),
                    _tile_order(roles, spec, rows, wide * vector),
                ),
            },
            shared=(),
            copies=(
                Copy(
                    roles.cols,
                    "global",
                    "private",
                    "vector_load",
                    vector,
                    bk * warp_cols // vector,
                    CONTIGUOUS[roles.cols][getattr(spec.layout, roles.cols)],
                    transposes=turned,
                ),
                Copy(
                    roles.rows,
                    "global",
                    "private",
                    "vector_load",
                    vector,
                    bk * warp_rows // vector,
                    CONTIGUOUS[roles.rows][getattr(spec.layout, roles.rows)],
                ),
            ),
            pipeline=Pipeline(1, "none", (Role("all", warps_m * warps_n),)),
            epilogue=planned_steps(spec),
            entries=entries,
            budget=Budget(
                registers=candidate.registers,
                shared_bytes=0,
                shared_limit=arch.shared_bytes,
                private_bytes=numbers["private_bytes"],
                flop_per_global_byte=2
                * wm
                * wn
                / (wm * DTYPES[spec.types.a].bytes + wn * DTYPES[spec.types.b].bytes),
            ),
            numbers={
                "VECTOR": vector,
                "ROWS": rows,
                "VECTORS": wide,
                "ROW_FRAGMENTS": warp_rows // rows,
                "COL_FRAGMENTS": warp_cols // (wide * vector),
            },
            notes=candidate.notes,
        )


def _best_fragment(
    tile_rows: int, tile_vectors: int, per_vector: int, limit: int
) -> tuple[int, int]:
    """Rows and vectors with the most multiply-adds per load of the panels that fit in the registers."""
    best = (0.0, 1, 1)
    for wide in range(1, min(tile_vectors, 4) + 1):
        if tile_vectors % wide:
            continue
        room = (limit - 1) // per_vector // wide - 1
        rows = largest_divisor(tile_rows, max(1, room))
        best = max(best, (rows * wide / (rows + wide), rows, wide))
    return best[1], best[2]


def _oriented(instruction: Instruction, roles: Roles) -> Instruction:
    """The instruction with its vector along M, where D is column-major."""
    if not roles.swapped:
        return instruction
    from dataclasses import replace

    from tilegen.layout import FragmentLayout

    c = FragmentLayout(instruction.n, 1, instruction.c.lane, instruction.c.value)
    return replace(instruction, m=instruction.n, n=1, a=instruction.b, b=instruction.a, c=c)


def _tile_order(roles: Roles, spec: TileSpec, rows: int, cols: int) -> Layout:
    """The partial sums of a work-item, in the order in which they lie in its private memory."""
    bm = spec.block[0]
    warp_rows, warp_cols = roles.order(spec.warp)
    # fragment by fragment along the columns, then the rows; a fragment row by row
    row_step, col_step = (bm, 1) if roles.swapped else (1, bm)
    return Layout(
        (cols, rows, warp_cols // cols, warp_rows // rows),
        (col_step, row_step, cols * col_step, rows * row_step),
    )
