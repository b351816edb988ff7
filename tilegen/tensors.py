"""Arrays of other libraries: torch's tensors as they are, and what speaks DLPack on the host as NumPy's."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilegen.dtypes import DTYPES
from tilegen.errors import LaunchError

# torch's names of the types that both know; of tf32, torch has the f32 that it is stored in.
TORCH_TYPES = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
    "float8_e4m3fnuz": "e4m3fnuz",
    "float8_e5m2fnuz": "e5m2fnuz",
    "int8": "s8",
    "uint8": "u8",
    "int32": "s32",
}
TORCH_NAMES = {ours: torchs for torchs, ours in TORCH_TYPES.items()} | {"tf32": "float32"}
# kDLCPU of DLDeviceType (DLPack, dlpack.h).
DLPACK_CPU = 1
RAW = {1: "uint8", 2: "uint16"}


def is_tensor(array: Any) -> bool:
    """Whether it is torch's; a program that holds one has imported torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def any_tensor(arrays: Sequence[Any]) -> bool:
    """Whether a result belongs to torch: one of the arrays does."""
    return "torch" in sys.modules and any(is_tensor(array) for array in arrays)


def tensor_type(name: str, tensor: Any) -> np.dtype[Any]:
    """NumPy's type of a tensor's elements.

    Raises
    ------
    LaunchError
        For a type that tilegen does not know, and for a tensor whose gradient torch would miss.
    """
    import torch

    kind = str(tensor.dtype).removeprefix("torch.")
    if kind not in TORCH_TYPES:
        raise LaunchError(f"{name}: its type is {tensor.dtype}, which no kernel takes")
    if tensor.requires_grad and torch.is_grad_enabled():
        raise LaunchError(
            f"{name}: the tensor requires a gradient, and a kernel records none: pass "
            f"{name}.detach(), or make the kernel a torch operator (examples/06_torch_op.py)"
        )
    if tensor.is_neg() or tensor.is_conj():
        raise LaunchError(f"{name}: the tensor is a lazy view; pass {name}.resolve_neg()")
    return DTYPES[TORCH_TYPES[kind]].numpy


def host_view(name: str, array: Any) -> Any:
    """A NumPy array on the memory of one that lies on the host; anything else as it is.

    Raises
    ------
    LaunchError
        If its library does not give the memory away.
    """
    if isinstance(array, np.ndarray):
        return array
    if is_tensor(array):
        if array.device.type != "cpu":
            return array
        import torch

        kind = tensor_type(name, array)
        plain = array.detach()
        if kind.isbuiltin != 1:  # NumPy has no such type, and torch no view of it
            plain = plain.view(getattr(torch, RAW[kind.itemsize]))
        return plain.numpy().view(kind)
    device = getattr(array, "__dlpack_device__", None)
    if device is None or not hasattr(array, "__dlpack__") or device()[0] != DLPACK_CPU:
        return array
    try:
        return np.from_dlpack(array)
    except (BufferError, RuntimeError, TypeError) as error:
        raise LaunchError(f"{name}: NumPy cannot see this array: {error}") from None


def as_tensor(array: np.ndarray[Any, Any], dtype: str) -> Any:
    """torch's view of a NumPy array that was made for it."""
    import torch

    kind = getattr(torch, TORCH_NAMES[dtype])
    if array.dtype.isbuiltin == 1:
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(RAW[array.itemsize])).view(kind)


def empty_tensor(shape: tuple[int, ...], dtype: str, majorness: str, device: Any) -> Any:
    """A new dense tensor on a device, its last two axes row- or column-major.

    Raises
    ------
    LaunchError
        If the device has no memory for it.
    """
    import torch

    kind = getattr(torch, TORCH_NAMES[dtype])
    turned = shape if majorness == "row" else (*shape[:-2], shape[-1], shape[-2])
    try:
        made = torch.empty(turned, dtype=kind, device=device)
    except torch.cuda.OutOfMemoryError:
        size = math.prod(shape) * DTYPES[dtype].bytes
        raise LaunchError(f"out: {device} has no memory for its {size} bytes") from None
    return made if majorness == "row" else made.transpose(-1, -2)
