"""What a backend is: forms that plan, templates that spell, a toolchain that compiles, devices that run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from tilegen.hardware import Arch
from tilegen.plan import Argument, Entry, KernelPlan
from tilegen.spec import Layouts, PinValue, TileSpec, Types

if TYPE_CHECKING:
    import numpy as np

    from tilegen.build import KernelBinary
    from tilegen.render import KernelSource
    from tilegen.rules import Candidate, Rule


# What every device's allocator gives; regions of a workspace are as aligned as their offsets allow.
WORKSPACE_ALIGNMENT = 64


@dataclass(frozen=True)
class TypeCombination:
    """Types that a form multiplies, and the (C, D) types that it can read and write."""

    a: str
    b: str
    acc: str
    outputs: tuple[tuple[str, str], ...]


class Form(Protocol):
    """One way in which a backend builds the kernel."""

    @property
    def name(self) -> str:
        """Its name, as the pin ``form`` spells it."""

    @property
    def rules(self) -> tuple[Rule, ...]:
        """Rules of its own, beside the core's list."""

    def types(self, arch: Arch) -> Sequence[TypeCombination]:
        """What it multiplies on this arch."""

    def pins(self, arch: Arch) -> Mapping[str, Sequence[PinValue]]:
        """Pins it knows, each with its legal values (empty: the form's rules check it)."""

    def derive(self, spec: TileSpec, arch: Arch) -> Candidate:
        """The numbers of the spec on this arch, legal or not; never raises."""

    def plan(self, candidate: Candidate) -> KernelPlan:
        """The plan of a candidate that breaks no rule."""


@dataclass(frozen=True)
class Toolchain:
    """A compiler that was found, or the sentence that says how to get it.

    ``lineinfo`` is the flag by which it keeps line numbers for profilers, empty where it has none.
    """

    name: str
    version: str = ""
    flags: str = ""
    missing: str = ""
    lineinfo: str = ""
    device: Any = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return self.missing or f"{self.name} {self.version}".strip()


class Operand(NamedTuple):
    """One array of a launch, as the device sees it (a tuple: it is made on every call).

    Attributes
    ----------
    handle : object
        What the backend passes to the driver.
    offset : int
        Elements from the handle's start to the first element.
    address : int
        A number with the alignment of the first element's address.
    dtype : numpy.dtype
    shape : (int, int, int)
        Batch, rows, columns; a vector has one row.
    strides : (int, int, int)
        In elements, in the same order.
    rank : int
        Dimensions of the array as it was given.
    keep : object
        What must live until the launch is done.
    memory : object
        Which memory it lies in: equal for two operands that may share elements (``"host"``, a
        buffer's identity); ``None`` where nothing else can reach it.
    position : int
        Byte of that memory at which the first element lies.
    """

    handle: Any
    offset: int
    address: int
    dtype: np.dtype[Any]
    shape: tuple[int, int, int]
    strides: tuple[int, int, int]
    rank: int
    keep: Any = None
    memory: Any = None
    position: int = 0

    @property
    def span(self) -> tuple[int, int]:
        """First byte of its memory that it reaches, and the one after the last."""
        return reach(self.position, self.shape, self.strides, self.dtype.itemsize)


def reach(
    position: int, shape: Sequence[int], strides: Sequence[int], size: int
) -> tuple[int, int]:
    """The bytes that elements of ``size`` bytes take up: the first, and the one after the last.

    Parameters
    ----------
    position : int
        Byte of the first element.
    shape, strides : sequence of int
        Strides in elements; they may be negative.
    size : int
        Bytes of one element.
    """
    low = high = 0
    for extent, stride in zip(shape, strides, strict=True):
        if extent == 0:
            return position, position
        if stride < 0:
            low += (extent - 1) * stride
        else:
            high += (extent - 1) * stride
    return position + low * size, position + (high + 1) * size


class Loaded(Protocol):
    """A binary on a device."""

    def launch(
        self,
        entry: Entry,
        grid: int,
        arguments: Sequence[tuple[Argument, Any]],
        stream: Any,
    ) -> None:
        """Queue one entry; raises ``LaunchError`` if the driver refuses it."""

    def bind(
        self,
        entry: Entry,
        grid: int,
        arguments: Sequence[tuple[Argument, Any]],
        stream: Any,
    ) -> Callable[[], Any]:
        """The same as :meth:`launch`, to be called later and often, from any thread."""


