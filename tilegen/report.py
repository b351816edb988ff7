"""Plans, differences of plans and targets as text for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilegen.hardware import Arch
from tilegen.plan import (
    Access,
    Argument,
    Copy,
    Entry,
    Fragment,
    KernelPlan,
    Ownership,
    PlannedStep,
    RegisterUse,
    Role,
    SharedTile,
)

if TYPE_CHECKING:
    from tilegen.backend import Backend

WIDTH = 100


@dataclass(frozen=True)
class Row:
    """One line of a plan's text: where it stands, what it is, what it says."""

    section: str
    label: str
    text: str


@dataclass(frozen=True)
class Difference:
    """One line that two plans do not share; empty text where a plan has no such line."""

    section: str
    label: str
    a: str
    b: str


def plan_text(plan: KernelPlan) -> str:
    """Every number of a plan, explained: a section per subject, a line per number."""
    rows = list(plan_rows(plan))
    width = max(len(row.label) for row in rows)
    lines: list[str] = []
    section = ""
    for row in rows:
        if row.section != section:
            section = row.section
            lines += ["", section] if lines else [section]
        lines += _wrapped(f"  {row.label:<{width}}  ", row.text)
    return "\n".join(lines)


def plan_differences(a: KernelPlan, b: KernelPlan) -> list[Difference]:
    """The lines in which two plans differ, in the order of the first one's text."""
    left = {(row.section, row.label): row.text for row in plan_rows(a)}
    right = {(row.section, row.label): row.text for row in plan_rows(b)}
    keys = [*left, *(key for key in right if key not in left)]
    sections = list(dict.fromkeys(section for section, _ in keys))
    keys.sort(key=lambda key: sections.index(key[0]))
    return [
        Difference(*key, left.get(key, ""), right.get(key, ""))
        for key in keys
        if left.get(key) != right.get(key)
    ]


