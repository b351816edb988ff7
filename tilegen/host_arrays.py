"""NumPy arrays as operands: what every backend that computes on the host checks and reads of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilegen.backend import Operand
from tilegen.dtypes import DTYPES
from tilegen.errors import LaunchError
from tilegen.tensors import as_tensor

# Of arrays made here, in bytes: the widest access of any form.
ALIGNMENT = 64


def host_operand(name: str, array: Any, *, writes: bool, takes: str = "numpy.ndarray") -> Operand:
    """The array as an operand whose handle is the address of its first element.

    Parameters
    ----------
    name : str
        The operand, as messages name it.
    array : numpy.ndarray
    writes : bool
        Whether the kernel writes it.
    takes : str
        What the backend takes, as messages name it.

    Raises
    ------
    LaunchError
        If it is no array, read-only and to be written, or not aligned to its elements.
    """
    if type(array) is not np.ndarray:
        if not isinstance(array, np.ndarray):
            raise LaunchError(f"{name}: a {takes} is needed, not {type(array).__name__}")
        if isinstance(array, np.ma.MaskedArray):
            raise LaunchError(
                f"{name}: a masked array's mask would be ignored; pass array.filled(...)"
            )
    if writes and not array.flags.writeable:
        raise LaunchError(f"{name}: the array is read-only")
    # Several times faster than array.ctypes.data, and read on every call.
    size, address = array.itemsize, array.__array_interface__["data"][0]
    if not size:
        raise LaunchError(f"{name}: its type is {array.dtype}, whose elements have no bytes")
    if any(stride % size for stride in array.strides):
        raise LaunchError(f"{name}: its strides {array.strides} are no multiple of {size} bytes")
    if address % size and array.size:
        raise LaunchError(f"{name}: it starts at an address that is no multiple of {size} bytes")
    shape, strides = three_axes(array.shape, [stride // size for stride in array.strides])
    return Operand(
        address, 0, address, array.dtype, shape, strides, array.ndim, array, "host", address
    )


def three_axes(
    shape: Sequence[int], strides: Sequence[int]
) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Shape and strides as (batch, rows, columns); a vector is one row.

    Any other number of axes gives one element: the rank, which the core checks, refuses it.
    """
    if len(shape) == 1:
        return (1, 1, shape[0]), (0, 0, strides[0])
    if len(shape) == 2:
        return (1, shape[0], shape[1]), (0, strides[0], strides[1])
    if len(shape) == 3:
        return (shape[0], shape[1], shape[2]), (strides[0], strides[1], strides[2])
    return (1, 1, 1), (0, 0, 0)


def host_result(shape: tuple[int, ...], dtype: str, majorness: str, *, tensor: bool) -> Any:
    """A new array or, of the same memory, a new tensor of torch's."""
    made = host_empty(shape, dtype, majorness)
    return as_tensor(made, dtype) if tensor else made


def host_empty(shape: tuple[int, ...], dtype: str, majorness: str) -> np.ndarray[Any, Any]:
    """A new array, its last two axes row- or column-major, at a multiple of ``ALIGNMENT`` bytes.

    NumPy's own arrays lie as ``malloc`` pleases, and which entry runs would be left to chance.

    Raises
    ------
    LaunchError
        If there is no memory for it.
    """
    kind = DTYPES[dtype].numpy
    size = math.prod(shape) * kind.itemsize
    try:
        memory = np.empty(size + ALIGNMENT, np.uint8)
    except (MemoryError, ValueError):  # the latter beyond what NumPy counts to
        raise LaunchError(
            f"out: {' x '.join(map(str, shape))} elements of {dtype} need {size} bytes, and there is "
            "no memory for them"
        ) from None
    start = -memory.__array_interface__["data"][0] % ALIGNMENT
    if majorness == "row":
        return np.ndarray(shape, kind, memory, start)
    turned = np.ndarray((*shape[:-2], shape[-1], shape[-2]), kind, memory, start)
    return np.swapaxes(turned, -1, -2)
