"""The KernelPlan: a spec lowered for one arch, every number of the kernel in one frozen record."""

from __future__ import annotations

import ast
import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tilegen.hardware import Arch, Instruction
from tilegen.layout import FragmentLayout, Layout
from tilegen.spec import TileSpec

if TYPE_CHECKING:
    from types import CodeType


@dataclass(frozen=True)
class Formula:
    """An integer expression in the names of a launch, written so that C and Python agree.

    ``/`` divides whole numbers that are not negative, rounding down.
    """

    text: str

    @cached_property
    def _code(self) -> CodeType:
        tree = ast.parse(self.text, mode="eval")
        for node in ast.walk(tree):
            allowed = (ast.Expression, ast.BinOp, ast.Name, ast.Load, ast.Constant, ast.operator)
            if not isinstance(node, allowed):
                raise ValueError(f"{self.text!r} is not plain arithmetic")
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
                node.op = ast.FloorDiv()
        return compile(tree, "<formula>", "eval")

    def __call__(self, **names: int) -> int:
        return int(eval(self._code, {"__builtins__": {}}, names))

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Fragment:
    """One operand as a warp holds it.

    Attributes
    ----------
    rows, cols : int
        Fragments per warp along the operand's two axes (A: m, k; B: n, k; C: m, n).
    elements : int
        Elements of one fragment that each lane holds.
    registers : int
        Registers that each lane needs for what is live at once.
    tile : (int, int)
        Rows and columns of one fragment, in elements.
    """

    rows: int
    cols: int
    elements: int
    registers: int
    tile: tuple[int, int]


@dataclass(frozen=True)
class Fragments:
    """Fragment counts for A, B and C."""

    a: Fragment
    b: Fragment
    c: Fragment


