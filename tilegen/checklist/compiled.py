"""What the compiler said beside what the plan predicted: registers, spills, shared memory, occupancy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tilegen.backend import Resources
from tilegen.checklist.lines import FAIL, INFO, PASS, UNMEASURED, Line, Verdict
from tilegen.hardware import Arch
from tilegen.plan import Entry, KernelPlan, RegisterUse
from tilegen.tiling import occupancy, registers_left

SPILL_REMEDY = (
    "values that do not fit in registers go to memory and back; give a thread less to keep (a smaller "
    "warp or thread tile) or let it have more registers (fewer threads or blocks asked for)"
)
# Registers left over from which on a spill is not for want of them.
TO_SPARE = 16
STACK_REMEDY = (
    "an array of each thread's own lies in memory: index it with what is known at compile time, or "
    "make it smaller"
)


@dataclass(frozen=True)
class Compiled:
    """What a compiler said, or why there is none.

    Attributes
    ----------
    resources : mapping
        Entry to resources.
    compiler : str
        As sentences name it.
    missing : str
        Why there is nothing, and what would bring it.
    """

    resources: Mapping[str, Resources]
    compiler: str = ""
    missing: str = ""

    def of(self, entry: Entry) -> Resources:
        return self.resources.get(entry.name, Resources())

    def silent(self, what: str) -> str:
        """Why a number is not there."""
        return self.missing or f"{self.compiler or 'the compiler'} does not report {what}"


def entries_of(plan: KernelPlan) -> list[Entry]:
    """One entry for each function of the text."""
    return list({entry.symbol: entry for entry in reversed(plan.entries)}.values())[::-1]


def uses_of(plan: KernelPlan, entry: Entry) -> list[RegisterUse]:
    """The predictions that hold for an entry, one for each register file and role."""
    own = [use for use in plan.budget.registers if use.entry in (entry.name, entry.symbol)]
    return own or [u for u in plan.budget.registers if not u.entry and entry.role == "main"]


def compiled_lines(plan: KernelPlan, compiled: Compiled) -> Iterator[Line]:
    """Registers, spills, stack, shared memory, occupancy and launch bounds, in this order."""
    entries = entries_of(plan)
    for entry in entries:
        yield from _registers(plan, entry, compiled)
    for entry in entries:
        yield _spills(plan, entry, compiled)
    for entry in entries:
        yield _stack(plan, entry, compiled)
    for entry in entries:
        yield _shared(plan, entry, compiled)
    for entry in entries:
        yield _occupancy(plan, entry, compiled)
    for entry in entries:
        yield _launch_bounds(plan, entry, compiled)


def _registers(plan: KernelPlan, entry: Entry, compiled: Compiled) -> Iterator[Line]:
    uses, said = uses_of(plan, entry), compiled.of(entry).registers
    if not uses:
        verdict: Verdict = UNMEASURED if said is None else INFO
        note = compiled.silent("registers") if said is None else "the plan predicts none for it"
        most = plan.arch.registers.per_lane
        yield Line("registers", entry.name, None, said, most, "", verdict, note)
        return
    roles = [role for role in plan.pipeline.roles if role.registers is not None]
    several = len({use.file for use in uses}) > 1
    for use in uses:
        where = entry.name if use.role == "all" else f"{entry.name}, {use.role}"
        where += f", {use.file}" if several else ""
        predicted = use.of(entry.variant)
        line = Line("registers", where, predicted, None, use.limit)
        if predicted == use.limit:
            line = replace(line, note="predicted at the limit")
        if use.role != "all" and roles:
            note = "the role sets its own number (setmaxnreg) and the compiler reports the launch's"
            yield replace(line, verdict=FAIL if use.spills else UNMEASURED, note=note)
        elif use.file != plan.arch.registers.name:
            yield replace(line, verdict=UNMEASURED, note=compiled.silent(f"{use.file} registers"))
        elif said is None:
            note = _joined(line.note, compiled.silent("registers"))
            yield replace(line, verdict=UNMEASURED, note=note)
        elif said > use.limit:
            note = f"a launch of {entry.block} threads a block leaves each {use.limit}"
            yield replace(line, measured=said, verdict=FAIL, note=note)
        else:
            miss = _miss(said, predicted)
            note = _joined(line.note, miss)
            yield replace(line, measured=said, verdict=INFO if miss else PASS, note=note)


def _joined(*notes: str) -> str:
    return "; ".join(filter(None, notes))


def _miss(measured: int, predicted: int) -> str:
    """How far a prediction is off; empty where it is not."""
    off = measured - predicted
    return f"{abs(off)} {'more' if off > 0 else 'fewer'} than predicted" if off else ""


def _spills(plan: KernelPlan, entry: Entry, compiled: Compiled) -> Line:
    said, uses = compiled.of(entry), uses_of(plan, entry)
    predicted = None if not uses else _predicted_spills(uses)
    line = Line("spills", entry.name, predicted, None, 0, "bytes")
    if said.spill_bytes is None:
        return replace(line, verdict=UNMEASURED, note=compiled.silent("spills"))
    most = 0 if predicted == "some" else min((use.limit for use in uses), default=0)
    return _spilled(line, said, most)


def _predicted_spills(uses: list[RegisterUse]) -> str | int:
    if any(use.spills for use in uses):
        return "some"
    return "perhaps" if any(use.doubtful for use in uses) else 0


def _spilled(line: Line, said: Resources, most: int = 0) -> Line:
    """The spill line with what was measured.

    Parameters
    ----------
    most : int
        Registers that the compiler may use, where the plan says that they are enough.
    """
    loads = said.spill_load_bytes
    if not said.spill_bytes and not loads:
        return replace(line, measured=0, verdict=PASS)
    told = f"{said.spill_bytes} stored" + (f", {loads} loaded" if loads is not None else "")
    note = SPILL_REMEDY
    if said.registers is not None and said.registers + TO_SPARE <= most:
        note = (
            f"the compiler spills with {said.registers} of {most} registers in use: it is its "
            "order of the text and not the size of the tile, so another tile or depth may pass"
        )
    return replace(line, measured=told, verdict=FAIL, note=note)


def _stack(plan: KernelPlan, entry: Entry, compiled: Compiled) -> Line:
    said, planned = compiled.of(entry), plan.budget.private_bytes
    line = Line("stack frame", entry.name, planned, said.stack_bytes, planned, "bytes", PASS)
    if said.stack_bytes is None and said.private_bytes is not None:
        note = _miss(said.private_bytes, planned)
        line = Line("private memory", entry.name, planned, said.private_bytes, None, "bytes")
        return replace(line, verdict=INFO if note else PASS, note=note)
    if said.stack_bytes is None:
        return replace(line, verdict=UNMEASURED, note=compiled.silent("a stack frame"))
    if said.stack_bytes > planned:
        spilt = bool(said.spill_bytes)
        note = "what is spilled lies there" if spilt else STACK_REMEDY
        return replace(line, verdict=FAIL, note=note)
    return line


def _shared(plan: KernelPlan, entry: Entry, compiled: Compiled) -> Line:
    said = compiled.of(entry)
    limit = plan.budget.shared_limit
    line = Line("shared memory", entry.name, entry.shared_bytes, None, limit, "bytes", PASS)
    if said.shared_bytes is None:
        return replace(line, verdict=UNMEASURED, note=compiled.silent("shared memory"))
    dynamic = said.dynamic_shared_bytes
    measured = said.shared_bytes + dynamic
    line = replace(line, measured=measured)
    note = f"{dynamic} of them dynamic, which the launch asks for" if dynamic else ""
    if measured > limit:
        more = f"{measured - limit} bytes over what a block of {plan.arch.name} can have"
        return replace(line, verdict=FAIL, note=more)
    if measured != entry.shared_bytes:
        off = _miss(measured, entry.shared_bytes)
        # What the plan does not know of would be missing from its occupancy and its limits.
        verdict = FAIL if measured > entry.shared_bytes else INFO
        return replace(line, verdict=verdict, note=f"{off}; {note}" if note else off)
    return replace(line, note=note)


def asked_blocks(plan: KernelPlan) -> int:
    """Blocks of a multiprocessor that the launch bounds of the main entries ask for."""
    return int(plan.numbers.get("MIN_BLOCKS", 1))


def _occupancy(plan: KernelPlan, entry: Entry, compiled: Compiled) -> Line:
    budget, said = plan.budget, compiled.of(entry)
    line = Line("occupancy", entry.name)
    main = entry.role == "main"
    if budget.blocks_per_multiprocessor is not None and main:
        line = replace(line, predicted=_blocks(
            budget.blocks_per_multiprocessor, budget.occupancy or 0.0, budget.bound_by
        ))  # fmt: skip
    if plan.arch.max_threads_per_multiprocessor is None:
        note = f"{plan.arch.name} says nothing of its multiprocessors"
        return replace(line, verdict=UNMEASURED, note=note)
    if said.registers is None:
        return replace(line, verdict=UNMEASURED, note=compiled.silent("registers"))
    blocks, share, bound = occupancy_of(plan.arch, entry.block, entry.shared_bytes, said.registers)
    asked = asked_blocks(plan) if main else 1
    line = replace(line, measured=_blocks(blocks, share, bound))
    if asked > 1:
        line = replace(line, limit=f"at least {asked} blocks")
        if blocks < asked:
            note = f"the launch bounds ask for {asked} blocks, and {bound} bounds them"
            return replace(line, verdict=FAIL, note=note)
    if main and blocks != budget.blocks_per_multiprocessor:
        off = _miss(blocks, budget.blocks_per_multiprocessor or 0)
        return replace(line, note=f"{off.split()[0]} block(s) {off.partition(' ')[2]}")
    return line


def occupancy_of(
    arch: Arch, threads: int, shared_bytes: int, registers: int
) -> tuple[int, float, str]:
    """Blocks of a multiprocessor, share of its threads and what bounds them, from the compiler's registers.

    Of an arch whose multiprocessors are known.
    """
    use = RegisterUse(arch.registers.name, max(1, registers), 0, 0, 0, arch.registers.per_lane)
    blocks, share, bound = occupancy(arch, threads, shared_bytes, use)
    assert blocks is not None
    assert share is not None
    return blocks, share, bound


def _blocks(blocks: int, share: float, bound: str) -> str:
    return f"{blocks} block{'' if blocks == 1 else 's'} ({share:.1%}), by {bound}"


def _launch_bounds(plan: KernelPlan, entry: Entry, compiled: Compiled) -> Line:
    said, uses = compiled.of(entry), uses_of(plan, entry)
    asked = asked_blocks(plan) if entry.role == "main" else 1
    per_lane = plan.arch.registers.per_lane
    own = [u.limit for u in uses if u.role == "all" and u.file == plan.arch.registers.name]
    cap = min(own, default=per_lane)
    line = Line(
        "launch bounds", entry.name, entry.block, None, plan.arch.max_threads, "threads", PASS
    )
    if plan.arch.kind == "gpu":
        blocks = f"at least {asked} block{'s' if asked > 1 else ''} a multiprocessor: "
        line = replace(line, note=f"{blocks}at most {cap} registers a thread")
    if entry.block > plan.arch.max_threads:
        return replace(line, verdict=FAIL)
    if said.max_threads is not None:
        line = replace(line, measured=said.max_threads)
        if said.max_threads < entry.block:
            note = f"the compiled kernel runs with at most {said.max_threads} threads a block"
            return replace(line, verdict=FAIL, note=note)
    return line


def log_lines(faults: tuple[str, ...]) -> Iterator[Line]:
    """Sentences of the compiler that mean a broken kernel."""
    for fault in faults:
        yield Line("compiler's warnings", "", None, None, None, "", FAIL, fault)


def foreign_lines(
    arch: Arch, compiled: Compiled, threads: int | None, dynamic: int
) -> Iterator[Line]:
    """The compiler's numbers of kernels that have no plan.

    Parameters
    ----------
    threads : int or None
        Of a block; ``None``: not given.
    dynamic : int
        Bytes of dynamic shared memory of the launch.
    """
    most = arch.registers.per_lane
    for name, said in compiled.resources.items():
        cap = most if threads is None else registers_left(arch, threads)
        yield Line("registers", name, None, said.registers, cap, "", _within(said.registers, cap))
        yield _spilled(Line("spills", name, None, None, 0, "bytes"), said)
        stack = said.stack_bytes or 0
        note = (
            "" if not stack else "what is spilled lies there" if said.spill_bytes else STACK_REMEDY
        )
        yield Line("stack frame", name, None, stack, None, "bytes", INFO if stack else PASS, note)
        shared = (said.shared_bytes or 0) + dynamic
        note = f"{dynamic} of them dynamic" if dynamic else ""
        verdict = _within(shared, arch.shared_bytes)
        yield Line("shared memory", name, None, shared, arch.shared_bytes, "bytes", verdict, note)
        line = Line("occupancy", name)
        if threads is None:
            note = "the threads of a block are not given: --block names them"
            yield replace(line, verdict=UNMEASURED, note=note)
        elif threads > arch.max_threads or verdict == FAIL or said.registers is None:
            note = f"no block of {threads} threads can run"
            yield replace(line, verdict=FAIL, limit=f"{arch.max_threads} threads", note=note)
        else:
            measured = _blocks(*occupancy_of(arch, threads, shared, said.registers))
            failed = measured.startswith("0 ")
            note = f"{threads} threads of {said.registers} registers do not fit" if failed else ""
            yield replace(line, measured=measured, verdict=FAIL if failed else INFO, note=note)


def _within(measured: int | None, limit: int) -> Verdict:
    return UNMEASURED if measured is None else PASS if measured <= limit else FAIL
