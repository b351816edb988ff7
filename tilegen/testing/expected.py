"""The right answer: the product of rounded operands and the epilogue, in float64."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tilegen.dtypes import DTYPES, DType
from tilegen.spec import TileSpec
from tilegen.testing.problem import Arrays, Problem
from tilegen.tiling import compute_type

if TYPE_CHECKING:
    from numpy.typing import NDArray


def operand_values(array: NDArray[Any], kind: str) -> NDArray[Any]:
    """What a product makes of an operand: tf32 is kept in f32 and rounded, ties away from zero.

    So rounds cvt.rna.tf32.f32 (PTX ISA, cvt); every other type is multiplied as it is stored.
    """
    if kind != "tf32":
        return array
    bits = np.ascontiguousarray(array).view(np.uint32)
    nearest = ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.where(np.isfinite(array), nearest.reshape(array.shape), array)


# Multiply-adds up to which OpenBLAS uses one thread (interface/gemm.c, SMP_THRESHOLD_MIN times
# GEMM_MULTITHREAD_THRESHOLD), and those from which further threads are worth having.
OF_ONE_THREAD, WORTH_THREADS = 2**18, 2**27


def multiplied(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """``a @ b`` by one thread, unless it is large.

    The other threads spin for a while behind each product, on the processors that emulate a kernel.
    """
    work = a.shape[-2] * a.shape[-1] * b.shape[-1]
    return np.asarray(a @ b) if work > WORTH_THREADS else _in_parts(a, b)


def _in_parts(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    rows, depth, cols = *a.shape[-2:], b.shape[-1]
    half = max(rows, cols) // 2
    if not half or rows * depth * cols <= OF_ONE_THREAD:
        return np.asarray(a @ b)
    if rows >= cols:
        parts = [_in_parts(a[..., :half, :], b), _in_parts(a[..., half:, :], b)]
        return np.concatenate(parts, axis=-2)
    return np.concatenate([_in_parts(a, b[..., :half]), _in_parts(a, b[..., half:])], axis=-1)


def reference(
    problem: Problem, spec: TileSpec, arrays: Arrays, *, c: NDArray[Any] | None = None
) -> tuple[NDArray[Any], NDArray[Any]]:
    """D from the rounded operands, and the magnitude |alpha||A||B| + |beta||C|.

    In float64, or in NumPy's longest type where the kernel itself sums in f64.

    Parameters
    ----------
    c : array, optional
        C as it was before the call, where D is written over it.
    """
    wide: Any = np.longdouble if spec.types.acc == "f64" else np.float64
    a = operand_values(arrays.a, spec.types.a).astype(wide)
    b = operand_values(arrays.b, spec.types.b).astype(wide)
    shape = arrays.out.shape
    use_ab = problem.alpha != 0 and problem.k > 0
    product: NDArray[Any] = np.zeros(shape, wide)
    size: NDArray[Any] = np.zeros(shape, wide)
    if use_ab:
        with np.errstate(invalid="ignore", over="ignore"):
            product, size = multiplied(a, b), multiplied(np.abs(a), np.abs(b))
    with np.errstate(invalid="ignore"):
        # Without a product nothing is scaled, not even by an alpha of NaN.
        value = problem.alpha * product if use_ab else product
    magnitude = abs(problem.alpha) * size if use_ab else size
    if problem.beta != 0:
        assert c is not None
        with np.errstate(invalid="ignore"):
            value = value + problem.beta * c
        magnitude = magnitude + abs(problem.beta) * np.abs(c)
    return value, magnitude


def apply_epilogue(
    spec: TileSpec, value: NDArray[Any], slack: NDArray[Any], extras: dict[str, NDArray[Any]]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The epilogue in float64, and how far an error of ``slack`` before it can reach after it."""
    unit = DTYPES[compute_type(spec)].roundoff
    for step in spec.epilogue:
        extra = extras.get(step.op)
        if step.op in ("bias", "scale") and extra is not None:
            extra = extra.astype(np.float64)
            extra = extra[..., :, None] if step.along == "m" else extra[..., None, :]
        if step.op == "bias":
            value = value + extra
            slack = slack + unit * np.abs(value)
        elif step.op == "scale":
            assert extra is not None
            value = value * extra
            slack = slack * np.abs(extra) + unit * np.abs(value)
        elif step.op == "residual":
            assert extra is not None
            value = value + extra.astype(np.float64)
            slack = slack + unit * np.abs(value)
        elif step.op == "relu":
            value = np.where(value < 0, 0.0, value)
        elif step.op == "clamp":
            # The text's literals are rounded to the type of the epilogue.
            kind = DTYPES[compute_type(spec)].numpy.type
            value = np.clip(value, float(kind(step.low)), float(kind(step.high)))
        else:
            value = ACTIVATIONS[step.op](value)
            # Slope of at most 1.13 (gelu), and the accuracy of the formula that the text states.
            slack = (
                1.13 * slack
                + 2e-6 * np.maximum(1.0, np.abs(value)) * (unit > 1e-12)
                + (unit <= 1e-12) * 2e-6 * np.maximum(1.0, np.abs(value))
            )
    return value, slack


def _gelu(x: NDArray[Any]) -> NDArray[Any]:
    from math import erf

    return np.asarray(0.5 * x * (1.0 + np.vectorize(erf, otypes=[float])(x / np.sqrt(2.0))))


def _gelu_tanh(x: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3))))


def _silu(x: NDArray[Any]) -> NDArray[Any]:
    with np.errstate(over="ignore"):
        return np.asarray(x / (1.0 + np.exp(-x)))


ACTIVATIONS = {"gelu": _gelu, "gelu_tanh": _gelu_tanh, "silu": _silu}


def rounded(values: NDArray[Any], kind: DType) -> NDArray[Any]:
    """Values rounded to a type, ties to even, integers saturated (NaN gives 0); as float64."""
    if kind.is_float:
        with np.errstate(over="ignore"):
            return np.asarray(values.astype(kind.numpy).astype(np.float64))
    whole = np.rint(np.nan_to_num(values, nan=0.0))
    return np.asarray(np.clip(whole, kind.smallest, kind.largest))
