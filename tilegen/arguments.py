"""The arrays of a call against the plan: types, shapes, strides, scalars, overlap; each checked in words."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tilegen.backend import Operand
from tilegen.dtypes import DTYPES, DType
from tilegen.errors import LaunchError
from tilegen.plan import KernelPlan
from tilegen.tiling import operand_type

if TYPE_CHECKING:
    import numpy as np

AXES = {"a": ("m", "k"), "b": ("k", "n"), "c": ("m", "n"), "d": ("m", "n"), "residual": ("m", "n")}
# What a caller has passed as ``out`` is D to the kernel.
CALLED = {"d": "out"}
# Addresses are 64-bit and signed in every language that offsets them.
ADDRESS_SPACE = 2**63 - 1
# How long NumPy may look for an element that two views share; beyond it they count as overlapping.
SEARCH = 10_000


class Strides(NamedTuple):
    """An operand's strides in elements, sorted by what they are for."""

    ld: int
    step: int
    batch: int


@dataclass(frozen=True)
class Fit:
    """What follows from the types, shapes and strides of a call, whatever the addresses.

    Attributes
    ----------
    sizes : dict
        ``M``, ``N``, ``K``, ``batch`` and ``split_k``, by the names of the formulas.
    strides : dict
        Of every operand, ``c`` and ``d`` included.
    extents : dict
        The longest axis of every operand given.
    shape : tuple of int
        Of a D that the call makes.
    choices : dict
        What the kernel has made of this fit for operands at one alignment.
    """

    sizes: dict[str, int]
    strides: dict[str, Strides]
    extents: dict[str, int]
    shape: tuple[int, ...]
    choices: dict[Any, Any] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether the output has no elements, so that nothing is launched."""
        return not (self.sizes["M"] and self.sizes["N"] and self.sizes["batch"])


def fit(plan: KernelPlan, given: Mapping[str, Operand]) -> Fit:
    """Check the operands against the plan and each other.

    Parameters
    ----------
    plan : KernelPlan
    given : mapping
        By name; ``"d"`` only where the caller gave ``out``.

    Raises
    ------
    LaunchError
        Names the operand, what it is and what is needed.
    """
    spec = plan.spec
    operands = {name: _checked(plan, name, operand) for name, operand in given.items()}
    sizes = _sizes(plan, {n: op for n, op in operands.items() if n != "d"})
    # A batch of vectors is a batch too, with matrices that serve all of it.
    rank = 3 if any(op.rank == (3 if n in AXES else 2) for n, op in operands.items()) else 2
    shape = (sizes["batch"], sizes["M"], sizes["N"])
    if "d" not in operands:
        size = DTYPES[spec.types.d].bytes
        if math.prod(shape) * size > ADDRESS_SPACE:
            raise LaunchError(
                f"out: {' x '.join(map(str, shape[3 - rank :]))} elements of {size} bytes are more "
                "than an address can reach"
            )
        _, rows, cols = shape
        row_major = spec.layout.d == "row"
        dense = (rows * cols, cols, 1) if row_major else (rows * cols, 1, rows)
        operands["d"] = Operand(None, 0, 0, DTYPES[spec.types.d].numpy, shape, dense, rank)
    _check_shapes(plan, operands, sizes)
    strides = {name: _strides(plan, name, op) for name, op in operands.items()}
    # C is never read where beta is 0, yet the entry wants a pointer.
    strides.setdefault("c", strides["d"])
    extents = {name: max(op.shape) for name, op in operands.items()}
    return Fit(sizes, strides, extents, shape[3 - rank :])


def _checked(plan: KernelPlan, name: str, operand: Operand) -> Operand:
    """The operand with three axes, its type and rank checked."""
    wanted, called = DTYPES[operand_type(plan.spec, name)].numpy, CALLED.get(name, name)
    if operand.dtype != wanted:
        raise LaunchError(f"{called}: its type is {operand.dtype}, and the spec asks for {wanted}")
    vector, batched = name in ("bias", "scale"), plan.spec.batch == "strided"
    if operand.rank not in ((1, 2) if vector else (2, 3)):
        takes = "1, or 2 with a batch" if vector else "2, or 3 with a batch"
        raise LaunchError(f"{called}: it has {operand.rank} dimensions; it must have {takes}")
    if operand.rank == (2 if vector else 3) and not batched:
        axes = "elements" if vector else "rows, columns"
        raise LaunchError(
            f'{called}: it has {operand.rank} dimensions, and the spec has batch = "none"; '
            f'batch = "strided" takes (batch, {axes})'
        )
    if vector and operand.rank == 2:
        (_, count, length), (_, apart, step) = operand.shape, operand.strides
        return operand._replace(shape=(count, 1, length), strides=(apart, 0, step))
    return operand


def _sizes(plan: KernelPlan, operands: Mapping[str, Operand]) -> dict[str, int]:
    a, b = operands["a"].shape, operands["b"].shape
    if a[2] != b[1]:
        raise LaunchError(
            f"a is {a[1]} x {a[2]} and b is {b[1]} x {b[2]}: the K of both must agree"
        )
    batches = {op.shape[0] for op in operands.values()}
    if len(batches - {1}) > 1:
        raise LaunchError(f"the batch counts {sorted(batches)} do not agree")
    batch = next(iter(batches - {1}), 1)
    return {"M": a[1], "N": b[2], "K": a[2], "batch": batch, "split_k": plan.split_k}


def _check_shapes(
    plan: KernelPlan, operands: Mapping[str, Operand], sizes: Mapping[str, int]
) -> None:
    rows, cols = sizes["M"], sizes["N"]
    along: dict[str, str] = {s.op: str(s.along) for s in plan.spec.epilogue}
    for name, operand in operands.items():
        _, height, width = operand.shape
        if name in ("c", "d", "residual") and (height, width) != (rows, cols):
            raise LaunchError(
                f"{CALLED.get(name, name)}: it is {height} x {width}, and a·b is {rows} x {cols}"
            )
        if name in ("bias", "scale") and width != (need := sizes[along[name].upper()]):
            raise LaunchError(
                f"{name}: it has {width} elements, and along {along[name]} there are {need}"
            )
    if operands["d"].shape[0] != sizes["batch"]:
        raise LaunchError(
            f"out: it has {operands['d'].shape[0]} batches and the inputs have {sizes['batch']}"
        )


def _strides(plan: KernelPlan, name: str, operand: Operand) -> Strides:
    shape, strides, called = operand.shape, operand.strides, CALLED.get(name, name)
    if 0 in shape:
        # No element is ever reached, and NumPy gives such arrays strides of 0.
        return Strides(1, 1, 0)
    vector = name in ("bias", "scale")
    axes = ("batch", "", "its length") if vector else ("batch", *AXES[name])
    # The stride of an axis with at most one element is never used, so it never counts.
    for axis, stride, extent in zip(axes, strides, shape, strict=True):
        if extent > 1 and stride < 0:
            raise LaunchError(
                f"{called}: its stride along {axis} is {stride} elements, and negative strides are "
                "not taken; copy it first"
            )
    batch = strides[0] if shape[0] > 1 else 0
    if vector:
        if shape[2] > 1 and strides[2] != 1:
            raise LaunchError(f"{name}: its stride is {strides[2]} elements; it must be 1")
        return Strides(0, 1, batch)
    key = "d" if name == "residual" else name
    majorness = getattr(plan.spec.layout, key)
    fast, slow = (2, 1) if majorness == "row" else (1, 2)
    step = strides[fast] if shape[fast] > 1 else 1
    ld = strides[slow] if shape[slow] > 1 else max(1, shape[fast])
    axis = axes[fast]
    if step not in (0, 1):
        if strides[slow] == 1:
            other = "col" if majorness == "row" else "row"
            raise LaunchError(
                f"{called}: it is {other}-major (strides {strides[1]}, {strides[2]}), "
                f'and the spec has layout.{key} = "{majorness}"'
            )
        raise LaunchError(
            f"{called}: its stride along {axis} is {step} elements; "
            f'layout.{key} = "{majorness}" needs 1, or 0 to broadcast'
        )
    if name == "residual" and step == 0:
        raise LaunchError(f"residual: its stride along {axis} is 0; it must be 1")
    if name == "d":
        if step == 0 or ld == 0:
            raise LaunchError("out: a stride of 0 would write one element many times")
        span = shape[fast]
        for what, stride, extent in sorted(
            (("rows", ld, shape[slow]), ("batches", batch, shape[0])), key=lambda axis: axis[1]
        ):
            if extent < 2:
                continue
            if stride < span:
                limit = f"extent {span}" if what == "rows" else str(span)
                raise LaunchError(f"out: its {what} overlap (stride {stride} under {limit})")
            span += (extent - 1) * stride
    return Strides(ld, step, batch)


def check_overlap(operands: Mapping[str, Operand], strides: Mapping[str, Strides]) -> None:
    """Refuse an ``out`` that shares an element with an input, C and the residual as a whole excepted.

    Raises
    ------
    LaunchError
        Names the input.
    """
    out = operands["d"]
    low, high = out.span
    for name, operand in operands.items():
        if name == "d" or operand.memory is None or operand.memory != out.memory:
            continue
        start, stop = operand.span
        if start >= high or low >= stop:
            continue
        same = (
            name in ("c", "residual")
            and start == low
            and operand.shape == out.shape
            and operand.dtype.itemsize == out.dtype.itemsize
            and strides[name] == strides["d"]
        )
        if not same and _share(operand, out):
            raise LaunchError(f"out: it overlaps {name} in memory, and would change it midway")


class _Bytes:
    """An operand's elements as NumPy sees memory; they are located, never read."""

    def __init__(self, operand: Operand, base: int) -> None:
        size = operand.dtype.itemsize
        self.__array_interface__ = {
            "version": 3,
            "typestr": f"|V{size}",
            "shape": operand.shape,
            "strides": tuple(stride * size for stride in operand.strides),
            # Any place will do as long as it is the same for both, and not 0.
            "data": (operand.position - base + 4096, False),
        }


