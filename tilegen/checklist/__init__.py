"""Checking: every number of the self-check list, predicted by the plan, measured and judged.

A spec goes through the compiler, the emulator that counts, and a profiler where there is one; a
kernel that tilegen did not write through the compiler, the emulator and the contract.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tilegen.checklist.foreign import Launch, check_file
from tilegen.checklist.lines import CheckReport, Line, Suggestion
from tilegen.checklist.meaning import Meaning, grid_of
from tilegen.checklist.spec import check_spec
from tilegen.errors import SpecError, require
from tilegen.hardware import Arch
from tilegen.spec import TileSpec

__all__ = ["CheckReport", "Launch", "Line", "Meaning", "Suggestion", "check", "grid_of"]


def check(
    what: TileSpec | str | Path,
    backend: str | None = None,
    arch: str | Arch | None = None,
    *,
    launch: Launch | None = None,
    examples: int = 20,
    seed: int = 0,
    count: bool = True,
    profile: bool = True,
    suggest: bool = True,
    told: Callable[[str], None] = lambda _: None,
) -> CheckReport:
    """Go through the self-check list of a spec, or of a kernel file that tilegen did not write.

    Parameters
    ----------
    what : TileSpec, or path
        A path is a kernel's source; a spec file is read by ``TileSpec.from_file``.
    backend : str, optional
        For a file: left out, the one whose suffix it has.
    arch : str or Arch, optional
        Left out: that of the first device found, else the backend's default.
    launch : Launch, optional
        Of a file: how it is started, and what its arguments mean.
    examples, seed : int
        Of a file whose arguments' meaning is given: problems drawn at random.
    count, profile : bool
        Of a spec: whether to run one block tile where accesses are counted, and a profiler on a
        device where both are here.
    suggest : bool
        Whether to look for the nearest change that passes where the compiler's numbers fail.
    told : callable
        Is told what is being done.

    Returns
    -------
    CheckReport

    Raises
    ------
    SpecError, BackendError
        For a request that cannot be met.
    PlanError
        If the rules refuse the spec: the refusal is the report.
    CompileError
        If the compiler refuses the text.
    LaunchError
        If the arguments of ``launch`` do not fit the kernel.
    """
    require("check", what, TileSpec, str, Path)
    if seed < 0:
        raise SpecError(f"check: seed = {seed}; at least 0 is needed")
    if not isinstance(what, TileSpec):
        return check_file(
            Path(what),
            backend,
            arch,
            launch=launch,
            examples=examples,
            seed=seed,
            suggest=suggest,
            told=told,
        )
    if launch is not None:
        raise SpecError("check: a launch is what a kernel file needs; a spec has its own")
    if backend is None:
        raise SpecError("check: a spec needs a backend")
    return check_spec(what, backend, arch, count=count, profile=profile, suggest=suggest, told=told)