class Device(Protocol):
    """Something that runs kernels."""

    @property
    def name(self) -> str:
        """As the driver names it."""

    @property
    def selector(self) -> str:
        """``"cpu:0"``, ``"gpu:1"``, ``"emulator"``, ``"oclgrind"``."""

    @property
    def arch(self) -> Arch:
        """The arch that it runs, refined by what the device says of itself."""

    @property
    def rung(self) -> str:
        """What a check on it shows: ``"emulator"``, ``"oclgrind"``, ``"CPU runtime"``, ``"device"``."""

    def load(self, binary: KernelBinary) -> Loaded:
        """The binary made ready to launch."""

    def session(self, arrays: Sequence[Any], stream: Any) -> Session:
        """Where the arrays of one launch live, and how they get to the device and back."""


class Workspace(Protocol):
    """Memory that the entries of one call hand each other results in; it lives as long as this."""

    def region(self, offset: int, size: int, element: str) -> Any:
        """What the driver is given for ``size`` bytes of elements from byte ``offset`` on."""


class Session(Protocol):
    """One launch's arrays, or those of a launch that is repeated."""

    @property
    def stream(self) -> Any:
        """The stream or queue that the launch uses."""

    @property
    def alignment(self) -> int:
        """What :attr:`Operand.address` of a new array is a multiple of."""

    def operand(self, name: str, array: Any, *, writes: bool) -> Operand:
        """The array as the device sees it; raises ``LaunchError`` for what it cannot take."""

    def empty(self, shape: tuple[int, ...], dtype: str, majorness: str) -> Any:
        """A new dense array where the inputs live, its last two axes row- or column-major."""

    def workspace(self, size: int) -> Workspace:
        """So many bytes (at least 1), of no defined content, that belong to this launch's stream.

        What was queued on the stream may still use them when the workspace is dropped. They start at
        a multiple of :data:`WORKSPACE_ALIGNMENT`. Raises ``LaunchError`` where there is no room.
        """

    def begin(self) -> None:
        """Make the operands' contents ready on the device, before each launch."""

    def finish(self) -> None:
        """Bring results back where they are wanted on the host; waits only if it must."""


@runtime_checkable
class Glancing(Protocol):
    """A device that tells at a glance whether arrays are like those of an earlier call."""

    def glance(self, arrays: Sequence[Any], stream: Any) -> tuple[Any, list[int], Session] | None:
        """What of the arrays decides a call, their addresses, and a session that takes them.

        Two calls with equal keys differ in the addresses of their arrays alone, and a handle is its
        operand's address. An array that is ``None`` has the address 0. The result is ``None`` where
        a closer look is needed.
        """

    def address(self, array: Any) -> int:
        """Of the first element of an array that such a session made."""


def runs(device: Device, arch: Arch) -> bool:
    """Whether the device runs what is compiled for the arch: its own, or one in ``also_runs``."""
    return arch.name == device.arch.name or arch.name in getattr(device, "also_runs", ())


@dataclass(frozen=True)
class Missing:
    """Something a backend could use here and does not find."""

    what: str
    command: str


class Backend(Protocol):
    """A plug-in: one object under the entry point group ``tilegen.backends``."""

    @property
    def name(self) -> str: ...

    @property
    def title(self) -> str:
        """For people: ``"OpenCL C"``."""

    @property
    def suffix(self) -> str:
        """Of a source file: ``".cl"``."""

    @property
    def binary_suffix(self) -> str: ...

    @property
    def archs(self) -> Mapping[str, Arch]:
        """Static archs by name, the default one first."""

    @property
    def templates(self) -> tuple[str, str]:
        """Package and folder of its templates."""

    def forms(self, arch: Arch) -> Sequence[Form]:
        """Its forms for this arch, the preferred one first."""

    def context(self, plan: KernelPlan) -> Mapping[str, Any]:
        """The names that its template uses, spelled in its language."""

    def toolchain(self, arch: Arch, device: Device | None = None) -> Toolchain:
        """The compiler for this arch (of this device, where it has its own); never raises."""

    def compile(self, source: KernelSource, toolchain: Toolchain) -> KernelBinary:
        """Compile; raises ``CompileError``. The disk cache is the caller's."""

    def devices(self) -> Sequence[Device]:
        """What runs here; empty, never an error, where there is nothing."""

    def checkers(self) -> Sequence[Device]:
        """What runs kernels only to check them: found when its selector is given.

        An emulator among them (its rung says so) is also taken where no device runs the arch.
        """

    def missing(self) -> Sequence[Missing]:
        """What would widen :meth:`devices` or :meth:`toolchain`, each with its command."""

    def launch_header(self, source: KernelSource) -> str:
        """C text of the launch header that ``tilegen build -o`` writes."""


# In ``Resources.extra``: what the launch asks for beyond the compiler's shared bytes.
DYNAMIC_SHARED = "bytes of dynamic shared memory"


