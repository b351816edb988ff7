"""The emulator in the device's place, so that docs/fidelity.py can be tried on a machine without a GPU."""

from __future__ import annotations

from typing import Any

from emulated.faults import corpus

from tilegen import emulator
from tilegen.errors import CompileError


def run_dry(text: corpus.Text) -> dict[str, Any]:
    """What a device would answer, from two orders of threads."""
    out: dict[str, Any] = {"launches": 0, "right": 0, "digests": {}}
    kernel, operands = text.kernel, text.kernel.operands
    for order in (0, 2):
        try:
            done = emulator.run(
                text.text, entry=kernel.entry, grid=kernel.grid, block=kernel.block, args=operands.args,
                shared_bytes=kernel.shared, orders=(order,), races=False, timeout=4.0, loop_seconds=0.5,
            )  # fmt: skip
        except CompileError as error:
            return out | {"error": "not-compiled", "said": str(error)}
        kinds = {found.kind for found in done.findings}
        if kinds & {"deadlock", "endless-loop"}:
            return out | {"error": "timeout"}
        if "out-of-bounds" in kinds:
            return out | {"error": "CUDA_ERROR_ILLEGAL_ADDRESS"}
        out["launches"] += 1
        out["right"] += corpus.same(done.arrays, operands.expected)
        digest = corpus.digest_of(done.arrays)
        out["digests"][digest] = out["digests"].get(digest, 0) + 1
    return out
