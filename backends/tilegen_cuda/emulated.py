"""The emulator as a device: the text itself runs on this machine's processor, and findings are errors."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tilegen.backend import Operand, Resources, Toolchain
from tilegen.build import KernelBinary
from tilegen.dtypes import DTYPES
from tilegen.errors import CompileError, LaunchError, TilegenWarning, VerifyError
from tilegen.hardware import Arch
from tilegen.host_arrays import ALIGNMENT, host_operand, host_result
from tilegen.plan import Argument, Entry, KernelPlan
from tilegen.render import KernelSource
from tilegen.tensors import any_tensor, host_view

from .archs import ARCHS, dynamic_bytes
from .types import STORED

if TYPE_CHECKING:
    from tilegen.emulator import EmulatorRun, Program

SELECTOR, FULL, QUICK = "emulator", "emulator:full", "emulator:quick"
# What a device's allocator gives at least.
BEST_ALIGNMENT = 256
# Forwards, backwards, and one seed; the race detector runs besides.
ORDERS = (0, 1, 2)
# So many launches of an entry that have few blocks go through all orders and the race detector, and so
# many larger ones through the race detector. The others run in one order, each time another one.
FEW_BLOCKS, WHOLE_OF_FEW, WATCHED_OF_MANY = 4, 6, 1
# Multiply-adds a second of one run in one order, for a warning's estimate: 256^3 in 67 to 82 ms is 200 to
# 250 million (docs/emulator.md); 512^3 on a machine with other work was 79 million in f32 and f16 and 45
# in tf32. The race run takes 1.2 to 2.2 times as long as a plain one (there too).
MULTIPLY_ADDS_A_SECOND, RACE_RUNS = 100e6, 1.5
# A launch that will take longer is announced.
LONG_SECONDS = 10.0
# What a workspace holds before anything is written: NaN in every float, so that it shows.
POISON = 0xFF


@dataclass(frozen=True)
class EmulatedDevice:
    """One arch, emulated.

    Attributes
    ----------
    orders : tuple of int
        In which orders a launch runs its threads.
    races : bool
        Whether it goes through the race detector besides.
    spares : bool
        Whether launches of an entry that has been through all of that often enough run in one order.
    """

    arch: Arch
    selector: str = SELECTOR
    orders: tuple[int, ...] = ORDERS
    races: bool = True
    spares: bool = True

    @property
    def name(self) -> str:
        return {
            SELECTOR: "the emulator",
            FULL: "the emulator, every launch in all orders",
            QUICK: "the emulator, in one order",
        }[self.selector]

    @property
    def rung(self) -> str:
        return "emulator"

    def toolchain(self) -> Toolchain:
        """The host's C++ compiler, which is asked for when the first kernel is launched."""
        from tilegen.emulator.toolchain import host_compiler

        try:
            compiler = host_compiler()
        except CompileError as error:
            return Toolchain("emulator", missing=str(error), device=self)
        return Toolchain("emulator", f"with {compiler.version}", device=self)

    def compile(self, source: KernelSource) -> KernelBinary:
        """The source as it is: what runs is compiled from its text, through the emulator's cache."""
        nothing = {entry.name: Resources() for entry in source.entries}
        return KernelBinary(source, b"", "", nothing, self.toolchain())

    def load(self, binary: KernelBinary) -> EmulatedProgram:
        from tilegen import emulator

        symbols = list(dict.fromkeys(entry.symbol for entry in binary.source.entries))
        program = emulator.compile(binary.source.text, "cuda", symbols)
        return EmulatedProgram(self, binary.source, program)

    def session(self, arrays: Sequence[Any], stream: Any) -> EmulatedSession:
        if stream is not None:
            raise LaunchError(
                f"stream: the emulator has none, and {type(stream).__name__} is given"
            )
        return EmulatedSession(tensors=any_tensor(arrays))


