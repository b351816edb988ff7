"""What a host program must know to launch a text, as lines of the comment at the text's head."""

from __future__ import annotations

from collections.abc import Iterator

from tilegen.dtypes import DTYPES
from tilegen.entries import Entry
from tilegen.plan import KernelPlan
from tilegen.spec import TileSpec
from tilegen.tiling import operand_type

from .archs import STATIC_SHARED_BYTES, dynamic_bytes

# Bytes of the widest access to the workspace; a launch gives more (tilegen.backend.WORKSPACE_ALIGNMENT).
WIDEST_OF_WORKSPACE = 16


def namespace(spec: TileSpec) -> str:
    """Where all names of a text are, so that several go into one translation unit."""
    return f"{spec.name}_kernel"


def allowing(size: str) -> tuple[str, str]:
    """The calls that allow an entry more dynamic shared memory than 48 KiB: the runtime's, the driver's."""
    return (
        f"cudaFuncSetAttribute(entry, cudaFuncAttributeMaxDynamicSharedMemorySize, {size})",
        f"cuFuncSetAttribute(entry, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, {size})",
    )


def host_notes(plan: KernelPlan) -> list[str]:
    """Where the entries are, which one to take, what to allow, give and launch; a line each."""
    return [*_names(plan), *_dynamic(plan), *_choice(plan), *_reduction(plan)]


def _names(plan: KernelPlan) -> Iterator[str]:
    first = plan.main_entries[0].name
    batch = "; batch is 1" if plan.spec.batch == "none" else ""
    alike = {m: [o for o in "abcd" if getattr(plan.spec.layout, o) == m] for m in ("row", "col")}
    lines = {"row": "row to row", "col": "column to column"}
    leading = " and ".join(f"{lines[m]} of {', '.join(o)}" for m, o in alike.items() if o)
    yield (
        f'host      {namespace(plan.spec)}::{first} in C++, "{first}" in a cubin; arguments in the '
        "order of its parameters"
    )
    yield (
        f"units     strides count elements, ld from {leading}; a step is 1, or 0 to broadcast; "
        f"c may be null where beta is 0{batch}; a grid of 0: launch nothing"
    )


def _dynamic(plan: KernelPlan) -> Iterator[str]:
    need = dynamic_bytes(plan.budget.shared_bytes)
    mains = ", ".join(entry.name for entry in plan.main_entries)
    if not need:
        yield "dynamic   0 bytes: shared memory is static"
        return
    yield (
        f"dynamic   {need} bytes at each launch; more than {STATIC_SHARED_BYTES} must be allowed before, "
        f"once for each of {mains}:"
    )
    of_runtime, of_driver = allowing(str(need))
    yield f"          {of_runtime}, or for a cubin"
    yield f"          {of_driver}"


def _choice(plan: KernelPlan) -> Iterator[str]:
    yield "choose    the first that may run:"
    for entry in plan.main_entries:
        asked = "; ".join(_conditions(plan.spec, entry)) or "any addresses and strides"
        yield f"          {entry.name}: {asked}"


def _conditions(spec: TileSpec, entry: Entry) -> Iterator[str]:
    alike: dict[tuple[int, int, bool], list[str]] = {}
    for access in entry.accesses:
        asked = access.alignment, access.stride_multiple, access.unit_step
        # Every array is aligned to its elements.
        if asked != (DTYPES[operand_type(spec, access.operand)].bytes, 1, False):
            alike.setdefault(asked, []).append(access.operand)
    for (alignment, multiple, unit_step), operands in alike.items():
        told = f"{', '.join(operands)} at multiples of {alignment} bytes"
        if multiple > 1:
            told += f", strides multiples of {multiple}"
        yield told + (", steps 1" if unit_step else "")


def _reduction(plan: KernelPlan) -> Iterator[str]:
    followed = [entry for entry in plan.main_entries if entry.after]
    if not followed:
        return
    yield (
        f"partial   {followed[0].workspace} bytes of workspace, at a multiple of "
        f"{WIDEST_OF_WORKSPACE} bytes"
    )
    for name in dict.fromkeys(n for entry in followed for n in entry.after):
        entry = plan.entry(name)
        before = ", ".join(e.name for e in followed if name in e.after)
        yield (
            f"then      {name} behind {before}, on the same stream: {entry.grid} blocks, "
            f"{entry.block} threads"
        )
