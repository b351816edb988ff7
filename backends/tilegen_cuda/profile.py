"""Nsight Compute: how busy the multiprocessors were, of one launch of an entry.

``python -m tilegen_cuda.profile FILE`` is what it profiles: one call of the kernel that a file names.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tilegen.backend import runs
from tilegen.checklist.support import Profile
from tilegen.render import KernelSource

# Nsight Compute's names (Kernel Profiling Guide, Metrics Reference), by the item that a check shows.
METRICS = {
    "issue utilisation": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "warps resident": "sm__warps_active.avg.pct_of_peak_sustained_active",
}
TOOL_VARIABLE = "TILEGEN_NCU"
TOOL_PLACES = ("/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu")
NO_TOOL = (
    f"no ncu: install Nsight Compute (it comes with the CUDA toolkit) or name it by {TOOL_VARIABLE}"
)
SECONDS = 300
# Block tiles along M and N, and steps in K: enough for every multiprocessor to have a few.
TILES, STEPS = 32, 64


def find_tool() -> str | None:
    """The profiler: named by ``TILEGEN_NCU``, on the path, or where the toolkit puts it."""
    named = os.environ.get(TOOL_VARIABLE)
    if named:
        return shutil.which(named)
    if found := shutil.which("ncu"):
        return found
    places = (p for place in TOOL_PLACES for p in sorted(Path("/").glob(place[1:]), reverse=True))
    return next((str(p) for p in places if os.access(p, os.X_OK)), None)


def command(tool: str, symbol: str, file: str) -> list[str]:
    """The profiler's command line for one launch of a kernel."""
    return [
        tool, "--csv", "--page", "raw", "--print-units", "base", "--target-processes", "all",
        "--kernel-name-base", "function", "--kernel-name", symbol, "--launch-count", "1",
        "--metrics", ",".join(METRICS.values()),
        sys.executable, "-m", "tilegen_cuda.profile", file,
    ]  # fmt: skip


def profile(source: KernelSource, name: str) -> Profile:
    """Profile one launch of an entry on the first device that runs its arch."""
    from .device import devices

    device = next((d for d in devices() if runs(d, source.plan.arch)), None)
    if device is None:
        return Profile(reason=f"no device that runs {source.plan.arch.name} is here")
    tool = find_tool()
    if tool is None:
        return Profile(reason=NO_TOOL)
    about = {
        "spec": source.plan.spec.model_dump(mode="json", exclude_defaults=True),
        "arch": source.plan.arch.name,
        "entry": name,
        "device": device.selector,
    }
    with tempfile.TemporaryDirectory(prefix="tilegen-") as folder:
        file = Path(folder) / "launch.json"
        file.write_text(json.dumps(about), encoding="utf-8")
        call = command(tool, source.plan.entry(name).symbol, str(file))
        try:
            done = subprocess.run(call, capture_output=True, text=True, timeout=SECONDS)
        except (OSError, subprocess.SubprocessError) as error:
            return Profile(reason=f"{tool} does not run: {error}")
    said = metrics_of(done.stdout)
    if not said:
        return Profile(reason=f"{_complaint(done.stdout + done.stderr)}")
    return Profile(said, device.name)


def metrics_of(output: str) -> dict[str, float]:
    """The metrics of the first kernel in the profiler's CSV, by item; empty where there is none.

    Two lines stand before the values: names and units. What begins with ``==`` is talk.
    """
    rows = list(csv.reader(x for x in output.splitlines() if x and not x.startswith("==")))
    head = next((i for i, row in enumerate(rows) if "Kernel Name" in row), None)
    if head is None or len(rows) < head + 3:
        return {}
    values = dict(zip(rows[head], rows[head + 2], strict=False))
    out = {}
    for item, metric in METRICS.items():
        try:
            out[item] = float(values[metric].replace(",", ""))
        except (KeyError, ValueError):
            continue
    return out


def _complaint(output: str) -> str:
    """What the profiler says is wrong, with what helps where that is known."""
    lines = [x.strip("= ") for x in output.splitlines() if "==ERROR==" in x or "==WARNING==" in x]
    if "ERR_NVGPUCTRPERM" in output:
        return (
            "ncu may not read the device's counters: run as root, or load the driver with "
            "NVreg_RestrictProfilingToAdminUsers=0 (ERR_NVGPUCTRPERM)"
        )
    return (lines or output.strip().splitlines()[-1:] or ["ncu says nothing"])[0]


def launch(file: str) -> None:
    """The profiled program: one call of an entry, on a problem that fills the device."""
    from tilegen.build import compile, find_device
    from tilegen.kernel import Kernel
    from tilegen.lower import lower
    from tilegen.render import emit
    from tilegen.spec import TileSpec
    from tilegen.testing import Problem, make_arrays

    from .backend import CudaBackend
    from .counting import only

    about = json.loads(Path(file).read_text(encoding="utf-8"))
    spec, backend = TileSpec.from_dict(about["spec"]), CudaBackend()
    device = find_device(backend, backend.archs[about["arch"]], about["device"])
    binary = compile(emit(lower(spec, backend.name, about["arch"])), device=device)
    kernel = Kernel(only(binary, about["entry"]), device, device.load(binary))
    bm, bn, bk = spec.block
    batch = 1 if spec.batch == "strided" else None
    arrays = make_arrays(Problem(bm * TILES, bn * TILES, bk * STEPS, batch), spec)
    # The result is brought back to the host, so the launch is done when the call returns.
    extras: dict[str, Any] = dict(arrays.extras)
    kernel(arrays.a, arrays.b, out=arrays.out, **extras)


if __name__ == "__main__":
    launch(sys.argv[1])
