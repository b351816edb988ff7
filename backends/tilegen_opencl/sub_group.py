"""The sub-group form: a sub-group holds its warp tile in registers and broadcasts one operand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tilegen.backend import TypeCombination
from tilegen.dtypes import DTYPES
from tilegen.hardware import Arch
from tilegen.plan import (
    Access,
    Budget,
    Fragment,
    Fragments,
    KernelPlan,
    Pipeline,
    RegisterUse,
    Role,
)
from tilegen.roles import Roles
from tilegen.rules import AXES, Candidate, Rule, Violation, violations
from tilegen.spec import PinValue, TileSpec
from tilegen.tiling import (
    ceil_div,
    main_entries,
    planned_steps,
)

from .archs import SCALARS
from .naming import as_spelled, kernel_name
from .sub_group_lanes import Share, col_vector, copies, ownership, source_vector
from .types import COMBINATIONS, needs
from .work_group import ADDRESS_REGISTERS, WorkGroup

# A K step is unrolled as a whole, since a broadcast names its lane by a constant.
LONGEST_UNROLL = 8
MOST_UNROLLED = 2048
# 128 registers of 32 bytes a hardware thread, which its lanes share (Intel, oneAPI GPU Optimization
# Guide, "Registers and Performance"). Sizes and strides are kept once for all lanes there, so that
# a lane has four 64-bit addresses of its own and its place.
SHARED_WORDS = 128 * 8
SHARED_ADDRESSES = 12


def lanes_divide_the_columns(c: Candidate) -> Iterator[Violation]:
    """The lanes of a sub-group lie side by side along the contiguous axis of D."""
    sizes, axis = c.numbers["sizes"], c.numbers["col_axis"]
    if sizes and c.spec.warp[axis] % c.numbers["LANES"]:
        yield Violation(
            "lanes",
            f"warp[{axis}]",
            c.spec.warp[axis],
            f"WARP_{AXES[axis]} must be a multiple of a sub-group's lanes, "
            f"{' or '.join(map(str, sorted(sizes)))}",
        )


def size_is_known(c: Candidate) -> Iterator[Violation]:
    """The arch says how many lanes its sub-groups have: who owns what hangs on it."""
    if "sub_groups" in c.arch.features and not c.arch.warp_sizes:
        yield Violation(
            "sub_group_size",
            f"pins.{c.backend}.form",
            c.form.name,
            f"{c.arch.name} does not say how many lanes its sub-groups have; a queried device does, "
            "and so does an arch with warp_sizes",
        )


def work_group_loads_more(c: Candidate) -> Iterator[Violation]:
    """On a GPU, without a pin, the form with fewer loads a multiply-add is taken."""
    pins = c.spec.pins.get(c.backend, {})
    if c.arch.kind == "cpu" or {"form", "sub_group"} & set(pins) or not c.registers:
        return
    theirs = work_group_loads(c)
    if theirs is not None and theirs < c.numbers["loads"]:
        yield Violation(
            "loads",
            "warp",
            c.spec.warp,
            f"{c.numbers['loads']:.3g} loads and broadcasts a multiply-add, and form work_group "
            f"loads {theirs:.3g} from local memory",
        )


def work_group_loads(c: Candidate) -> float | None:
    """Loads from local memory a multiply-add in the other form; ``None`` where it is not legal."""
    form = WorkGroup()
    other = form.derive(c.spec, c.arch)
    if violations(other):
        return None
    rows, cols = (t * p for t, p in zip(other.thread, other.passes, strict=True))
    return (rows + cols) / (rows * cols)


@dataclass(frozen=True)
class SubGroup:
    """Lanes along the columns, every row in every lane, rows broadcast; no local memory."""

    name: str = "sub_group"
    rules: tuple[Rule, ...] = (size_is_known, lanes_divide_the_columns, work_group_loads_more)

    def types(self, arch: Arch) -> Sequence[TypeCombination]:
        return COMBINATIONS if "sub_groups" in arch.features else ()

    def pins(self, arch: Arch) -> Mapping[str, Sequence[PinValue]]:
        return {"form": (self.name,), "sub_group": arch.warp_sizes}

    def derive(self, spec: TileSpec, arch: Arch) -> Candidate:
        roles = Roles.of(spec)
        warp_rows, warp_cols = roles.order(spec.warp)
        pinned = spec.pins.get("opencl", {}).get("sub_group")
        sizes = tuple(s for s in arch.warp_sizes if s == pinned) or arch.warp_sizes
        # An arch without sub-groups is refused; the numbers still want some size.
        lanes = next((s for s in sizes if warp_cols % s == 0), (sizes or (arch.lanes,))[0])
        offered = [i for i in SCALARS if i.type_acc == spec.types.acc] or list(SCALARS)
        base = Candidate(
            spec=spec,
            backend="opencl",
            arch=arch,
            form=self,
            instruction=as_spelled(offered[0], arch),
            threads=max(1, spec.warps[0]) * max(1, spec.warps[1]) * lanes,
            warp_lanes=lanes,
            lanes=roles.order((1, lanes)),
            needs=needs(spec) | {"sub_groups"},
            numbers={"sizes": sizes, "col_axis": 0 if roles.swapped else 1, "LANES": lanes},
        )
        if warp_cols % lanes:
            return base
        cols = warp_cols // lanes
        share, use = self._unrolled(spec, arch, lanes)
        broadcasts = warp_rows + share.registers / share.unroll
        notes = []
        if share.unroll < spec.block[2]:
            notes.append(
                f"K is unrolled by {share.unroll} of block[2] = {spec.block[2]}: what a lane holds of "
                "a longer step would not fit"
            )
        if spec.thread is not None:
            notes.append(
                f"thread {list(spec.thread)} is not used here: a lane has all {warp_rows} rows of the "
                f"warp tile and {cols} of its columns"
            )
        if spec.stages > 1:
            notes.append(f"stages {spec.stages} -> 1: operands go straight to registers")
        if spec.split_k > 1:
            notes.append(f"split_k {spec.split_k} -> 1: this form sums all of K in one sub-group")
        if arch.kind == "cpu" and use.spills:
            notes.append(
                f"{use.predicted} vector registers are predicted and there are {use.limit}: it spills"
            )
        numbers = {
            **base.numbers,
            "COL_VECTOR": col_vector(spec, arch, cols),
            "UNROLL_K": share.unroll,
            "FAST_LANES": share.fast_lanes,
            "FAST_SHARE": share.fast_share,
            "SLOW_SHARE": share.slow_share,
            "share": share,
            "loads": (cols + broadcasts) / (warp_rows * cols),
        }
        return replace(base, registers=(use,), numbers=numbers, notes=tuple(notes))

    def _unrolled(self, spec: TileSpec, arch: Arch, lanes: int) -> tuple[Share, RegisterUse]:
        """The longest K step whose operands fit beside the sums, or the shortest there is."""
        warp_rows, warp_cols = Roles.of(spec).order(spec.warp)
        cols = warp_cols // lanes
        longest = min(LONGEST_UNROLL, max(1, MOST_UNROLLED // (warp_rows * cols)))
        steps = [u for u in range(min(longest, spec.block[2]), 0, -1) if spec.block[2] % u == 0]
        tried = []
        for unroll in steps:
            share = Share.of(spec, lanes, unroll)
            use = _registers(spec, arch, lanes, warp_rows * cols, share.registers + unroll * cols)
            if not use.spills:
                return share, use
            tried.append((share, use))
        return tried[-1]

    def plan(self, candidate: Candidate) -> KernelPlan:
        spec, arch, numbers = candidate.spec, candidate.arch, candidate.numbers
        roles = Roles.of(spec)
        assert candidate.instruction is not None
        share, lanes, vector = numbers["share"], numbers["LANES"], numbers["COL_VECTOR"]
        bk, (wm, wn), use = spec.block[2], spec.warp, candidate.registers[0]
        warps_m, warps_n = spec.warps
        warp_rows, warp_cols = roles.order(spec.warp)
        cols = warp_cols // lanes
        sizes = {o: DTYPES[getattr(spec.types, o)].bytes for o in ("a", "b", "c", "d")}
        widths = {
            roles.rows: 1,
            roles.cols: source_vector(spec, share.unroll, vector),
            "c": vector,
            "d": vector,
        }
        wide = [Access(o, width, sizes[o]) for o, width in widths.items()]
        entries = main_entries(spec, wide, offsets=True, threads=candidate.threads)
        scalar = (1, 1)
        row_fragment = Fragment(warp_rows, bk, 1, share.registers, scalar)
        col_fragment = Fragment(warp_cols, bk, 1, share.unroll * cols, scalar)
        return KernelPlan(
            spec=spec,
            backend="opencl",
            # Of this kernel: the sub-group is the warp.
            arch=replace(arch, lanes=lanes),
            form=self.name,
            template="sub_group.cl.j2",
            name=kernel_name(spec, arch, f"sg{lanes}_u{share.unroll}"),
            instruction=candidate.instruction,
            block=spec.block,
            warp=spec.warp,
            warps=spec.warps,
            thread=roles.order((warp_rows, vector)),
            passes=roles.order((1, cols // vector)),
            threads=candidate.threads,
            split_k=1,
            fragments=Fragments(
                a=col_fragment if roles.swapped else row_fragment,
                b=row_fragment if roles.swapped else col_fragment,
                c=Fragment(wm, wn, 1, use.accumulators, scalar),
            ),
            ownership=ownership(spec, roles, lanes, vector),
            shared=(),
            copies=copies(spec, roles, lanes, vector, share),
            pipeline=Pipeline(1, "none", (Role("all", warps_m * warps_n),)),
            epilogue=planned_steps(spec),
            entries=entries,
            budget=Budget(
                registers=candidate.registers,
                shared_bytes=0,
                shared_limit=arch.shared_bytes,
                # Each sub-group loads its own operands; what its neighbours share is the cache's affair.
                flop_per_global_byte=2 * wm * wn / (wm * sizes["a"] + wn * sizes["b"]),
            ),
            numbers={
                key: numbers[key]
                for key in (
                    "LANES", "COL_VECTOR", "UNROLL_K", "FAST_LANES", "FAST_SHARE", "SLOW_SHARE",
                )
            },
            notes=(*candidate.notes, *_why(candidate)),
        )  # fmt: skip


def _registers(spec: TileSpec, arch: Arch, lanes: int, sums: int, operands: int) -> RegisterUse:
    """What a lane holds; on a CPU, what the vectors that all lanes are hold."""
    file, bits = arch.registers, DTYPES[spec.types.acc].bytes * 8
    words, limit, addressing = bits // 32, file.per_lane, ADDRESS_REGISTERS
    if arch.kind == "cpu":
        words, addressing = ceil_div(lanes * bits, file.bits), 0
    elif "required_sub_group_size" in arch.features:
        limit, addressing = SHARED_WORDS // lanes, SHARED_ADDRESSES
    # One more for the value that is being broadcast.
    return RegisterUse(file.name, sums * words, (operands + 1) * words, 0, addressing, limit)


def _why(c: Candidate) -> Iterator[str]:
    """Why this form was taken on a GPU, where the other one was to be had."""
    pins = c.spec.pins.get(c.backend, {})
    if c.arch.kind == "cpu" or {"form", "sub_group"} & set(pins):
        return
    theirs = work_group_loads(c)
    against = (
        "form work_group breaks a rule here"
        if theirs is None
        else f"form work_group loads {theirs:.3g} from local memory"
    )
    yield f"form sub_group: {c.numbers['loads']:.3g} loads and broadcasts a multiply-add; {against}"