def plan_diff(a: KernelPlan, b: KernelPlan) -> str:
    """Only what differs between two plans, side by side."""
    differences = plan_differences(a, b)
    if not differences:
        return "the plans do not differ"
    width = max(len(d.label) for d in differences)
    room = max(20, (WIDTH - width - 7) // 2)
    lines: list[str] = []
    section = ""
    for difference in differences:
        if difference.section != section:
            section = difference.section
            lines += ["", section] if lines else [section]
        left = _cut(difference.a or "-", room)
        right = _cut(difference.b or "-", room)
        for number in range(max(len(left), len(right))):
            label = difference.label if number == 0 else ""
            one = left[number] if number < len(left) else ""
            two = right[number] if number < len(right) else ""
            lines.append(f"  {label:<{width}}  {one:<{room}} | {two}".rstrip())
    return "\n".join(lines)


def plan_rows(plan: KernelPlan) -> Iterator[Row]:
    """The lines of :func:`plan_text` before they are laid out."""
    sections = (
        ("kernel", _kernel(plan)),
        ("tiles", _tiles(plan)),
        ("fragments per warp" if plan.group is None else "fragments per group", _fragments(plan)),
        ("ownership, (warp, lane, register) -> row + rows * col", _ownership(plan)),
        ("shared memory", _shared(plan)),
        ("copies", _copies(plan)),
        ("pipeline", _pipeline(plan)),
        ("epilogue", _epilogue(plan)),
        ("budget", _budget(plan)),
        ("entries, the first whose conditions hold is taken", _entries(plan)),
        ("numbers of the form", ((name, str(value)) for name, value in plan.numbers.items())),
        ("planned otherwise", _numbered(plan.departures)),
        ("notes", _numbered(plan.remarks)),
    )
    for section, rows in sections:
        for label, text in rows:
            yield Row(section, label, text)


Pairs = Iterable[tuple[str, str]]


def _numbered(notes: Sequence[str]) -> Pairs:
    return ((str(i), note) for i, note in enumerate(notes, 1))


def _kernel(plan: KernelPlan) -> Pairs:
    i, t, layout = plan.instruction, plan.spec.types, plan.spec.layout
    yield "name", plan.name
    yield "spec", f"{plan.spec.name}, sha256:{plan.spec.digest[:16]}"
    yield "computes", "D = epilogue(alpha * A·B + beta * C), batch " + plan.spec.batch
    yield "types", f"A {t.a}, B {t.b}, sums {t.acc}, C {t.c}, D {t.d}"
    yield "layouts", f"A {layout.a}, B {layout.b}, C {layout.c}, D {layout.d}"
    yield "target", f"{plan.backend} {_arch(plan.arch)}"
    yield "form", f"{plan.form}, from {plan.template}"
    yield (
        "instruction",
        f"{i.name}: {i.mnemonic}, {i.m}x{i.n}x{i.k} on {_count(i.lanes, 'lane')}, {i.flop} FLOP, "
        f"{i.type_a} x {i.type_b} + {i.type_acc}, A from {i.source_a}, B from {i.source_b}, "
        f"error growth of {i.family}",
    )
    yield "defined in", i.doc


def _arch(arch: Arch) -> str:
    files = ", ".join(
        f"{f.per_lane} {f.name} registers of {f.bits} bits" for f in arch.register_files
    )
    features = f", {' '.join(sorted(arch.features))}" if arch.features else ""
    return (
        f"{arch.name}: {_count(arch.lanes, 'lane')} a warp, {arch.max_threads} threads and "
        f"{arch.shared_bytes} bytes of shared memory a block, {files}{features}"
    )


def _tiles(plan: KernelPlan) -> Pairs:
    (bm, bn, bk), (wm, wn) = plan.block, plan.warp
    tm, tn = plan.thread
    pm, pn = plan.passes
    yield "block", f"{bm} x {bn} of D, K in steps of {bk}"
    yield "warp", f"{wm} x {wn} of D"
    if plan.group is not None:
        yield "group", f"{plan.group[0]} x {plan.group[1]} of D, by warps that issue together"
    yield (
        "warps",
        f"{plan.warps[0]} x {plan.warps[1]} = {plan.warps[0] * plan.warps[1]} that compute, "
        f"{plan.pipeline.warps} in all",
    )
    yield (
        "threads",
        f"{plan.threads} a block = {plan.pipeline.warps} warps x {plan.arch.lanes} lanes",
    )
    if (tm, tn) != (1, 1) or (pm, pn) != (1, 1):
        yield "thread", f"{tm} x {tn} of D at a time, {pm} x {pn} passes"
    yield "split of K", f"{plan.split_k}" + (" (no split)" if plan.split_k == 1 else " blocks")


def _fragments(plan: KernelPlan) -> Pairs:
    for name, axes in (("a", "m x k"), ("b", "n x k"), ("c", "m x n")):
        fragment: Fragment = getattr(plan.fragments, name)
        held = (
            f"{_count(fragment.elements, 'element')} a lane each"
            if fragment.elements
            else "read from shared memory"
        )
        yield (
            name.upper(),
            f"{fragment.rows} x {fragment.cols} ({axes}) fragments of {fragment.tile[0]} x "
            f"{fragment.tile[1]}, {held}, {_count(fragment.registers, 'register')} a lane live at once",
        )


def _ownership(plan: KernelPlan) -> Pairs:
    for name, o in plan.ownership.items():
        yield name.upper(), _owns(o)


def _owns(o: Ownership) -> str:
    shared = f", each element held {o.copies} times" if o.copies > 1 else ""
    return f"{o.rows} x {o.cols}: warp {o.warp}, lane {o.lane}, register {o.register}{shared}"


def _shared(plan: KernelPlan) -> Pairs:
    for tile in plan.shared:
        yield tile.operand.upper(), _tile(tile)
    if not plan.shared:
        yield "tiles", "none"


def _tile(t: SharedTile) -> str:
    swizzle = t.swizzle
    if t.swizzle == "xor":
        bits = f"(row / {t.swizzle_rows} & {t.swizzle_mask}) << {t.swizzle_shift}"
        swizzle = f"xor: vector of {t.vector} ^= {bits}"
    elif t.swizzle == "pad":
        swizzle = f"pad of {t.row_stride - (t.panel_cols or t.cols)} elements a row"
    text = (
        f"{t.rows} x {t.cols} of {t.element_bytes} bytes, {t.contiguous} contiguous, row stride "
        f"{t.row_stride}, {_count(t.stages, 'stage')} x {t.stage_bytes} = {t.bytes} bytes at "
        f"{t.start}, aligned to {t.alignment}; swizzle {swizzle}; conflicts: {t.store_conflicts} extra "
        f"cycles a warp's store, {t.load_conflicts} a load"
    )
    if t.panel_cols:
        text += f"; {t.panels} panels of {t.panel_cols} columns"
    if t.descriptor:
        d = t.descriptor
        text += (
            f"; descriptor {d.major}-major, mode {d.mode}, LBO {d.leading_bytes}, SBO "
            f"{d.stride_bytes}, {d.step_bytes} bytes a k step"
        )
    return text


def _copies(plan: KernelPlan) -> Pairs:
    counts: dict[str, int] = {}
    for copy in plan.copies:
        label = f"{copy.operand.upper()} {copy.source} -> {copy.target}"
        counts[label] = counts.get(label, 0) + 1
        yield label if counts[label] == 1 else f"{label} ({counts[label]})", _copy(copy)


def _copy(copy: Copy) -> str:
    parts = [
        copy.mechanism,
        f"{_count(copy.elements, 'element')} an access",
        f"{_count(copy.accesses, 'access', 'accesses')} a thread",
        f"{copy.contiguous} contiguous",
    ]
    if copy.box:
        parts.append(f"box {' x '.join(map(str, copy.box))}")
    if copy.transposes:
        parts.append("turns the tile")
    if copy.multicast > 1:
        parts.append(f"to {copy.multicast} blocks")
    if copy.role != "all":
        parts.append(f"by {copy.role}")
    if copy.entries:
        parts.append(f"in {', '.join(copy.entries)}")
    if copy.map:
        parts.append(f"thread {copy.map.lane}, element {copy.map.value}")
    return ", ".join(parts)


def _pipeline(plan: KernelPlan) -> Pairs:
    p = plan.pipeline
    yield "stages", f"{p.stages} tiles of K in flight, a full one known by {p.waits}"
    yield "roles", "; ".join(map(_role, p.roles))
    if p.cluster != (1, 1):
        yield "cluster", f"{p.cluster[0]} x {p.cluster[1]} blocks"
    if p.persistent:
        yield "persistent", "a block goes on to further tiles"
    for b in p.barriers:
        bytes_ = f", {b.transaction_bytes} bytes a phase" if b.transaction_bytes else ""
        yield f"barrier {b.name}", f"{b.count} at {b.start}, {b.arrivals} arrivals{bytes_}"


def _role(role: Role) -> str:
    own = f", {role.registers} registers a lane" if role.registers else ""
    computes = "" if role.computes else ", copies only"
    return f"{role.name}: {_count(role.warps, 'warp')}{own}{computes}"


def _epilogue(plan: KernelPlan) -> Pairs:
    for number, step in enumerate(plan.epilogue, 1):
        yield str(number), _step(step)
    if not plan.epilogue:
        yield "steps", "none: D = alpha * A·B + beta * C"


def _step(step: PlannedStep) -> str:
    along = f" along {step.along}" if step.along else ""
    bounds = f" between {step.low} and {step.high}" if step.op == "clamp" else ""
    return step.op + along + bounds


def _budget(plan: KernelPlan) -> Pairs:
    b = plan.budget
    for use in b.registers:
        where = f" ({use.role})" if use.role != "all" else ""
        entry = f" in {use.entry}" if use.entry else ""
        yield f"{use.file} registers{where}{entry}", _registers(use)
        if use.entries and not use.spills:
            yield "by entry", ", ".join(f"{name} {count}" for name, count in use.entries.items())
    yield "spills predicted", _spills(b.registers)
    share = f" ({b.shared_bytes / b.shared_limit:.0%})" if b.shared_limit else ""
    yield "shared memory", f"{b.shared_bytes} of {b.shared_limit} bytes a block{share}"
    if b.private_bytes:
        yield "private memory", f"{b.private_bytes} bytes a thread, on purpose"
    if b.occupancy is None:
        yield "occupancy", f"not known: {plan.arch.name} says nothing of its multiprocessors"
    else:
        yield (
            "occupancy",
            f"{b.occupancy:.0%}: {b.blocks_per_multiprocessor} blocks a multiprocessor, "
            f"bound by {b.bound_by}",
        )
    if b.flop_per_shared_load:
        yield "FLOP per shared load", f"{b.flop_per_shared_load:.4g}"
    yield "FLOP per global byte", f"{b.flop_per_global_byte:.4g}"


def _spills(uses: Sequence[RegisterUse]) -> str:
    if any(use.spills for use in uses):
        return "yes"
    return "perhaps: close to the limit" if any(use.doubtful for use in uses) else "no"


def _registers(use: RegisterUse) -> str:
    at = ", at the limit" if use.at_limit else ""
    return (
        f"{use.predicted} of {use.limit} a lane{at}: {use.accumulators} accumulators, {use.operands} "
        f"operands, {use.staging} staging, {use.addressing} addresses"
    )


def _entries(plan: KernelPlan) -> Pairs:
    for e in plan.entries:
        symbol = "" if e.symbol == e.name else f", function {e.symbol}"
        cluster = f", clusters of {e.cluster}" if e.cluster > 1 else ""
        yield e.name, f"{e.role}{f', {e.variant}' if e.variant else ''}{symbol}{cluster}"
        yield f"{e.name} grid", f"{e.grid} blocks in x"
        yield (
            f"{e.name} block",
            f"{_count(e.block, 'thread')}, {e.shared_bytes} bytes of shared memory",
        )
        if e.workspace.text != "0":
            yield f"{e.name} workspace", f"{e.workspace} bytes"
        if e.before or e.after:
            yield f"{e.name} with", _with(e)
        conditions = "; ".join(map(access_text, e.accesses))
        yield f"{e.name} takes", conditions or "any pointers and strides"
        yield f"{e.name} arguments", ", ".join(map(argument_text, e.arguments))


def _with(e: Entry) -> str:
    parts = []
    if e.before:
        parts.append("before it " + ", ".join(e.before))
    if e.after:
        parts.append("after it " + ", ".join(e.after))
    return "; ".join(parts)


def access_text(access: Access) -> str:
    """What an entry asks of one operand, in words."""
    parts = [f"{access.elements} wide, address a multiple of {access.alignment} bytes"]
    if access.stride_multiple > 1:
        parts.append(f"strides multiples of {access.stride_multiple}")
    if access.unit_step:
        parts.append("step 1")
    if access.extent_limit is not None:
        parts.append(f"extents to {access.extent_limit}")
    return f"{access.operand}: {', '.join(parts)}"


def argument_text(argument: Argument) -> str:
    """One argument as type and name."""
    text = f"{argument.type}{'*' if argument.is_pointer else ''} {argument.name}"
    return f"{text} = {argument.value}" if argument.value is not None else text


def targets_text(backends: Sequence[Backend]) -> str:
    """Backends, archs with their limits, compilers and devices here, and how to get the missing."""
    lines: list[str] = []
    for backend in backends:
        lines += [f"{backend.name} ({backend.title})"]
        for arch in backend.archs.values():
            lines += _wrapped("  arch      ", _arch(arch))
            types = dict.fromkeys(
                f"{t.a} x {t.b} + {t.acc}" for form in backend.forms(arch) for t in form.types(arch)
            )
            forms = ", ".join(form.name for form in backend.forms(arch) if form.types(arch))
            lines += _wrapped("            ", f"forms {forms}; types {', '.join(types)}")
            chain = backend.toolchain(arch)
            lines += _wrapped("  compiler  " if not chain.missing else "  missing   ", str(chain))
        devices = list(backend.devices())
        for device in devices:
            lines += _wrapped(
                "  device    ",
                f"{device.selector}: {device.name}, {device.rung}, runs {device.arch.name}",
            )
        if not devices:
            lines.append("  device    none found")
        # Of what checks without a device, the emulator serves all archs and is taken by itself.
        for one in {d.selector: d for d in backend.checkers() if d.rung == "emulator"}.values():
            lacks = backend.toolchain(one.arch, one).missing
            lines += _wrapped(
                "  missing   " if lacks else "  device    ",
                lacks or f"{one.selector}: {one.name}, runs every arch",
            )
            if lacks:
                break
        for missing in backend.missing():
            lines += _wrapped("  missing   ", f"{missing.what}: {missing.command}")
    return "\n".join(lines)


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def _cut(text: str, room: int) -> list[str]:
    """The text in lines of at most ``room``, broken at blanks where there are any."""
    lines, line = [], ""
    for word in text.split(" "):
        while len(word) > room:
            head = room - len(line) - 1 if line else room
            if head < 1:
                lines.append(line)
                line = ""
                continue
            lines.append(f"{line} {word[:head]}" if line else word[:head])
            word, line = word[head:], ""
        if line and len(line) + 1 + len(word) > room:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return [*lines, line] if line or not lines else lines


def _wrapped(head: str, text: str) -> list[str]:
    """The text after a head, continued under its start; never cut inside a word."""
    lines, line = [], ""
    for word in text.split(" "):
        if line and len(head) + len(line) + 1 + len(word) > WIDTH:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    lines.append(line)
    blank = " " * len(head)
    return [(head if i == 0 else blank) + part for i, part in enumerate(lines)]
