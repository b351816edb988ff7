"""The C++ host program of examples/07_cuda_host, built by nvcc with the emitted texts, on a GPU."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import tilegen as tg
from tilegen import registry
from tilegen_cuda.nvcc import found

EXAMPLE = Path(__file__).parents[2] / "examples" / "07_cuda_host"
GPUS = list(registry.get("cuda").devices())
MISSING = (
    "no CUDA GPU was found (tilegen targets)"
    if not GPUS
    else ""
    if found()
    else "no nvcc is here (it comes with the CUDA toolkit)"
)


@pytest.mark.device
@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_the_host_program_runs_both_kernels(tmp_path: Path) -> None:
    nvcc, arch = found(), GPUS[0].arch.name
    assert nvcc is not None
    mains = set()
    for name in ("product", "deep"):
        source = tg.emit(tg.lower(tg.TileSpec.from_file(EXAMPLE / f"{name}.toml"), "cuda", arch))
        mains |= {entry.name for entry in source.plan.main_entries}
        (tmp_path / f"{name}.cu").write_text(source.text)
        (tmp_path / f"{name}.h").write_text(registry.get("cuda").launch_header(source))
    command = [nvcc.path, "-std=c++17", f"-arch={arch}", "-I", str(tmp_path)]
    subprocess.run([*command, str(EXAMPLE / "host.cu"), "-o", str(tmp_path / "host")], check=True)
    done = subprocess.run([tmp_path / "host"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    *lines, last = done.stdout.splitlines()
    assert last == "ok"
    assert {line.split(" by ")[1].split()[0] for line in lines} == {*mains, "nothing"}
    assert all(line.endswith("max error 0") for line in lines)
