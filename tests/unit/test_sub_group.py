"""The sub-group form's plan: sizes and pins, refusals, the choice on GPUs, who moves and owns what."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import tilegen as tg
from tilegen import registry
from tilegen.hardware import Arch
from tilegen_opencl.archs import CPU, GPU, preferred, refined
from tilegen_opencl.sub_groups import language

ASKED = frozenset({"sub_groups", "required_sub_group_size"})
CPU_16 = replace(CPU, features=CPU.features | ASKED, warp_sizes=(16, 8, 32))
# As Intel's GPUs say, and as AMD's do.
GPU_16 = replace(GPU, features=GPU.features | ASKED, warp_sizes=(16, 8, 32))
GPU_64 = replace(GPU, features=GPU.features | {"sub_groups"}, warp_sizes=(64,))
PIN = {"pins": {"opencl": {"form": "sub_group"}}}
BASE: dict[str, Any] = {"block": (32, 128, 16), "warp": (16, 64)}


def plan(arch: Arch, **change: Any) -> tg.KernelPlan:
    return tg.lower(tg.TileSpec(**{**BASE, **PIN, **change}), "opencl", arch)


def refusal(arch: Arch, **change: Any) -> tg.PlanError:
    with pytest.raises(tg.PlanError) as caught:
        plan(arch, **change)
    return caught.value


@pytest.mark.parametrize("arch", ["cpu", "gpu"])
def test_an_arch_without_sub_groups_says_so_where_the_form_is_pinned(arch: str) -> None:
    with pytest.raises(tg.PlanError) as caught:
        tg.lower(tg.TileSpec(**BASE, **PIN), "opencl", arch)
    assert str(caught.value) == (
        f"pins.opencl.form = sub_group: needs sub_groups, which {arch} lacks"
    )


@pytest.mark.parametrize("arch", ["cpu", "gpu"])
def test_an_arch_without_sub_groups_never_tries_the_form(arch: str) -> None:
    made = tg.lower(tg.TileSpec(**BASE), "opencl", arch)
    assert made.form != "sub_group"
    assert not any("sub_group" in note for note in made.notes)


def test_a_size_that_nobody_knows_is_refused() -> None:
    error = refusal(replace(GPU_64, warp_sizes=()))
    assert "gpu does not say how many lanes its sub-groups have" in str(error)


@pytest.mark.parametrize("size", [8, 16, 32])
def test_the_pinned_size_is_the_warp(size: int) -> None:
    made = plan(CPU_16, pins={"opencl": {"sub_group": size, "form": "sub_group"}})
    assert made.arch.lanes == size
    assert made.threads == 4 * size
    assert made.ownership["c"].lane.size == size
    text = tg.emit(made).text
    assert f"LANES = {size}," in text
    assert "intel_reqd_sub_group_size(LANES)" in text


def test_a_size_pin_alone_is_this_form() -> None:
    spec = tg.TileSpec(**BASE, pins={"opencl": {"sub_group": 32}})
    assert tg.lower(spec, "opencl", CPU_16).form == "sub_group"


@pytest.mark.parametrize(("warp", "lanes"), [((16, 64), 16), ((16, 24), 8), ((16, 40), 8)])
def test_the_preferred_size_that_divides_the_columns(warp: tuple[int, int], lanes: int) -> None:
    assert plan(CPU_16, block=(16, warp[1], 8), warp=warp).arch.lanes == lanes


def test_a_size_that_the_device_lacks() -> None:
    error = refusal(GPU_16, pins={"opencl": {"form": "sub_group", "sub_group": 64}})
    assert "pins.opencl.sub_group = 64: must be one of 16, 8, 32" in str(error)


@pytest.mark.parametrize(("d", "axis", "name"), [("row", 1, "N"), ("col", 0, "M")])
def test_the_lanes_divide_the_columns(d: str, axis: int, name: str) -> None:
    warp = [32, 32]
    warp[axis] = 36
    error = refusal(GPU_64, block=(*warp, 8), warp=tuple(warp), layout={"d": d})
    found = next(v for v in error.violations if v.rule == "lanes")
    assert f"warp[{axis}] = 36: WARP_{name} must be a multiple of a sub-group's lanes, 64" in str(
        found
    )
    assert found.nearest == f"64 with block[{axis}] = 64"


def test_a_gpu_refuses_what_would_spill() -> None:
    found = {v.rule: v for v in refusal(GPU_16, block=(64, 64, 8), warp=(64, 64)).violations}
    assert "the kernel would spill" in str(found["registers"])
    assert found["registers"].nearest


def test_lanes_that_share_a_register_file_have_fewer_each() -> None:
    limits = []
    for size in (8, 16, 32):
        made = plan(
            GPU_16,
            block=(4, 32, 8),
            warp=(4, 32),
            pins={"opencl": {"form": "sub_group", "sub_group": size}},
        )
        limits.append(made.budget.registers[0].limit)
    assert limits == [128, 64, 32]
    assert plan(GPU_64, warp=(16, 64)).budget.registers[0].limit == 255


def test_k_is_unrolled_as_far_as_the_registers_go() -> None:
    small = plan(GPU_64, block=(16, 64, 16), warp=(16, 64))
    assert small.numbers["UNROLL_K"] == 8
    assert "K is unrolled by 8 of block[2] = 16" in small.notes[0]
    large = plan(GPU_64, block=(48, 256, 16), warp=(48, 256))
    assert large.numbers["UNROLL_K"] < 8
    assert not large.budget.registers[0].spills


def test_wishes_are_lowered_with_a_note() -> None:
    made = plan(GPU_64, stages=3, split_k=2, thread=(4, 4))
    starts = ("thread [4, 4] is not used", "stages 3 -> 1", "split_k 2 -> 1")
    for start in starts:
        assert any(note.startswith(start) for note in made.notes), start


def test_on_a_gpu_the_form_with_fewer_loads_is_taken_and_the_plan_says_why() -> None:
    arch = replace(GPU_64, warp_sizes=(16,))
    wide = tg.lower(tg.TileSpec(block=(32, 128, 8), warp=(16, 128)), "opencl", arch)
    assert wide.form == "sub_group"
    said = "0.195 loads and broadcasts a multiply-add; form work_group loads 0.25 from local memory"
    assert f"form sub_group: {said}" in wide.notes
    tall = tg.lower(tg.TileSpec(block=(64, 128, 8), warp=(32, 64)), "opencl", arch)
    assert tall.form == "work_group"
    assert "form sub_group was passed over" in tall.notes[0]
    assert "loads and broadcasts a multiply-add" in tall.notes[0]


def test_where_the_other_form_does_not_fit_this_one_is_taken() -> None:
    spec = tg.TileSpec(block=(32, 128, 32), warp=(16, 64), stages=1)
    small = replace(GPU_64, shared_bytes=16384)
    assert tg.lower(spec, "opencl", GPU_64).form == "work_group"
    made = tg.lower(spec, "opencl", small)
    assert made.form == "sub_group"
    assert any("form work_group breaks a rule here" in note for note in made.notes)


def test_on_a_cpu_the_vector_fragment_comes_first() -> None:
    assert tg.lower(tg.TileSpec(**BASE), "opencl", CPU_16).form == "vector_fragment"


@pytest.mark.parametrize("arch", [CPU_16, GPU_16, GPU_64], ids=["cpu16", "gpu16", "gpu64"])
@pytest.mark.parametrize("layout", ["rrrr", "ccrr", "rcrc", "crcc"])
def test_owners_and_loads_cover_the_tile(arch: Arch, layout: str) -> None:
    majors = {x: {"r": "row", "c": "col"}[y] for x, y in zip("abcd", layout, strict=True)}
    rows, cols = 16, 2 * arch.warp_sizes[0]
    warp = (rows, cols) if majors["d"] == "row" else (cols, rows)
    made = plan(arch, block=(2 * warp[0], 2 * warp[1], 8), warp=warp, layout=majors)
    for ownership in made.ownership.values():
        assert ownership.is_complete()
    maps = [copy.map for copy in made.copies if copy.source == "global"]
    assert all(m is not None and m.is_complete() for m in maps)


def test_a_refined_arch_prefers_what_fills_a_vector() -> None:
    assert preferred((4, 8, 16, 32, 64), 16) == (16, 8, 4, 32, 64)
    assert preferred((32, 16), 8) == (16, 32)
    device = {"max_threads": 512, "shared_bytes": 65536, "features": CPU_16.features}
    arch = refined(CPU, vector_width=8, sub_groups=(4, 8, 16), **device)
    assert arch.warp_sizes == (8, 4, 16)


@pytest.mark.parametrize(
    ("extensions", "version", "flags"),
    [
        ([], "OpenCL C 3.0", ""),
        (["cl_intel_subgroups", "cl_khr_subgroups"], "OpenCL C 3.1", ""),
        (["cl_khr_subgroups"], "OpenCL C 2.0 ", "-cl-std=CL2.0"),
        (["cl_khr_subgroups"], "OpenCL C 3.0 v1", "-cl-std=CL3.0"),
    ],
)
def test_the_language_in_which_a_compiler_knows_sub_groups(
    extensions: list[str], version: str, flags: str
) -> None:
    assert language(extensions, version) == flags


def test_the_form_is_named_by_the_backend() -> None:
    forms = registry.get("opencl").forms
    assert [f.name for f in forms(CPU_16)] == ["vector_fragment", "sub_group", "work_group"]
    assert [f.name for f in forms(GPU_16)] == ["sub_group", "work_group"]
