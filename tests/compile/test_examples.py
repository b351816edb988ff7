"""Every numbered example runs as it stands."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
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


@pytest.mark.skipif(find_spec("torch") is None, reason="no torch: pip install torch")
@pytest.mark.parametrize("opencl", [pytest.param(True, marks=needs_cpu), False])
def test_torch_op(opencl: bool) -> None:
    without = (
        "from tilegen import registry; registry.get('opencl').__class__.devices = lambda s: []; "
    )
    run = subprocess.run(
        [
            sys.executable,
            "-c",
            ("" if opencl else without)
            + f"import runpy; runpy.run_path({str(EXAMPLES / '06_torch_op.py')!r}, run_name='__main__')",
        ],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr
    said = run.stdout.splitlines()
    assert said[0].endswith("equal to torch's product")
    assert said[1:] == [
        "torch.compile, one graph: the gradient is torch's",
        "gradcheck in f64: passed",
    ]


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
