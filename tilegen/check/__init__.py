"""Checking: every number of the self-check list, predicted by the plan, measured and judged.

A spec goes through the compiler, the emulator that counts, and a profiler where there is one; a
kernel that tilegen did not write through the compiler, the emulator and the contract.
"""

from __future__ import annotations

from typing import Any

from tilegen.check.lines import CheckReport, Line, Suggestion
from tilegen.check.spec import check_spec
from tilegen.errors import require
from tilegen.hardware import Arch
from tilegen.spec import TileSpec

__all__ = ["CheckReport", "Line", "Suggestion", "check"]


def check(
    what: TileSpec,
    backend: str,
    arch: str | Arch | None = None,
    **options: Any,
) -> CheckReport:
    """x"""
    require("check", what, TileSpec)
    return check_spec(what, backend, arch, **options)