def _share(one: Operand, other: Operand) -> bool:
    import numpy as np

    base = min(one.position, other.position)
    a, b = (np.asarray(_Bytes(operand, base)) for operand in (one, other))
    work: Any = SEARCH  # NumPy's stubs know the two named limits only
    try:
        return bool(np.shares_memory(a, b, max_work=work))
    except np.exceptions.TooHardError:
        return True


def scalar(kind: DType, name: str, value: Any) -> np.generic[Any]:
    """Alpha or beta in the type that the kernel computes in.

    Raises
    ------
    LaunchError
        If it is no real number, or the type cannot hold it.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise LaunchError(f"{name} = {value!r} is not a real number")
    try:
        number = float(value)
    except OverflowError:
        raise LaunchError(f"{name}: it does not fit in {kind.name}") from None
    if not kind.is_float and not number.is_integer():
        raise LaunchError(f"{name} = {value} is not whole, and it is taken in {kind.name}")
    if not kind.is_float and abs(number) > kind.largest:
        limit = int(kind.largest)
        raise LaunchError(f"{name} = {value} is beyond what {kind.name} takes here, +-{limit}")
    held: np.generic[Any]
    if abs(number) <= kind.largest or math.isinf(number):
        held = kind.numpy.type(number if kind.is_float else int(number))
        return held
    import numpy as np

    with np.errstate(over="ignore", invalid="ignore"):
        held = kind.numpy.type(number)
    return held
