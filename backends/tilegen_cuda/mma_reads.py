"""The expressions by which a warp's lanes read fragments from shared memory."""

from __future__ import annotations

from dataclasses import dataclass

from .mma_tiles import CHUNK_BYTES, OperandTile


@dataclass(frozen=True)
class Ldmatrix:
    """One ldmatrix function of the text."""

    name: str
    count: int
    suffix: str

    @property
    def says(self) -> str:
        return ", turned" if self.suffix else ""

    @property
    def parameters(self) -> str:
        return ", ".join(f"unsigned &r{i}" for i in range(self.count))

    @property
    def registers(self) -> str:
        return "{" + ", ".join(f"%{i}" for i in range(self.count)) + "}"

    @property
    def outputs(self) -> str:
        return ", ".join(f'"=r"(r{i})' for i in range(self.count))


@dataclass(frozen=True)
class Reads:
    """How the fragments that begin with ``i`` are read; ``first`` and ``k0`` are the warp's place.

    Attributes
    ----------
    ldmatrix : Ldmatrix or None
        ``None``: each lane reads its own elements.
    slow, fast : str
        The place in the tile whose address the lane gives.
    targets : str
        The registers that it fills, in the order of the matrices.
    word : str
        The expression of register ``r``, where each lane reads its own.
    sorted : tuple of str
        For pairs of bytes: the registers of the even and the odd neighbour, for each half of K.
    """

    ldmatrix: Ldmatrix | None
    slow: str
    fast: str
    targets: str = ""
    word: str = ""
    sorted: tuple[str, str, str, str] = ("", "", "", "")

    @classmethod
    def of(cls, tile: OperandTile, registers: int) -> Reads:
        """The expressions of an operand whose fragments have so many registers."""
        if tile.way == "words":
            return _words(tile)
        suffix = "" if tile.way == "ldmatrix" else ".trans"
        name = f"ldmatrix_{'turned_' if suffix else ''}x{tile.matrices}"
        ldmatrix = Ldmatrix(name, tile.matrices, suffix)
        x = f"first + i * {_extent(tile)}"
        if tile.way == "ldmatrix_pairs":
            k = "k0 + lane / 16 * 16 + lane % 8 / 2 * 4 + lane % 2 * 2 + lane / 8 % 2"
            halves = ("[i][0]", "[i][1]", "[i][2]", "[i][3]")
            fragments = ("[i][0]", "[i + 1][0]", "[i][1]", "[i + 1][1]")
            even, odd, second_even, second_odd = halves if tile.is_row else fragments
            return cls(
                ldmatrix,
                k,
                x,
                sorted=(f"to{even}", f"to{odd}", f"to{second_even}", f"to{second_odd}"),
            )
        targets = ", ".join(
            f"to[i{f' + {f}' if f else ''}][{r}]"
            for f in range(tile.group)
            for r in range(registers)
        )
        across, along = _lanes(tile)
        if tile.along_k:
            return cls(ldmatrix, x + across, f"k0{along}", targets)
        return cls(ldmatrix, f"k0{along}", x + across, targets)


def _extent(tile: OperandTile) -> str:
    return f"MMA_{'M' if tile.operand == 'a' else 'N'}"


def _lanes(tile: OperandTile) -> tuple[str, str]:
    """What a lane adds to the place of its fragment, across K and along it.

    Registers fill the halves of 16 rows first, then the halves of K, then the next fragments.
    """
    halves = tile.mma_extent // 8
    deep = max(1, tile.mma_depth * tile.element_bytes // CHUNK_BYTES)
    chunk = f"{tile.operand.upper()}_CHUNK"
    if tile.along_k:
        if halves == 2:
            return " + lane % 16", f" + lane / 16 * {chunk}" if deep == 2 else ""
        if deep == 1:
            return f" + lane % {8 * tile.group}", ""
        rows = " + lane / 16 * 8 + lane % 8" if tile.group == 2 else " + lane % 8"
        return rows, f" + lane / 8 % 2 * {chunk}"
    if halves == 2:
        return " + lane / 8 % 2 * 8", " + lane / 16 * 8 + lane % 8" if deep == 2 else " + lane % 8"
    if deep == 2:
        return " + lane / 16 * 8" if tile.group == 2 else "", " + lane % 16"
    return f" + lane / 8 % {tile.group} * 8" if tile.group > 1 else "", " + lane % 8"


def _words(tile: OperandTile) -> Reads:
    """A lane's own elements: its row and its k, then the row 8 below, then the second half of K."""
    x, k = f"first + i * {_extent(tile)} + lane / 4", "k0 + lane % 4"
    if tile.element_bytes == 4:
        x, k = (f"{x} + r % 2 * 8", f"{k} + r / 2 * 4") if tile.is_row else (x, f"{k} + r * 4")
    slow, fast = (x, k) if tile.along_k else (k, x)
    element = f"tile[place_{tile.operand}({slow}, {fast})]"
    word = f"__float_as_uint({element})" if tile.element_bytes == 4 else element
    return Reads(None, slow, fast, word=word)
