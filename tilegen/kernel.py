"""A loaded kernel: checks the arrays of a call, picks the entry that may run on them, launches it."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tilegen.backend import Device, Loaded, Operand, Session
from tilegen.dtypes import DTYPES
from tilegen.errors import LaunchError
from tilegen.plan import Access, Argument, Entry, KernelPlan
from tilegen.prepared import Part, PreparedLaunch, call_options
from tilegen.tiling import (
    compute_type,
    epilogue_operands,
    operand_type,
)

if TYPE_CHECKING:
    from tilegen.build import KernelBinary

AXES = {"a": ("m", "k"), "b": ("k", "n"), "c": ("m", "n"), "d": ("m", "n"), "residual": ("m", "n")}


@dataclass(frozen=True)
class _Strides:
    """An operand's strides in elements, sorted by what they are for."""

    ld: int
    step: int
    batch: int


@dataclass(frozen=True)
class _Call:
    """One launch, resolved."""

    sizes: dict[str, int]
    operands: dict[str, Operand]
    strides: dict[str, _Strides]
    scalars: dict[str, Any]
    result: Any
    session: Session


class Kernel:
    """A compiled kernel on a device.

    Attributes
    ----------
    binary : KernelBinary
    device : Device
    plan : KernelPlan
    """

    def __init__(self, binary: KernelBinary, device: Device, loaded: Loaded) -> None:
        self.binary = binary
        self.device = device
        self._loaded = loaded
        self.plan: KernelPlan = binary.source.plan
        self._types = {
            name: DTYPES[operand_type(self.plan.spec, name)].numpy
            for name in ("a", "b", "c", "d", "bias", "scale", "residual")
        }

    @property
    def source(self) -> Any:
        """The :class:`KernelSource` it was compiled from."""
        return self.binary.source

    def __repr__(self) -> str:
        return f"<Kernel {self.plan.name} on {self.device.selector} ({self.device.name})>"

    def __call__(
        self,
        a: Any,
        b: Any,
        c: Any = None,
        *,
        alpha: float = 1,
        beta: float = 0,
        bias: Any = None,
        scale: Any = None,
        residual: Any = None,
        out: Any = None,
        stream: Any = None,
    ) -> Any:
        """D = epilogue(alpha * A·B + beta * C).

        Parameters
        ----------
        a, b : array, (M, K) and (K, N)
            With ``batch = "strided"`` also (batch, M, K) and (batch, K, N); a two-dimensional or
            one-batch array serves every batch.
        c : array, (M, N), optional
            Read only where beta is not 0; written only if it is also ``out``.
        alpha, beta : float
            In the accumulation type.
        bias, scale : array, (N,) or (M,), optional
            What the spec's epilogue asks for.
        residual : array, (M, N), optional
        out : array, (M, N), optional
            D; left out, a new array where the inputs live.
        stream : object, optional
            The backend's stream or queue; left out, its default.

        Returns
        -------
        array
            ``out``, or the new array.

        Raises
        ------
        LaunchError
            For arrays that do not fit; the message names the operand, what it is and what is needed.
        """
        call = self._resolve(a, b, c, alpha, beta, bias, scale, residual, out, stream)
        if call.sizes["M"] and call.sizes["N"] and call.sizes["batch"]:
            for entry, grid, arguments in self._parts(call):
                self._loaded.launch(entry, grid, arguments, call.session.stream)
            call.session.finish()
        return call.result

    def prepare(
        self, a: Any, b: Any, out: Any, c: Any = None, *, once: bool = False, **options: Any
    ) -> PreparedLaunch:
        """The call with everything decided; each call of it only queues, and waits for nothing.

        The same memory is read and written each time; arguments as in :meth:`__call__`. With
        ``once`` the driver keeps no arguments: cheaper to make, dearer to call.
        """
        call = self._resolve(a, b, c, *call_options({**options, "out": out}))
        parts = self._parts(call) if all(call.sizes[x] for x in ("M", "N", "batch")) else []
        return PreparedLaunch.of(self._loaded, parts, call.session, call.result, call.operands, once)

    def explain(self, a: Any, b: Any, c: Any = None, **options: Any) -> str:
        """Which entry a call with these arguments takes, and why not the ones before it."""
        call = self._resolve(a, b, c, *call_options(options))
        if not (call.sizes["M"] and call.sizes["N"] and call.sizes["batch"]):
            return "nothing is launched: the output has no elements"
        entry, refusals = self._choose(call)
        grid = entry.grid(**call.sizes)
        lines = [f"{name}: {why}" for name, why in refusals]
        return "\n".join([*lines, f"{entry.name}: taken, {grid} blocks of {entry.block} threads"])

    def _resolve(
        self,
        a: Any,
        b: Any,
        c: Any,
        alpha: Any,
        beta: Any,
        bias: Any,
        scale: Any,
        residual: Any,
        out: Any,
        stream: Any,
    ) -> _Call:
        spec = self.plan.spec
        given = {"a": a, "b": b, "c": c, "bias": bias, "scale": scale, "residual": residual}
        wanted = epilogue_operands(spec)
        for name in ("bias", "scale", "residual"):
            if (given[name] is not None) != (name in wanted):
                if name in wanted:
                    raise LaunchError(f"{name}: the spec's epilogue adds one; pass {name}=...")
                raise LaunchError(f"{name}: the spec's epilogue has no {name}")
        for name in ("a", "b"):
            if given[name] is None:
                raise LaunchError(f"{name}: an array is needed, not None")
        present = [array for array in (*given.values(), out) if array is not None]
        session = self.device.session(present, stream)
        operands: dict[str, Operand] = {}
        for name, array in given.items():
            if array is not None:
                operands[name] = self._operand(session, name, array, writes=False)
        sizes = self._sizes(operands)
        scalars = {"alpha": self._scalar("alpha", alpha), "beta": self._scalar("beta", beta)}
        if scalars["beta"] != 0 and c is None:
            raise LaunchError(f"beta = {beta} needs c, which is not given")
        result = out
        if out is None:
            batched = any(operands[name].rank == 3 for name in operands if name in AXES)
            shape = (sizes["batch"], sizes["M"], sizes["N"])
            shape_out = shape if batched else shape[1:]
            result = session.empty(shape_out, spec.types.d, spec.layout.d)
        operands["d"] = self._operand(session, "d", result, writes=True)
        self._check_shapes(operands, sizes)
        strides = {name: self._strides(name, op, sizes) for name, op in operands.items()}
        self._check_overlap(given, result, out is not None)
        if "c" not in operands:
            # Never read where beta is 0, yet the entry wants a pointer.
            operands["c"] = operands["d"]
            strides["c"] = strides["d"]
        return _Call(sizes, operands, strides, scalars, result, session)

    def _operand(self, session: Session, name: str, array: Any, *, writes: bool) -> Operand:
        operand = session.operand(name, array, writes=writes)
        wanted = self._types[name]
        if operand.dtype != wanted:
            raise LaunchError(
                f"{name}: its type is {operand.dtype}, and the spec asks for {wanted}"
            )
        vector, batched = name in ("bias", "scale"), self.plan.spec.batch == "strided"
        if operand.rank not in ((1, 2) if vector else (2, 3)):
            takes = "1, or 2 with a batch" if vector else "2, or 3 with a batch"
            raise LaunchError(f"{name}: it has {operand.rank} dimensions; it must have {takes}")
        if vector and operand.rank == 2:
            if not batched:
                raise LaunchError(
                    f'{name}: it has 2 dimensions, and the spec has batch = "none"; '
                    'batch = "strided" takes (batch, elements)'
                )
            (_, count, length), (_, apart, step) = operand.shape, operand.strides
            operand = replace(operand, shape=(count, 1, length), strides=(apart, 0, step))
        if operand.rank == 3 and not batched:
            raise LaunchError(
                f'{name}: it has 3 dimensions, and the spec has batch = "none"; '
                'batch = "strided" takes (batch, rows, columns)'
            )
        return operand

    def _sizes(self, operands: Mapping[str, Operand]) -> dict[str, int]:
        a, b = operands["a"].shape, operands["b"].shape
        if a[2] != b[1]:
            raise LaunchError(
                f"a is {a[1]} x {a[2]} and b is {b[1]} x {b[2]}: the K of both must agree"
            )
        batches = {op.shape[0] for name, op in operands.items()}
        if len(batches - {1}) > 1:
            raise LaunchError(f"the batch counts {sorted(batches)} do not agree")
        batch = next(iter(batches - {1}), 1)
        return {"M": a[1], "N": b[2], "K": a[2], "batch": batch, "split_k": self.plan.split_k}

    def _check_shapes(self, operands: dict[str, Operand], sizes: dict[str, int]) -> None:
        spec = self.plan.spec
        rows_cols = (sizes["M"], sizes["N"])
        along: dict[str, str | None] = {s.op: s.along for s in spec.epilogue}
        for name, operand in operands.items():
            if name in ("c", "d", "residual") and operand.shape[1:] != rows_cols:
                raise LaunchError(
                    f"{name}: it is {operand.shape[1]} x {operand.shape[2]}, "
                    f"and a·b is {rows_cols[0]} x {rows_cols[1]}"
                )
            if name in ("bias", "scale"):
                axis = str(along[name])
                need = sizes[axis.upper()]
                if operand.shape[2] != need:
                    raise LaunchError(
                        f"{name}: it has {operand.shape[2]} elements, and along {axis} there are "
                        f"{need}"
                    )
        if operands["d"].shape[0] != sizes["batch"]:
            raise LaunchError(
                f"d: it has {operands['d'].shape[0]} batches and the inputs have {sizes['batch']}"
            )

    def _strides(self, name: str, operand: Operand, sizes: dict[str, int]) -> _Strides:
        shape, strides = operand.shape, operand.strides
        if 0 in shape:
            # No element is ever reached, and NumPy gives such arrays strides of 0.
            return _Strides(1, 1, 0)
        # The stride of an axis with at most one element is never used, so it never counts.
        batch = strides[0] if shape[0] > 1 else 0
        if min((s for s, extent in zip(strides, shape, strict=True) if extent > 1), default=0) < 0:
            raise LaunchError(
                f"{name}: negative strides {strides[1:]} are not taken; copy it first"
            )
        if name in ("bias", "scale"):
            if shape[2] > 1 and strides[2] != 1:
                raise LaunchError(f"{name}: its stride is {strides[2]} elements; it must be 1")
            return _Strides(0, 1, batch)
        key = "d" if name == "residual" else name
        majorness = getattr(self.plan.spec.layout, key)
        fast, slow = (2, 1) if majorness == "row" else (1, 2)
        step = strides[fast] if shape[fast] > 1 else 1
        ld = strides[slow] if shape[slow] > 1 else max(1, shape[fast])
        axis = AXES[name][fast - 1]
        if step not in (0, 1):
            if strides[slow] == 1:
                other = "col" if majorness == "row" else "row"
                raise LaunchError(
                    f"{name}: it is {other}-major (strides {strides[1]}, {strides[2]}), "
                    f'and the spec has layout.{key} = "{majorness}"'
                )
            raise LaunchError(
                f"{name}: its stride along {axis} is {step} elements; "
                f'layout.{key} = "{majorness}" needs 1, or 0 to broadcast'
            )
        if name == "residual" and step == 0:
            raise LaunchError(f"residual: its stride along {axis} is 0; it must be 1")
        if name == "d":
            if step == 0 or ld == 0:
                raise LaunchError("d: a stride of 0 would write one element many times")
            if shape[slow] > 1 and ld < shape[fast]:
                raise LaunchError(f"d: its rows overlap (stride {ld} under extent {shape[fast]})")
            span = (shape[slow] - 1) * ld + shape[fast]
            if shape[0] > 1 and batch < span and shape[1] and shape[2]:
                raise LaunchError(f"d: its batches overlap (stride {batch} under {span})")
        return _Strides(ld, step, batch)

    def _check_overlap(self, given: Mapping[str, Any], result: Any, chosen: bool) -> None:
        import numpy as np

        if not chosen:
            return
        for name, array in given.items():
            may_be_same = name in ("c", "residual")
            if array is result and not may_be_same:
                raise LaunchError(f"out: it overlaps {name} in memory, and would change it midway")
            if not isinstance(array, np.ndarray) or array is result:
                continue
            same = (
                may_be_same
                and array.ctypes.data == result.ctypes.data
                and array.strides == result.strides
                and array.shape == result.shape
            )
            if same or not np.may_share_memory(array, result):
                continue
            try:
                work: Any = 10_000  # NumPy's stubs know the two named limits only
                shared = np.shares_memory(array, result, max_work=work)
            except np.exceptions.TooHardError:
                shared = True
            if shared:
                raise LaunchError(f"out: it overlaps {name} in memory, and would change it midway")

    def _scalar(self, name: str, value: Any) -> Any:
        kind = DTYPES[compute_type(self.plan.spec)]
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise LaunchError(f"{name} = {value!r} is not a real number")
        try:
            number = float(value)
        except OverflowError:
            raise LaunchError(f"{name}: it does not fit in {kind.name}") from None
        if not kind.is_float and not number.is_integer():
            raise LaunchError(f"{name} = {value} is not whole, and it is taken in {kind.name}")
        if not kind.is_float and abs(number) > kind.largest:
            raise LaunchError(f"{name} = {value} does not fit in {kind.name}")
        import numpy as np

        with np.errstate(over="ignore"):
            return kind.numpy.type(number if kind.is_float else int(number))

    def _choose(self, call: _Call) -> tuple[Entry, list[tuple[str, str]]]:
        refusals: list[tuple[str, str]] = []
        for entry in self.plan.main_entries:
            reasons = [r for access in entry.accesses if (r := self._refusal(access, call))]
            if not reasons:
                return entry, refusals
            refusals.append((entry.name, "; ".join(reasons)))
        raise LaunchError(
            "no entry takes these arrays: " + "; ".join(f"{n}: {w}" for n, w in refusals)
        )

    def _refusal(self, access: Access, call: _Call) -> str:
        operand, strides = call.operands.get(access.operand), call.strides.get(access.operand)
        if operand is None or strides is None:
            return ""
        if access.operand == "c" and call.scalars["beta"] == 0:
            return ""
        name = access.operand
        if access.unit_step and strides.step != 1:
            return f"{name} is broadcast along its contiguous axis"
        if operand.address % access.alignment:
            return f"{name} starts at an address that {access.alignment} does not divide"
        for what, stride in (("leading dimension", strides.ld), ("batch stride", strides.batch)):
            if stride % access.stride_multiple:
                return f"{name} has a {what} of {stride}, no multiple of {access.stride_multiple}"
        if access.extent_limit is not None and max(operand.shape) > access.extent_limit:
            return f"{name} has an extent over {access.extent_limit}"
        return ""

    def _parts(self, call: _Call) -> list[Part]:
        """The launches of the entry that takes the call, the ones before and after it included."""
        entry, _ = self._choose(call)
        workspace = entry.workspace(**call.sizes)
        space = call.session.workspace(workspace) if workspace else None
        parts = [self.plan.entry(name) for name in (*entry.before, entry.name, *entry.after)]
        return [
            (p, p.grid(**call.sizes), [(arg, self._value(arg, call, space)) for arg in p.arguments])
            for p in parts
        ]

    def _value(self, argument: Argument, call: _Call, workspace: Any) -> Any:
        match argument.kind:
            case "size":
                return call.sizes[argument.name]
            case "scalar":
                return call.scalars[argument.name]
            case "input" | "output":
                return call.operands[argument.operand].handle
            case "offset":
                return call.operands[argument.operand].offset
            case "workspace":
                return workspace
        strides = call.strides[argument.operand]
        if argument.name.endswith("_step"):
            return strides.step
        return strides.batch if argument.name.endswith("_batch_stride") else strides.ld
