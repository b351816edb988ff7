"""tilegen: one neutral tile description, lowered to readable, checked matrix-product kernels."""

from __future__ import annotations

from tilegen import interrupt as _interrupt  # noqa: F401 (first: the others take a while)
from tilegen.build import KernelBinary, build, compile, load, save
from tilegen.checklist import CheckReport, check
from tilegen.choose import Choice, choices, choose
from tilegen.errors import (
    BackendError,
    CompileError,
    EmitError,
    LaunchError,
    PlanError,
    SpecError,
    TilegenError,
    TilegenWarning,
    VerifyError,
)
from tilegen.hardware import Arch, Instruction
from tilegen.kernel import Kernel, Prepared
from tilegen.layout import FragmentLayout, Layout
from tilegen.lower import lower
from tilegen.plan import Entry, KernelPlan
from tilegen.render import KernelSource, emit
from tilegen.spec import TileSpec, json_schema
from tilegen.sweep import Sweep, sweep
from tilegen.verify import Report, verify

__all__ = [
    "Arch",
    "BackendError",
    "CheckReport",
    "Choice",
    "CompileError",
    "EmitError",
    "Entry",
    "FragmentLayout",
    "Instruction",
    "Kernel",
    "KernelBinary",
    "KernelPlan",
    "KernelSource",
    "LaunchError",
    "Layout",
    "PlanError",
    "Prepared",
    "Report",
    "SpecError",
    "Sweep",
    "TileSpec",
    "TilegenError",
    "TilegenWarning",
    "VerifyError",
    "build",
    "check",
    "choices",
    "choose",
    "compile",
    "emit",
    "json_schema",
    "load",
    "lower",
    "save",
    "sweep",
    "verify",
]
