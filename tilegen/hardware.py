"""Hardware as data: instructions, register files and archs; the backends fill these records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tilegen.dtypes import DTYPES
from tilegen.layout import FragmentLayout, Layout


@dataclass(frozen=True)
class Instruction:
    """One multiply-accumulate instruction: its tile, its types and its three fragments.

    Parameters
    ----------
    name : str
        Short name, used in kernel names (``"fma"``, ``"m16n8k16"``).
    m, n, k : int
        The tile that one instruction multiplies, in elements.
    type_a, type_b, type_acc : str
        Element types.
    lanes : int
        How many lanes take part (1 for a scalar or vector FMA of one work-item).
    a, b, c : FragmentLayout
        Tiles of (m, k), (n, k) and (m, n).
    mnemonic : str
        How the instruction is spelled, or the expression that stands for it.
    doc : str
        The document that defines it.
    family : str
        Whose error growth holds for it; see :mod:`tilegen.bounds`.
    source_a, source_b : str
        ``"register"``, or ``"shared"`` where the instruction reads the operand from shared memory
        itself: its fragment is then that of :func:`shared_fragment`.
    opaque : bool
        Whether the vendor leaves the lane maps undocumented: a kernel must not rely on them, a
        picture may show them.
    """

    name: str
    m: int
    n: int
    k: int
    type_a: str
    type_b: str
    type_acc: str
    lanes: int
    a: FragmentLayout
    b: FragmentLayout
    c: FragmentLayout
    mnemonic: str
    doc: str
    family: str = "fma"
    source_a: str = "register"
    source_b: str = "register"
    opaque: bool = False

    def registers(self, operand: str, register_bits: int = 32) -> int:
        """Registers of each lane for one fragment of ``"a"``, ``"b"`` or ``"c"``."""
        fragment: FragmentLayout = getattr(self, operand)
        if operand != "c" and getattr(self, f"source_{operand}") == "shared":
            return 0
        element = {"a": self.type_a, "b": self.type_b, "c": self.type_acc}[operand]
        return -(-fragment.values * DTYPES[element].bits // register_bits)

    @property
    def flop(self) -> int:
        """Floating-point operations of one instruction."""
        return 2 * self.m * self.n * self.k


def shared_fragment(rows: int, cols: int, lanes: int) -> FragmentLayout:
    """The fragment of an operand in shared memory: every lane reaches every element."""
    everywhere, whole = Layout((lanes,), (0,)), Layout((rows * cols,), (1,))
    return FragmentLayout(rows, cols, everywhere, whole, copies=lanes)


@dataclass(frozen=True)
class RegisterFile:
    """One kind of register: ``vgpr``, ``agpr`` and ``sgpr`` on AMD, ``vector`` on CPUs.

    Parameters
    ----------
    name : str
    bits : int
        Width of one register of one lane.
    per_lane : int
        The most that one lane can have.
    per_multiprocessor : int or None
        All of them, lanes counted; ``None`` where lanes do not share a file.
    granularity : int
        Registers are given to a warp in multiples of this many per lane.
    parts : int
        Parts of a multiprocessor that the registers are divided among; a warp has all of its in one.
    part_of : str
        The file whose registers these are too (``agpr`` of the unified ``vgpr`` from gfx90a on).
    uniform : bool
        Whether one register serves the whole warp (``sgpr``); ``per_lane`` is then per warp.
    """

    name: str
    bits: int
    per_lane: int
    per_multiprocessor: int | None = None
    granularity: int = 1
    parts: int = 1
    part_of: str = ""
    uniform: bool = False


@dataclass(frozen=True)
class Arch:
    """One target and its limits; every number's document stands in ``sources``.

    Parameters
    ----------
    name : str
        As its compiler names it.
    kind : str
        ``"gpu"`` or ``"cpu"``.
    lanes : int
        Lanes of a warp; 1 on a CPU.
    max_threads : int
        Threads per block.
    shared_bytes : int
        Shared memory that one block can have.
    register_files : tuple of RegisterFile
        The first one holds the accumulators.
    instructions : tuple of Instruction
        In order of preference.
    features : frozenset of str
        What a form may ask for (``"fp64"``, ``"cp_async"``, ``"sub_groups"``).
    shared_per_multiprocessor, max_threads_per_multiprocessor, max_blocks_per_multiprocessor
        For the occupancy; ``None`` where unknown.
    max_access_bytes : int
        The widest memory access of one lane.
    banks, bank_bytes : int
        Shared-memory banks.
    shared_reserved_bytes : int
        What the system takes of each block's shared memory on the multiprocessor.
    max_cluster : int
        Blocks of a cluster.
    multiprocessors : int or None
        Of the device; ``None`` until one is queried.
    warp_sizes : tuple of int
        Lanes that a warp can have where a kernel may be compiled for more than ``lanes`` says
        (OpenCL's sub-groups), the preferred one first; empty: a form that needs it is refused.
    sources : mapping
        Field name to the document of its value.
    """

    name: str
    kind: str
    lanes: int
    max_threads: int
    shared_bytes: int
    register_files: tuple[RegisterFile, ...]
    instructions: tuple[Instruction, ...]
    features: frozenset[str] = frozenset()
    shared_per_multiprocessor: int | None = None
    max_threads_per_multiprocessor: int | None = None
    max_blocks_per_multiprocessor: int | None = None
    max_access_bytes: int = 16
    banks: int = 32
    bank_bytes: int = 4
    shared_reserved_bytes: int = 0
    max_cluster: int = 1
    multiprocessors: int | None = None
    warp_sizes: tuple[int, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict, hash=False, compare=False)

    @property
    def registers(self) -> RegisterFile:
        """The file that holds the accumulators."""
        return self.register_files[0]
