"""The file between parent and child: launch and arguments out, findings and arrays back.

The records are those of ``runtime/tg_job.hpp``.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt

from tilegen.emulator.accesses import RawAccess, raw_access
from tilegen.errors import LaunchError

MAGIC = 0x74676A31
RACES, DELAY, BANKS, POISON = 1, 2, 4, 8
# Arithmetics of matrix instructions, in the order of ``ptx/matrix.cpp``; the flags' second byte.
ARITHMETICS = ("f32", "hopper")
WRITTEN_ONCE, FLOATING, INTEGRAL, LARGE = 1, 2, 4, 8
INT, FLOAT, BYTES, BUFFER = range(4)
MOST_DIMENSIONS = 8
# Of a span, from which on an array of few elements keeps its gaps (tg_memory.cpp).
SPARSE_BYTES = 64 << 20

_JOB = struct.Struct("<2I 3I 3I 3I I 2I 2I Q")
_ARGUMENT = struct.Struct("<2I q d 2Q Q 2I 2I 8q 8q")
_RESULT = struct.Struct("<4I 7Q d")
_SITE = struct.Struct("<4I 6Q")
_FINDING = struct.Struct("<32s 2i I 3I 4I 2Q 512s")


@dataclass(frozen=True)
class Buffer:
    """An array argument, with what is promised of it.

    Attributes
    ----------
    array : ndarray
        Any strides; its elements, and only they, belong to the kernel. It is never changed.
    align : int
        The kernel's pointer is a multiple of it, in bytes; 256 is what a device's allocator gives.
    """

    array: npt.NDArray[Any]
    align: int = 256

    def __post_init__(self) -> None:
        if self.align < 1 or self.align & (self.align - 1) or self.align > 4096:
            raise LaunchError(f"align {self.align} is no power of two from 1 to 4096")
        if self.array.ndim > MOST_DIMENSIONS:
            raise LaunchError(
                f"an array of {self.array.ndim} dimensions; {MOST_DIMENSIONS} is most"
            )


@dataclass(frozen=True)
class TensorMap(Buffer):
    """An array that the kernel sees through a ``CUtensorMap``: what ``cuTensorMapEncodeTiled`` makes.

    Attributes
    ----------
    box : tuple of int
        Elements of one copy, in the order of the array's axes (the driver counts the other way).
    swizzle : int
        Span in bytes: 0, 32, 64 or 128.
    nan_fill : bool
        What lies outside of the array reads as NaN instead of zero.
    """

    box: tuple[int, ...] = ()
    swizzle: int = 0
    nan_fill: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.box) != self.array.ndim or not 1 <= self.array.ndim <= 5:
            raise LaunchError(
                f"box {self.box} for an array of {self.array.ndim} axes; 1 to 5 are possible"
            )
        if not all(1 <= size <= 256 for size in self.box):
            raise LaunchError(f"box {self.box}: each side has 1 to 256 elements")
        if self.swizzle not in (0, 32, 64, 128):
            raise LaunchError(f"swizzle {self.swizzle} is none of 0, 32, 64 and 128 bytes")
        if self.array.strides[-1] != self.array.itemsize:
            raise LaunchError("the last axis of a tensor map's array must be contiguous")
        if any(stride % 16 or stride < 0 for stride in self.array.strides[:-1]):
            raise LaunchError(
                f"strides {self.array.strides}: all but the last are multiples of 16 bytes"
            )
        inner = self.box[-1] * self.array.itemsize
        if inner % 16 or (self.swizzle and inner > self.swizzle):
            limit = f", at most the {self.swizzle} of the swizzle" if self.swizzle else ""
            raise LaunchError(
                f"box {self.box}: its last side takes a multiple of 16 bytes{limit}, not {inner}"
            )

    @property
    def packed(self) -> int:
        """Box, swizzle and fill as the child reads them (``tensor_map_argument``)."""
        sides = sum((size - 1) << 8 * i for i, size in enumerate(reversed(self.box)))
        swizzle = (0, 32, 64, 128).index(self.swizzle)
        return sides | swizzle << 40 | self.nan_fill << 44 | 1 << 48


Argument = Buffer | npt.NDArray[Any] | int | float | np.generic | bytes


@dataclass(frozen=True)
class Launch:
    """What one child runs."""

    entry: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    arguments: tuple[Argument, ...]
    outputs: frozenset[int]
    warp_size: int
    shared_bytes: int
    shared_limit: int
    order: int
    flags: int
    loop_seconds: float
    timeout: float


@dataclass(frozen=True)
class RawFinding:
    """A finding as the child tells it; an address stands for a line that is not yet known."""

    kind: str
    message: str
    line: int
    address: int
    other_line: int
    other_address: int
    block: tuple[int, int, int] | None
    thread: int
    warp: int
    lane: int
    count: int


@dataclass(frozen=True)
class Outcome:
    """What a child leaves behind."""

    findings: list[RawFinding]
    arrays: dict[int, npt.NDArray[Any]]
    counts: dict[str, int]
    seconds: float
    accesses: list[RawAccess]


class JobFile:
    """A temporary file that holds one launch and takes its outcome."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.spans: dict[
            int, tuple[int, int, int]
        ] = {}  # argument: place in the file, bytes, origin
        self.results = 0
        shared = Path("/dev/shm")
        place = str(shared) if os.access(shared, os.W_OK) else None
        self.file: BinaryIO = cast(BinaryIO, tempfile.TemporaryFile(dir=place))  # noqa: SIM115
        try:
            self._write()
        except BaseException:
            self.file.close()
            raise

    def __enter__(self) -> JobFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def _write(self) -> None:
        launch = self.launch
        at = _JOB.size + _ARGUMENT.size * len(launch.arguments)
        records, data = [], []
        first_use: dict[int, int] = {}
        for number, argument in enumerate(launch.arguments):
            given = argument.array if isinstance(argument, Buffer) else argument
            alias = 0
            if isinstance(given, np.ndarray) and id(given) in first_use:
                alias = first_use[id(given)] + 1
                payload: bytes = b""
            else:
                at = (at + 63) // 64 * 64
                first_use[id(given)] = number
                if isinstance(given, np.ndarray) and is_sparse(given):
                    # Only its elements are written: the file has holes where the array has.
                    data += [(at + place, row) for place, row in _rows(given)]
                    self.spans[number] = (at, _span(given), _origin(given))
                    records.append(_record(argument, _once(launch, number), at, alias))
                    at += _span(given)
                    continue
                payload = _payload(argument)
            records.append(_record(argument, _once(launch, number), at, alias))
            if isinstance(given, np.ndarray) and not alias:
                self.spans[number] = (at, len(payload), _origin(given))
            data.append((at, payload))
            at += len(payload)
        self.results = (at + 63) // 64 * 64
        head = _JOB.pack(
            MAGIC, launch.flags, *launch.grid, *launch.block, launch.warp_size,
            launch.shared_bytes, launch.shared_limit, launch.order, launch.entry,
            len(launch.arguments), int(launch.loop_seconds * 1000), int(launch.timeout * 1000),
            self.results,
        )  # fmt: skip
        self.file.write(head + b"".join(records))
        for place, payload in data:
            self.file.seek(place)
            self.file.write(payload)
        self.file.truncate(self.results + _RESULT.size)
        self.file.flush()

    def outcome(self) -> Outcome | None:
        """What the child wrote; ``None`` if it ended before it could."""
        self.file.seek(self.results)
        head = self.file.read(_RESULT.size)
        magic, count, sites, _, *counted, seconds = _RESULT.unpack(head)
        if magic != MAGIC:
            return None
        names = (
            "switches", "barriers", "collectives", "shared_bytes", "races", "stretches", "parted",
        )  # fmt: skip
        findings = [_finding(self.file.read(_FINDING.size)) for _ in range(count)]
        counts = dict(zip(names, counted, strict=True))
        records = [_SITE.unpack(self.file.read(_SITE.size)) for _ in range(sites)]
        return Outcome(findings, self._arrays(), counts, seconds, [raw_access(*r) for r in records])

    def _arrays(self) -> dict[int, npt.NDArray[Any]]:
        out: dict[int, npt.NDArray[Any]] = {}
        for number, (place, size, origin) in self.spans.items():
            argument = self.launch.arguments[number]
            given = argument.array if isinstance(argument, Buffer) else argument
            assert isinstance(given, np.ndarray)
            data: bytearray | mmap.mmap
            if is_sparse(given):
                start = place // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
                origin += place - start
                length = size + place - start
                data = mmap.mmap(self.file.fileno(), length, access=mmap.ACCESS_READ, offset=start)
            else:
                self.file.seek(place)
                data = bytearray(self.file.read(size))
            out[number] = np.ndarray(given.shape, given.dtype, data, origin, given.strides)
        return out


