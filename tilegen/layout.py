"""Layouts: index = sum of digit x stride, the one form in which every ownership map is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod


@dataclass(frozen=True)
class Layout:
    """A map from 0..size-1 to an index: the number is cut into digits, each digit has a stride.

    Parameters
    ----------
    shape : tuple of int
        The extent of each digit, fastest first.
    stride : tuple of int
        What one step of the digit adds to the index.

    Examples
    --------
    >>> Layout((4, 8), (32, 1))(5)
    33
    """

    shape: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        object.__setattr__(self, "stride", tuple(self.stride))
        if len(self.shape) != len(self.stride):
            raise ValueError(f"shape {self.shape} and stride {self.stride} differ in length")
        if any(extent < 1 for extent in self.shape):
            raise ValueError(f"shape {self.shape} has an extent under 1")
        if any(step < 0 for step in self.stride):
            raise ValueError(f"stride {self.stride} has a negative step")

    @classmethod
    def concat(cls, *layouts: Layout) -> Layout:
        """One layout whose digits are those of the given layouts, the first one fastest."""
        return cls(
            tuple(extent for layout in layouts for extent in layout.shape),
            tuple(step for layout in layouts for step in layout.stride),
        )

    @property
    def size(self) -> int:
        """How many numbers the layout maps."""
        return prod(self.shape)

    @property
    def cosize(self) -> int:
        """One more than the largest index (strides are not negative)."""
        digits = zip(self.shape, self.stride, strict=True)
        return 1 + sum((extent - 1) * step for extent, step in digits)

    def digits(self, number: int) -> tuple[int, ...]:
        """The digits of a number, fastest first."""
        if not 0 <= number < self.size:
            raise IndexError(f"{number} is outside 0..{self.size - 1}")
        out = []
        for extent in self.shape:
            number, digit = divmod(number, extent)
            out.append(digit)
        return tuple(out)

    def __call__(self, number: int) -> int:
        return sum(d * s for d, s in zip(self.digits(number), self.stride, strict=True))

    def __iter__(self) -> Iterator[int]:
        return (self(number) for number in range(self.size))

    def __str__(self) -> str:
        return f"{_tuple(self.shape)}:{_tuple(self.stride)}"

    def indices(self) -> list[int]:
        """All indices in order of their numbers."""
        out = [0]
        for extent, step in zip(self.shape, self.stride, strict=True):
            out = [digit * step + base for digit in range(extent) for base in out]
        return out

    def scaled(self, factor: int) -> Layout:
        """The layout with every index multiplied by ``factor``."""
        return Layout(self.shape, tuple(step * factor for step in self.stride))

    def simplified(self) -> Layout:
        """The same map with the fewest digits: extents of 1 dropped, runs merged."""
        shape: list[int] = []
        stride: list[int] = []
        for extent, step in zip(self.shape, self.stride, strict=True):
            if extent == 1:
                continue
            if shape and stride[-1] * shape[-1] == step:
                shape[-1] *= extent
            else:
                shape.append(extent)
                stride.append(step)
        return Layout(tuple(shape), tuple(stride))

    def is_injective(self) -> bool:
        """Whether no two numbers share an index."""
        return len(set(self.indices())) == self.size

    def is_bijection(self, size: int | None = None) -> bool:
        """Whether every index of 0..size-1 is taken exactly once (size: that of the layout)."""
        size = self.size if size is None else size
        return self.size == size and sorted(self.indices()) == list(range(size))

    def inverse(self) -> Layout:
        """The layout that maps an index back to its number.

        Raises
        ------
        ValueError
            If the layout is not a bijection onto 0..size-1.
        """
        if not self.is_bijection():
            raise ValueError(f"{self} is not a bijection and has no inverse")
        place = 1
        digits = []
        for extent, step in zip(self.shape, self.stride, strict=True):
            if extent > 1:
                digits.append((step, extent, place))
            place *= extent
        digits.sort()
        return Layout(tuple(d[1] for d in digits), tuple(d[2] for d in digits)).simplified()

    def compose(self, inner: Layout) -> Layout:
        """The layout ``number -> self(inner(number))``.

        Each digit of ``inner`` must cut the digits of ``self`` evenly.

        Raises
        ------
        ValueError
            If a digit of ``inner`` does not fall on whole digits of ``self``.
        """
        shape: list[int] = []
        stride: list[int] = []
        for extent, step in zip(inner.shape, inner.stride, strict=True):
            for part_extent, part_stride in self._select(extent, step, inner):
                shape.append(part_extent)
                stride.append(part_stride)
        out = Layout(tuple(shape), tuple(stride))
        # Carries between digits of `inner` that meet in one digit of `self` show up only here.
        if inner.cosize > self.size or any(
            a != self(b) for a, b in zip(out.indices(), inner.indices(), strict=True)
        ):
            raise ValueError(f"{inner} does not fall on whole digits of {self}")
        return out

    def _select(self, extent: int, step: int, inner: Layout) -> list[tuple[int, int]]:
        """The digits of ``self`` that `extent` steps of size `step` walk through."""
        if extent == 1 or step == 0:
            return [(extent, 0)]
        parts = []
        for own_extent, own_stride in zip(self.shape, self.stride, strict=True):
            if step >= own_extent:
                if step % own_extent:
                    raise ValueError(f"{inner} does not fall on whole digits of {self}")
                step //= own_extent
                continue
            if own_extent % step:
                raise ValueError(f"{inner} does not fall on whole digits of {self}")
            taken = min(extent, own_extent // step)
            if extent % taken:
                raise ValueError(f"{inner} does not fall on whole digits of {self}")
            parts.append((taken, own_stride * step))
            extent //= taken
            step = 1
            if extent == 1:
                return parts
        raise ValueError(f"{inner} reaches beyond {self}")


def _tuple(values: Sequence[int]) -> str:
    return "(" + ",".join(map(str, values)) + ")"


@dataclass(frozen=True)
class FragmentLayout:
    """Who holds what of a tile: (lane, value) -> (row, col).

    Parameters
    ----------
    rows, cols : int
        The tile, in elements. The layouts' index is ``row + rows * col``.
    lane, value : Layout
        The two parts of the map; the value is the register order of a lane, low bits first.
    copies : int
        How many (lane, value) pairs hold each element; more than 1 only where the hardware says so.
    """

    rows: int
    cols: int
    lane: Layout
    value: Layout
    copies: int = 1

    @property
    def lanes(self) -> int:
        return self.lane.size

    @property
    def values(self) -> int:
        """Elements that each lane holds."""
        return self.value.size

    def __call__(self, lane: int, value: int) -> tuple[int, int]:
        col, row = divmod(self.lane(lane) + self.value(value), self.rows)
        return row, col

    @cached_property
    def owners(self) -> dict[tuple[int, int], list[tuple[int, int]]]:
        """Every (row, col) with the (lane, value) pairs that hold it."""
        out: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for lane, base in enumerate(self.lane.indices()):
            for value, index in enumerate(self.value.indices()):
                col, row = divmod(base + index, self.rows)
                out.setdefault((row, col), []).append((lane, value))
        return out

    def is_complete(self) -> bool:
        """Whether each element of the tile is held exactly ``copies`` times and none besides."""
        held = self.owners
        return len(held) == self.rows * self.cols and all(
            len(who) == self.copies and 0 <= row < self.rows and 0 <= col < self.cols
            for (row, col), who in held.items()
        )


def bank_conflicts(
    addresses: Iterable[int], access_bytes: int, *, banks: int = 32, bank_bytes: int = 4
) -> int:
    """Extra cycles that one warp's access to shared memory takes over the fewest possible.

    Parameters
    ----------
    addresses : iterable of int
        Byte address of each lane's access, in order of the lanes.
    access_bytes : int
        Width of each access.
    banks, bank_bytes : int
        32 banks of 4 bytes on NVIDIA and AMD hardware (CUDA C++ Programming Guide, "Shared
        Memory", compute capability 5.x and later; CDNA3 ISA guide, "LDS").

    Returns
    -------
    int
        0 if the access is free of conflicts. Lanes are served in groups that together ask for at
        most one word per bank; lanes that read the same word are served at once.
    """
    lanes = list(addresses)
    per_phase = max(1, banks * bank_bytes // max(access_bytes, bank_bytes))
    width = max(1, -(-access_bytes // bank_bytes))
    extra = 0
    for start in range(0, len(lanes), per_phase):
        words: set[int] = set()
        for address in lanes[start : start + per_phase]:
            first = address // bank_bytes
            words.update(range(first, first + width))
        load = Counter(word % banks for word in words)
        extra += max(load.values(), default=0) - -(-len(words) // banks)
    return extra
