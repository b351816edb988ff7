"""What stands beside the numbers: versions, the machine's load, what a kernel was planned to take."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from tilegen.backend import Peer, Workbench
from tilegen.bench.host import processor
from tilegen.bench.numpy_peer import pins
from tilegen.kernel import Kernel

# Above this load somebody else used the processor within the last minute.
QUIET_LOAD = 0.5


def versions(bench: Workbench) -> dict[str, str]:
    """Of tilegen, Python, the system, the processor and what the workbench rests on."""
    try:
        own = version("tilegen")
    except PackageNotFoundError:
        own = "not installed"
    return {
        "tilegen": own,
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": f"{processor()}, {os.cpu_count()} processors",
        **bench.versions,
    }


def notes(peers: Sequence[Peer], load: float) -> list[str]:
    """What a reader must know before believing the numbers."""
    out = [peer.missing for peer in peers if peer.missing]
    if any(peer.name == "NumPy" for peer in peers) and pins():
        out.append(f"NumPy's OpenBLAS is held to a core type by {', '.join(pins())}: no fair peer")
    if load > QUIET_LOAD:
        out.append(f"the machine was busy: a load of {load:.1f} when the run began")
    return out


def load() -> float:
    """Processes that want to run, over the last minute; 0 where the system does not say."""
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):
        return 0.0


def _known(said: dict[str, Any]) -> dict[str, Any]:
    extra = said.pop("extra")
    return {key: value for key, value in {**said, **extra}.items() if value is not None}


def kernel_facts(kernel: Kernel, entry: str) -> dict[str, Any]:
    """The spec, and what the plan predicted beside what the compiler said of the entry that ran."""
    plan, said = kernel.plan, kernel.binary.resources.get(entry)
    return {
        "name": plan.name,
        "spec": plan.spec.model_dump(mode="json", exclude_defaults=True),
        "spec_sha256": plan.spec.digest,
        "form": plan.form,
        "entries": [entry] if entry else [],
        "registers": {
            use.file: {"predicted": use.predicted, "limit": use.limit}
            for use in plan.budget.registers
        },
        "predicted_private_bytes": plan.budget.private_bytes,
        "measured": {} if said is None else _known(asdict(said)),
        "compiler": str(kernel.binary.toolchain),
    }
