"""Every numbered example runs as it stands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tilegen as tg
from tilegen import registry

EXAMPLES = Path(__file__).parents[2] / "examples"
needs_cpu = pytest.mark.skipif(
    not registry.get("opencl").devices(), reason="no OpenCL device: pip install 'tilegen[cpu]'"
)


@needs_cpu
def test_quickstart() -> None:
    run = subprocess.run(
        [sys.executable, str(EXAMPLES / "01_quickstart.py")],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr
    assert "50 problems" in run.stdout


@needs_cpu
def test_property_test() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", str(EXAMPLES / "04_property_test.py")],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=EXAMPLES.parent,
    )
    assert run.returncode == 0, run.stdout
    assert "1 passed" in run.stdout


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda p: p.name)
@pytest.mark.parametrize("arch", ["cpu", "gpu"])
def test_specs_lower_and_emit_quickly(path: Path, arch: str) -> None:
    spec = tg.TileSpec.from_file(path)
    assert tg.TileSpec.from_toml(spec.to_toml()) == spec
    assert spec.digest in tg.emit(tg.lower(spec, "opencl", arch)).text


@needs_cpu
@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda p: p.name)
def test_specs_verify(path: Path) -> None:
    tg.verify(tg.TileSpec.from_file(path), backend="opencl", arch="cpu", examples=15)
