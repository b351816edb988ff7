"""The ten kernels of examples/05_emulator: right and clean in every order and under the race detector."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).parents[2] / "examples" / "05_emulator"
sys.path.append(str(HERE))
ladder = __import__("ladder")


def test_every_kernel_has_a_launch() -> None:
    assert sorted(ladder.LAUNCHES) == sorted(path.stem for path in HERE.glob("*.cu"))


@pytest.mark.parametrize("name", sorted(ladder.LAUNCHES))
def test_kernel_is_right_and_clean(name: str) -> None:
    run, want = ladder.launch(name, orders=(0, 1, 2, 3))
    assert run.clean, run
    np.testing.assert_array_equal(run.arrays[2], want)
    assert set(run.seconds) == {"forward", "reverse", "seed 2", "seed 3", "races"}


@pytest.mark.parametrize(
    ("name", "sizes"), [("01_naive", (33, 17, 5)), ("03_shared", (45, 70, 39))]
)
def test_tails(name: str, sizes: tuple[int, int, int]) -> None:
    run, want = ladder.launch(name, sizes=sizes)
    assert run.clean, run
    np.testing.assert_array_equal(run.arrays[2], want)


def text(name: str) -> str:
    return (HERE / f"{name}.cu").read_text()


def without(name: str, what: str, occurrence: int) -> str:
    """The text with one occurrence of a statement left out; the lines stay."""
    parts = text(name).split(what)
    assert len(parts) > occurrence + 1
    return (
        what.join(parts[: occurrence + 1]) + what.join(["", *parts[occurrence + 1 :]])[len(what) :]
    )


SYNC = "__syncthreads();"


@pytest.mark.parametrize("occurrence", [0, 1])
@pytest.mark.parametrize(
    "name", [n for n in sorted(ladder.LAUNCHES) if n > "03" and n != "10_split_k"]
)
def test_each_barrier_is_needed(name: str, occurrence: int) -> None:
    run, _ = ladder.launch(name, without(name, SYNC, occurrence), orders=(0,))
    races = [f for f in run.findings if f.kind == "data-race"]
    assert races, run
    assert all(f.line and f.other_line for f in races)


@pytest.mark.parametrize(
    "change",
    [
        ("__pipeline_wait_prior(1);", "__pipeline_wait_prior(2);"),
        ("__pipeline_wait_prior(1);", ""),
        ("fetch(stages[(k0 / BK + 1) % STAGES]", "fetch(stages[k0 / BK % STAGES]"),
    ],
    ids=["count off by one", "no wait", "the same stage"],
)
def test_double_buffer_faults(change: tuple[str, str]) -> None:
    name = "08_double_buffered"
    run, want = ladder.launch(name, text(name).replace(*change))
    assert any(f.kind == "data-race" and "races" in f.runs for f in run.findings), run
    assert not np.array_equal(run.arrays[2], want), "late copies show in the result as well"


def test_split_k_without_its_fences() -> None:
    name = "10_split_k"
    run, _ = ladder.launch(name, text(name).replace("__threadfence();", ""))
    assert any(f.kind == "data-race" and "block" in f.message for f in run.findings), run


def test_wmma_fragment_loaded_by_half_a_warp() -> None:
    name = "09_wmma"
    whole = "for (int j = 0; j < 2; ++j) wmma::load"
    run, _ = ladder.launch(name, text(name).replace(whole, f"if (threadIdx.x % 32 < 16) {whole}"))
    assert any(f.kind == "divergent-collective" for f in run.findings), run
