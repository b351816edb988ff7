"""What forms share: argument lists, grids, epilogue steps, occupancy and the search for a lane grid."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from tilegen.dtypes import DTYPES
from tilegen.hardware import Arch
from tilegen.layout import Layout
from tilegen.plan import Access, Argument, Entry, Formula, PlannedStep, RegisterUse
from tilegen.spec import TileSpec

# The axis along which an operand is contiguous, by operand and majorness.
CONTIGUOUS = {
    "a": {"row": "k", "col": "m"},
    "b": {"row": "n", "col": "k"},
    "c": {"row": "n", "col": "m"},
    "d": {"row": "n", "col": "m"},
}


def compute_type(spec: TileSpec) -> str:
    """The type of alpha, beta and the epilogue: the accumulator's, or f32 to requantise s32."""
    return spec.types.compute


def operand_type(spec: TileSpec, operand: str) -> str:
    """The element type of an operand, the epilogue's vectors included.

    ``bias`` and ``residual`` come in D's type, or in the compute type where D is an integer that
    is requantised; ``scale`` comes in the compute type.
    """
    if operand in ("a", "b", "c", "d"):
        return str(getattr(spec.types, operand))
    compute = compute_type(spec)
    if operand == "scale" or (compute == "f32" and not DTYPES[spec.types.d].is_float):
        return compute
    return spec.types.d


def epilogue_operands(spec: TileSpec) -> list[str]:
    """Which of bias, scale and residual the epilogue reads, in order."""
    return [s.op for s in spec.epilogue if s.op in ("bias", "scale", "residual")]


def planned_steps(spec: TileSpec) -> tuple[PlannedStep, ...]:
    """The epilogue's steps as every backend spells them."""
    return tuple(PlannedStep(s.op, s.along, s.low, s.high) for s in spec.epilogue)


def main_arguments(
    spec: TileSpec, *, offsets: bool, steps: bool, pointers: Sequence[str] = ("a", "b", "c", "d")
) -> tuple[Argument, ...]:
    """The arguments of a main entry, in order.

    Parameters
    ----------
    offsets : bool
        Whether each pointer has an element offset (where a pointer cannot be moved by the host).
    steps : bool
        Whether A, B and C may be broadcast along their contiguous axis (step 0 or 1).
    """
    batched = spec.batch == "strided"
    compute = compute_type(spec)
    out = [Argument(name, "i64", "size") for name in ("M", "N", "K")]
    if batched:
        out.append(Argument("batch", "i64", "size"))
    for operand in pointers:
        if operand == "a":
            out.append(Argument("alpha", compute, "scalar"))
        if operand == "c":
            out.append(Argument("beta", compute, "scalar"))
        out += _pointer(operand, spec, offsets)
        out.append(Argument(f"ld{operand}", "i64", "stride", operand))
        if steps and operand != "d":
            out.append(Argument(f"{operand}_step", "i64", "stride", operand))
        if batched:
            out.append(Argument(f"{operand}_batch_stride", "i64", "stride", operand))
    for operand in epilogue_operands(spec):
        out += _pointer(operand, spec, offsets)
        if operand == "residual":
            out.append(Argument("ldresidual", "i64", "stride", operand))
        if batched:
            out.append(Argument(f"{operand}_batch_stride", "i64", "stride", operand))
    return tuple(out)


def _pointer(operand: str, spec: TileSpec, offsets: bool) -> list[Argument]:
    kind = "output" if operand == "d" else "input"
    out = [Argument(operand, operand_type(spec, operand), kind, operand)]
    if offsets:
        out.append(Argument(f"{operand}_offset", "i64", "offset", operand))
    return out


def main_entries(
    spec: TileSpec, wide: Sequence[Access], *, offsets: bool, threads: int, shared_bytes: int = 0
) -> tuple[Entry, ...]:
    """The two entries of a form: ``wide`` under its conditions, then ``narrow``, which has none.

    Parameters
    ----------
    wide : sequence of Access
        What the wide one asks of each operand; the narrow one takes single elements of any step.
    offsets : bool
        See :func:`main_arguments`.
    threads : int
        Per block.
    """
    narrow = [
        Access(x.operand, 1, DTYPES[operand_type(spec, x.operand)].bytes, unit_step=False)
        for x in wide
    ]
    return tuple(
        Entry(
            name=f"{spec.name}_{variant}",
            role="main",
            variant=variant,
            arguments=main_arguments(spec, offsets=offsets, steps=variant == "narrow"),
            accesses=tuple(accesses),
            grid=tile_grid(spec.block),
            block=threads,
            shared_bytes=shared_bytes,
        )
        for variant, accesses in (("wide", wide), ("narrow", narrow))
    )


