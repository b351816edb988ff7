"""What a verification makes of the problems that Hypothesis draws."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilegen as tg
from tilegen import testing
from tilegen.errors import VerifyError
from tilegen.testing import Outcome, Problem, View
from tilegen.testing.expected import multiplied
from tilegen.verify import FEWEST_FOR_BIAS, Report, refuse_bias

needs_device = pytest.mark.skipif(
    not tg.registry.get("opencl").devices(), reason="no OpenCL device: pip install 'tilegen[cpu]'"
)
SMALL = tg.TileSpec(block=(16, 16, 8), warp=(16, 16))


def _solved(problem: Problem, mean: float) -> tuple[Problem, Outcome]:
    return problem, Outcome(2 * abs(mean), mean, 10, "gemm_narrow", exact=False)


def _problem(seed: int, **more: Any) -> Problem:
    return Problem(1, 1, 8, values="normal", seed=seed, **more)


def test_a_problem_drawn_again_is_no_further_evidence() -> None:
    spread = [_solved(_problem(n), (-0.1, 0.1)[n % 2]) for n in range(1, 9)]
    # The same values in another place of memory, or beside another C that is not read.
    again = [
        _solved(_problem(0, views={"a": View(offset=n)}, poison_c=bool(n % 2)), 0.3)
        for n in range(60)
    ]
    refuse_bias("gemm", spread + again)
    # As many problems with seeds of their own are evidence.
    other = [_solved(_problem(100 + n), 0.3) for n in range(60)]
    with pytest.raises(VerifyError, match="the mean signed error over 68 problems is"):
        refuse_bias("gemm", spread + other)


def test_exact_results_and_few_problems_say_nothing_of_the_rounding() -> None:
    exact = [(_problem(n), Outcome(0.0, 0.0, 10, "gemm", exact=True)) for n in range(50)]
    few = [_solved(_problem(n), 0.3) for n in range(FEWEST_FOR_BIAS - 1)]
    refuse_bias("gemm", exact + few)
    with pytest.raises(VerifyError, match="biased"):
        refuse_bias("gemm", [*few, _solved(_problem(99), 0.3)])


class _Rounds:
    """A kernel that gives the right product, rounded once to D's type."""

    def __init__(self, types: dict[str, str]) -> None:
        spec = tg.TileSpec(block=(64, 64, 32), warp=(32, 32), types=types)
        self.plan = tg.lower(spec, "cuda", "sm_90")

    def explain(self, *_: Any, **__: Any) -> str:
        return f"{self.plan.main_entries[0].name}: taken"

    def __call__(self, a: Any, b: Any, *_: Any, out: Any, **__: Any) -> Any:
        out[...] = (a.astype(np.float64) @ b.astype(np.float64)).astype(out.dtype)
        return out


@pytest.mark.parametrize(
    ("c", "least", "most"), [("bf16", 0.9, 1.0), ("f16", 0.7, 1.0), ("f32", 0.0, 0.2)]
)
def test_how_much_of_the_bound_is_the_rounding_of_d(c: str, least: float, most: float) -> None:
    kernel: Any = _Rounds(
        {"a": "bf16" if c == "bf16" else "f16", "b": "bf16" if c == "bf16" else "f16", "c": c}
    )
    outcome = testing.check_problem(kernel, Problem(64, 64, 16, values="normal"))
    assert not outcome.exact
    assert least <= outcome.rounding <= most
    # Of 4096 elements some lie halfway between two values of D's type.
    assert (outcome.worst > 0.5) == (c != "f32")


def test_the_rounding_of_d_is_told_where_it_is_most_of_the_bound() -> None:
    told = Report(
        "k", "cuda", "sm_80", "e", "emulator", 9, 4, 5, 99, {}, 0.996, 0.0, 0, 1.0, "bf16", 0.98
    )
    assert "worst error 99.6% of it (98% of that bound is the rounding of D to bf16), mean" in str(
        told
    )
    assert "rounding" not in str(dataclasses.replace(told, rounding=0.2))


