"""Sub-groups on the devices that are here: sizes, and refusals in words before a wrong result."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tilegen as tg
import tilegen_opencl.device
from tilegen import registry
from tilegen_opencl.sub_groups import _probed

CPUS = [d for d in registry.get("opencl").devices() if d.arch.name == "cpu"]
WITH = [d for d in CPUS if "sub_groups" in d.arch.features]
WITHOUT = [d for d in CPUS if "sub_groups" not in d.arch.features]
pytestmark = pytest.mark.compiles
has = pytest.mark.skipif(not WITH, reason="no CPU device with sub-groups: Intel's runtime has them")
lacks = pytest.mark.skipif(not WITHOUT, reason="no CPU device without sub-groups: PoCL is one")
SPEC = tg.TileSpec(block=(16, 64, 8), warp=(8, 32), pins={"opencl": {"form": "sub_group"}})


def source(size: int) -> tg.KernelSource:
    """Of an arch that has this size and lets no one ask for it."""
    arch = WITH[0].arch
    features = arch.features - {"required_sub_group_size"}
    return tg.emit(tg.lower(SPEC, "opencl", replace(arch, features=features, warp_sizes=(size,))))


@has
@pytest.mark.parametrize("size", WITH[0].arch.warp_sizes if WITH else [])
def test_every_size_that_the_device_names_is_compiled_and_right(size: int) -> None:
    pins = {"opencl": {"form": "sub_group", "sub_group": size}}
    spec = tg.TileSpec(block=(8, 128, 8), warp=(4, 64), pins=pins)
    kernel = tg.build(spec, "opencl", device=WITH[0])
    assert kernel.plan.arch.lanes == size
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, s).astype(np.float32) for s in ((37, 41), (41, 135)))
    assert np.array_equal(kernel(a, b), a @ b)


@has
def test_the_size_that_the_compiler_takes_is_one_that_the_device_names() -> None:
    [size] = _probed(WITH[0].handle)
    assert size in WITH[0].arch.warp_sizes


@has
def test_a_compiled_size_other_than_the_planned_one_is_refused() -> None:
    [taken] = _probed(WITH[0].handle)
    planned = next(s for s in WITH[0].arch.warp_sizes if s != taken and s <= 32)
    binary = tg.compile(source(planned), device=WITH[0])
    with pytest.raises(tg.LaunchError) as caught:
        tg.load(binary, WITH[0])
    assert (
        f"gemm_wide is planned for sub-groups of {planned} lanes and {WITH[0].name} compiled it for "
        f"{taken}: who owns which element would be wrong"
    ) == str(caught.value)


@has
def test_a_size_that_the_device_cannot_have_is_refused_before_its_compiler_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    device = replace(WITH[0], arch=replace(WITH[0].arch, warp_sizes=(8, 32)))
    monkeypatch.setattr(tilegen_opencl.device, "binding", None)
    with pytest.raises(tg.CompileError, match="a sub-group has 16 lanes, and its have 8 or 32"):
        device.compile(source(16))


@lacks
@has
def test_a_device_without_sub_groups_refuses_the_text() -> None:
    with pytest.raises(tg.CompileError, match="it has no sub_groups"):
        tg.compile(source(16), device=WITHOUT[0])


@lacks
def test_a_device_without_sub_groups_refuses_the_pin() -> None:
    with pytest.raises(tg.PlanError, match="sub_group: needs sub_groups, which cpu lacks"):
        tg.build(SPEC, "opencl", device=WITHOUT[0])
