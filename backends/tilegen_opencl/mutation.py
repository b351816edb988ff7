"""OpenCL C for the mutation operators: its spellings, and where the corpus and the explained ones lie."""

from __future__ import annotations

from importlib.resources import files

from tilegen.mutation.language import Language, Support

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


def support() -> Support:
    folder = files("tilegen_opencl") / "mutation_data"
    return Support(
        language=OPENCL_C,
        corpus=folder / "corpus.toml",
        explained=folder / "explained.toml",
        # As written: no access that the text holds is optimised away, and it compiles ten times faster.
        flags="-cl-opt-disable",
    )
