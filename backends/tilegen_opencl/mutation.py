"""OpenCL C for the mutation operators: its spellings, and where the corpus and the explained ones lie."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import TYPE_CHECKING

from tilegen.mutation.language import Language, Support

if TYPE_CHECKING:
    from tilegen.render import KernelSource
    from tilegen.testing import Problem

OPENCL_C = Language(
    types=r"(u?(char|short|int|long)|float|double|half|bool)(2|3|4|8|16)?|void|size_t",
    qualifiers=frozenset(
        {"const", "restrict", "volatile", "unsigned", "static", "inline", "__global", "__local",
         "__private", "__constant", "__kernel"}
    ),
    barriers=frozenset({"barrier", "work_group_barrier", "sub_group_barrier"}),
    fences={"CLK_LOCAL_MEM_FENCE": ("0", "CLK_GLOBAL_MEM_FENCE")},
    narrower={"long": "int", "ulong": "uint"},
    multiply_adds=frozenset({"fma", "mad"}),
    hints=frozenset({"__attribute__"}),
    asserts=r"typedef\s+char\s+\w+\s*\[",
    assert_log=r"negative size",
)  # fmt: skip

SECONDS = 120.0


def races(source: KernelSource, problems: Sequence[Problem]) -> list[str]:
    """What oclgrind says of the text, on each entry with the first problem that it takes."""
    from tilegen.errors import LaunchError

    from .oclgrind import run

    for entry in source.plan.main_entries:
        for problem in problems:
            try:
                found = run(source, problem, entry=entry.name, counts=False, timeout=SECONDS)
            except LaunchError:
                continue
            # A text without an end has shown natively: here time is up on a loaded machine.
            findings = [finding for finding in found.findings if finding.kind != "timeout"]
            if findings or found.wrong:
                return [str(finding) for finding in (*findings, found.wrong) if finding]
            break  # the first that the entry takes
    return []


def support() -> Support:
    from .oclgrind import missing

    folder = files("tilegen_opencl") / "mutation_data"
    return Support(
        language=OPENCL_C,
        corpus=folder / "corpus.toml",
        explained=folder / "explained.toml",
        # As written: no access that the text holds is optimised away, and it compiles ten times faster.
        flags="-cl-opt-disable",
        races=None if missing() else races,
    )
