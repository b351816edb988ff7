"""A loaded kernel: takes the arrays of a call, picks the entry that may run on them, launches it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tilegen.arguments import Fit, check_overlap, fit, scalar
from tilegen.backend import Device, Glancing, Loaded, Operand
from tilegen.dtypes import DTYPES
from tilegen.errors import LaunchError
from tilegen.launch import Call, Choice, chosen, filled, told
from tilegen.plan import KernelPlan
from tilegen.recall import ARRAYS, C, D, Recalled, can_recall, run
from tilegen.tiling import compute_type, epilogue_operands

if TYPE_CHECKING:
    from tilegen.build import KernelBinary

OPTIONS = ("alpha", "beta", "bias", "scale", "residual", "out", "stream")
# Fits, and choices of one fit, that a kernel remembers; then it starts again.
REMEMBERED = 256
NUMBERS = (int, float)


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
        self._compute = DTYPES[compute_type(self.plan.spec)]
        self._held: dict[float, Any] = {}
        self._wanted = frozenset(epilogue_operands(self.plan.spec))
        needs = [access.alignment for e in self.plan.entries for access in e.accesses]
        # 8 bytes: of the widest elements, to which every operand is aligned.
        self._boundary = math.lcm(8, *needs)
        units = device.arch.multiprocessors or self.plan.arch.multiprocessors
        self._names = {"multiprocessors": units} if units else {}
        self._fits: dict[Any, Fit] = {}
        self._glancing = device if isinstance(device, Glancing) else None
        self._recalled: dict[Any, Recalled] = {}

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
            D; left out, a new array where the inputs live. It shares no element with an input,
            unless it is C or the residual as a whole.
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
        arrays = (a, b, c, bias, scale, residual, out)
        seen = None
        if self._glancing is not None:
            seen = self._glancing.glance(arrays, stream)
            if seen is not None and type(alpha) in NUMBERS and type(beta) in NUMBERS:
                kind, addresses, session = seen
                recalled = self._recalled.get((kind, beta != 0))
                if recalled is not None:
                    scalars = self._scalar("alpha", alpha), self._scalar("beta", beta)
                    if out is None:
                        spec = self.plan.spec
                        out = session.empty(recalled.shape, spec.types.d, spec.layout.d)
                        addresses[D] = self._glancing.address(out)
                    if c is None:
                        addresses[C] = addresses[D]
                    known = recalled.known(addresses)
                    if known is not None:
                        run(self._loaded, known, [*addresses, *scalars], session)
                        return out
        given = {"a": a, "b": b, "c": c, "bias": bias, "scale": scale, "residual": residual}
        call = self._resolve(given, alpha, beta, out, stream)
        if not call.fit.is_empty:
            choice = self._choose(call)
            if seen is not None and can_recall(choice):
                self._remember(seen[0], call, arrays, choice)
            # Dropped on return: what is queued uses it first, since both belong to one stream.
            space = call.session.workspace(choice.workspace) if choice.workspace else None
            call.session.begin()
            for step in choice.steps:
                arguments = filled(step, call, space)
                self._loaded.launch(step.entry, step.grid, arguments, call.session.stream)
            call.session.finish()
        return call.result

    def prepare(
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
    ) -> Prepared:
        """A call that is checked and resolved once, to be launched often on the same arrays.

        Parameters and errors are those of a call. Nothing is launched yet.

        Returns
        -------
        Prepared
            Called with no arguments, it reads what the arrays hold by then.
        """
        given = {"a": a, "b": b, "c": c, "bias": bias, "scale": scale, "residual": residual}
        call = self._resolve(given, alpha, beta, out, stream)
        if call.fit.is_empty:
            return Prepared(self, call, "", [], None)
        choice = self._choose(call)
        space = call.session.workspace(choice.workspace) if choice.workspace else None
        launches = [
            self._loaded.bind(step.entry, step.grid, filled(step, call, space), call.session.stream)
            for step in choice.steps
        ]
        return Prepared(self, call, choice.entry.name, launches, space)

    def explain(self, a: Any, b: Any, c: Any = None, **options: Any) -> str:
        """Which entry a call with these arguments takes, and why not the ones before it.

        Nothing is launched and no D is made.
        """
        if unknown := [name for name in options if name not in OPTIONS]:
            raise LaunchError(f"unknown argument {unknown[0]!r}")
        given = {"a": a, "b": b, "c": c}
        given |= {name: options.get(name) for name in ("bias", "scale", "residual")}
        scalars = options.get("alpha", 1), options.get("beta", 0)
        call = self._resolve(given, *scalars, options.get("out"), options.get("stream"), make=False)
        if call.fit.is_empty:
            return "nothing is launched: the output has no elements"
        choice = self._choose(call)
        lines = [f"{name}: {why}" for name, why in choice.refusals]
        return "\n".join([*lines, f"{choice.entry.name}: taken, {told(choice)}"])

    def _resolve(
        self,
        given: dict[str, Any],
        alpha: Any,
        beta: Any,
        out: Any,
        stream: Any,
        *,
        make: bool = True,
    ) -> Call:
        for name in ("bias", "scale", "residual"):
            if (given[name] is not None) != (name in self._wanted):
                if name in self._wanted:
                    raise LaunchError(f"{name}: the spec's epilogue adds one; pass {name}=...")
                raise LaunchError(f"{name}: the spec's epilogue has no {name}")
        for name in ("a", "b"):
            if given[name] is None:
                raise LaunchError(f"{name}: an array is needed, not None")
        arrays = {name: array for name, array in given.items() if array is not None}
        present = [*arrays.values()] if out is None else [*arrays.values(), out]
        session = self.device.session(present, stream)
        operands = {n: session.operand(n, array, writes=False) for n, array in arrays.items()}
        if out is not None:
            operands["d"] = session.operand("out", out, writes=True)
        fitted = self._fit(operands)
        scalars = {"alpha": self._scalar("alpha", alpha), "beta": self._scalar("beta", beta)}
        if scalars["beta"] != 0 and "c" not in operands:
            raise LaunchError(f"beta = {beta} needs c, which is not given")
        spec = self.plan.spec
        if out is not None:
            check_overlap(operands, fitted.strides)
        elif make:
            out = session.empty(fitted.shape, spec.types.d, spec.layout.d)
            operands["d"] = session.operand("out", out, writes=True)
        else:
            kind = DTYPES[spec.types.d].numpy
            operands["d"] = Operand(None, 0, session.alignment, kind, (0, 0, 0), (0, 0, 0), 2)
        # Never read where beta is 0, yet the entry wants a pointer.
        operands.setdefault("c", operands["d"])
        return Call(fitted, operands, scalars, out, session)

    def _fit(self, operands: dict[str, Operand]) -> Fit:
        key = tuple([(name, o.dtype, o.shape, o.strides, o.rank) for name, o in operands.items()])
        found = self._fits.get(key)
        if found is None:
            found = fit(self.plan, operands)
            if len(self._fits) >= REMEMBERED:
                self._fits.clear()
            self._fits[key] = found
        return found

    def _remember(self, kind: Any, call: Call, given: Sequence[Any], choice: Choice) -> None:
        key = (kind, call.reads_c)
        recalled = self._recalled.get(key)
        if recalled is None:
            if len(self._recalled) >= REMEMBERED:
                self._recalled.clear()
            recalled = self._recalled[key] = Recalled(call, given, self._boundary)
        operands = call.operands
        recalled.add([operands[n].address if n in operands else 0 for n in ARRAYS], choice)

    def _scalar(self, name: str, value: Any) -> Any:
        if type(value) not in NUMBERS:
            return scalar(self._compute, name, value)
        held = self._held.get(value)
        if held is None:
            held = scalar(self._compute, name, value or 0)  # of the zeros one will do
            if len(self._held) >= REMEMBERED:
                self._held.clear()
            self._held[value] = held
        return held

    def _choose(self, call: Call) -> Choice:
        boundary, choices = self._boundary, call.fit.choices
        place = (call.reads_c, *[o.address % boundary for o in call.operands.values()])
        found: Choice | None = choices.get(place)
        if found is None:
            found = chosen(self.plan, call, self._names)
            if len(choices) >= REMEMBERED:
                choices.clear()
            choices[place] = found
        return found


class Prepared:
    """A call of a kernel with everything resolved: ``prepared()`` launches it on the same arrays.

    It keeps the arrays alive and reads what they hold at each launch; alpha, beta and the stream
    stay as they were given. One D serves all launches, and so does one workspace: calls from
    several threads are as safe as the arrays that they share.

    Attributes
    ----------
    kernel : Kernel
    entry : str
        The main entry that it launches; empty where D has no elements.
    out : array
        Where D is written.
    """

    def __init__(
        self,
        kernel: Kernel,
        call: Call,
        entry: str,
        launches: list[Callable[[], Any]],
        workspace: Any,
    ) -> None:
        self.kernel, self.entry, self.out = kernel, entry, call.result
        self._launches, self._session = launches, call.session
        self._keep = (call.operands, workspace)

    def __repr__(self) -> str:
        return f"<Prepared {self.entry or 'nothing'} of {self.kernel!r}>"

    def __call__(self) -> Any:
        """Launch, as a call of the kernel with the same arguments would; returns ``out``.

        Raises
        ------
        LaunchError
            If the driver refuses the launch.
        """
        if self._launches:
            self._session.begin()
            self.queue()
            self._session.finish()
        return self.out

    def stage(self) -> None:
        """Bring the inputs to where the kernel reads them, as each launch does before it runs."""
        self._session.begin()

    def queue(self) -> list[Any]:
        """Queue the launches alone: nothing is brought to the device or back, and nothing waits.

        Returns
        -------
        list
            What the backend has of each launch: an event, or ``None``.
        """
        return [launch() for launch in self._launches]
