"""What one call launches: the entry that may run on its arrays, and all that goes before and after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tilegen.arguments import ADDRESS_SPACE, CALLED, Fit
from tilegen.backend import Operand, Session, Workspace
from tilegen.errors import LaunchError
from tilegen.plan import Access, Argument, Entry, Formula, KernelPlan


class Call(NamedTuple):
    """One call, its arrays checked against the plan."""

    fit: Fit
    operands: dict[str, Operand]
    scalars: dict[str, Any]
    result: Any
    session: Session

    @property
    def reads_c(self) -> bool:
        return bool(self.scalars["beta"] != 0)


class Step(NamedTuple):
    """One launch, with all values that follow from shapes and strides in place.

    A workspace's value is its region here: (offset, bytes).
    """

    entry: Entry
    grid: int
    values: list[Any]
    late: list[tuple[int, Argument]]


class Choice(NamedTuple):
    """The entry for operands at one alignment, why not those before it, and what a call launches.

    ``workspace`` is the bytes of the one that all steps share, 0 without any.
    """

    entry: Entry
    refusals: list[tuple[str, str]]
    workspace: int
    steps: list[Step]


def chosen(plan: KernelPlan, call: Call, device: Mapping[str, int]) -> Choice:
    """The first main entry whose condition holds, and that of what is launched with it.

    Parameters
    ----------
    plan : KernelPlan
    call : Call
        With an output that has elements.
    device : mapping
        What formulas may name of the device: ``multiprocessors``, where that is known.

    Raises
    ------
    LaunchError
        If there is none; the message says why of each.
    """
    refusals: list[tuple[str, str]] = []
    for entry in plan.main_entries:
        parts = [plan.entry(name) for name in (*entry.before, entry.name, *entry.after)]
        accesses = dict.fromkeys(access for part in parts for access in part.accesses)
        asked = [access for access in accesses if access.operand != "c" or call.reads_c]
        reasons = [why for access in asked if (why := _refusal(access, call))]
        if not reasons:
            names = {**_names(call.fit), **device}
            steps = [_step(part, names) for part in parts]
            # An empty grid is nothing to launch: a pack of operands without elements.
            launched = [step for step in steps if step.grid]
            return Choice(entry, refusals, _workspace(parts, names), launched)
        refusals.append((entry.name, "; ".join(reasons)))
    raise LaunchError(
        "no entry takes these arrays: " + "; ".join(f"{name}: {why}" for name, why in refusals)
    )


def told(choice: Choice) -> str:
    """The launches of a choice in words, its main entry's first and unnamed."""
    main = next(step for step in choice.steps if step.entry is choice.entry)
    parts = [f"{main.grid} blocks of {main.entry.block} threads"]
    for step in choice.steps:
        if step is not main:
            when = "before" if step.entry.name in choice.entry.before else "after"
            blocks = f"{step.grid} blocks of {step.entry.block} threads"
            parts.append(f"{when} it {step.entry.name}, {blocks}")
    if choice.workspace:
        parts.append(f"{choice.workspace} bytes of workspace")
    return "; ".join(parts)


def filled(step: Step, call: Call, space: Workspace | None) -> list[tuple[Argument, Any]]:
    """The arguments of one launch with their values, in order."""
    values = step.values.copy()
    for place, argument in step.late:
        match argument.kind:
            case "scalar":
                values[place] = call.scalars[argument.name]
            case "offset":
                values[place] = call.operands[argument.operand].offset
            case "workspace":
                assert space is not None
                offset, size = values[place]
                values[place] = space.region(offset, size, argument.type)
            case _:
                values[place] = call.operands[argument.operand].handle
    return list(zip(step.entry.arguments, values, strict=True))


def _refusal(access: Access, call: Call) -> str:
    name = access.operand
    operand, strides = call.operands.get(name), call.fit.strides.get(name)
    if operand is None or strides is None:
        return ""
    called = CALLED.get(name, name)
    if access.unit_step and strides.step != 1:
        return f"{called} is broadcast along its contiguous axis"
    if operand.address % access.alignment:
        return f"{called} starts at an address that {access.alignment} does not divide"
    for what, stride in (("leading dimension", strides.ld), ("batch stride", strides.batch)):
        if stride % access.stride_multiple:
            return f"{called} has a {what} of {stride}, no multiple of {access.stride_multiple}"
    if access.extent_limit is not None and call.fit.extents[name] > access.extent_limit:
        return f"{called} has an extent over {access.extent_limit}"
    return ""


def _names(fitted: Fit) -> dict[str, int]:
    """What formulas and arguments may name of a call."""
    names = dict(fitted.sizes)
    for name, strides in fitted.strides.items():
        names |= {
            f"ld{name}": strides.ld,
            f"{name}_step": strides.step,
            f"{name}_batch_stride": strides.batch,
        }
    return names


def _workspace(parts: Sequence[Entry], names: Mapping[str, int]) -> int:
    """Bytes of the workspace that the entries share; 0 where none points into it."""
    takers = [e for e in parts if any(a.kind == "workspace" for a in e.arguments)]
    if not takers:
        return 0
    size = max(_value(entry, "workspace", entry.workspace, names) for entry in takers)
    if size > ADDRESS_SPACE:
        raise LaunchError(f"workspace: {size} bytes are more than an address can reach")
    # A pointer is wanted even where no byte is.
    return max(1, size)


def _step(entry: Entry, names: Mapping[str, int]) -> Step:
    """One entry's launch; what each call has of its own is left for :func:`filled`."""
    starts = {
        a.name: 0 if a.value is None else _value(entry, f"argument {a.name}", a.value, names)
        for a in entry.arguments
        if a.kind == "workspace"
    }
    size = _workspace([entry], names)
    values: list[Any] = []
    late: list[tuple[int, Argument]] = []
    for place, argument in enumerate(entry.arguments):
        if argument.kind in ("size", "stride"):
            formula = argument.value or Formula(argument.name)
            values.append(_value(entry, f"argument {argument.name}", formula, names))
            continue
        late.append((place, argument))
        values.append(None)
        if argument.kind == "workspace":
            # A region ends where the next one starts.
            start = starts[argument.name]
            end = min((s for s in starts.values() if s > start), default=max(start, size))
            values[place] = start, end - start
    return Step(entry, _value(entry, "grid", entry.grid, names), values, late)


def _value(entry: Entry, what: str, formula: Formula, names: Mapping[str, int]) -> int:
    try:
        return formula(**names)
    except NameError as error:
        raise LaunchError(
            f"{entry.name}: its {what} is {formula}, and the launch knows no {error.name}"
        ) from None