def _bounds(array: npt.NDArray[Any]) -> tuple[int, int]:
    if array.size == 0:
        return array.ctypes.data, array.ctypes.data
    low, high = np.lib.array_utils.byte_bounds(array)
    return low, high


def _span(array: npt.NDArray[Any]) -> int:
    low, high = _bounds(array)
    return high - low


def is_sparse(array: npt.NDArray[Any]) -> bool:
    """Whether its elements lie so far apart that the gaps must not take memory."""
    return _span(array) > SPARSE_BYTES and array.nbytes < _span(array) // 4


def _rows(array: npt.NDArray[Any]) -> Iterator[tuple[int, bytes]]:
    """Its elements as runs of bytes, each with its place in the span."""
    order = sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis]))
    turned = array.transpose(order)
    whole = turned.ndim > 0 and turned.strides[-1] == array.itemsize
    outer = turned.shape[:-1] if whole else turned.shape
    for index in np.ndindex(*outer):
        at = sum(i * stride for i, stride in zip(index, turned.strides, strict=False))
        yield _origin(array) + at, turned[index].tobytes()


def _once(launch: Launch, number: int) -> int:
    return WRITTEN_ONCE if number in launch.outputs else 0


def _origin(array: npt.NDArray[Any]) -> int:
    return array.ctypes.data - _bounds(array)[0]