def kernel_name(spec: TileSpec, arch: Arch, tail: str) -> str:
    """Name, types, majorness, tiles and arch; then the digest's head for all the rest.

    Parameters
    ----------
    tail : str
        What the form says of its fragments and stages.
    """
    t, layout = spec.types, spec.layout
    types = t.a if len({t.a, t.b, t.acc, t.c, t.d}) == 1 else f"{t.a}_{t.b}_{t.acc}_{t.d}"
    major = "".join("n" if getattr(layout, x) == "row" else "t" for x in "abcd")
    block = "x".join(map(str, spec.block))
    warp = "x".join(map(str, spec.warp))
    return f"{spec.name}_{types}_{major}_b{block}_w{warp}_{tail}_{arch.name}_{spec.digest[:8]}"


def tile_grid(block: tuple[int, int, int]) -> Formula:
    """Blocks of a launch: output tiles times batch times split-K."""
    m, n = block[0], block[1]
    return Formula(f"((M + {m - 1}) / {m}) * ((N + {n - 1}) / {n}) * batch")


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def largest_divisor(number: int, limit: int) -> int:
    """The largest divisor of ``number`` that is at most ``limit``."""
    return next(d for d in range(max(1, min(number, limit)), 0, -1) if number % d == 0)


def power_of_two_divisor(number: int, limit: int) -> int:
    """The largest power of two that divides ``number`` and is at most ``limit``."""
    return gcd(number, 1 << (max(1, limit).bit_length() - 1))


def lane_grid(lanes: int, warp: tuple[int, int], vector: int) -> tuple[int, int] | None:
    """How the lanes of a warp lie on its tile, or ``None`` if none of the ways divides it.

    The way that loads the fewest elements per multiply-add comes first; among equals the one whose
    tiles hold whole vectors on both axes, then the one with more lanes along N, where rows of D
    are contiguous.
    """
    ways = []
    for m in (d for d in range(1, lanes + 1) if lanes % d == 0):
        n = lanes // m
        if warp[0] % m == 0 and warp[1] % n == 0:
            tile = warp[0] // m, warp[1] // n
            scalar = sum(gcd(extent, vector) < min(vector, 4) for extent in tile)
            ways.append((sum(tile), scalar, m, n))
    if not ways:
        return None
    _, _, m, n = min(ways)
    return m, n


def interleaved(extent: int, lanes: int, vector: int) -> tuple[Layout, Layout]:
    """A lane's places along one axis: vectors of a lane are ``lanes * vector`` elements apart.

    Returns
    -------
    lane, value : Layout
        ``lane(l) + value(i)`` is the place of element i of lane l.
    """
    vectors = extent // (lanes * vector)
    return Layout((lanes,), (vector,)), Layout((vector, vectors), (1, lanes * vector))


def registers_left(arch: Arch, threads: int, blocks: int = 1) -> int:
    """What one lane can have where a multiprocessor holds so many blocks of so many threads."""
    file = arch.registers
    if file.per_multiprocessor is None:
        return file.per_lane
    warps = ceil_div(max(1, threads), arch.lanes) * max(1, blocks)
    share = file.per_multiprocessor // (file.parts * arch.lanes) // ceil_div(warps, file.parts)
    return min(file.per_lane, share // file.granularity * file.granularity)


def blocks_beside_registers(arch: Arch, threads: int, shared_bytes: int) -> dict[str, int]:
    """Blocks that a multiprocessor holds by each of its limits but registers; none where unknown."""
    if arch.max_threads_per_multiprocessor is None:
        return {}
    limits = {"threads": arch.max_threads_per_multiprocessor // threads}
    if arch.max_blocks_per_multiprocessor:
        limits["blocks"] = arch.max_blocks_per_multiprocessor
    if arch.shared_per_multiprocessor and shared_bytes:
        taken = shared_bytes + arch.shared_reserved_bytes
        limits["shared memory"] = arch.shared_per_multiprocessor // taken
    return limits


def occupancy(
    arch: Arch, threads: int, shared_bytes: int, registers: RegisterUse
) -> tuple[int | None, float | None, str]:
    """Blocks per multiprocessor, share of its threads, and what bounds them (``None`` if unknown)."""
    limits = blocks_beside_registers(arch, threads, shared_bytes)
    if arch.max_threads_per_multiprocessor is None:
        return None, None, ""
    file = arch.registers
    if file.per_multiprocessor:
        # What needs more than the limit gets the limit, and spills.
        taken = min(registers.predicted, registers.limit)
        per_lane = ceil_div(taken, file.granularity) * file.granularity
        held = file.per_multiprocessor // (file.parts * arch.lanes * per_lane) * file.parts
        limits["registers"] = held // ceil_div(threads, arch.lanes)
    bound = min(limits, key=lambda name: limits[name])
    blocks = limits[bound]
    return blocks, blocks * threads / arch.max_threads_per_multiprocessor, bound
