"""What a block does with the data of its tile: fragments, owners, shared tiles, copies, pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from tilegen.layout import FragmentLayout, Layout


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
        ``"none"``, ``"pad"``, or ``"xor"``: vector index ^= (row / swizzle_rows & swizzle_mask) <<
        swizzle_shift.
    swizzle_rows, swizzle_mask, swizzle_shift, vector : int
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
    swizzle_shift: int = 0
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
        vector ^= (row // self.swizzle_rows & self.swizzle_mask) << self.swizzle_shift
        return (panel * self.rows + row) * self.row_stride + vector * self.vector + within


def shared_end(tiles: Sequence[SharedTile]) -> int:
    """Bytes of shared memory up to the end of the last tile, gaps between placed ones included."""
    ends = [tile.start + tile.bytes for tile in tiles]
    return max(sum(tile.bytes for tile in tiles), *ends, 0)


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
