"""One kernel through all trials, on each of its entries: what the first failing one shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tilegen.backend import Device
from tilegen.build import KernelBinary
from tilegen.dtypes import DTYPES
from tilegen.errors import LaunchError, VerifyError
from tilegen.kernel import Kernel
from tilegen.testing import apply_epilogue, check_problem, strided
from tilegen.tiling import operand_type

from .memory import sparse
from .problems import trials

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tilegen.plan import KernelPlan
    from tilegen.spec import TileSpec

# Over 31 bits, and a multiple of every vector, so that all entries take it.
FAR = 2**31 + 64
# Of each axis where elements lie far apart: more than the rows of a tile that a thread of a block of 64
# may begin with, so that its later ones lie far apart too. And what lies from row to row otherwise.
SIDE, NEAR = 67, 128
Apart = Literal["rows", "batches", "start"]


class Checks:
    """The trials of one kernel's plan, each on the entries that take it.

    Parameters
    ----------
    plan : KernelPlan
    device : Device
    taken : sequence of int, optional
        What :meth:`sound` found before, in another process.
    """

    def __init__(self, plan: KernelPlan, device: Device, taken: Sequence[int] = ()) -> None:
        self.device, self.plan, self.taken = device, plan, list(taken)
        self._trials = [(t, e.name) for t in trials(plan) for e in plan.main_entries]
        self._far: list[Apart] = []
        # Where a device copies host arrays, the far ones are too large to be copied; the emulator
        # copies their elements alone.
        if plan.arch.kind == "cpu" or device.rung == "emulator":
            self._far = ["rows", "start"]
            if plan.spec.batch == "strided":
                self._far.append("batches")

    def sound(self, binary: KernelBinary) -> list[int]:
        """Run the unchanged text, which must pass; the trials that an entry takes, by number.

        Raises
        ------
        VerifyError
            If it fails, or an entry takes no trial.
        """
        kernels = self._kernels(binary)
        self.taken = []
        for number, (trial, entry) in enumerate(self._trials):
            try:
                check_problem(kernels[entry], trial.problem, trial.memory)
            except LaunchError:
                continue
            self.taken.append(number)
        entries = {e.name for e in self.plan.main_entries}
        if idle := entries - {self._trials[number][1] for number in self.taken}:
            raise VerifyError(
                f"no trial runs the entry {', '.join(sorted(idle))} of {self.plan.name}"
            )
        self.run(binary)
        return self.taken

    def _kernels(self, binary: KernelBinary) -> dict[str, Kernel]:
        """A kernel for each entry that has it alone, so that a launch has no choice."""
        loaded = self.device.load(binary)
        out = {}
        for entry in self.plan.main_entries:
            kept = tuple(e for e in self.plan.entries if e.role != "main" or e.name == entry.name)
            source = replace(binary.source, plan=replace(self.plan, entries=kept))
            out[entry.name] = Kernel(replace(binary, source=source), self.device, loaded)
        return out

    def run(self, binary: KernelBinary) -> int:
        """Run everything; the number of launches, if no fault shows.

        Raises
        ------
        VerifyError, LaunchError
            For the first fault. One that ends the process shows by that.
        """
        kernels = self._kernels(binary)
        for trial, entry in (self._trials[number] for number in self.taken):
            check_problem(kernels[entry], trial.problem, trial.memory)
        for apart in self._far:
            for kernel in kernels.values():
                check_far(kernel, apart)
        return len(self.taken) + len(self._far) * len(kernels)


def check_far(kernel: Kernel, apart: Apart) -> None:
    """A problem of few tiles whose operands reach over 2**31 elements, so that a 32-bit offset shows.

    Raises
    ------
    VerifyError
        If D is not what it should be.
    """
    spec = kernel.plan.spec
    rng = np.random.default_rng(5)
    batch = (2,) if spec.batch == "strided" else ()
    size = dict.fromkeys(("a", "b", "c", "d", "residual"), (SIDE, SIDE))
    near: dict[str, NDArray[Any]] = {}
    arrays: dict[str, NDArray[Any]] = {}
    for name, shape in [
        *size.items(),
        *((s.op, (SIDE,)) for s in spec.epilogue if s.op in ("bias", "scale")),
    ]:
        if name == "residual" and not any(s.op == name for s in spec.epilogue):
            continue
        kind = DTYPES[operand_type(spec, name)]
        low = 0 if kind.kind == "unsigned" else -3
        near[name] = rng.integers(low, 4, (*batch, *shape)).astype(kind.numpy)
        arrays[name] = _far(near[name], _majorness(spec, name), apart)
        arrays[name][...] = near[name]
    value = near["a"].astype(np.float64) @ near["b"].astype(np.float64) + 2.0 * near["c"].astype(
        np.float64
    )
    extras: dict[str, NDArray[Any]] = {
        name: near[name] for name in ("bias", "scale", "residual") if name in near
    }
    want, slack = apply_epilogue(spec, value, np.zeros_like(value), extras)
    out = DTYPES[spec.types.d]
    if not out.is_float:
        want = np.clip(np.rint(want), out.smallest, out.largest)
    more: dict[str, Any] = {name: arrays[name] for name in extras}
    got = kernel(arrays["a"], arrays["b"], arrays["c"], beta=2, out=arrays["d"], **more).astype(
        np.float64
    )
    if not np.all(np.abs(got - want) <= slack + out.roundoff * np.abs(want)):
        raise VerifyError(f"D is wrong where {apart} lie over 2**31 elements apart")


def _majorness(spec: TileSpec, name: str) -> str:
    return str(getattr(spec.layout, "d" if name == "residual" else name, "row"))


def _far(like: NDArray[Any], majorness: str, apart: Apart) -> NDArray[Any]:
    """An array of this shape in memory of which only a few pages are ever touched."""
    turned = (
        like.shape if majorness == "row" else (*like.shape[:-2], like.shape[-1], like.shape[-2])
    )
    strides = list(_strides(turned, apart))
    start = FAR if apart == "start" else 0
    span = start + 1 + sum((n - 1) * s for n, s in zip(turned, strides, strict=True))
    room = sparse(span, like.dtype)
    bytes_apart = tuple(s * like.itemsize for s in strides)
    view = strided(room[start:], turned, bytes_apart)
    return view if majorness == "row" else np.swapaxes(view, -1, -2)


def _strides(shape: tuple[int, ...], apart: Apart) -> Iterator[int]:
    # A vector with a batch has two axes, of which the first is the batch.
    is_matrix = len(shape) == 3 or (len(shape) == 2 and shape[0] != 2)
    rows = FAR if apart == "rows" else NEAR
    if is_matrix:
        if len(shape) == 3:
            # Rows that far apart have room for another batch between them: half of the addresses, of
            # which the race detector takes 32 times as many, and a process has 2**47.
            yield {"batches": FAR, "rows": NEAR}.get(apart, rows * shape[1])
        yield rows
    elif len(shape) == 2:
        yield FAR if apart == "batches" else NEAR
    yield 1
