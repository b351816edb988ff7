"""compute-sanitizer finds nothing in the kernels of every form and type on small problems."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tilegen import registry

PROBLEMS = Path(__file__).parent / "sanitizer_problems.py"
MISSING = (
    "no CUDA GPU is here"
    if not registry.get("cuda").devices()
    else ""
    if shutil.which("compute-sanitizer")
    else "compute-sanitizer is not on the path (it comes with the CUDA toolkit)"
)


@pytest.mark.skipif(bool(MISSING), reason=MISSING)
@pytest.mark.parametrize(
    ("tool", "copy"),
    # Why initcheck sees copies through registers alone: sanitizer_problems.
    [("memcheck", []), ("racecheck", []), ("synccheck", []), ("initcheck", ["registers"])],
)
def test_the_tool_finds_nothing(tool: str, copy: list[str]) -> None:
    command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", sys.executable]
    done = subprocess.run(
        [*command, str(PROBLEMS), *copy], capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "problems solved" in done.stdout
