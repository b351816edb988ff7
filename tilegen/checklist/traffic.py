"""What a kernel asks of memory: fragment loads, FLOP a load, conflicts, coalescing; planned and counted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tilegen.checklist.lines import INFO, PASS, UNMEASURED, Line, Verdict
from tilegen.checklist.support import Count, Traffic
from tilegen.dtypes import DTYPES
from tilegen.layout import FragmentLayout, Layout
from tilegen.plan import Copy, Entry, KernelPlan, SharedTile
from tilegen.tiling import operand_type

# Two counts that agree to so many digits are the same.
SAME = 1e-3
AXES = {"a": "mk", "b": "nk", "c": "mn", "d": "mn"}


@dataclass(frozen=True)
class Counted:
    """The counts of each entry that was run, or why there are none.

    Attributes
    ----------
    counts : mapping
        Entry to count.
    missing : str
        Why there is none, and what would bring it.
    """

    counts: Mapping[str, Count] = field(default_factory=dict)
    missing: str = ""

    def of(self, entry: str, space: str, writes: bool, operand: str) -> Traffic | None:
        """All traffic of one operand in one direction, added up; ``None`` where there was none."""
        found = self.counts.get(entry)
        parts = [
            t
            for t in (found.traffic if found else ())
            if (t.space, t.writes, t.operand) == (space, writes, operand)
        ]
        if not parts:
            return None
        sums = {
            n: sum(getattr(t, n) for t in parts) for n in ("accesses", "bytes", "served", "extra")
        }
        return replace(parts[0], **sums)


def traffic_lines(plan: KernelPlan, counted: Counted, sector_bytes: int) -> Iterator[Line]:
    """Fragment loads per mma or FLOP per shared load, bank conflicts, global access.

    Parameters
    ----------
    sector_bytes : int
        What global memory moves at least; 0: not known.
    """
    if plan.instruction.lanes > 1:
        yield from _fragment_loads(plan, counted)
    yield from _flop_per_load(plan, counted)
    for tile in plan.shared:
        yield from _conflicts(plan, tile, counted)
    if not any(tile.operand == "d" for tile in plan.shared):
        yield from _epilogue_conflicts(plan, counted)
    if plan.arch.lanes > 1:
        yield from _global(plan, counted, sector_bytes)


# ---- from shared memory to the arithmetic --------------------------------------------------------


def mma_count(plan: KernelPlan) -> int:
    """Matrix instructions of one warp, or of one group of warps, in a K step of the block."""
    return plan.fragments.c.rows * plan.fragments.c.cols * plan.fragments.a.cols


def fragment_copies(plan: KernelPlan, entry: Entry) -> list[Copy]:
    """The copies into registers that feed the instruction of an entry.

    Of an operand that has a tile in shared memory, those from there: what else comes into registers
    is on its way to that tile.
    """
    staged = {tile.operand for tile in plan.shared}
    return [
        copy
        for copy in plan.copies
        if copy.operand in ("a", "b")
        and copy.target == "register"
        and (copy.source == "shared" or copy.operand not in staged)
        and (not copy.entries or entry.variant in copy.entries)
    ]


def _fragment_loads(plan: KernelPlan, counted: Counted) -> Iterator[Line]:
    by_loads: dict[tuple[Copy, ...], list[str]] = {}
    for entry in plan.main_entries:
        by_loads.setdefault(tuple(fragment_copies(plan, entry)), []).append(entry.name)
    for copies, entries in by_loads.items():
        where = "" if len(by_loads) == 1 else ", ".join(entries)
        held = [o for o in "ab" if getattr(plan.fragments, o).elements]
        unsaid = [o.upper() for o in held if not any(c.operand == o for c in copies)]
        loads = sum(copy.accesses for copy in copies) / mma_count(plan)
        note = _loads_note(plan, copies, held)
        if unsaid:
            note += f"; the plan does not say how {' and '.join(unsaid)} comes into registers"
        line = Line("fragment loads per mma", where, None if unsaid else loads, note=note)
        yield _counted_loads(plan, line, entries[0], counted)


def _loads_note(plan: KernelPlan, copies: Sequence[Copy], held: Sequence[str]) -> str:
    f, total = plan.fragments, mma_count(plan)
    who = "a warp" if plan.group is None else "a group of warps"
    each = [f"{c.accesses} {c.mechanism} of {c.operand.upper()}" for c in copies]
    parts = [", ".join([*each, f"{total} mma {who} and K step"])]
    parts += [f"{o.upper()} is read by the instruction itself" for o in "ab" if o not in held]
    if len(held) == 2:
        parts.append(f"a fragment of A serves {f.c.cols} mma, one of B {f.c.rows}")
    return "; ".join(parts)


def _counted_loads(plan: KernelPlan, line: Line, entry: str, counted: Counted) -> Line:
    i = plan.instruction
    reads = _reads(counted, entry)
    if not reads:
        return _unmeasured(line, counted)
    mma = counted.counts[entry].multiply_adds / (i.m * i.n * i.k)
    return _compared(line, sum(t.accesses for t in reads) / mma)


def _reads(counted: Counted, entry: str) -> list[Traffic]:
    """What the entry's warps read of the tiles of A and B."""
    found = (counted.of(entry, "shared", False, operand) for operand in ("a", "b", "ab"))
    return [t for t in found if t is not None]


