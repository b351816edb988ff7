"""CUDA for the mutation operators: its spellings, and what is easily mistaken in inline PTX."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from typing import TYPE_CHECKING

from tilegen.mutation.language import Language, Support

if TYPE_CHECKING:
    from tilegen.render import KernelSource
    from tilegen.testing import Problem

# Each pair: what stands in the string of an asm statement, and the sister that it is taken for.
PTX_SISTERS = (
    (r"\.trans\b", ""),
    (r"(ldmatrix\S*\.x[124])\.shared", r"\1.trans.shared"),
    (r"(stmatrix\S*\.x[124])\.shared", r"\1.trans.shared"),
    (r"@!", "@"),
    (r"@(?!!)", "@!"),
    (r"\bbar\.sync", "bar.arrive"),
    (r"\bbar\.arrive", "bar.sync"),
    (r"mbarrier\.arrive\.expect_tx(\S*) _, (\[[^\]]*\]), [^;]*", r"mbarrier.arrive\1 _, \2"),
    (r"fence\.proxy\.async\.shared::cta", "fence.acq_rel.cta"),
    (r"fence\.mbarrier_init\.release\.cluster", "fence.acq_rel.cta"),
    (r"wait_group\.read", "wait_group"),
    (r"\.noinc", ""),
    (r"\.parity", ""),
    (r"\.f16\b", ".bf16"),
    (r"\.bf16\b", ".f16"),
    (r"\.s8\b", ".u8"),
    (r"\bsetp\.ne", "setp.eq"),
    (r"redux\.sync\.add", "redux.sync.max"),
    (r"cvt\.rn\b", "cvt.rz"),
)

CUDA = Language(
    types=(
        r"(u?(char|short|int|long|longlong)|float|double)[1-4]?|u?int(8|16|32|64)_t|i64|uint|bool|void|size_t|"
        r"__?half2?|half2?|(__)?nv_bfloat16|CUtensorMap|auto|Stage"
    ),
    qualifiers=frozenset(
        {"const", "constexpr", "restrict", "__restrict__", "volatile", "unsigned", "signed", "static",
         "inline", "extern", "__forceinline__", "__device__", "__global__", "__shared__", "__constant__",
         "__grid_constant__"}
    ),
    barriers=frozenset({"__syncthreads", "__syncwarp", "__threadfence", "__threadfence_block"}),
    narrower={"int64_t": "int", "uint64_t": "uint32_t", "size_t": "unsigned", "i64": "int"},
    multiply_adds=frozenset({"fma", "fmaf", "__fmaf_rn"}),
    hints=frozenset({"__launch_bounds__", "__align__", "alignas", "__attribute__"}),
    assembly=frozenset({"asm"}),
    mnemonics=PTX_SISTERS,
)  # fmt: skip


def races(source: KernelSource, problems: Sequence[Problem]) -> list[str]:
    """What the emulator says of the text in all orders, on each entry with the first problem it takes."""
    from tilegen.errors import LaunchError, VerifyError
    from tilegen.kernel import Kernel
    from tilegen.testing import check_problem

    from .emulated import EmulatedDevice

    device = EmulatedDevice(source.plan.arch)
    for entry in source.plan.main_entries:
        kept = tuple(e for e in source.plan.entries if e.role != "main" or e.name == entry.name)
        alone = replace(source, plan=replace(source.plan, entries=kept))
        binary = device.compile(alone)
        kernel = Kernel(binary, device, device.load(binary))
        for problem in problems:
            try:
                check_problem(kernel, problem)
            except LaunchError:
                continue
            except VerifyError as error:
                return [str(error)]
            break  # the first that the entry takes
    return []


def support() -> Support:
    """What ``tilegen mutate`` needs of CUDA C++.

    Mutants run on the quick emulator; what survives there goes through all orders and the race
    detector.
    """
    folder = files("tilegen_cuda") / "mutation_data"
    return Support(
        language=CUDA,
        corpus=folder / "corpus.toml",
        explained=folder / "explained.toml",
        races=races,
    )
