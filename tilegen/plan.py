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


# "//" starts a comment in C and "**" is no operator there, so neither is allowed.
_FORMULA_NODES = (
    ast.Expression, ast.BinOp, ast.Name, ast.Load, ast.Constant,
    ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Mod,
)  # fmt: skip


@dataclass(frozen=True)
class Formula:
    """An integer expression in the names of a launch, written so that C and Python agree.

    ``+ - * / %`` and parentheses; ``/`` divides whole numbers that are not negative, rounding
    down. Names: ``M``, ``N``, ``K``, ``batch``, ``split_k``, ``multiprocessors`` (of the device)
    and those of the launch's strides (``lda``, ``a_batch_stride``).

    Raises
    ------
    ValueError
        For anything that C would read otherwise than Python, or not at all.
    """

    text: str

    def __post_init__(self) -> None:
        _ = self._code

    @cached_property
    def _code(self) -> CodeType:
        try:
            tree = ast.parse(self.text, mode="eval")
        except SyntaxError:
            raise ValueError(f"{self.text!r} is not an expression") from None
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and type(node.value) is not int:
                raise ValueError(f"{self.text!r} holds {node.value!r}, which is no integer")
            if not isinstance(node, _FORMULA_NODES):
                raise ValueError(f"{self.text!r} is not plain arithmetic")
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
                node.op = ast.FloorDiv()
        return compile(tree, "<formula>", "eval")

    def __reduce__(self) -> tuple[type[Formula], tuple[str]]:
        return Formula, (self.text,)  # compiled code cannot be pickled

    def __call__(self, **names: int) -> int:
        return int(eval(self._code, {"__builtins__": {}}, names))

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Fragment:
    """One operand as a warp holds it (as a group of warps does, where ``plan.group`` is set).

    Attributes
    ----------
    rows, cols : int
        Fragments per warp along the operand's two axes (A: m, k; B: n, k; C: m, n).
    elements : int
        Elements of one fragment that each lane holds; 0 where the instruction reads shared memory.
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
        The three digits of the map. Warps are counted among those that compute: the first of them
        is warp ``pipeline.first_compute_warp`` of the block.
    copies : int
        How many owners each element has: more than 1 where warps share an operand's rows or the
        instruction holds an operand twice (RDNA3).
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
class MatrixDescriptor:
    """How an instruction that reads shared memory itself (wgmma) is told where a tile lies.

    Attributes
    ----------
    major : str
        ``"k"`` or ``"mn"``: the contiguous axis of the tile.
    mode : int
        Swizzle: 0 none, 1 128 bytes, 2 64 bytes, 3 32 bytes.
    leading_bytes, stride_bytes : int
        LBO and SBO; an LBO of 0 stands for one that this mode does not use.
    step_bytes : int
        What one instruction's step in k adds to the start address.
    """

    major: str
    mode: int
    leading_bytes: int
    stride_bytes: int
    step_bytes: int


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
        Elements from one row to the next, padding included (within a panel, where there are any).
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
    contiguous : str
        The axis that the columns run along (``"k"``, ``"m"`` or ``"n"``).
    start : int
        Byte offset of the first stage in the block's shared memory.
    panel_cols : int or None
        Columns of one panel, where the tile is stored panel after panel (the 128-byte rows that
        TMA's swizzle asks for); ``None``: one panel.
    descriptor : MatrixDescriptor or None
        Where the instruction reads the tile itself.
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
    contiguous: str = "k"
    start: int = 0
    panel_cols: int | None = None
    descriptor: MatrixDescriptor | None = None

    @property
    def panels(self) -> int:
        return -(-self.cols // self.panel_cols) if self.panel_cols else 1

    @property
    def stage_bytes(self) -> int:
        return self.panels * self.rows * self.row_stride * self.element_bytes

    @property
    def bytes(self) -> int:
        """All stages together."""
        return self.stage_bytes * self.stages

    def offset(self, row: int, col: int) -> int:
        """Where the element lies in its stage, in elements."""
        panel, col = divmod(col, self.panel_cols) if self.panel_cols else (0, col)
        vector, within = divmod(col, self.vector)
        vector ^= (row // self.swizzle_rows) & self.swizzle_mask
        return (panel * self.rows + row) * self.row_stride + vector * self.vector + within


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
    map : FragmentLayout or None
        Who moves what: (thread, element) -> (row, col) of the operand's tile, or, for an access
        that a warp makes together (ldmatrix), (lane, element) of the row that the lane addresses.
    multicast : int
        Blocks of the cluster that each box is delivered to.
    role : str
        The role of the warps that issue it.
    entries : tuple of str
        Variants of the entries that copy in this way; empty: all of them.
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
    map: FragmentLayout | None = None
    multicast: int = 1
    role: str = "all"
    entries: tuple[str, ...] = ()


@dataclass(frozen=True)
class Role:
    """What some warps of a block do (``"all"`` where every warp does the same).

    Attributes
    ----------
    name : str
    warps : int
    registers : int or None
        Registers per lane, where the role sets its own number (setmaxnreg).
    computes : bool
        Whether the warps hold a part of the output tile.
    """

    name: str
    warps: int
    registers: int | None = None
    computes: bool = True


@dataclass(frozen=True)
class Barrier:
    """Barriers in shared memory, one per stage (Hopper's mbarrier).

    Attributes
    ----------
    name : str
        ``"full"``, ``"empty"``, ...
    count : int
        How many there are, 8 bytes each.
    arrivals : int
        Arrivals that complete a phase.
    transaction_bytes : int
        Bytes of bulk copies that a phase waits for besides.
    start : int
        Byte offset of the first one in the block's shared memory.
    """

    name: str
    count: int
    arrivals: int
    transaction_bytes: int = 0
    start: int = 0

    @property
    def bytes(self) -> int:
        return 8 * self.count


@dataclass(frozen=True)
class Pipeline:
    """How copies and arithmetic overlap.

    Attributes
    ----------
    stages : int
        Tiles in flight, those on their way through registers included.
    waits : str
        By what a stage is known to be full: ``"barrier"``, ``"cp_async_group"``, ``"mbarrier"``,
        ``"none"``.
    roles : tuple of Role
        In order of the warps' numbers in the block.
    cluster : (int, int)
        Blocks of a cluster along M and N.
    persistent : bool
        Whether a block goes on to further tiles.
    barriers : tuple of Barrier
    """

    stages: int
    waits: str
    roles: tuple[Role, ...] = (Role("all", 1),)
    cluster: tuple[int, int] = (1, 1)
    persistent: bool = False
    barriers: tuple[Barrier, ...] = ()

    @property
    def warps(self) -> int:
        """Warps of a block, those that only copy included."""
        return sum(role.warps for role in self.roles)

    @property
    def first_compute_warp(self) -> int:
        """Number, in the block, of the first warp that holds a part of the output tile."""
        first = 0
        for role in self.roles:
            if role.computes:
                return first
            first += role.warps
        return 0


@dataclass(frozen=True)
class TensorMap:
    """How the launch encodes a bulk copy's descriptor (``CUtensorMap``); all extents in elements.

    Attributes
    ----------
    dims : tuple of Formula
        Extents of the tensor, the contiguous axis first.
    strides : tuple of Formula
        From one index to the next, for every axis but the contiguous one.
    box : tuple of int
        Extents of one copy.
    swizzle_bytes : int
        0, 32, 64 or 128.
    """

    dims: tuple[Formula, ...]
    strides: tuple[Formula, ...]
    box: tuple[int, ...]
    swizzle_bytes: int = 0


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
    value : Formula or None
        For a size or a stride that the launch does not know by the argument's name; for a
        workspace, and for a descriptor onto it, the byte offset of the region in the workspace.
    tensor_map : TensorMap or None
        What a descriptor describes: the operand's array, or the workspace where ``value`` is given.
    """

    name: str
    type: str
    kind: str
    operand: str = ""
    value: Formula | None = None
    tensor_map: TensorMap | None = None

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
        Unique in the plan.
    role : str
        ``"main"``, ``"reduce"`` or ``"pack"``.
    variant : str
        What tells it from its sisters (``"wide"``, ``"narrow"``).
    arguments : tuple of Argument
    accesses : tuple of Access
        The condition under which it runs; the first main entry whose condition holds is taken.
    grid : Formula
        Blocks, in x.
    block : int
        Threads per block.
    shared_bytes : int
    workspace : Formula
        Bytes of workspace that it reads or writes.
    before, after : tuple of str
        Entries launched with it, in order: packs before, reductions after.
    symbol_name : str
        Its function in the text where that is not ``name``: two entries may launch one function
        with different arguments (a pack of A and one of B).
    cluster : int
        Blocks of a cluster; the grid is a multiple of it.
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
    symbol_name: str = ""
    cluster: int = 1

    @property
    def symbol(self) -> str:
        """The function in the text."""
        return self.symbol_name or self.name


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
        Of which entry; empty: the main ones.
    """

    file: str
    accumulators: int
    operands: int
    staging: int
    addressing: int
    limit: int
    role: str = "all"
    entry: str = ""

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
            "lanes": self.instruction.lanes,
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
    if isinstance(value, Entry):
        return {**_fields(value), "symbol": value.symbol}
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