@dataclass(frozen=True)
class Ownership:
    """Who owns which element of one tile: (warp, lane, register) -> (row, col).

    Parameters
    ----------
    rows, cols : int
        The block tile; the layouts' index is ``row + rows * col``.
    warp, lane, register : Layout
        The three digits of the map.
    copies : int
        How many owners each element has: more than 1 where warps share an operand's rows.
    """

    rows: int
    cols: int
    warp: Layout
    lane: Layout
    register: Layout
    copies: int = 1

    @cached_property
    def _map(self) -> FragmentLayout:
        lanes = Layout.concat(self.lane, self.warp)
        return FragmentLayout(self.rows, self.cols, lanes, self.register, self.copies)

    def element(self, warp: int, lane: int, register: int) -> tuple[int, int]:
        """Row and column, within the block tile, of what this register holds."""
        return self._map(lane + self.lane.size * warp, register)

    def owners(self, row: int, col: int) -> list[tuple[int, int, int]]:
        """Every (warp, lane, register) that holds the element."""
        held = self._map.owners[row, col]
        return [(thread // self.lane.size, thread % self.lane.size, r) for thread, r in held]

    def is_complete(self) -> bool:
        """Whether every element of the tile has exactly ``copies`` owners."""
        return self._map.is_complete()


@dataclass(frozen=True)
class SharedTile:
    """One operand's tile in shared memory.

    Attributes
    ----------
    operand : str
        ``"a"``, ``"b"``, ``"d"`` (an epilogue's), or what else is staged.
    rows, cols : int
        Extents in elements; the column is contiguous.
    row_stride : int
        Elements from one row to the next, padding included.
    stages : int
        How many copies of the tile there are.
    element_bytes : int
    swizzle : str
        ``"none"``, ``"pad"``, or ``"xor"``: vector index ^= (row / swizzle_rows) & swizzle_mask.
    swizzle_rows, swizzle_mask, vector : int
        The numbers of the XOR, in vectors of ``vector`` elements.
    alignment : int
        Bytes that the first element's address must be a multiple of.
    store_conflicts, load_conflicts : int
        Extra cycles per warp access, by the layout.
    """

    operand: str
    rows: int
    cols: int
    row_stride: int
    stages: int
    element_bytes: int
    swizzle: str = "none"
    swizzle_rows: int = 1
    swizzle_mask: int = 0
    vector: int = 1
    alignment: int = 16
    store_conflicts: int = 0
    load_conflicts: int = 0

    @property
    def stage_bytes(self) -> int:
        return self.rows * self.row_stride * self.element_bytes

    @property
    def bytes(self) -> int:
        """All stages together."""
        return self.stage_bytes * self.stages

    def offset(self, row: int, col: int) -> int:
        """Where the element lies in its stage, in elements."""
        vector, within = divmod(col, self.vector)
        vector ^= (row // self.swizzle_rows) & self.swizzle_mask
        return row * self.row_stride + vector * self.vector + within


@dataclass(frozen=True)
class Copy:
    """One operand's way from one memory to another.

    Attributes
    ----------
    operand, source, target : str
        Memories: ``"global"``, ``"shared"``, ``"private"``, ``"register"``, ``"workspace"``.
    mechanism : str
        ``"vector_load"``, ``"cp_async"``, ``"tma"``, ``"ldmatrix"``, ...
    elements : int
        Elements of one access where the entry allows it.
    accesses : int
        Accesses per thread for one K step (per tile for an epilogue's).
    contiguous : str
        The axis along which the source is contiguous (``"m"``, ``"n"`` or ``"k"``).
    box : tuple of int
        The tile of one bulk copy; empty for per-thread copies.
    transposes : bool
        Whether the copy turns the tile.
    """

    operand: str
    source: str
    target: str
    mechanism: str
    elements: int
    accesses: int
    contiguous: str
    box: tuple[int, ...] = ()
    transposes: bool = False


@dataclass(frozen=True)
class Role:
    """What some warps of a block do (``"all"`` where every warp does the same)."""

    name: str
    warps: int
    registers: int | None = None


@dataclass(frozen=True)
class Pipeline:
    """How copies and arithmetic overlap.

    ``stages`` tiles are in flight; ``waits`` says by what a stage is known to be full
    (``"barrier"``, ``"cp_async_group"``, ``"mbarrier"``, ``"none"``).
    """

    stages: int
    waits: str
    roles: tuple[Role, ...] = (Role("all", 1),)
    cluster: tuple[int, int] = (1, 1)
    persistent: bool = False


@dataclass(frozen=True)
class Argument:
    """One argument of an entry.

    Attributes
    ----------
    name : str
        As in the text; launches are resolved by it.
    type : str
        Element type of a pointer, ``"i64"`` for sizes and strides, or the type of a scalar.
    kind : str
        ``"size"``, ``"scalar"``, ``"input"``, ``"output"``, ``"offset"``, ``"stride"``,
        ``"workspace"`` or ``"descriptor"``.
    operand : str
        Whose argument it is (``"a"``, ``"d"``, ``"bias"``); empty for sizes and scalars.
    """

    name: str
    type: str
    kind: str
    operand: str = ""

    @property
    def is_pointer(self) -> bool:
        return self.kind in ("input", "output", "workspace")


@dataclass(frozen=True)
class Access:
    """What an entry asks of one operand before it may run.

    Attributes
    ----------
    operand : str
    elements : int
        Width of its accesses, in elements.
    alignment : int
        Bytes that the address of the first element must be a multiple of.
    stride_multiple : int
        Elements that the leading dimension and the batch stride must be multiples of.
    unit_step : bool
        Whether neighbours on the contiguous axis must be neighbours in memory (no broadcast).
    extent_limit : int or None
        The largest extent on any axis.
    """

    operand: str
    elements: int
    alignment: int
    stride_multiple: int = 1
    unit_step: bool = True
    extent_limit: int | None = None


@dataclass(frozen=True)
class Entry:
    """One entry point of a source.

    Attributes
    ----------
    name : str
        Its symbol.
    role : str
        ``"main"``, ``"reduce"`` or ``"pack"``.
    variant : str
        What tells it from its sisters (``"wide"``, ``"narrow"``).
    arguments : tuple of Argument
    accesses : tuple of Access
        The condition under which it runs; the first main entry whose condition holds is taken.
    grid : Formula
        Blocks, in ``M``, ``N``, ``K``, ``batch`` and ``split_k``.
    block : int
        Threads per block.
    shared_bytes : int
    workspace : Formula
        Bytes of workspace that it reads or writes.
    before, after : tuple of str
        Entries launched with it, in order: packs before, reductions after.
    """

    name: str
    role: str
    variant: str
    arguments: tuple[Argument, ...]
    accesses: tuple[Access, ...]
    grid: Formula
    block: int
    shared_bytes: int = 0
    workspace: Formula = Formula("0")
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


@dataclass(frozen=True)
class PlannedStep:
    """One step of the epilogue, as every backend spells it."""

    op: str
    along: str | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class RegisterUse:
    """Registers of one lane in one file: what they are for, and how many there can be."""

    file: str
    accumulators: int
    operands: int
    staging: int
    addressing: int
    limit: int

    @property
    def predicted(self) -> int:
        return self.accumulators + self.operands + self.staging + self.addressing

    @property
    def spills(self) -> bool:
        return self.predicted > self.limit


@dataclass(frozen=True)
class Budget:
    """What the kernel costs, predicted.

    Attributes
    ----------
    registers : tuple of RegisterUse
        Per register file.
    shared_bytes, shared_limit : int
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
        Warps of a block along M and N.
    thread : (int, int)
        One lane's micro-tile of one pass; (1, 1) where a lane has no tile of its own.
    passes : (int, int)
        Micro-tiles of one lane along M and N.
    split_k : int
    ownership : mapping
        ``"a"`` onto (m, k), ``"b"`` onto (n, k), ``"c"`` onto (m, n) of the block tile.
    numbers : mapping
        What the form derived besides, by the name under which its template uses it.
    notes : tuple of str
        What was lowered or chosen, and why.
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

    def __hash__(self) -> int:
        return hash((self.name, self.spec.digest, self.arch.name))

    def entry(self, name: str) -> Entry:
        """The entry with this name."""
        return next(entry for entry in self.entries if entry.name == name)

    @property
    def main_entries(self) -> tuple[Entry, ...]:
        """The entries a launch chooses from, in order of preference."""
        return tuple(entry for entry in self.entries if entry.role == "main")

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain data, ready for JSON."""
        data = {f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self)}
        data["spec"] = self.spec.model_dump(mode="json", exclude_defaults=True)
        data["arch"] = self.arch.name
        data["instruction"] = {
            "name": self.instruction.name,
            "mnemonic": self.instruction.mnemonic,
            "tile": [self.instruction.m, self.instruction.n, self.instruction.k],
        }
        return data

    def to_json(self) -> str:
        """The plan as JSON."""
        return json.dumps(self.to_dict(), indent=2)

    def __str__(self) -> str:
        from tilegen.report import plan_text

        return plan_text(self)


def _plain(value: Any) -> Any:
    if isinstance(value, Formula):
        return value.text
    if isinstance(value, Layout):
        return {"shape": list(value.shape), "stride": list(value.stride)}
    if isinstance(value, RegisterUse):
        return {**_fields(value), "predicted": value.predicted}
    if isinstance(value, SharedTile):
        return {**_fields(value), "bytes": value.bytes}
    if isinstance(value, (TileSpec, Arch, Instruction)):
        return None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _fields(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    return value


def _fields(record: Any) -> dict[str, Any]:
    return {f.name: _plain(getattr(record, f.name)) for f in dataclasses.fields(record)}
