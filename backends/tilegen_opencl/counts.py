"""What a kernel executes, counted two ways: from the plan's numbers, and from oclgrind's counters.

oclgrind counts one per instruction and work-item, and a vector access or a ``vloadN`` as one; the
bytes beside it say how wide it was. Both are kept here, so a load that was split or merged shows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tilegen.dtypes import DTYPES
from tilegen.plan import KernelPlan
from tilegen.roles import Roles
from tilegen.tiling import operand_type


@dataclass(frozen=True)
class Traffic:
    """Accesses of one kind: how many instructions, and how many bytes they moved."""

    accesses: int = 0
    bytes: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.accesses + other.accesses, self.bytes + other.bytes)

    @classmethod
    def of(cls, elements: int, width: int, element_bytes: int) -> Traffic:
        """``elements`` of them, ``width`` in one access."""
        return cls(elements // width, elements * element_bytes)


@dataclass(frozen=True)
class Executed:
    """What one launch executes, all work-items together.

    Attributes
    ----------
    multiply_adds : int
        Scalar ones of the main loop: a vector ``fma`` of 16 counts 16.
    local_loads, local_stores, global_loads, global_stores : Traffic
    private_vector_loads : Traffic
        ``vloadN`` from private memory: the packed panel of the vector-fragment form, sums on their
        way to the epilogue of the work-group form, and what was gathered element by element.
    """

    multiply_adds: int = 0
    local_loads: Traffic = Traffic()
    local_stores: Traffic = Traffic()
    global_loads: Traffic = Traffic()
    global_stores: Traffic = Traffic()
    private_vector_loads: Traffic = Traffic()


def predicted(
    plan: KernelPlan, m: int, n: int, k: int, *, batch: int = 1, beta: float = 0.0
) -> Executed:
    """What a launch on full tiles executes, from the plan's numbers alone.

    Both entries of a form execute the same number of accesses where nothing is broadcast: they
    differ in the alignment that an access asks for.

    Parameters
    ----------
    m, n, k : int
        Multiples of the block tile.
    batch : int
    beta : float
        Whether C is read.

    Raises
    ------
    ValueError
        For a size that leaves a tail.
    """
    for name, size, tile in zip("mnk", (m, n, k), plan.block, strict=True):
        if size % tile:
            raise ValueError(f"{name} = {size} is no multiple of the block's {tile}: it has a tail")
    form = _vector_fragment if plan.form == "vector_fragment" else _work_group
    tiles, steps = batch * (m // plan.block[0]) * (n // plan.block[1]), k // plan.block[2]
    loop = form(plan, tiles * steps)
    end = _epilogue(plan, batch * m * n, beta)
    return Executed(
        multiply_adds=batch * m * n * k,
        local_loads=loop.local_loads,
        local_stores=loop.local_stores,
        global_loads=loop.global_loads + end.global_loads,
        global_stores=end.global_stores,
        private_vector_loads=loop.private_vector_loads + end.private_vector_loads,
    )


def _work_group(plan: KernelPlan, steps: int) -> Executed:
    """``steps`` K steps of a work-group: stage both tiles, then outer products from them."""
    local_loads, local_stores, global_loads, widened = (Traffic() for _ in range(4))
    for tile in plan.shared:
        copy = next(c for c in plan.copies if c.operand == tile.operand)
        elements = steps * tile.rows * tile.cols
        size = DTYPES[operand_type(plan.spec, tile.operand)].bytes
        global_loads += Traffic.of(elements, copy.elements, size)
        if getattr(plan.spec.types, tile.operand) == "f16":
            # Halves reach registers as bits and are widened by a load of them from there.
            widened += Traffic.of(elements, copy.elements, size)
        # A tile that is turned on its way arrives one element a row.
        width = 1 if copy.transposes else copy.elements
        local_stores += Traffic.of(elements, width, tile.element_bytes)
        # Each lane reads its whole share of rows (or columns) at each k, in vectors.
        axis = 0 if tile.operand == "a" else 1
        share = plan.threads * plan.thread[axis] * plan.passes[axis] * plan.block[2]
        local_loads += Traffic.of(steps * share, tile.vector, tile.element_bytes)
    return Executed(
        local_loads=local_loads,
        local_stores=local_stores,
        global_loads=global_loads,
        private_vector_loads=widened,
    )


def _vector_fragment(plan: KernelPlan, steps: int) -> Executed:
    """``steps`` K steps of a block's work-items: pack panels, then pass over them per fragment."""
    roles, numbers = Roles.of(plan.spec), plan.numbers
    extents = dict(zip((roles.rows, roles.cols), roles.order(plan.warp), strict=True))
    items, depth, acc = steps * plan.threads, plan.block[2], DTYPES[plan.spec.types.acc].bytes
    global_loads, gathered = Traffic(), Traffic()
    for copy in plan.copies:
        size = DTYPES[operand_type(plan.spec, copy.operand)].bytes
        along_k = copy.contiguous == "k"
        line, lines = (depth, extents[copy.operand])[:: 1 if along_k else -1]
        whole, rest = divmod(line, copy.elements)
        if rest and not along_k:
            raise ValueError(
                f"{line} elements of {copy.operand} are no whole vectors: what they read beside the "
                "tile depends on its place"
            )
        global_loads += Traffic.of(items * lines * whole * copy.elements, copy.elements, size)
        # The end of a line is gathered element by element.
        global_loads += Traffic.of(items * lines * rest, 1, size)
        if rest:
            gathered += Traffic.of(items * lines * copy.elements, copy.elements, acc)
    _, warp_cols = roles.order(plan.warp)
    passes = steps * plan.threads * plan.block[2] * int(numbers["ROW_FRAGMENTS"])
    panel = Traffic.of(
        passes * warp_cols, int(numbers["VECTOR"]), DTYPES[plan.spec.types.acc].bytes
    )
    return Executed(global_loads=global_loads, private_vector_loads=panel + gathered)