def _flop_per_load(plan: KernelPlan, counted: Counted) -> Iterator[Line]:
    planned = plan.budget.flop_per_shared_load
    if not planned:
        return
    line = Line("FLOP per shared load", "", round(planned, 4), note=_formula(plan))
    if not plan.main_entries or plan.instruction.lanes > 1:
        # A matrix instruction's fragments come many elements a load; the line above counts them.
        yield line
        return
    entry = plan.main_entries[0].name
    reads = _reads(counted, entry)
    if not reads:
        yield _unmeasured(line, counted)
        return
    loads = sum(t.bytes for t in reads) / plan.shared[0].element_bytes
    yield _compared(line, 2 * counted.counts[entry].multiply_adds / loads)


def _formula(plan: KernelPlan) -> str:
    if plan.instruction.lanes > 1:
        wm, wn = plan.group or plan.warp
        return f"2 * {wm} * {wn} / ({wm} + {wn}) of a {'group' if plan.group else 'warp'}'s tile"
    (tm, tn), (pm, pn) = plan.thread, plan.passes
    return f"2 * {tm * pm} * {tn * pn} / ({tm * pm} + {tn * pn}) of a thread's tile"


# ---- banks ---------------------------------------------------------------------------------------


def _conflicts(plan: KernelPlan, tile: SharedTile, counted: Counted) -> Iterator[Line]:
    name = f"{tile.operand}'s tile"
    stores = [c for c in plan.copies if c.operand == tile.operand and c.target == "shared"]
    bulk = all(c.box for c in stores)
    if tile.descriptor is None or not bulk:
        # A fetch that is turned on its way is stored element by element.
        parts = stores[0].elements if stores and stores[0].transposes else 1
        yield _conflict(plan, tile, f"{name}, stores", tile.store_conflicts / parts, True, counted)
    if tile.descriptor is None:
        yield _conflict(plan, tile, f"{name}, loads", float(tile.load_conflicts), False, counted)


def _conflict(
    plan: KernelPlan, tile: SharedTile, where: str, predicted: float, writes: bool, counted: Counted
) -> Line:
    line = Line("bank conflicts", where, predicted, None, None, "extra cycles an access")
    entry = plan.main_entries[0].name if plan.main_entries else ""
    found = counted.of(entry, "shared", writes, tile.operand)
    if found is None and tile.operand in "ab":
        found = counted.of(entry, "shared", writes, "ab")
        line = replace(line, note="one line serves A and B" if found else "")
    if found is None:
        return _unmeasured(line, counted)
    line = _compared(line, found.extra / found.accesses)
    return (
        line
        if line.note or not predicted
        else replace(line, verdict=INFO, note=f"swizzle {tile.swizzle}")
    )


