"""The KernelPlan: a spec lowered for one arch, every number of the kernel in one frozen record."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tilegen.dataflow import (
    Barrier,
    Copy,
    Fragment,
    Fragments,
    MatrixDescriptor,
    Ownership,
    Pipeline,
    Role,
    SharedTile,
    shared_end,
)
from tilegen.entries import Access, Argument, Entry, Formula, TensorMap
from tilegen.hardware import Arch, Instruction
from tilegen.layout import Layout
from tilegen.spec import TileSpec

__all__ = [
    "Access",
    "Argument",
    "Barrier",
    "Budget",
    "Copy",
    "Entry",
    "Formula",
    "Fragment",
    "Fragments",
    "KernelPlan",
    "MatrixDescriptor",
    "Ownership",
    "Pipeline",
    "PlannedStep",
    "RegisterUse",
    "Role",
    "SharedTile",
    "TensorMap",
    "plain",
    "shared_end",
]


# How a note begins that says what became of a wish, or of a choice before the one that was taken.
_DEPARTS = re.compile(r"(thread|stages|split_k|instruction|form) ")


@dataclass(frozen=True)
class PlannedStep:
    """One step of the epilogue, as every backend spells it."""

    op: str
    along: str | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class RegisterUse:
    """Registers of one lane in one file: what they are for, and how many there can be.

    Attributes
    ----------
    file : str
    accumulators, operands, staging, addressing : int
        Sums kept, fragments live at once, data on its way to shared memory, and the rest.
    limit : int
        The most there can be, of the role where it sets its own number.
    role : str
        Whose registers: a role's name, ``"all"`` where every warp does the same.
    entry : str
        Of which entry; empty: the main ones, of which the one that takes the most counts.
    entries : mapping
        Registers predicted of single main entries, by their variant, where the form tells them apart.
    doubtful : bool
        Whether it may spill although it is not predicted to.
    """

    file: str
    accumulators: int
    operands: int
    staging: int
    addressing: int
    limit: int
    role: str = "all"
    entry: str = ""
    entries: Mapping[str, int] = field(default_factory=dict, hash=False)
    doubtful: bool = False

    @property
    def predicted(self) -> int:
        return self.accumulators + self.operands + self.staging + self.addressing

    @property
    def spills(self) -> bool:
        return self.predicted > self.limit

    @property
    def at_limit(self) -> bool:
        """Whether the prediction is the limit itself: a compiler would take more if it could."""
        return self.predicted == self.limit

    def of(self, variant: str) -> int:
        """What is predicted of the main entry of this variant; what would spill is told of all."""
        return self.predicted if self.spills else self.entries.get(variant, self.predicted)


@dataclass(frozen=True)
class Budget:
    """What the kernel costs, predicted.

    Attributes
    ----------
    registers : tuple of RegisterUse
        Per register file, and per role where roles differ.
    shared_bytes, shared_limit : int
        Of a main entry: tiles, barriers, and what aligning the first tile may take.
    private_bytes : int
        Memory of one thread beyond its registers, on purpose (packed panels of CPU forms).
    blocks_per_multiprocessor : int or None
    occupancy : float or None
        Share of the threads that a multiprocessor can hold.
    bound_by : str
        What bounds the occupancy.
    flop_per_shared_load : float
        Of the inner loop; 0 where nothing is loaded from shared memory.
    flop_per_global_byte : float
        Of one block's K step.
    """

    registers: tuple[RegisterUse, ...]
    shared_bytes: int
    shared_limit: int
    private_bytes: int = 0
    blocks_per_multiprocessor: int | None = None
    occupancy: float | None = None
    bound_by: str = ""
    flop_per_shared_load: float = 0.0
    flop_per_global_byte: float = 0.0


@dataclass(frozen=True)
class KernelPlan:
    """A spec lowered for one arch. ``print(plan)`` explains it; :meth:`to_json` keeps it.

    Attributes
    ----------
    backend, form, template : str
        Who builds it, in which way, from which text.
    warps : (int, int)
        Warps of a block along M and N, of those that compute.
    thread : (int, int)
        One lane's micro-tile of one pass; (1, 1) where a lane has no tile of its own.
    passes : (int, int)
        Micro-tiles of one lane along M and N.
    threads : int
        Per block, all roles.
    split_k : int
    ownership : mapping
        ``"a"`` onto (m, k), ``"b"`` onto (n, k), ``"c"`` onto (m, n) of the block tile. No lane
        owns an operand that the instruction reads from shared memory: it has no key.
    numbers : mapping
        What the form derived besides, by the name under which its template uses it.
    notes : tuple of str
        What was lowered or chosen, and why.
    group : (int, int) or None
        M and N of the tile of the warps that issue one instruction together (wgmma: four);
        ``None``: each warp issues its own.
    """

    spec: TileSpec
    backend: str
    arch: Arch
    form: str
    template: str
    name: str
    instruction: Instruction
    block: tuple[int, int, int]
    warp: tuple[int, int]
    warps: tuple[int, int]
    thread: tuple[int, int]
    passes: tuple[int, int]
    threads: int
    split_k: int
    fragments: Fragments
    ownership: Mapping[str, Ownership]
    shared: tuple[SharedTile, ...]
    copies: tuple[Copy, ...]
    pipeline: Pipeline
    epilogue: tuple[PlannedStep, ...]
    entries: tuple[Entry, ...]
    budget: Budget
    numbers: Mapping[str, int | str | bool] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    group: tuple[int, int] | None = None

    def __hash__(self) -> int:
        return hash((self.name, self.spec.digest, self.arch.name))

    def entry(self, name: str) -> Entry:
        """The entry with this name."""
        return next(entry for entry in self.entries if entry.name == name)

    @property
    def departures(self) -> tuple[str, ...]:
        """The notes of what was planned otherwise than the spec, or the order of preference, says."""
        return tuple(note for note in self.notes if _DEPARTS.match(note))

    @property
    def remarks(self) -> tuple[str, ...]:
        """The notes that depart from nothing."""
        return tuple(note for note in self.notes if not _DEPARTS.match(note))

    @property
    def main_entries(self) -> tuple[Entry, ...]:
        """The entries a launch chooses from, in order of preference."""
        return tuple(entry for entry in self.entries if entry.role == "main")

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain data, ready for JSON."""
        data = {f.name: plain(getattr(self, f.name)) for f in dataclasses.fields(self)}
        data["spec"] = self.spec.model_dump(mode="json", exclude_defaults=True)
        data["arch"] = self.arch.name
        data["instruction"] = {
            "name": self.instruction.name,
            "mnemonic": self.instruction.mnemonic,
            "tile": [self.instruction.m, self.instruction.n, self.instruction.k],
            "lanes": self.instruction.lanes,
        }
        return data

    def to_json(self) -> str:
        """The plan as JSON."""
        return json.dumps(self.to_dict(), indent=2)

    def __str__(self) -> str:
        from tilegen.report import plan_text

        return plan_text(self)


def plain(value: Any) -> Any:
    """A record of the plan as plain data, ready for JSON."""
    if isinstance(value, Formula):
        return value.text
    if isinstance(value, Layout):
        return {"shape": list(value.shape), "stride": list(value.stride)}
    if isinstance(value, Entry):
        return {**_fields(value), "symbol": value.symbol}
    if isinstance(value, RegisterUse):
        return {**_fields(value), "predicted": value.predicted, "at_limit": value.at_limit}
    if isinstance(value, SharedTile):
        return {**_fields(value), "bytes": value.bytes}
    if isinstance(value, (TileSpec, Arch, Instruction)):
        return None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _fields(value)
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    return value


def _fields(record: Any) -> dict[str, Any]:
    return {f.name: plain(getattr(record, f.name)) for f in dataclasses.fields(record)}