@needs_device
@pytest.mark.parametrize("seed", range(4))
def test_one_example_is_a_problem_with_elements(seed: int) -> None:
    report = tg.verify(SMALL, backend="opencl", arch="cpu", examples=1, seed=seed)
    assert (report.examples, report.elements > 0) == (1, True)


@needs_device
def test_a_run_of_empty_problems_gets_one_more(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = testing.problems
    empty = drawn(SMALL).map(lambda p: Problem(0, p.n, p.k, seed=p.seed))
    monkeypatch.setattr(testing, "problems", lambda _: _Mostly(empty, drawn(SMALL)))
    report = tg.verify(SMALL, backend="opencl", arch="cpu", examples=5)
    assert report.elements > 0
    assert report.examples > 1


class _Mostly:
    """A strategy of empty problems, unless those are filtered out."""

    def __new__(cls, empty: Any, whole: Any) -> Any:
        empty.filter = whole.filter
        return empty


@needs_device
def test_nothing_is_left_in_the_working_folder(tmp_path: Path) -> None:
    text = (
        "import tilegen as tg\n"
        "spec = tg.TileSpec(block=(16, 16, 8), warp=(16, 16))\n"
        "tg.verify(spec, backend='opencl', arch='cpu', examples=3)\n"
    )
    path = os.pathsep.join(os.path.abspath(p) for p in sys.path if p)
    known = {k: v for k, v in os.environ.items() if k != "HYPOTHESIS_STORAGE_DIRECTORY"}
    subprocess.run(
        [sys.executable, "-c", text], cwd=tmp_path, check=True, env={**known, "PYTHONPATH": path}
    )
    assert list(tmp_path.iterdir()) == []


@needs_device
def test_the_problems_of_a_verification_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most within twice the tile, some of many tiles, hardly two of one size, and for every access."""
    seen: list[Problem] = []

    def check(kernel: Any, problem: Problem) -> Outcome:
        seen.append(problem)
        return Outcome(0.0, 0.0, 1, "gemm_wide", exact=True)

    monkeypatch.setattr(testing, "check_problem", check)
    report = tg.verify(SMALL, backend="opencl", arch="cpu", examples=60)
    drawn = seen[:60]
    assert report.examples >= 60
    assert len({(p.m, p.n, p.k) for p in drawn}) >= 50
    large = [p for p in drawn if max(p.m, p.n) > 2 * 16 + 1]
    assert 5 <= len(large) <= 25
    assert {p.view("a").multiple for p in drawn} == {1, 2, 4, 8, 16}
    # The simplest comes once, although Hypothesis begins every run with it.
    assert drawn.count(seen[0]) == 1


@needs_device
@pytest.mark.parametrize("values", ["integers", "normal"])
def test_an_answer_made_beside_the_launch_is_the_one_made_before_it(
    values: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = tg.build(SMALL, "opencl", "cpu")
    problem = Problem(37, 21, 19, beta=2.0, values=values, seed=3)
    found = []
    for least in (0, 10**9):
        monkeypatch.setattr("tilegen.testing.check.WORTH_A_THREAD", least)
        found.append(testing.check_problem(kernel, problem))
    assert found[0] == found[1]
    monkeypatch.setattr("tilegen.testing.check.reference", _refuse)
    for least in (0, 10**9):
        monkeypatch.setattr("tilegen.testing.check.WORTH_A_THREAD", least)
        with pytest.raises(ArithmeticError):
            testing.check_problem(kernel, problem)


def _refuse(*_: Any, **__: Any) -> Any:
    raise ArithmeticError


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((3, 65, 700), (700, 333)),
        ((1, 300_000), (300_000, 1)),
        ((1408, 160), (160, 257)),
        ((129, 55), (2, 55, 1409)),
        ((2, 0, 5), (2, 5, 0)),
        ((2, 4, 0), (2, 0, 900)),
    ],
    ids=str,
)
def test_a_product_in_parts_is_the_product(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-9, 9, shape).astype(np.float64) for shape in (left, right))
    got = multiplied(a, b)
    assert got.shape == (a @ b).shape
    assert np.array_equal(got, a @ b)
