"""Which operand runs along the rows of the tile: D is always written along its contiguous axis."""

from __future__ import annotations

from dataclasses import dataclass

from tilegen.spec import TileSpec


@dataclass(frozen=True)
class Roles:
    """Row-major D has rows along M; column-major D is computed transposed, with rows along N.

    Attributes
    ----------
    rows, cols : str
        The operand whose elements run along the rows, and the one along the columns.
    swapped : bool
        Whether rows run along N.
    """

    rows: str
    cols: str
    swapped: bool

    @classmethod
    def of(cls, spec: TileSpec) -> Roles:
        return cls("b", "a", True) if spec.layout.d == "col" else cls("a", "b", False)

    @property
    def names(self) -> dict[str, str]:
        """The axes and operands along rows and columns, under the names that templates use."""
        rows, cols = ("N", "M") if self.swapped else ("M", "N")
        return {
            "R": rows,
            "C": cols,
            "row_axis": rows.lower(),
            "col_axis": cols.lower(),
            "r": self.rows,
            "c_": self.cols,
        }

    def order(self, pair: tuple[int, int]) -> tuple[int, int]:
        """(M, N) as (rows, cols), or back."""
        return (pair[1], pair[0]) if self.swapped else (pair[0], pair[1])