def _epilogue(plan: KernelPlan, elements: int, beta: float) -> Executed:
    """``elements`` of D, one vector of D at a time."""
    spec, roles = plan.spec, Roles.of(plan.spec)
    width = int(plan.numbers["COL_VECTOR" if plan.shared else "VECTOR"])
    loads, private = Traffic(), Traffic()
    if plan.shared and width > 1:
        private += Traffic.of(elements, width, DTYPES[spec.types.acc].bytes)
    if beta != 0:
        # C of the other majorness is gathered element by element.
        gathered, size = spec.layout.c != spec.layout.d, DTYPES[spec.types.c].bytes
        loads += Traffic.of(elements, 1 if gathered else width, size)
        if gathered and width > 1:
            private += Traffic.of(elements, width, size)
    for step in plan.epilogue:
        if step.op not in ("bias", "scale", "residual"):
            continue
        size = DTYPES[operand_type(spec, step.op)].bytes
        if step.along == ("n" if roles.swapped else "m"):
            loads += Traffic.of(elements // width, 1, size)
        else:
            loads += Traffic.of(elements, width, size)
    stores = Traffic.of(elements, width, DTYPES[spec.types.d].bytes)
    return Executed(global_loads=loads, global_stores=stores, private_vector_loads=private)


# ---- oclgrind's counters -----------------------------------------------------------------------

ITEM_BYTES = {"c": 1, "h": 1, "s": 2, "t": 2, "i": 4, "j": 4, "l": 8, "m": 8, "f": 4, "d": 8,
              "Dh": 2}  # fmt: skip
SPACES = {"": "private", "1": "global", "2": "constant", "3": "local"}
MULTIPLY_ADD = re.compile(r"call _Z3(?:fma|mad)(?:Dv(\d+)_)?[fd]\w*\(\)")
VECTOR_ACCESS = re.compile(
    r"call _Z\d+v(?P<way>load|store)(?:a?_half)?(?P<width>\d*)(?:_rt[ezpn])?"
    r"(?:(?:Dv\d+_)?[a-z])?m(?:P(?:U3AS(?P<space>\d))?K?)(?P<item>Dh|[a-z])"
)


def counted(executed: Mapping[str, int]) -> Executed:
    """oclgrind's counters by instruction, gathered per address space.

    Parameters
    ----------
    executed : mapping
        ``"load global"``, ``"load global bytes"``, ``"call _Z3fmafff()"``, ... to how many.
    """
    sums: dict[tuple[str, str], Traffic] = {}

    def add(way: str, space: str, traffic: Traffic) -> None:
        sums[way, space] = sums.get((way, space), Traffic()) + traffic

    multiply_adds = 0
    for name, count in executed.items():
        if found := MULTIPLY_ADD.fullmatch(name):
            multiply_adds += count * int(found[1] or 1)
        elif found := VECTOR_ACCESS.match(name):
            width = int(found["width"] or 1)
            moved = Traffic(count, count * width * ITEM_BYTES[found["item"]])
            space = SPACES[found["space"] or ""]
            add(found["way"], "private vector" if space == "private" else space, moved)
        elif name in ("load global", "store global", "load local", "store local"):
            way, space = name.split()
            add(way, space, Traffic(count, executed[f"{name} bytes"]))
    return Executed(
        multiply_adds=multiply_adds,
        local_loads=sums.get(("load", "local"), Traffic()),
        local_stores=sums.get(("store", "local"), Traffic()),
        global_loads=sums.get(("load", "global"), Traffic()),
        global_stores=sums.get(("store", "global"), Traffic()),
        private_vector_loads=sums.get(("load", "private vector"), Traffic()),
    )
