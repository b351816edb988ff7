"""What a launch sees of a kernel: entry points, their arguments, and the formulas of their sizes."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

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
        _code(self.text)

    def __call__(self, **names: int) -> int:
        return int(eval(_code(self.text), {"__builtins__": {}}, names))

    def __str__(self) -> str:
        return self.text


# Plans share a few texts, and each plan that is tried and refused has its own formulas.
@lru_cache(maxsize=4096)
def _code(text: str) -> CodeType:
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError:
        raise ValueError(f"{text!r} is not an expression") from None
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and type(node.value) is not int:
            raise ValueError(f"{text!r} holds {node.value!r}, which is no integer")
        if not isinstance(node, _FORMULA_NODES):
            raise ValueError(f"{text!r} is not plain arithmetic")
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            node.op = ast.FloorDiv()
    return compile(tree, "<formula>", "eval")


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


def in_lines(arguments: Sequence[Argument]) -> list[list[Argument]]:
    """An argument list as a text shows it: a line for the sizes and one for each operand."""
    lines: list[list[Argument]] = [[]]
    for argument in arguments:
        starts_operand = argument.is_pointer or argument.kind == "scalar"
        if starts_operand and not (lines[-1] and lines[-1][-1].kind == "scalar"):
            lines.append([])
        lines[-1].append(argument)
    return [line for line in lines if line]


def passed_on(entry: Entry, body: Sequence[Argument]) -> str:
    """With what an entry calls the body that it shares with others: steps it does not take are 1."""
    own = {argument.name for argument in entry.arguments}
    return ", ".join(a.name if a.name in own else "1" for a in body)
