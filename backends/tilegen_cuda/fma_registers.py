"""What the registers of the fma form's entries are for, term by term.

What one of each term takes is fitted: register_model.py, docs/registers.md.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilegen.dtypes import DTYPES
from tilegen.hardware import Arch
from tilegen.outer_product import LaneTile
from tilegen.plan import RegisterUse, SharedTile
from tilegen.roles import Roles
from tilegen.spec import TileSpec
from tilegen.staging import Staging

from .register_model import AHEAD, Terms, register_use

# Fetches of a thread beyond which each takes ptxas less, and what of them is held at most.
FEW_FETCHES, MOST_FETCHES, MOST_HELD = 6, 30, 48


def registers(
    spec: TileSpec,
    arch: Arch,
    way: LaneTile,
    staging: Mapping[str, Staging],
    shared: tuple[SharedTile, ...],
    behind: frozenset[str],
    threads: int,
    shared_bytes: int,
    blocks: int | None,
    stages: int,
) -> tuple[RegisterUse, int, Mapping[str, Terms], Terms]:
    """Registers of one thread, and what they were counted from.

    Parameters
    ----------
    way : LaneTile
        A lane's share of its warp's tile.
    shared : tuple of SharedTile
        The tiles of A and B in shared memory.
    behind : frozenset of str
        The operands that cp.async brings, which take no registers on their way.
    threads, shared_bytes : int
        Of a block.
    blocks : int or None
        Blocks of a multiprocessor that the spec asks for.
    stages : int
        Tiles of K in flight, after lowering.

    Returns
    -------
    use : RegisterUse
    blocks : int
        Those that the launch bounds name.
    entries : mapping
        The terms of each main entry, by its variant.
    risks : mapping
        Terms that lead to spills.
    """
    words, (rows, cols) = DTYPES[spec.types.acc].bytes // 4, way.tile
    common = _common(spec, arch, way, staging, shared, behind, threads, stages)
    fetches = {o: s.fetches(threads) for o, s in staging.items()}
    turned = sum(n for o, n in fetches.items() if staging[o].turned)
    entries: dict[str, Terms] = {
        "wide": common,
        "narrow": {
            **common,
            "narrow": 1,
            f"{AHEAD}narrow, fetches that turn": min(turned, MOST_FETCHES),
        },
    }
    held = sum(s.registers(threads) for o, s in staging.items() if o not in behind)
    risks = {
        "f64": words == 2,
        "batch": spec.batch == "strided",
        "sizes that are no power of two": common["sizes that are no power of two"],
        "fetches": min(sum(fetches.values()), MOST_FETCHES),
        "fetches that turn": min(turned, MOST_FETCHES),
        "held": min(held, MOST_HELD),
        "sm_120": arch.name == "sm_120",
    }
    use, asked = register_use(
        "fma",
        entries,
        risks,
        arch=arch,
        threads=threads,
        shared_bytes=shared_bytes,
        blocks=blocks,
        accumulators=rows * cols * words,
        operands=(rows + cols) * words,
        staging=held,
    )
    return use, asked, entries, risks


def _common(
    spec: TileSpec,
    arch: Arch,
    way: LaneTile,
    staging: Mapping[str, Staging],
    shared: tuple[SharedTile, ...],
    behind: frozenset[str],
    threads: int,
    stages: int,
) -> dict[str, float]:
    """The terms of both entries."""
    words, (rows, cols) = DTYPES[spec.types.acc].bytes // 4, way.tile
    order = Roles.of(spec).order((0, 1))
    # One stage: nothing travels beside the products, so phases share registers.
    phase = "pipelined" if stages > 1 else "single"
    f64, depth = words == 2, spec.block[2]
    out: dict[str, float] = {
        phase: 1,
        f"{phase}: sums": rows * cols * words,
        f"{phase}: operands": (rows + cols) * words,
        "f64": f64,
        "f64: operands": f64 * (rows + cols) * words,
        # More accesses for the same operands.
        "operands read one by one": sum(way.vectors[axis] == 1 for axis in order),
        "accesses of a step": sum(way.tile[x] // way.vectors[x] for x in order),
        # Pointers that move to their batch stay in registers.
        "batch": spec.batch == "strided",
        # The loop over BLOCK_K is unrolled by 8.
        "BLOCK_K up to 4": depth <= 4,
        "BLOCK_K no multiple of 8": depth % 8 != 0,
        "sizes that are no power of two": sum(n & (n - 1) != 0 for n in spec.block),
        "tiles with a swizzle": sum(t.swizzle == "xor" for t in shared),
        "C lies other than D": spec.layout.c != spec.layout.d,
    }
    for operand, staged in staging.items():
        fetches, held = staged.fetches(threads), staged.registers(threads)
        extent = depth if staged.turned else staged.extent
        across = max(1, extent // staged.vector)
        # The threads of a block lie on whole rows, so that a thread stays in its column.
        whole = threads % across == 0
        uneven = staged.depth * staged.extent // staged.places % threads != 0
        kind = f"{AHEAD}{phase}, fetches {'that turn' if staged.turned else 'as they lie'}"
        kind += "" if whole else ", not of whole rows"
        _add(out, f"{kind}, up to 6", min(fetches, FEW_FETCHES))
        _add(out, f"{kind}, beyond", min(max(0, fetches - FEW_FETCHES), MOST_FETCHES))
        _add(out, f"{phase}: held", 0 if operand in behind else min(held, MOST_HELD))
        _add(out, "operands whose last fetch is a part", uneven)
        _add(out, f"{AHEAD}fetches with a last part", uneven * min(fetches, FEW_FETCHES))
        # Blackwell's integer units take fewer registers for addresses.
        _add(out, f"{AHEAD}fetches on sm_120", (arch.name == "sm_120") * min(fetches, MOST_FETCHES))
    return out


def _add(terms: dict[str, float], name: str, count: float) -> None:
    terms[name] = terms.get(name, 0) + count
