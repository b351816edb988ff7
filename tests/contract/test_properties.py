"""Specs drawn at random: refused in words that help, or a kernel that is right; equal across backends."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from contract.enrolled import Target, build, kernel, named, present, targets
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import tilegen as tg
from tilegen.errors import PlanError
from tilegen.rules import Violation
from tilegen.testing import Problem, check_problem, make_arrays, problems, specs

# A runtime that compiles slowly gets fewer (.ci/run).
DRAWS = int(os.environ.get("TILEGEN_TEST_DRAWS", "15"))
# The same draws every time, and no shrinking: every further spec is a further compilation.
FIXED = settings(
    max_examples=DRAWS,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def in_form(spec: tg.TileSpec, target: Target) -> tg.TileSpec:
    return spec.replace(pins=target.pins, types=target.type_names)


def check_refusal(error: PlanError, spec: tg.TileSpec, target: Target) -> None:
    """It names a field of the spec, a need, and a change that makes the spec legal, if any."""
    assert error.violations
    for violation in error.violations:
        assert isinstance(violation, Violation)
        field = re.split(r"[.\[]", violation.field)[0]
        assert field in tg.TileSpec.model_fields
        assert violation.field in str(error)
        assert violation.need in str(error)
        assert violation.nearest in str(error)
        if violation.proposed is not None:
            tg.lower(violation.proposed, target.backend, target.device.arch)


@targets
def test_a_spec_is_refused_in_words_or_its_kernel_is_right(target: Target) -> None:
    built: list[str] = []

    @settings(FIXED, max_examples=DRAWS if target.in_full else min(2, DRAWS))
    @given(st.data())
    def check(data: st.DataObject) -> None:
        spec = in_form(data.draw(specs(target.backend, target.device.arch)), target)
        try:
            one = build(target, spec)
        except PlanError as error:
            check_refusal(error, spec, target)
            return
        built.append(one.plan.name)
        count = 10 if target.in_full else 4
        for problem in data.draw(st.lists(problems(one.plan), min_size=count, max_size=count)):
            check_problem(one, problem)

    check()
    assert len(set(built)) >= (DRAWS // 5 if target.in_full else 0), (
        "almost every spec was refused: the strategy does not fit the form"
    )


@targets
@pytest.mark.parametrize(
    "change",
    [{"block": (33, 32, 16)}, {"warp": (5, 7)}, {"warp": (16, 31)}, {"block": (2048, 2048, 512)}],
    ids=str,
)
def test_odd_changes_are_refused_in_words_or_run(target: Target, change: dict[str, Any]) -> None:
    spec = target.spec("plain").replace(**change)
    try:
        one = build(target, spec)
    except PlanError as error:
        check_refusal(error, spec, target)
    else:
        check_problem(one, Problem(37, 41, 19, beta=1.0))


@named("plain", "odd_tiles", "batched_bias", "batched_scale")
def test_whole_numbers_give_the_same_bits_on_every_backend(name: str) -> None:
    by_types: dict[str, list[Target]] = {}
    for target in present():
        by_types.setdefault(f"{target.types.a} {target.types.b} {target.output}", []).append(target)
    groups = [group for group in by_types.values() if len(group) > 1]
    if not groups:
        pytest.skip("fewer than two targets here multiply the same types: nothing to compare")

    @FIXED
    @given(st.data())
    def check(data: st.DataObject) -> None:
        for group in groups:
            drawn = data.draw(problems(kernel(group[0], name).plan))
            problem = replace(drawn, values="integers", alpha=2.0, beta=-1.0)
            results = {}
            for target in group:
                one = kernel(target, name)
                arrays = make_arrays(problem, one.plan.spec)
                got = one(arrays.a, arrays.b, arrays.c, alpha=2.0, beta=-1.0, **arrays.extras)
                results[str(target)] = np.ascontiguousarray(got).tobytes()
            assert len(set(results.values())) == 1, f"{sorted(results)} differ on {problem}"

    check()
