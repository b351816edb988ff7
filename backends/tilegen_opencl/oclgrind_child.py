"""The process that :mod:`tilegen_opencl.oclgrind` starts: solves the problems that it is handed.

It reads ``request`` in the folder of its argument and leaves ``answer`` there. Errors of tilegen are
answers too; anything else ends the process with a traceback, which the parent reports.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tilegen.errors import LaunchError, TilegenError, VerifyError
from tilegen.hardware import Arch
from tilegen.kernel import Kernel
from tilegen.render import KernelSource
from tilegen.testing import Outcome, Problem, check_problem

from .device import BOUNDARY, CHECKER, OpenCLDevice
from .runtime import opencl
from .stand_ins import LANGUAGE, with_stand_ins

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Simulator(OpenCLDevice):
    """oclgrind's device, with stand-ins for the built-ins that it lacks."""

    def sub_group_lanes(self, kernel: Any, block: int) -> int:
        """As many as the stand-ins make of a work-group."""
        return block


class Exact:
    """A :class:`tilegen.testing.Memory` without an element more, so that one too far is outside."""

    def room(self, lead: int, size: int) -> tuple[NDArray[Any], int]:
        """See :class:`tilegen.testing.Memory`."""
        room = np.zeros(lead + size + BOUNDARY, np.uint8)
        first = -room.ctypes.data % BOUNDARY
        return room[first : first + lead + size], lead

    def filled(self, room: NDArray[Any], *, writes: bool) -> None:
        """See :class:`tilegen.testing.Memory`."""


def device(arch: Arch) -> Simulator:
    """oclgrind's device as one of the plan's own arch."""
    cl: Any = opencl()
    platform = next(p for p in cl.get_platforms() if p.name.strip() == CHECKER)
    handle = platform.get_devices()[0]
    return Simulator(handle, handle.name.strip(), "oclgrind", arch, platform.version.strip())


def only(source: KernelSource, entry: str) -> KernelSource:
    """The source as if this main entry were the only one."""
    names = [e.name for e in source.plan.main_entries]
    if entry not in names:
        raise LaunchError(f"entry {entry!r} is none of {', '.join(names)}")
    kept = tuple(e for e in source.plan.entries if e.role != "main" or e.name == entry)
    return replace(source, plan=replace(source.plan, entries=kept))


def solve(
    source: KernelSource, problems: Sequence[Problem], entries: Sequence[str | None]
) -> tuple[VerifyError | None, tuple[Outcome, ...]]:
    """The first mismatch, and the outcomes of the problems before it."""
    machine = device(source.plan.arch)
    limit = int(machine.handle.local_mem_size)
    for each in source.plan.entries:
        if each.shared_bytes > limit:
            raise LaunchError(
                f"{each.name} needs {each.shared_bytes} bytes of local memory and oclgrind has {limit}"
            )
    binary = machine.compile(replace(source, text=with_stand_ins(source)), LANGUAGE)
    loaded = machine.load(binary)
    outcomes: list[Outcome] = []
    for entry in entries:
        part = source if entry is None else only(source, entry)
        kernel = Kernel(replace(binary, source=part), machine, loaded)
        for problem in problems:
            try:
                outcomes.append(check_problem(kernel, problem, Exact()))
            except VerifyError as error:
                return error, tuple(outcomes)
    return None, tuple(outcomes)


def main(folder: Path) -> None:
    source, problems, entries = pickle.loads((folder / "request").read_bytes())
    try:
        answer: Any = solve(source, problems, entries)
    except TilegenError as error:
        answer = error
    (folder / "answer").write_bytes(pickle.dumps(answer))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