@dataclass(frozen=True)
class Resources:
    """What the compiler said of one entry; ``None`` where it says nothing.

    Spills are what is stored (``spill_bytes``) and what is loaded back.
    """

    registers: int | None = None
    spill_bytes: int | None = None
    stack_bytes: int | None = None
    shared_bytes: int | None = None
    private_bytes: int | None = None
    max_threads: int | None = None
    extra: Mapping[str, int] = field(default_factory=dict)
    spill_load_bytes: int | None = None

    @property
    def dynamic_shared_bytes(self) -> int:
        """What the launch asks for besides, of which the compiler knows nothing."""
        return self.extra.get(DYNAMIC_SHARED, 0)

    @property
    def all_shared_bytes(self) -> int | None:
        """Shared memory with what the launch asks for."""
        if self.shared_bytes is None:
            return None
        return self.shared_bytes + self.dynamic_shared_bytes


@dataclass(frozen=True)
class Timing:
    """One batch of calls, timed.

    Attributes
    ----------
    seconds : float
        The whole batch, by the clock that :attr:`Workbench.clock` names.
    host_seconds : float
        Until the last call had returned: what the host spent on queueing.
    event_seconds : float or None
        The sum of what the driver says of each kernel alone; ``None`` where it says nothing.
    starved : bool
        Whether the device may have waited for the host within the batch.
    """

    seconds: float
    host_seconds: float
    event_seconds: float | None = None
    starved: bool = False


@dataclass(frozen=True)
class Ceiling:
    """The most that a device was seen to do, and how it was seen.

    Attributes
    ----------
    rate : float
        Operations or bytes a second.
    how : str
        The kernel that reached it.
    """

    rate: float
    how: str


class Peer(Protocol):
    """A library that multiplies matrices on the same device, to measure against."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> Mapping[str, str]:
        """Library, version, and what else decides its speed (threads, core type)."""

    @property
    def missing(self) -> str:
        """Empty, or the sentence that says why it is not here and what brings it."""

    def refusal(self, types: Types) -> str:
        """Empty, or why it does not multiply these types."""

    def accumulator(self, types: Types) -> str:
        """What it sums in, which may be narrower than ``types.acc``."""

    def prepare(
        self, a: Any, b: Any, out: Any, types: Types, layout: Layouts
    ) -> Callable[[], object]:
        """One product of arrays that :meth:`Workbench.put` made, queued by each call."""


class Workbench(Protocol):
    """What ``tilegen bench`` needs of a device: data in place, a clock, and ceilings."""

    @property
    def clock(self) -> str:
        """``"device"`` where queued launches are timed by the device, else ``"wall"``."""

    @property
    def stream(self) -> Any:
        """Where the calls that :meth:`time` gets must queue; ``None``: the backend's default."""

    @property
    def cache_bytes(self) -> int:
        """The last-level cache: data that was not touched for so many bytes is cold."""

    @property
    def memory_bytes(self) -> int:
        """What the buffers of one case may take together."""

    @property
    def versions(self) -> Mapping[str, str]:
        """Driver and binding, for the report."""

    def put(self, array: np.ndarray[Any, Any]) -> Any:
        """The array where a launch uses it without a copy, majorness kept."""

    def get(self, array: Any) -> np.ndarray[Any, Any]:
        """Its values on the host, everything queued done."""

    def wait(self) -> None:
        """Until everything queued is done."""

    def time(self, calls: Sequence[Callable[[], object]], lead: int = 0) -> Timing:
        """Time the calls back to back, after the first ``lead`` of them have run untimed."""

    def peak(self, types: Types) -> Ceiling | None:
        """Operations a second (2 a multiply-add) of these types; ``None`` if it cannot be told."""

    def bandwidth(self) -> Ceiling | None:
        """Bytes a second from and to memory; ``None`` if it cannot be told."""

    def peers(self) -> Sequence[Peer]:
        """Libraries of this backend, those that are missing here too."""


@runtime_checkable
class Chooser(Protocol):
    """A backend that ships tiles to start from, and a model that ranks them."""

    def tiles(self, spec: TileSpec, arch: Arch) -> Iterable[Mapping[str, Any]]:
        """Candidates (``block``, ``warp``, ``stages``, pins) for a spec's types and majornesses."""

    def estimate(self, plan: KernelPlan, shape: tuple[int, int, int], batch: int) -> float:
        """Seconds that the model expects of M, N, K; only the order of plans is meant."""


@runtime_checkable
class Measurable(Protocol):
    """A device that has a workbench of its own; others are timed by the wall clock."""

    def workbench(self) -> Workbench:
        """A new one; its buffers and queue go with it."""
