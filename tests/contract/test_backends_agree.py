"""One spec, several backends: whole numbers give the same D, bit for bit, wherever the spec is legal."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import tilegen as tg
from tilegen import registry
from tilegen.backend import Device
from tilegen.errors import PlanError
from tilegen.testing import Problem, make_arrays, specs

DRAWS = int(os.environ.get("TILEGEN_TEST_DRAWS", "12"))


def runners() -> dict[str, Device]:
    """For each backend the processor's device or the emulator; a GPU would only say the same."""
    out: dict[str, Device] = {}
    for name in ("cuda", "opencl"):
        backend = registry.get(name)
        known = [*backend.devices(), *(d for d in backend.checkers() if d.rung == "emulator")]
        fitting = [d for d in known if d.rung != "device" and not d.toolchain().missing]
        if fitting:
            out[name] = fitting[0]
    return out


RUNNERS = runners()


def solve(spec: tg.TileSpec, name: str, device: Device, problem: Problem) -> np.ndarray[Any, Any]:
    kernel = tg.load(tg.emit(tg.lower(spec, name, device.arch)), device)
    held = make_arrays(problem, spec)
    scalars = {"alpha": problem.alpha, "beta": problem.beta}
    return kernel(held.a, held.b, held.c, **scalars, **held.extras)


@pytest.mark.skipif(len(RUNNERS) < 2, reason="needs an OpenCL device and a C++ compiler")
@settings(
    max_examples=DRAWS,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    # Each takes a second, so the first that fails is told as it is.
    phases=(Phase.generate,),
)
@given(data=st.data())
def test_a_drawn_spec_gives_the_same_numbers_or_is_refused(data: st.DataObject) -> None:
    drawn_for = data.draw(st.sampled_from(sorted(RUNNERS)))
    spec = data.draw(specs(drawn_for, RUNNERS[drawn_for].arch))
    # Steps that do not stay whole are rounded as each language's exponential pleases.
    whole = [s for s in spec.epilogue if s.op not in ("gelu", "gelu_tanh", "silu")]
    spec = spec.replace(epilogue=whole)
    m, n, k = spec.block
    problem = Problem(
        m + 3, 2 * n - 1, k + 2, batch=2 if spec.batch == "strided" else None, alpha=2, beta=-1
    )
    found: dict[str, Any] = {}
    for name, device in RUNNERS.items():
        with suppress(PlanError):
            found[name] = solve(spec, name, device, problem)
    results = list(found.values())
    for other in results[1:]:
        assert other.dtype == results[0].dtype
        assert np.array_equal(results[0], other)


@pytest.mark.skipif(len(RUNNERS) < 2, reason="needs an OpenCL device and a C++ compiler")
@pytest.mark.parametrize(
    ("kind", "acc", "block", "warp"),
    [
        ("f32", "f32", (32, 48, 12), (16, 24)),
        ("f64", "f64", (32, 48, 12), (16, 24)),
        ("f16", "f32", (32, 48, 16), (16, 48)),
        ("bf16", "f32", (32, 48, 16), (16, 48)),
        ("s8", "s32", (32, 96, 32), (16, 48)),
        ("u8", "s32", (32, 96, 32), (32, 48)),
    ],
)
@pytest.mark.parametrize("major", ["rrrr", "rccr", "crrc", "cccc"])
def test_every_backend_runs_these(
    kind: str, acc: str, block: tuple[int, int, int], warp: tuple[int, int], major: str
) -> None:
    names, out = {"r": "row", "c": "col"}, acc if acc == "s32" else kind
    steps = [{"op": "bias"}, {"op": "scale", "along": "m"}, {"op": "residual"}, {"op": "relu"}]
    spec = tg.TileSpec(
        block=block,
        warp=warp,
        stages=3,
        types={"a": kind, "b": kind, "acc": acc, "c": out, "d": out},
        layout={x: names[m] for x, m in zip("abcd", major, strict=True)},
        batch="strided",
        # An epilogue of whole numbers scales nothing.
        epilogue=[s for s in steps if s["op"] != "scale" or acc != "s32"],
    )
    problem = Problem(65, 50, 31, batch=2, alpha=2, beta=-1)
    results = [solve(spec, name, device, problem) for name, device in RUNNERS.items()]
    assert (results[0] > 0).any()
    for other in results[1:]:
        assert np.array_equal(results[0], other)
