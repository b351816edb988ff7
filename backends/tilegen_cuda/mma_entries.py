"""The mma_sync form's entry points: one for each width of access, and the reduction of split K."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tilegen.dtypes import DTYPES
from tilegen.plan import Access, Argument, Entry, Formula
from tilegen.spec import TileSpec
from tilegen.tiling import main_arguments, operand_type, tile_grid

from .mma_tiles import CHUNK_BYTES, OperandTile

# Bytes of one access and the entry that makes it; the narrow one takes single elements of any step.
NARROWER = {8: "by8", 4: "by4"}
REDUCE_THREADS = 256


def entries(
    spec: TileSpec,
    tiles: Mapping[str, OperandTile],
    threads: int,
    shared_bytes: int,
    out: int,
) -> tuple[Entry, ...]:
    """All entries in order of preference, then the reductions.

    Parameters
    ----------
    out : int
        Elements of D in one access of the widest entry.
    """
    split = spec.split_k > 1
    vector = reduce_vector(spec) if split else out
    grid = tile_grid(spec.block)
    mains = []
    for variant, bytes_ in widths(spec):
        accesses = [_access(spec, o, bytes_ // tiles[o].element_bytes, bytes_ > 0) for o in "ab"]
        wide = variant == "wide"
        accesses.append(_access(spec, "c", vector if _c_as_d(spec) else 1, wide))
        accesses.append(_access(spec, "d", vector, wide))
        arguments = main_arguments(spec, offsets=False, steps=not wide)
        entry = Entry(
            name=f"{spec.name}_{variant}",
            role="main",
            variant=variant,
            arguments=arguments,
            accesses=tuple(accesses),
            grid=grid,
            block=threads,
            shared_bytes=shared_bytes,
        )
        if split:
            reduce = "wide" if wide else "narrow"
            entry = replace(
                entry,
                arguments=(*_of_sums(arguments), _partial(spec)),
                grid=Formula(f"({grid}) * {spec.split_k}"),
                workspace=workspace(spec),
                after=(f"{spec.name}_reduce_{reduce}",),
            )
        mains.append(entry)
    return (*mains, *(_reductions(spec) if split else ()))


def reduce_vector(spec: TileSpec) -> int:
    """Sums that a thread of the reduction adds up and finishes: 16 bytes along D's columns."""
    return CHUNK_BYTES // sum_bytes(spec)


def sum_bytes(spec: TileSpec) -> int:
    """Of a sum outside of the instruction: sums in f16 are widened."""
    return max(4, DTYPES[spec.types.acc].bytes)


def widths(spec: TileSpec) -> list[tuple[str, int]]:
    """The entries' variants with the bytes of one access to A and B; 0: single elements."""
    largest = max(DTYPES[spec.types.a].bytes, DTYPES[spec.types.b].bytes)
    return [
        ("wide", CHUNK_BYTES),
        *((name, n) for n, name in NARROWER.items() if n > largest),
        ("narrow", 0),
    ]


def pitch(spec: TileSpec) -> Formula:
    """Elements from one row of sums to the next in the workspace, rows padded to whole vectors."""
    cols, vector = "M" if spec.layout.d == "col" else "N", reduce_vector(spec)
    return Formula(f"(({cols} + {vector - 1}) / {vector}) * {vector}")


def plane(spec: TileSpec) -> str:
    """Sums of one split of K, all batches."""
    rows = "N" if spec.layout.d == "col" else "M"
    return f"{rows} * {pitch(spec)} * batch"


def workspace(spec: TileSpec) -> Formula:
    """Bytes of all sums: a plane of D's size for each split of K."""
    return Formula(f"{spec.split_k} * {plane(spec)} * {sum_bytes(spec)}")


def _reductions(spec: TileSpec) -> tuple[Entry, ...]:
    threads, vector = REDUCE_THREADS, reduce_vector(spec)
    per_block = threads * vector
    out = []
    for variant in ("wide", "narrow"):
        wide = variant == "wide"
        whole = main_arguments(spec, offsets=False, steps=not wide)
        kept = tuple(a for a in whole if a.operand not in ("a", "b"))
        place = next(i for i, a in enumerate(kept) if a.kind == "scalar") + 1
        arguments = (*kept[:place], _partial(spec), *kept[place:])
        out.append(
            Entry(
                name=f"{spec.name}_reduce_{variant}",
                role="reduce",
                variant=f"reduce_{variant}",
                arguments=arguments,
                accesses=(
                    _access(spec, "c", vector if _c_as_d(spec) else 1, wide),
                    _access(spec, "d", vector, wide),
                ),
                grid=Formula(f"({plane(spec)} + {per_block - 1}) / {per_block}"),
                block=threads,
                workspace=workspace(spec),
            )
        )
    return tuple(out)


def _partial(spec: TileSpec) -> Argument:
    kind = "f32" if spec.types.acc == "f16" else spec.types.acc
    return Argument("partial", kind, "workspace", value=Formula("0"))


def _of_sums(arguments: Sequence[Argument]) -> tuple[Argument, ...]:
    """What a main entry needs that leaves its sums in the workspace; alpha, to read nothing at 0."""
    return tuple(a for a in arguments if a.operand in ("", "a", "b") and a.name != "beta")


def _c_as_d(spec: TileSpec) -> bool:
    return spec.layout.c == spec.layout.d


def _access(spec: TileSpec, operand: str, elements: int, whole: bool) -> Access:
    size = DTYPES[operand_type(spec, operand)].bytes
    if not whole:
        return Access(operand, 1, size, unit_step=False)
    return Access(operand, elements, elements * size, elements)