@dataclass(frozen=True)
class EmulatedSession:
    """Host arrays, used in place: the emulator copies them to and from its child process."""

    stream: None = None
    alignment: int = ALIGNMENT
    tensors: bool = False

    def operand(self, name: str, array: Any, *, writes: bool) -> Operand:
        array = host_view(name, array)
        # The array itself goes to the child process, not its address.
        return host_operand(name, array, writes=writes)._replace(handle=array)

    def empty(self, shape: tuple[int, ...], dtype: str, majorness: str) -> Any:
        return host_result(shape, dtype, majorness, tensor=self.tensors)

    def workspace(self, size: int, *, kept: bool) -> EmulatedWorkspace:
        try:
            room = np.full(size + BEST_ALIGNMENT, POISON, np.uint8)
        except (MemoryError, ValueError):  # the latter beyond what NumPy counts to
            raise LaunchError(f"workspace: there is no memory for its {size} bytes") from None
        start = -room.__array_interface__["data"][0] % BEST_ALIGNMENT
        return EmulatedWorkspace(room[start : start + size])

    def begin(self) -> None: ...

    def finish(self) -> None: ...


@dataclass(frozen=True)
class EmulatedWorkspace:
    """Bytes that every entry of a call sees as the one before it left them."""

    bytes: np.ndarray[Any, Any]

    def region(self, offset: int, size: int, element: str) -> np.ndarray[Any, Any]:
        kind = DTYPES[element].numpy
        whole = size // kind.itemsize * kind.itemsize
        return self.bytes[offset : offset + whole].view(kind)


class EmulatedProgram:
    """The kernels of one text; a launch raises what the emulator finds."""

    def __init__(self, device: EmulatedDevice, source: KernelSource, program: Program) -> None:
        self._device, self._source, self._program = device, source, program
        self._launches: Counter[tuple[str, bool]] = Counter()
        self._warned = False

    def bind(
        self, entry: Entry, grid: int, arguments: Sequence[tuple[Argument, Any]], stream: Any
    ) -> Callable[[], None]:
        kept = list(arguments)
        return lambda: self.launch(entry, grid, kept, stream)

    def launch(
        self, entry: Entry, grid: int, arguments: Sequence[tuple[Argument, Any]], stream: Any
    ) -> None:
        orders, races = self._ways(entry, grid)
        self._warn_of_size(entry, grid, arguments, len(orders) + RACE_RUNS * races)
        run = self.run(entry, grid, arguments, orders=orders, races=races)
        if not run.clean:
            raise VerifyError(self.told(run.findings))

    def _warn_of_size(
        self, entry: Entry, grid: int, arguments: Sequence[tuple[Argument, Any]], runs: float
    ) -> None:
        """Say once that a launch will take long, and that the emulator is not for its size."""
        if self._warned or entry.role != "main":
            return
        depth = next((int(value) for a, value in arguments if a.name == "K"), 0)
        seconds = runs * multiply_adds(self._source.plan, grid, depth) / MULTIPLY_ADDS_A_SECOND
        if seconds > LONG_SECONDS:
            self._warned = True
            warnings.warn(
                f"{self._source.name}: this launch will take about {seconds:.0f} s on the emulator, "
                "which checks kernels on small problems and is not for sizes like this",
                TilegenWarning,
                stacklevel=4,
            )

    def _ways(self, entry: Entry, grid: int) -> tuple[tuple[int, ...], bool]:
        """In which orders this launch runs, and whether the race detector sees it."""
        device = self._device
        if not device.spares:
            return device.orders, device.races
        few = grid <= FEW_BLOCKS
        self._launches[entry.name, few] += 1
        count = self._launches[entry.name, few]
        if few and count <= WHOLE_OF_FEW:
            return device.orders, device.races
        watched = device.races and not few and count <= WATCHED_OF_MANY
        return (device.orders[count % len(device.orders)],), watched

    def run(
        self,
        entry: Entry,
        grid: int,
        arguments: Sequence[tuple[Argument, Any]],
        **options: Any,
    ) -> EmulatorRun:
        """One launch; the arrays of a clean one hold its results. ``options`` are the emulator's."""
        from tilegen import emulator

        buffers = _Buffers()
        arguments = [(a, _as_stored(a, v)) for a, v in arguments]
        values = [buffers.of(v)[1] if a.is_pointer else v for a, v in arguments]
        written = [i for i, (a, _) in enumerate(arguments) if a.kind == "output"]
        try:
            run = emulator.run(
                self._program,
                "cuda",
                entry=entry.symbol,
                grid=grid,
                block=entry.block,
                args=values,
                outputs=written,
                shared_bytes=dynamic_bytes(entry.shared_bytes),
                shared_limit=self._device.arch.shared_bytes,
                **options,
            )
        except MemoryError:
            size = sum(array.nbytes for a, array in arguments if a.is_pointer)
            raise LaunchError(
                f"the emulator copies what a launch is given, {size} bytes, and has no memory for it"
            ) from None
        # Of a workspace an entry may write a part, or nothing: it is not held to every element.
        changed = [v for a, v in arguments if a.kind in ("output", "workspace")]
        for target in changed if run.clean else ():
            target[...] = run.arrays[buffers.of(target)[0]]
        return run

    def told(self, findings: Sequence[Any]) -> str:
        """The first finding with its place in the text, and what the others are."""
        # What names a line says more than what only shows in the results.
        first, *others = sorted(findings, key=lambda f: f.line is None)
        told = f"the emulator found {first}"
        if first.line is not None and first.line <= len(lines := self._source.text.splitlines()):
            told += f"; line {first.line} of {self._source.name}{self._source.suffix} is "
            told += f"`{lines[first.line - 1].strip()}`"
        more = ", ".join(f"{f.kind} at line {f.line}" if f.line else f.kind for f in others)
        return told + (f"; also {more}" if more else "")


