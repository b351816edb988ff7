"""NumPy and the BLAS inside it as a peer on the CPU."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from tilegen.spec import Layouts, Types

# OpenBLAS takes an old core's kernels, or the wrong blocking, where these are set.
PINS = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")


def pins() -> list[str]:
    """The variables of this process that hold OpenBLAS to a core type."""
    return [name for name in PINS if name in os.environ]


class NumpyPeer:
    """``numpy.matmul``: f32 and f64 go to BLAS, and NumPy multiplies nothing else fast."""

    name = "NumPy"
    missing = ""

    @property
    def description(self) -> Mapping[str, str]:
        return {"numpy": np.__version__, **blas(), **{pin: os.environ[pin] for pin in pins()}}

    def refusal(self, types: Types) -> str:
        kinds = {types.a, types.b, types.acc, types.d}
        if len(kinds) == 1 and kinds <= {"f32", "f64"}:
            return ""
        return f"NumPy has BLAS for f32 and f64 alone, not for {types.a}"

    def accumulator(self, types: Types) -> str:
        return types.acc

    def prepare(
        self, a: Any, b: Any, out: Any, types: Types, layout: Layouts
    ) -> Callable[[], object]:
        return partial(_multiply, a, b, out)


def _multiply(a: Any, b: Any, out: Any) -> None:
    # Done when it returns: there is nothing to wait for.
    np.matmul(a, b, out=out)


def blas() -> dict[str, str]:
    """Name, version, threads and core type of NumPy's BLAS, as far as they can be told."""
    try:
        from threadpoolctl import threadpool_info
    except ImportError:
        built: Any = np.show_config(mode="dicts")
        found = built.get("Build Dependencies", {}).get("blas", {})
        return {
            "blas": f"{found.get('name', 'unknown')} {found.get('version', '')}".strip(),
            "threads": "unknown: python -m pip install threadpoolctl",
        }
    pools = [p for p in threadpool_info() if p["user_api"] == "blas"]
    if not pools:
        return {"blas": "unknown to threadpoolctl"}
    first = pools[0]
    return {
        "blas": f"{first['internal_api']} {first.get('version') or ''}".strip(),
        "threads": str(first["num_threads"]),
        "core type": str(first.get("architecture", "unknown")),
    }
