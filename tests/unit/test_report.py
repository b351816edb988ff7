"""The text of a plan names every number; the difference names only what differs."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import tilegen as tg
from tilegen import registry
from tilegen.hardware import Instruction
from tilegen.plan import (
    Barrier,
    Copy,
    Formula,
    KernelPlan,
    MatrixDescriptor,
    Pipeline,
    RegisterUse,
    Role,
    SharedTile,
)
from tilegen.report import plan_diff, plan_differences, plan_rows, plan_text, targets_text

EXAMPLES = Path(__file__).parents[2] / "examples"


def plan(name: str = "gemm_f32", arch: str = "gpu", **changes: object) -> KernelPlan:
    spec = tg.TileSpec.from_file(EXAMPLES / f"{name}.toml")
    return tg.lower(spec.replace(**changes), "opencl", arch)


@pytest.mark.parametrize("arch", ["cpu", "gpu"])
@pytest.mark.parametrize("name", ["gemm_f32", "gemm_f32_batched_bias_gelu"])
def test_the_text_names_what_the_plan_holds(name, arch):
    p = plan(name, arch)
    text = plan_text(p)
    flat = " ".join(text.split())
    assert str(p) == text
    for part in (p.name, p.form, p.template, p.instruction.mnemonic, p.spec.digest[:16], *p.notes):
        assert part in flat
    for o in p.ownership.values():
        assert f"warp {o.warp}, lane {o.lane}, register {o.register}" in flat
    for use in p.budget.registers:
        assert f"{use.predicted} of {use.limit}" in flat
    for entry in p.entries:
        assert str(entry.grid) in flat
        assert f"{entry.block} thread" in flat
        for argument in entry.arguments:
            assert argument.name in flat
    for step in p.epilogue:
        assert step.op in flat
    for number, value in p.numbers.items():
        assert f"{number} {value}" in flat
    assert max(map(len, text.splitlines())) <= 120


def test_labels_are_unique_within_a_section():
    keys = [(row.section, row.label) for row in plan_rows(plan())]
    assert len(set(keys)) == len(keys)


def test_no_difference():
    assert plan_differences(plan(), plan()) == []
    assert plan_diff(plan(), plan()) == "the plans do not differ"


def test_only_what_differs_side_by_side():
    a, b = plan(), plan(block=(64, 128, 32))
    labels = {d.label for d in plan_differences(a, b)}
    assert {"name", "block", "warps", "threads"} <= labels
    assert not {"layouts", "types", "form"} & labels
    lines = plan_diff(a, b).splitlines()
    line = next(line for line in lines if line.strip().startswith("block"))
    assert "128 x 128" in line.split("|")[0]
    assert "64 x 128" in line.split("|")[1]
    assert max(map(len, lines)) <= 100


def test_a_line_that_only_one_plan_has():
    a, b = plan("gemm_f32"), plan("gemm_f32_batched_bias_gelu")
    found = {(d.section, d.label): d for d in plan_differences(a, b)}
    assert found["epilogue", "1"].a == ""
    assert found["epilogue", "1"].b == "bias along n"
    for one, two in ((a, b), (b, a)):
        forth = {(d.section, d.label) for d in plan_differences(one, two)}
        assert forth == set(found)


def test_every_record_has_words():
    """A plan as Hopper would need it: what no OpenCL plan holds is said too."""
    p = plan()
    tile = SharedTile(
        "a", 128, 64, 64, 4, 2, "xor", 1, 7, 8, 1024, start=2048, panel_cols=64,
        descriptor=MatrixDescriptor("k", 1, 0, 1024, 32),
    )  # fmt: skip
    main = dataclasses.replace(
        p.entries[0], workspace=Formula("M * N * 4"), before=("pack",), after=("reduce",),
        symbol_name="other", cluster=2,
    )  # fmt: skip
    p = dataclasses.replace(
        p,
        group=(256, 128),
        split_k=4,
        shared=(tile,),
        copies=(
            Copy("a", "global", "shared", "tma", 8, 1, "k", (64, 128), True, None, 2, "producer", ("w",)),
            Copy("a", "global", "shared", "cp_async", 8, 1, "k"),
        ),
        pipeline=Pipeline(
            4, "mbarrier", (Role("producer", 4, 40, False), Role("consumer", 8, 232)), (2, 1), True,
            (Barrier("full", 4, 1, 32768, 0),),
        ),
        entries=(main,),
        budget=dataclasses.replace(
            p.budget,
            registers=(RegisterUse("32-bit", 200, 8, 0, 40, 232, "consumer", "other"),),
            blocks_per_multiprocessor=1,
            occupancy=0.1875,
            bound_by="registers",
        ),
    )  # fmt: skip
    flat = " ".join(plan_text(p).split())
    for part in (
        "256 x 128 of D, by warps that issue together", "fragments per group", "4 blocks",
        "descriptor k-major", "1 panels of 64", "box 64 x 128", "turns the tile", "to 2 blocks",
        "by producer", "in w", "a global -> shared (2)",
        "producer: 4 warps, 40 registers a lane, copies only",
        "2 x 1 blocks", "further tiles", "32768 bytes a phase", "M * N * 4 bytes", "before it pack",
        "after it reduce", "function other", "clusters of 2", "32-bit registers (consumer) in other",
        "spills predicted yes", "19%", "bound by registers",
    ):  # fmt: skip
        assert part.lower() in flat.lower(), part


def test_instruction_is_what_the_plan_has():
    assert isinstance(plan().instruction, Instruction)


def test_targets_name_limits_and_what_is_missing():
    text = targets_text([registry.get("opencl")])
    flat = " ".join(text.split())
    assert "256 threads and 32768 bytes of shared memory a block" in flat
    for missing in registry.get("opencl").missing():
        assert missing.command in flat