def multiply_adds(plan: KernelPlan, grid: int, depth: int) -> int:
    """Of a launch of a main entry: whole tiles are multiplied, whatever of them lies in the matrix."""
    bm, bn, bk = plan.block
    return grid // plan.split_k * bm * bn * (-(-depth // bk) * bk)


# Elements that the text takes as their bits.
BITS = {"unsigned short": np.uint16, "unsigned char": np.uint8}


def _as_stored(argument: Argument, value: Any) -> Any:
    """An array as the text takes it: narrow floats, some of which NumPy calls floats, by their bits.

    D stands in for a C that is not there and never read; where C has a type of its own, so does that.
    """
    if (
        argument.is_pointer
        and argument.operand == "c"
        and value.dtype != DTYPES[argument.type].numpy
    ):
        value = np.zeros((1, 1), DTYPES[argument.type].numpy)
    stored = BITS.get(STORED[argument.type]) if argument.is_pointer else None
    return value if stored is None else value.view(stored)


class _Buffers:
    """One buffer for each array of a launch: C and D may be one."""

    def __init__(self) -> None:
        self._known: dict[Any, tuple[int, Any]] = {}

    def of(self, array: np.ndarray[Any, Any]) -> tuple[int, Any]:
        """Its place among the arrays that a run gives back, and the buffer."""
        from tilegen.emulator import Buffer

        address = array.__array_interface__["data"][0]
        key = (address, array.shape, array.strides, array.dtype)
        if key not in self._known:
            # As aligned as the array is, and no more: what the launch relied on is what the text gets.
            align = min(BEST_ALIGNMENT, address & -address) if address else BEST_ALIGNMENT
            self._known[key] = len(self._known), Buffer(array, align=align)
        return self._known[key]


@cache
def emulators() -> tuple[EmulatedDevice, ...]:
    """The emulator, once for each arch; then one that spares nothing, and one that runs each launch once.

    The quick one sees no races, and nothing else that another order of the threads would show.
    """
    return (
        *(EmulatedDevice(arch) for arch in ARCHS.values()),
        *(EmulatedDevice(arch, FULL, spares=False) for arch in ARCHS.values()),
        *(EmulatedDevice(arch, QUICK, (0,), races=False, spares=False) for arch in ARCHS.values()),
    )
