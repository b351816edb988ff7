"""What the arguments of a foreign kernel mean, in words: ``"A:f16 B:f16:col D:f32 M N K lda alpha"``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from typing import Literal

from tilegen.dtypes import DTYPES
from tilegen.entries import Formula
from tilegen.errors import SpecError
from tilegen.spec import Layouts, TileSpec, Types

OPERANDS = ("A", "B", "C", "D", "CD")
SIZES = ("M", "N", "K")
STRIDES = ("lda", "ldb", "ldc", "ldd")
SCALARS = ("alpha", "beta")
# Types that only a scratch array has.
SCRATCH = {"s16": "int16", "u16": "uint16", "u32": "uint32", "s64": "int64", "u64": "uint64"}
_ARRAY = re.compile(r"(?P<type>\w+)\[(?P<size>[^\]]+)\](?:=(?P<fill>\S+))?")
# What products of these are summed in; of all others, f32.
SUMS = {"f64": "f64", "s8": "s32", "u8": "s32"}
# Of one block, where the grid does not tell.
USUAL_TILE = 16
LARGEST_TILE = 1024

Kind = Literal["operand", "size", "stride", "scalar", "number", "scratch"]


@dataclass(frozen=True)
class Word:
    """One parameter of the kernel.

    Attributes
    ----------
    kind : str
    name : str
        ``"A"``, ``"lda"``, ``"alpha"``; of a scratch array its element type.
    type, layout : str
        Of an operand.
    number : int or float
        What is passed as it is; what a scratch array is filled with.
    size : Formula or None
        Elements of a scratch array.
    """

    kind: Kind
    name: str
    type: str = "f32"
    layout: str = "row"
    number: float = 0
    size: Formula | None = None


@dataclass(frozen=True)
class Meaning:
    """The parameters of a kernel that multiplies matrices, in order.

    Attributes
    ----------
    words : tuple of Word
    multiples : (int, int, int)
        Of which M, N and K are drawn; 1: any size.
    """

    words: tuple[Word, ...]
    multiples: tuple[int, int, int] = (1, 1, 1)

    @classmethod
    def parse(cls, text: str, multiples: Sequence[int] = (1, 1, 1)) -> Meaning:
        """Read the words of a mapping, one for each parameter.

        ``A B C D`` with ``:TYPE`` and ``:row`` or ``:col`` behind them (left out: f32, row); ``CD``
        is C and becomes D. ``M N K lda ldb ldc ldd alpha beta``; numbers; ``TYPE[FORMULA]=VALUE``,
        an array of so many elements in M, N and K.

        Raises
        ------
        SpecError
            For a word that is none of these, or one that is missing or there twice.
        """
        words = tuple(_word(word) for word in re.split(r"[,\s]+", text.strip()) if word)
        names = [w.name for w in words if w.kind in ("operand", "size", "stride", "scalar")]
        twice = next((n for n in names if names.count(n) > 1), None)
        if twice:
            raise SpecError(f"--gemm: {twice} is there twice")
        for needed in ("A", "B"):
            if needed not in names:
                raise SpecError(f"--gemm: {needed} is missing: which parameter is it?")
        if ("D" in names) == ("CD" in names):
            raise SpecError("--gemm: one of D and CD is needed: where is the product written?")
        if "CD" in names and "C" in names:
            raise SpecError("--gemm: CD is C already")
        if len(multiples) != 3 or any(n < 1 for n in multiples):
            raise SpecError(
                f"--multiple {list(multiples)}: three sizes of at least 1, for M, N and K"
            )
        m, n, k = multiples
        return cls(words, (m, n, k))

    def word(self, *names: str) -> Word | None:
        """The first of these words that the mapping has."""
        found = {w.name: w for w in self.words}
        return next((found[name] for name in names if name in found), None)

    def has(self, name: str) -> bool:
        return self.word(name) is not None

    @property
    def in_place(self) -> bool:
        """Whether D is written over C."""
        return self.has("CD")

    @property
    def reads_c(self) -> bool:
        return self.has("C") or self.in_place

    @property
    def beta(self) -> float:
        """Of every problem, where the kernel takes none: what it reads of C it adds."""
        return 1.0 if self.reads_c and not self.has("beta") else 0.0

    @cached_property
    def types(self) -> Types:
        a, b, d = (self._operand(*names) for names in (("A",), ("B",), ("D", "CD")))
        c = self.word("C") or d
        acc = SUMS.get(a.type, "f32")
        return Types(a=a.type, b=b.type, acc=acc, c=c.type, d=d.type)  # type: ignore[arg-type]

    @cached_property
    def layout(self) -> Layouts:
        a, b, d = (self._operand(*names) for names in (("A",), ("B",), ("D", "CD")))
        c = self.word("C") or d
        return Layouts(a=a.layout, b=b.layout, c=c.layout, d=d.layout)  # type: ignore[arg-type]

    def _operand(self, *names: str) -> Word:
        found = self.word(*names)
        assert found is not None  # parse() has seen to it
        return found

    def spec(self, grid: Sequence[Formula]) -> TileSpec:
        """A spec with these types whose block tile is that of the grid, for the problems to be drawn from."""
        m, n, k = self.multiples
        rows, cols = tile_of(grid, "M"), tile_of(grid, "N")
        tile = (m if rows % m else rows, n if cols % n else cols)
        return TileSpec(
            name="foreign",
            block=(*tile, -(-USUAL_TILE // k) * k),
            warp=tile,
            types=self.types,
            layout=self.layout,
        )


def _word(text: str) -> Word:
    name, *more = text.split(":")
    if name in OPERANDS:
        return _operand(text, name, more)
    if more:
        raise SpecError(f"--gemm: {text!r}: only {', '.join(OPERANDS)} have a type and a layout")
    if name in SIZES:
        return Word("size", name)
    if name in STRIDES:
        return Word("stride", name)
    if name in SCALARS:
        return Word("scalar", name)
    if array := _ARRAY.fullmatch(text):
        if array["type"] not in (*DTYPES, *SCRATCH):
            near = get_close_matches(array["type"], (*DTYPES, *SCRATCH), n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise SpecError(f"--gemm: {text!r}: {array['type']!r} is no type{hint}")
        try:
            size, fill = Formula(array["size"]), float(array["fill"] or "nan")
        except ValueError as error:
            raise SpecError(f"--gemm: {text!r}: {error}") from None
        return Word("scratch", array["type"], number=fill, size=size)
    try:
        return Word("number", text, number=int(text, 0))
    except ValueError:
        pass
    try:
        return Word("number", text, number=float(text))
    except ValueError:
        pass
    known = (*OPERANDS, *SIZES, *STRIDES, *SCALARS)
    near = get_close_matches(text, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise SpecError(
        f"--gemm: {text!r} is none of {', '.join(known)}, no number and no TYPE[SIZE]{hint}"
    )


def _operand(text: str, name: str, more: Sequence[str]) -> Word:
    kind, layout = "f32", "row"
    for part in more:
        if part in ("row", "col"):
            layout = part
        elif part in DTYPES:
            kind = part
        else:
            raise SpecError(f"--gemm: {text!r}: {part!r} is no type, and neither row nor col")
    return Word("operand", name, kind, layout)


def grid_of(text: str) -> tuple[Formula, ...]:
    """``"(N+31)/32,(M+31)/32"`` as one to three formulas in M, N and K.

    Raises
    ------
    SpecError
        If it is none, or names anything else.
    """
    try:
        found = tuple(Formula(part.strip()) for part in text.split(","))
        for formula in found:
            formula(M=1, N=1, K=1)
    except NameError as error:
        raise SpecError(f"--grid {text!r}: {error}; M, N and K are known") from None
    except (ValueError, ZeroDivisionError) as error:
        raise SpecError(f"--grid {text!r}: {error}") from None
    if len(found) > 3:
        raise SpecError(f"--grid {text!r}: one to three sizes are needed")
    return found


def blocks(grid: Sequence[Formula], m: int, n: int, k: int) -> tuple[int, ...]:
    """The grid of one problem; with a 0 in it nothing is launched.

    So it is for fewer blocks than none, and where a formula divides by a size that is 0.
    """
    try:
        return tuple(max(0, formula(M=m, N=n, K=k)) for formula in grid)
    except ZeroDivisionError:
        return (0,) * len(grid)


def tile_of(grid: Sequence[Formula], axis: Literal["M", "N"]) -> int:
    """Rows or columns of D that one block computes, by how the grid grows."""
    first = blocks(grid, 1, 1, 1)
    for extent in range(2, LARGEST_TILE + 2):
        m, n = (extent, 1) if axis == "M" else (1, extent)
        if blocks(grid, m, n, 1) != first:
            # What rounds down has no block at all for less than a tile.
            return extent if 0 in first else extent - 1
    return USUAL_TILE
