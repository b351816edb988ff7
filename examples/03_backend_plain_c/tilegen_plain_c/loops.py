"""The one form: loops over warp tiles and, within them, over register tiles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tilegen.backend import TypeCombination
from tilegen.dtypes import DTYPES
from tilegen.hardware import Arch, Instruction, RegisterFile
from tilegen.layout import FragmentLayout, Layout
from tilegen.plan import (
    Access,
    Budget,
    Copy,
    Entry,
    Fragment,
    Fragments,
    KernelPlan,
    Ownership,
    Pipeline,
    RegisterUse,
    Role,
)
from tilegen.rules import Candidate, Rule, Violation
from tilegen.spec import PinValue, TileSpec
from tilegen.tiling import (
    CONTIGUOUS,
    largest_divisor,
    main_arguments,
    planned_steps,
    tile_grid,
)

TYPES = ("f32", "f64")
ONE = Layout((1,), (0,))
# Partial sums of one warp tile on the stack: well under the 512 KiB of a thread on macOS.
SUMS_LIMIT = 256 * 1024


def multiply_add(kind: str) -> Instruction:
    """One scalar multiply-add."""
    scalar = FragmentLayout(1, 1, ONE, ONE)
    doc = "ISO/IEC 9899:1999, 6.5 paragraph 8 (contracted expressions)"
    return Instruction(
        "fma", 1, 1, 1, kind, kind, kind, 1, scalar, scalar, scalar, "sum += a * b", doc
    )


C99 = Arch(
    name="c99",
    kind="cpu",
    lanes=1,
    max_threads=4096,
    shared_bytes=0,
    register_files=(RegisterFile("scalar", 64, 16),),
    instructions=tuple(multiply_add(kind) for kind in TYPES),
    max_access_bytes=8,
    sources={
        "max_threads": "none: the warps of a block are turns of a loop",
        "register_files": "the fewest of a 64-bit CPU: 16 SSE registers (Intel SDM vol. 1, 10.2)",
    },
)


def sums_fit_the_stack(c: Candidate) -> Iterator[Violation]:
    """The partial sums of a warp tile stay within a small part of the stack."""
    if c.numbers["sums_bytes"] > SUMS_LIMIT:
        yield Violation(
            "sums",
            "warp",
            c.spec.warp,
            f"the partial sums of a warp tile take {c.numbers['sums_bytes']} bytes of the stack, "
            f"and the limit is {SUMS_LIMIT}",
        )


@dataclass(frozen=True)
class Loops:
    """A register tile of rows x columns, passed over the warp tile once per step of K."""

    name: str = "loops"
    rules: tuple[Rule, ...] = (sums_fit_the_stack,)

    def types(self, arch: Arch) -> Sequence[TypeCombination]:
        return [TypeCombination(kind, kind, kind, ((kind, kind),)) for kind in TYPES]

    def pins(self, arch: Arch) -> Mapping[str, Sequence[PinValue]]:
        return {"form": (self.name,)}

    def derive(self, spec: TileSpec, arch: Arch) -> Candidate:
        wanted = spec.thread or (4, 4)
        thread = (
            largest_divisor(spec.warp[0], wanted[0]),
            largest_divisor(spec.warp[1], wanted[1]),
        )
        notes = [f"the register tile is {thread[0]} x {thread[1]}"]
        if spec.thread not in (None, thread):
            notes.append(f"thread {list(wanted)} -> {list(thread)}: it has to divide the warp tile")
        if spec.stages > 1:
            notes.append(f"stages {spec.stages} -> 1: nothing is staged")
        if spec.split_k > 1:
            notes.append(f"split_k {spec.split_k} -> 1: there is one core")
        use = RegisterUse(
            "scalar",
            accumulators=thread[0] * thread[1],
            operands=sum(thread),
            staging=0,
            addressing=0,
            limit=arch.registers.per_lane,
        )
        return Candidate(
            spec=spec,
            backend="plain_c",
            arch=arch,
            form=self,
            instruction=next((i for i in arch.instructions if i.type_a == spec.types.a), None),
            threads=spec.warps[0] * spec.warps[1],
            lanes=(1, 1),
            thread=thread,
            passes=(spec.warp[0] // thread[0], spec.warp[1] // thread[1]),
            registers=(use,),
            numbers={"sums_bytes": spec.warp[0] * spec.warp[1] * DTYPES[spec.types.acc].bytes},
            notes=tuple(notes),
        )

    def plan(self, candidate: Candidate) -> KernelPlan:
        spec, arch, use = candidate.spec, candidate.arch, candidate.registers[0]
        assert candidate.instruction is not None
        (bm, bn, bk), (wm, wn), (warps_m, warps_n) = spec.block, spec.warp, spec.warps
        size = DTYPES[spec.types.a].bytes
        return KernelPlan(
            spec=spec,
            backend="plain_c",
            arch=arch,
            form=self.name,
            template="loops.c.j2",
            name=_name(candidate),
            instruction=candidate.instruction,
            block=spec.block,
            warp=spec.warp,
            warps=spec.warps,
            thread=candidate.thread,
            passes=candidate.passes,
            threads=candidate.threads,
            split_k=1,
            fragments=Fragments(
                a=Fragment(wm, bk, 1, candidate.thread[0], (1, 1)),
                b=Fragment(wn, bk, 1, candidate.thread[1], (1, 1)),
                c=Fragment(wm, wn, 1, use.accumulators, (1, 1)),
            ),
            ownership={
                "a": Ownership(
                    bm, bk, Layout(spec.warps, (wm, 0)), ONE, Layout((wm, bk), (1, bm)), warps_n
                ),
                "b": Ownership(
                    bn, bk, Layout(spec.warps, (0, wn)), ONE, Layout((wn, bk), (1, bn)), warps_m
                ),
                # The sums of a warp lie row by row.
                "c": Ownership(
                    bm, bn, Layout(spec.warps, (wm, bm * wn)), ONE, Layout((wn, wm), (bm, 1))
                ),
            },
            shared=(),
            copies=tuple(
                Copy(
                    operand, "global", "register", "load", 1, accesses,
                    CONTIGUOUS[operand][getattr(spec.layout, operand)],
                )
                for operand, accesses in (
                    ("a", bk * wm * candidate.passes[1]),
                    ("b", bk * wn * candidate.passes[0]),
                )
            ),
            pipeline=Pipeline(1, "none", (Role("all", warps_m * warps_n),)),
            epilogue=planned_steps(spec),
            entries=(self._entry(candidate, "wide"), self._entry(candidate, "narrow")),
            budget=Budget(
                registers=candidate.registers,
                shared_bytes=0,
                shared_limit=0,
                private_bytes=candidate.numbers["sums_bytes"],
                flop_per_global_byte=2 * wm * wn / ((wm + wn) * size),
            ),
            notes=candidate.notes,
        )  # fmt: skip

    def _entry(self, candidate: Candidate, variant: str) -> Entry:
        spec, wide = candidate.spec, variant == "wide"
        return Entry(
            name=f"{spec.name}_{variant}",
            role="main",
            variant=variant,
            arguments=main_arguments(spec, offsets=False, steps=not wide),
            accesses=tuple(
                Access(o, 1, DTYPES[getattr(spec.types, o)].bytes, unit_step=wide) for o in "abc"
            ),
            grid=tile_grid(spec.block),
            block=candidate.threads,
        )


def _name(c: Candidate) -> str:
    spec, (tm, tn) = c.spec, c.thread
    major = "".join("n" if getattr(spec.layout, x) == "row" else "t" for x in "abcd")
    block, warp = "x".join(map(str, spec.block)), "x".join(map(str, spec.warp))
    tiles = f"b{block}_w{warp}_t{tm}x{tn}"
    return f"{spec.name}_{spec.types.a}_{major}_{tiles}_{c.arch.name}_{spec.digest[:8]}"