def _epilogue_conflicts(plan: KernelPlan, counted: Counted) -> Iterator[Line]:
    """Of shared memory that the epilogue uses without a tile in the plan."""
    for entry in plan.main_entries:
        for writes in (True, False):
            found = counted.of(entry.name, "shared", writes, "d")
            if found is not None:
                where = f"epilogue, {'stores' if writes else 'loads'} of {entry.name}"
                line = Line("bank conflicts", where, unit="extra cycles an access")
                yield _compared(line, found.extra / found.accesses)


# ---- global memory -------------------------------------------------------------------------------


def access_map(plan: KernelPlan, copy: Copy) -> FragmentLayout | None:
    """Who moves what: (thread, element) -> (row, col) of the operand's tile; ``None``: it is not said.

    Where the copy has no map, neighbouring threads take neighbouring vectors of the contiguous axis,
    or, for what comes from the sums, each lane its own.
    """
    if copy.map is not None or copy.box:
        return copy.map
    axes = AXES.get(copy.operand)
    if axes is None or copy.contiguous not in axes:
        return None
    if copy.operand in ("c", "d"):
        owned = plan.ownership.get("c")
        if owned is None:
            return None
        return FragmentLayout(owned.rows, owned.cols, owned.lane, owned.register)
    rows, cols = (plan.block["mnk".index(axis)] for axis in axes)
    fast, step = (rows, 1) if copy.contiguous == axes[0] else (cols, rows)
    slow, slow_step = (cols, rows) if copy.contiguous == axes[0] else (rows, 1)
    vectors = max(1, fast // copy.elements)
    lane = Layout((vectors, slow), (copy.elements * step, slow_step))
    return FragmentLayout(rows, cols, lane, Layout((copy.elements,), (step,)))


def sectors(plan: KernelPlan, copy: Copy, sector_bytes: int) -> tuple[int, int] | None:
    """Sectors that the first warp's first access touches, and the fewest that hold its bytes."""
    held = access_map(plan, copy)
    axes = AXES.get(copy.operand, "")
    if held is None or copy.contiguous not in axes:
        return None
    size = DTYPES[operand_type(plan.spec, copy.operand)].bytes
    if copy.target == "workspace" or copy.source == "workspace":
        size = DTYPES[plan.spec.types.acc].bytes
    # Rows lie far apart and begin with a sector.
    pitch = 1 << max(held.rows, held.cols, sector_bytes).bit_length()
    touched: set[int] = set()
    for lane in range(min(plan.arch.lanes, held.lanes)):
        for value in range(copy.elements):
            row, col = held(lane, value)
            fast, slow = (row, col) if copy.contiguous == axes[0] else (col, row)
            touched.update(range((slow * pitch + fast) * size, (slow * pitch + fast + 1) * size))
    return len({byte // sector_bytes for byte in touched}), -(-len(touched) // sector_bytes)


def _global(plan: KernelPlan, counted: Counted, sector_bytes: int) -> Iterator[Line]:
    seen: set[tuple[str, str, bool]] = set()
    for copy in plan.copies:
        memory = {copy.source, copy.target} & {"global", "workspace"}
        if not memory or copy.box:
            continue
        writes = copy.source not in memory
        entry = _entry_of(plan, copy)
        seen.add((entry, copy.operand, writes))
        yield _coalescing(plan, copy, entry, writes, counted, sector_bytes)
    for entry, count in counted.counts.items():
        operands = dict.fromkeys(
            (t.operand, t.writes) for t in count.traffic if t.space == "global"
        )
        for operand, writes in operands:
            if operand and (entry, operand, writes) not in seen:
                yield _unplanned(counted, entry, operand, writes)


def _entry_of(plan: KernelPlan, copy: Copy) -> str:
    names = [e.name for e in plan.main_entries if not copy.entries or e.variant in copy.entries]
    return names[0] if names else ""


def _coalescing(
    plan: KernelPlan, copy: Copy, entry: str, writes: bool, counted: Counted, sector_bytes: int
) -> Line:
    size = DTYPES[operand_type(plan.spec, copy.operand)].bytes
    where = f"{copy.operand}, {'stores' if writes else 'loads'}"
    if copy.entries:
        where += f" of {', '.join(copy.entries)}"
    width = f"{copy.elements * size} bytes an access by {copy.mechanism}"
    line = Line("global access", where, None, None, None, "sectors a warp", note=width)
    found = sectors(plan, copy, sector_bytes) if sector_bytes else None
    if not sector_bytes:
        line = replace(
            line, note=f"{width}; what {plan.arch.name} moves at least is not known here"
        )
    if found is not None:
        line = replace(line, predicted=float(found[0]), limit=found[1])
    traffic = counted.of(entry, "global", writes, copy.operand)
    if traffic is None:
        return _unmeasured(line, counted)
    return _coalesced(line, traffic)


def _unplanned(counted: Counted, entry: str, operand: str, writes: bool) -> Line:
    traffic = counted.of(entry, "global", writes, operand)
    assert traffic is not None
    where = f"{operand}, {'stores' if writes else 'loads'} of {entry}"
    return _coalesced(Line("global access", where, unit="sectors a warp"), traffic)


def _coalesced(line: Line, traffic: Traffic) -> Line:
    """The line with the sectors that were counted; the fewest are its limit."""
    fewest = (traffic.served - traffic.extra) / traffic.accesses
    line = _compared(line, traffic.served / traffic.accesses)
    if traffic.extra:
        more = f"{traffic.served / max(1, traffic.served - traffic.extra):.3g} times the fewest sectors"
        note = f"{line.note}; {more}" if line.note else more
        return replace(line, verdict=INFO, note=note, limit=round(fewest, 4))
    return replace(line, limit=line.limit if line.limit is not None else round(fewest, 4))


# ---- shared --------------------------------------------------------------------------------------


def _compared(line: Line, measured: float) -> Line:
    """The line with what was counted; a prediction that it misses is stated."""
    line = replace(line, measured=round(measured, 4))
    if not isinstance(line.predicted, float):
        return replace(line, verdict=INFO)
    off = measured - line.predicted
    if abs(off) <= SAME * max(1.0, abs(line.predicted)):
        return replace(line, verdict=PASS)
    miss = f"{abs(off):.3g} {'more' if off > 0 else 'fewer'} than predicted"
    return replace(line, verdict=INFO, note=f"{line.note}; {miss}" if line.note else miss)


def _unmeasured(line: Line, counted: Counted) -> Line:
    missing = counted.missing or "the counted launch has no such access"
    verdict: Verdict = UNMEASURED
    return replace(line, verdict=verdict, note=f"{line.note}; {missing}" if line.note else missing)


def diverged_lines(counted: Counted) -> Iterator[Line]:
    """Barriers and warp instructions that not all threads came to together, and ways that part."""
    for entry, count in counted.counts.items():
        faults = [f for f in count.findings if "divergent" in f]
        if not faults:
            yield Line("divergence", entry, 0, 0, 0, "divergent barriers", PASS, _ways(count))
        for fault in faults:
            yield Line("divergence", entry, 0, len(faults), 0, "divergent barriers", "FAIL", fault)
        for fault in _others(count.findings, faults):
            yield Line("emulator", entry, None, None, None, "", "FAIL", fault)
    if not counted.counts:
        yield Line("divergence", "", 0, None, 0, "", UNMEASURED, counted.missing)


def _others(found: Sequence[str], faults: Iterable[str]) -> list[str]:
    return [f for f in found if f not in set(faults)]


def _ways(count: Count) -> str:
    if not count.stretches:
        return ""
    return (
        f"lanes of a warp part in {count.diverged} of {count.stretches} stretches between barriers"
    )