def _payload(argument: Argument) -> bytes:
    given = argument.array if isinstance(argument, Buffer) else argument
    if isinstance(given, np.ndarray):
        low, high = _bounds(given)
        return ctypes.string_at(low, high - low)
    if isinstance(given, bytes):
        return given
    if isinstance(given, np.generic) and not _is_number(given):
        return given.tobytes()
    return b""


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, np.bool_, np.integer, np.floating))


def _record(argument: Argument, flags: int, place: int, alias: int) -> bytes:
    kind, integer, real, size, origin, align, item = BYTES, 0, 0.0, 0, 0, 1, 1
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    given = argument.array if isinstance(argument, Buffer) else argument
    if isinstance(given, np.ndarray):
        low, high = _bounds(given)
        kind, size, origin, item = BUFFER, high - low, _origin(given), given.itemsize
        align = argument.align if isinstance(argument, Buffer) else 256
        shape, strides = given.shape, given.strides
        integer = argument.packed if isinstance(argument, TensorMap) else 0
        flags |= {"f": FLOATING, "i": INTEGRAL, "u": INTEGRAL, "b": INTEGRAL}.get(
            given.dtype.kind, 0
        )
    elif isinstance(given, (bool, int, np.bool_, np.integer)):
        kind, integer = INT, _wrapped(int(given))
        flags |= LARGE if integer < 0 < int(given) else 0
    elif isinstance(given, (float, np.floating)):
        kind, real = FLOAT, float(given)
    elif isinstance(given, (bytes, np.generic)):
        size = len(_payload(given))
    else:
        raise LaunchError(
            f"an argument of type {type(given).__name__}; arrays and numbers are known"
        )
    fill = (0,) * (MOST_DIMENSIONS - len(shape))
    return _ARGUMENT.pack(
        kind, flags, integer, real, place, size, origin, align, item, len(shape), alias,
        *shape, *fill, *strides, *fill,
    )  # fmt: skip


def _wrapped(value: int) -> int:
    if not -(1 << 63) <= value < 1 << 64:
        raise LaunchError(f"{value} does not fit an argument of 64 bits")
    return value if value < 1 << 63 else value - (1 << 64)


def _finding(record: bytes) -> RawFinding:
    (kind, line, other_line, count, x, y, z, thread, warp, lane, known, address, other_address,
     message) = _FINDING.unpack(record)  # fmt: skip
    return RawFinding(
        kind=_text(kind), message=_text(message), line=line, address=address,
        other_line=other_line, other_address=other_address,
        block=(x, y, z) if known else None, thread=thread, warp=warp, lane=lane, count=count,
    )  # fmt: skip


def _text(data: bytes) -> str:
    return data.split(b"\0", 1)[0].decode("utf-8", "replace")


def sequence_of(sizes: int | Sequence[int], what: str) -> tuple[int, int, int]:
    """``n``, ``(x,)``, ``(x, y)`` or ``(x, y, z)`` as three sizes of at least 1.

    Raises
    ------
    LaunchError
        If it is none of these.
    """
    given = (sizes,) if isinstance(sizes, int) else tuple(int(n) for n in sizes)
    if not 1 <= len(given) <= 3 or any(not 1 <= n < 1 << 31 for n in given):
        raise LaunchError(f"{what} {sizes!r}: one to three sizes of at least 1")
    x, y, z = (*given, 1, 1)[:3]
    return x, y, z
