"""Public Hypothesis strategies for specs and problems, and the check that a kernel solves one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from hypothesis import strategies as st

from tilegen import registry
from tilegen.bounds import growth
from tilegen.dtypes import DTYPES, DType
from tilegen.errors import VerifyError
from tilegen.hardware import Arch
from tilegen.lower import find_arch
from tilegen.plan import KernelPlan
from tilegen.spec import TileSpec
from tilegen.tiling import compute_type, epilogue_operands, operand_type

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tilegen.kernel import Kernel

Values = Literal["integers", "normal", "position"]
Broadcast = Literal["none", "rows", "cols", "batch", "all"]
SENTINEL = 777.0


@dataclass(frozen=True)
class View:
    """How an operand lies in its memory.

    Attributes
    ----------
    pad : int
        Elements between the rows (columns, if column-major) beyond the operand's own.
    multiple : int
        What the leading dimension is then rounded up to a multiple of.
    offset : int
        Elements before the first one, so that its address may be unaligned.
    broadcast : str
        The axis of stride 0, if any.
    """

    pad: int = 0
    multiple: int = 1
    offset: int = 0
    broadcast: Broadcast = "none"


@dataclass(frozen=True)
class Problem:
    """One call of a kernel: sizes, scalars, values and how the operands lie in memory.

    Attributes
    ----------
    m, n, k : int
    batch : int or None
        ``None``: two-dimensional operands.
    alpha, beta : float
    values : str
        ``"integers"`` (small, so that every sum is exact), ``"normal"``, or ``"position"``: A
        holds the identity and B codes of place, so that a permutation shows.
    views : mapping
        For ``a``, ``b``, ``c``, ``d``.
    in_place : bool
        Whether D is written over C.
    poison_c : bool
        Whether C is NaN (or the largest integer) where beta is 0.
    poison_ab : bool
        Whether A and B are NaN where alpha is 0.
    specials : bool
        Whether A, B and C hold a NaN and infinities here and there.
    seed : int
    """

    m: int
    n: int
    k: int
    batch: int | None = None
    alpha: float = 1.0
    beta: float = 0.0
    values: Values = "integers"
    views: dict[str, View] = field(default_factory=dict)
    in_place: bool = False
    poison_c: bool = False
    poison_ab: bool = False
    specials: bool = False
    seed: int = 0

    def view(self, operand: str) -> View:
        return self.views.get(operand, View())


@dataclass(frozen=True)
class Outcome:
    """What one check found.

    Attributes
    ----------
    worst : float
        The largest error as a share of its bound; 0 where results must be exact.
    signed_mean : float
        The mean of error / bound, signed; 0 for exact runs.
    elements : int
    entry : str
        Which entry ran; empty where nothing was launched.
    exact : bool
        Whether every element had to be exact.
    """

    worst: float
    signed_mean: float
    elements: int
    entry: str
    exact: bool


@dataclass(frozen=True)
class Arrays:
    """A problem's arrays; ``guard`` is the memory that D is a view of."""

    a: NDArray[Any]
    b: NDArray[Any]
    c: NDArray[Any] | None
    out: NDArray[Any]
    guard: NDArray[Any]
    extras: dict[str, NDArray[Any]]


class Memory(Protocol):
    """Where the arrays of a problem are put; left out, into memory filled around with NaN."""

    def room(self, lead: int, size: int) -> tuple[NDArray[Any], int]:
        """Bytes to put an array of ``size`` bytes in, and where it starts among them.

        Its address lies ``lead`` bytes behind a multiple of 64, as far as the place allows it.
        """

    def filled(self, room: NDArray[Any], *, writes: bool) -> None:
        """The array is in the room now; only D will be written."""


def specs(backend: str, arch: str | Arch | None = None) -> st.SearchStrategy[TileSpec]:
    """Specs for a backend, most of them legal and none filtered: refusals are worth testing.

    Parameters
    ----------
    backend : str
    arch : str or Arch, optional
        Left out: as for :func:`tilegen.lower`.
    """
    plugin = registry.get(backend)
    target, _ = find_arch(plugin, arch)
    forms = plugin.forms(target)
    combinations = [(form, c) for form in forms for c in form.types(target)]
    extents = st.sampled_from([1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96])

    @st.composite
    def build(draw: st.DrawFn) -> TileSpec:
        form, types = draw(st.sampled_from(combinations))
        c, d = draw(st.sampled_from(types.outputs))
        lanes = target.lanes
        warp = draw(extents), draw(extents)
        if lanes > 1 and warp[0] * warp[1] < lanes:
            warp = (max(warp[0], 8), max(warp[1], 8))
        counts = draw(st.sampled_from([(1, 1), (1, 2), (2, 1), (2, 2), (1, 4), (4, 1)]))
        depth = draw(st.sampled_from([1, 2, 3, 4, 7, 8, 16, 20, 32, 64]))
        if draw(st.booleans()):
            # What matrix instructions ask for; the other half is refused by most of them.
            warp = -(-warp[0] // 16) * 16, -(-warp[1] // 16) * 16
            depth = -(-depth // 32) * 32
        block = (warp[0] * counts[0], warp[1] * counts[1], depth)
        if draw(st.integers(0, 15)) == 0:
            block = (block[0] + 1, block[1], block[2])
        majorness = st.sampled_from(["row", "col"])
        data: dict[str, Any] = {
            "block": block,
            "warp": warp,
            "stages": draw(st.integers(1, 4)),
            "types": {"a": types.a, "b": types.b, "acc": types.acc, "c": c, "d": d},
            "layout": {x: draw(majorness) for x in "abcd"},
            "batch": draw(st.sampled_from(["none", "strided"])),
            "epilogue": draw(epilogues()),
        }
        if draw(st.booleans()):
            data["thread"] = (
                draw(st.sampled_from([1, 2, 4, 8])),
                draw(st.sampled_from([1, 2, 4, 8])),
            )
        if draw(st.integers(0, 3)) == 0:
            data["split_k"] = draw(st.integers(1, 4))
        if len(forms) > 1:
            data["pins"] = {backend: {"form": form.name}}
        return TileSpec(**data)

    return build()


@st.composite
def epilogues(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Lists of epilogue steps, half of them empty."""
    if draw(st.booleans()):
        return []
    along = st.sampled_from(["m", "n"])
    step = st.one_of(
        st.builds(lambda x: {"op": "bias", "along": x}, along),
        st.builds(lambda x: {"op": "scale", "along": x}, along),
        st.just({"op": "residual"}),
        st.sampled_from([{"op": op} for op in ("relu", "gelu", "gelu_tanh", "silu")]),
        st.builds(
            lambda lo, w: {"op": "clamp", "low": lo, "high": lo + w},
            st.integers(-8, 8),
            st.integers(0, 16),
        ),
    )
    return draw(st.lists(step, min_size=1, max_size=3, unique_by=lambda s: str(s["op"])))


def problems(what: KernelPlan | TileSpec, *, largest: int = 0) -> st.SearchStrategy[Problem]:
    """Problems for a kernel: edge sizes around its tile, every kind of view, NaN in C, broadcasts.

    Parameters
    ----------
    what : KernelPlan or TileSpec
    largest : int
        Cap on M and N; 0: mostly twice the block tile and one more, at times eleven tiles.
    """
    spec = what.spec if isinstance(what, KernelPlan) else what
    bm, bn, bk = spec.block

    def extent(tile: int) -> st.SearchStrategy[int]:
        top = largest or 2 * tile + 1
        edges = [0, 1, 2, 3, tile - 1, tile, tile + 1, 2 * tile, 2 * tile + 1, top]
        return st.one_of(
            st.sampled_from(sorted({min(e, top) for e in edges if e >= 0})), st.integers(1, top)
        )

    # Kernels walk the tiles in groups (of 8 rows on OpenCL): some problems have more than one group,
    # with and without a tail on the other axis.
    many, few = st.sampled_from([9, 11]), st.sampled_from([1, 2, 3])
    tail = st.sampled_from([0, 0, 1, -1])
    plain = st.tuples(extent(bm), extent(bn))
    tall = st.builds(lambda i, j, s, t: (i * bm + s, j * bn + t), many, few, tail, tail)
    wide = st.builds(lambda i, j, s, t: (j * bm + s, i * bn + t), many, few, tail, tail)
    sizes = plain if largest else st.one_of(plain, plain, plain, plain, plain, plain, tall, wide)

    depth_edges = sorted({0, 1, 2, bk - 1, bk, bk + 1, 2 * bk, spec.stages * bk + bk, 3 * bk - 1})
    depth = st.one_of(st.sampled_from(depth_edges), st.integers(1, 4 * bk + 7))
    whole = compute_type(spec) == "s32"
    scalar = st.sampled_from(
        [0.0, 1.0, 1.0, -1.0, 2.0] if whole else [0.0, 1.0, 1.0, -1.0, 2.0, 0.5]
    )

    def view(reads: bool) -> st.SearchStrategy[View]:
        kinds: list[Broadcast] = ["none"] * 6
        if reads:
            kinds += ["rows", "cols", "all"]
            if spec.batch == "strided":
                kinds += ["batch", "batch"]
        return st.builds(
            View,
            pad=st.sampled_from([0, 0, 1, 3, 4, 16]),
            offset=st.sampled_from([0, 0, 1, 2, 4]),
            broadcast=st.sampled_from(kinds),
        )

    aligned = st.builds(View, pad=st.sampled_from([0, 0, 5]), multiple=st.just(16))

    def views(tidy: bool) -> st.SearchStrategy[dict[str, View]]:
        # Every second problem is one that the widest accesses may run on.
        return st.fixed_dictionaries({x: aligned if tidy else view(x != "d") for x in "abcd"})

    return st.builds(
        lambda size, **rest: Problem(size[0], size[1], **rest),
        size=sizes,
        k=depth,
        batch=st.sampled_from([None, 1, 2, 3, 0]) if spec.batch == "strided" else st.none(),
        alpha=scalar,
        beta=scalar,
        values=st.sampled_from(["normal", "integers", "position"]),
        views=st.booleans().flatmap(views),
        in_place=st.booleans(),
        poison_c=st.booleans(),
        seed=st.integers(0, 2**31 - 1),
    )


def make_arrays(problem: Problem, spec: TileSpec, memory: Memory | None = None) -> Arrays:
    """The arrays of a problem, operands surrounded by NaN and D by a guard band."""
    rng = np.random.default_rng(problem.seed)
    p, count = problem, problem.batch
    a_values = _values(rng, p, spec.types.a, (count or 1, p.m, p.k), "a")
    b_values = _values(rng, p, spec.types.b, (count or 1, p.k, p.n), "b")
    c_values = _values(rng, p, spec.types.c, (count or 1, p.m, p.n), "c")
    if p.poison_c and p.beta == 0:
        c_values[...] = np.nan if DTYPES[spec.types.c].is_float else DTYPES[spec.types.c].largest
    if p.poison_ab and p.alpha == 0 and DTYPES[spec.types.a].is_float:
        a_values[...], b_values[...] = np.nan, np.inf
    if p.specials:
        for values, kind in zip((a_values, b_values, c_values), "abc", strict=True):
            if DTYPES[getattr(spec.types, kind)].is_float:
                _sprinkle(rng, values)
    if count == 0:
        a_values, b_values, c_values = a_values[:0], b_values[:0], c_values[:0]
    in_place = p.in_place and spec.types.c == spec.types.d and spec.layout.c == spec.layout.d
    a, _ = _place(a_values, spec.types.a, spec.layout.a, p.view("a"), count, memory=memory)
    b, _ = _place(b_values, spec.types.b, spec.layout.b, p.view("b"), count, memory=memory)
    d_values = c_values if in_place else np.full_like(c_values, SENTINEL % 100)
    out, guard = _place(
        d_values, spec.types.d, spec.layout.d, p.view("d"), count, SENTINEL, memory, writes=True
    )
    c: NDArray[Any] | None = None
    if in_place:
        c = out
    elif p.beta != 0 or p.poison_c:
        c, _ = _place(c_values, spec.types.c, spec.layout.c, p.view("c"), count, memory=memory)
    extras: dict[str, NDArray[Any]] = {}
    for step in spec.epilogue:
        if step.op in ("bias", "scale"):
            length = p.m if step.along == "m" else p.n
            each = count if count is not None and p.seed % 2 else 1
            values = _values(rng, p, operand_type(spec, step.op), (each, 1, length), step.op)
            kind = operand_type(spec, step.op)
            placed, _ = _place(values, kind, "row", p.view(step.op), each, memory=memory)
            vectors = placed[:, 0]
            # One vector for each batch, or one for all of them.
            extras[step.op] = vectors if count is not None and p.seed % 2 else vectors[0]
        elif step.op == "residual":
            values = _values(rng, p, operand_type(spec, "residual"), (count or 1, p.m, p.n), "c")
            values = values[:0] if count == 0 else values
            kind = operand_type(spec, "residual")
            view = p.view("residual")
            extras["residual"], _ = _place(values, kind, spec.layout.d, view, count, memory=memory)
    return Arrays(a, b, c, out, guard, extras)


def _sprinkle(rng: np.random.Generator, values: NDArray[Any]) -> None:
    """A NaN and infinities of either sign at a few places."""
    if values.size:
        for special in (np.nan, np.inf, -np.inf):
            values.flat[rng.integers(0, values.size, 1 + values.size // 1000)] = special


def _values(
    rng: np.random.Generator, p: Problem, kind: str, shape: tuple[int, int, int], operand: str
) -> NDArray[Any]:
    dtype = DTYPES[kind]
    if p.values == "normal" and dtype.is_float:
        return rng.standard_normal(shape)
    if p.values == "normal" and dtype.bits == 8:
        return rng.integers(int(dtype.smallest), int(dtype.largest) + 1, shape).astype(np.float64)
    if p.values == "position" and operand == "a":
        batch, rows, cols = shape
        return np.broadcast_to(np.eye(rows, cols), (batch, rows, cols)).copy()
    if p.values == "position" and operand == "b":
        # Codes of place that every type holds exactly and that differ between neighbours.
        codes = np.arange(shape[1])[:, None] * 5 + np.arange(shape[2])[None, :] * 3
        return np.broadcast_to(codes % 13 - (0 if dtype.kind == "unsigned" else 6.0), shape).copy()
    low = 0 if dtype.kind == "unsigned" else -3
    return rng.integers(low, 4, shape).astype(np.float64)


def strided(room: NDArray[Any], shape: Sequence[int], strides: Sequence[int]) -> NDArray[Any]:
    """A view of a one-dimensional array, steps in bytes; it must not leave the array.

    NumPy's as_strided cannot describe every type of ml_dtypes.
    """
    return np.ndarray(tuple(shape), room.dtype, room.view(np.uint8), 0, tuple(strides))


def _place(
    values: NDArray[Any],
    kind: str,
    majorness: str,
    view: View,
    batch: int | None,
    fill: float = float("nan"),
    memory: Memory | None = None,
    *,
    writes: bool = False,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The values as a view into a larger array that is filled with ``fill``; view and array."""
    dtype = DTYPES[kind]
    if not dtype.is_float and np.isnan(fill):
        fill = dtype.largest
    fill = min(fill, dtype.largest)
    turned = values if majorness == "row" else np.swapaxes(values, -1, -2)
    count, slow, fast = turned.shape
    if view.broadcast == "batch" and count:
        turned = turned[:1]
    if view.broadcast in ("rows", "cols", "all"):
        slow_is_rows = majorness == "row"
        if view.broadcast == "all" or (view.broadcast == "rows") == slow_is_rows:
            turned = turned[:, :1, :]
        if view.broadcast == "all" or (view.broadcast == "rows") != slow_is_rows:
            turned = turned[:, :, :1]
    ld = -(-(turned.shape[2] + view.pad) // view.multiple) * view.multiple
    if memory is None:
        size = turned.shape[0] * (turned.shape[1] * ld) + view.offset + 64
        # Aligned to 64 bytes, so that `offset` alone decides the alignment.
        room = np.full(size * dtype.bytes + 64, 0, np.uint8)
        lead = -room.ctypes.data % 64
        store, start = room[lead : lead + size * dtype.bytes].view(dtype.numpy), view.offset
    else:
        # Exactly to the last element: what lies behind it is not the operand's.
        size = turned.size and ((turned.shape[0] * turned.shape[1] - 1) * ld + turned.shape[2])
        room, first = memory.room(view.offset * dtype.bytes, size * dtype.bytes)
        store, start = room.view(dtype.numpy), first // dtype.bytes
    store[...] = fill
    stride = store.itemsize
    places = (turned.shape[1] * ld * stride, ld * stride, stride)
    inner = strided(store[start:], turned.shape, places)
    inner[...] = turned.astype(dtype.numpy)
    if memory is not None:
        memory.filled(room, writes=writes)
    wide = (
        np.broadcast_to(inner, (count, slow, fast)) if inner.shape != (count, slow, fast) else inner
    )
    out = wide if majorness == "row" else np.swapaxes(wide, -1, -2)
    return (out if batch is not None else out[0]), store


def operand_values(array: NDArray[Any], kind: str) -> NDArray[Any]:
    """What a product makes of an operand: tf32 is kept in f32 and rounded, ties away from zero.

    So rounds cvt.rna.tf32.f32 (PTX ISA, cvt); every other type is multiplied as it is stored.
    """
    if kind != "tf32":
        return array
    bits = np.ascontiguousarray(array).view(np.uint32)
    nearest = ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.where(np.isfinite(array), nearest.reshape(array.shape), array)


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
            product, size = a @ b, np.abs(a) @ np.abs(b)
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


def check_problem(kernel: Kernel, problem: Problem, memory: Memory | None = None) -> Outcome:
    """Run the kernel on the problem and compare every element.

    Integer values must be exact (unless the epilogue or a fractional scalar rounds); random ones
    must lie within the bound of :mod:`tilegen.bounds`; the guard band round D must be untouched.

    Raises
    ------
    VerifyError
        Names the first wrong element and its owner.
    """
    plan, spec = kernel.plan, kernel.plan.spec
    arrays = make_arrays(problem, spec, memory)
    c_before = None if arrays.c is None else arrays.c.astype(np.float64)
    before = arrays.guard.copy()
    call: dict[str, Any] = {
        "alpha": _scalar(problem.alpha, spec),
        "beta": _scalar(problem.beta, spec),
        "out": arrays.out,
        **arrays.extras,
    }
    entry = _entry_of(kernel.explain(arrays.a, arrays.b, arrays.c, **call))
    got_array = kernel(arrays.a, arrays.b, arrays.c, **call)
    value, magnitude = reference(problem, spec, arrays, c=c_before)
    _check_guard(arrays, before, spec)
    acc, compute, out = (DTYPES[t] for t in (spec.types.acc, compute_type(spec), spec.types.d))
    soft = {"gelu", "gelu_tanh", "silu"} & {s.op for s in spec.epilogue}
    # A sum that is infinite or missing must be met as it is, and has no bound.
    magnitude = np.where(np.isfinite(magnitude), magnitude, 0.0)
    largest_sum = float(np.max(magnitude)) if magnitude.size else 0.0
    exact = (
        (problem.values != "normal" or not _reads_fractions(problem, spec))
        and not soft
        and largest_sum * 2 < min(_exact_below(acc), _exact_below(compute))
    )
    rounds = growth(plan.instruction.family, problem.k if acc.is_float else 0)
    slack = rounds * max(acc.roundoff, compute.roundoff) * magnitude
    with np.errstate(invalid="ignore", over="ignore"):
        want, slack = apply_epilogue(
            spec, value, np.zeros_like(value) if exact else slack, arrays.extras
        )
        if exact:
            want, bound = rounded(want, out), np.zeros(want.shape)
        else:
            want, bound = _within(want, slack, out)
    got = got_array.astype(np.float64)
    with np.errstate(invalid="ignore"):
        error = np.where(got == want, 0.0, got - want)
    # An infinite or missing result must be met as it is.
    bound = np.where(np.isfinite(want), bound, 0.0)
    # A result that may round beyond the largest value of its type may be infinite.
    over = (
        np.isinf(got) & (got * want > 0) & np.isfinite(want) & (np.abs(want) + bound >= out.largest)
    )
    error = np.where(over, 0.0, error)
    wrong = ~(np.abs(error) <= bound) & ~(np.isnan(got) & np.isnan(want))
    if wrong.any():
        raise _first_wrong(plan, problem, got, want, bound, wrong)
    if exact or not got.size:
        return Outcome(0.0, 0.0, got.size, entry, exact=True)
    share = error[np.isfinite(want)] / bound[np.isfinite(want)]
    if not share.size:
        return Outcome(0.0, 0.0, got.size, entry, exact=True)
    return Outcome(
        float(np.max(np.abs(share))), float(np.mean(share)), got.size, entry, exact=False
    )


def _reads_fractions(problem: Problem, spec: TileSpec) -> bool:
    """Whether any operand that is read has fractions where values are drawn at random."""
    read = ["a", "b", *(["c"] if problem.beta else []), *epilogue_operands(spec)]
    return any(DTYPES[operand_type(spec, operand)].is_float for operand in read)


def _exact_below(kind: DType) -> float:
    """Whole numbers under this are exact in the type."""
    return 0.5 / kind.roundoff if kind.is_float else kind.largest + 1.0


def rounded(values: NDArray[Any], kind: DType) -> NDArray[Any]:
    """Values rounded to a type, ties to even, integers saturated (NaN gives 0); as float64."""
    if kind.is_float:
        with np.errstate(over="ignore"):
            return np.asarray(values.astype(kind.numpy).astype(np.float64))
    whole = np.rint(np.nan_to_num(values, nan=0.0))
    return np.asarray(np.clip(whole, kind.smallest, kind.largest))


def _within(
    want: NDArray[Any], slack: NDArray[Any], out: DType
) -> tuple[NDArray[Any], NDArray[Any]]:
    """What a result must lie near, and how near, once it is rounded to its type."""
    if not out.is_float:
        return np.clip(want, out.smallest, out.largest), slack + 0.5
    bound = slack + out.roundoff * np.abs(want) + out.subnormal
    return want.astype(np.float64), bound.astype(np.float64)


def _scalar(value: float, spec: TileSpec) -> float:
    return int(value) if compute_type(spec) == "s32" else value


def _entry_of(explained: str) -> str:
    last = explained.splitlines()[-1]
    return last.partition(":")[0] if "taken" in last else ""


def _check_guard(arrays: Arrays, before: NDArray[Any], spec: TileSpec) -> None:
    """Nothing outside D was written."""
    after = arrays.guard.copy()
    inside = np.zeros(after.shape, bool)
    out = arrays.out
    start = (out.ctypes.data - arrays.guard.ctypes.data) // after.itemsize if out.size else 0
    mask = strided(inside[start:], out.shape, tuple(s // after.itemsize for s in out.strides))
    mask[...] = True
    changed = (after.view(np.uint8) != before.view(np.uint8)).reshape(len(after), -1).any(axis=1)
    stray = np.flatnonzero(changed & ~inside)
    if len(stray):
        raise VerifyError(
            f"a write outside D: element {stray[0] - start} from its first one was changed "
            f"to {after[stray[0]]}"
        )


def _first_wrong(
    plan: KernelPlan,
    problem: Problem,
    got: NDArray[Any],
    want: NDArray[Any],
    bound: NDArray[Any],
    wrong: NDArray[Any],
) -> VerifyError:
    where = tuple(int(i) for i in np.argwhere(wrong)[0])
    batch, row, col = (0, *where) if len(where) == 2 else where
    bm, bn, _ = plan.block
    tiles_n = -(-problem.n // bn)
    block = (row // bm) * tiles_n + col // bn
    owner, owned = (0, 0, 0), ""
    # Of a kernel that tilegen has not planned nobody knows who owns what.
    if "c" in plan.ownership:
        owner = plan.ownership["c"].owners(row % bm, col % bn)[0]
        owned = (
            f"it belongs to block tile ({row // bm}, {col // bn}), warp {owner[0]}, "
            f"lane {owner[1]}, register {owner[2]}; "
        )
    share = f"{int(wrong.sum())} of {wrong.size} elements are wrong"
    return VerifyError(
        f"D[{row}, {col}]{f' of batch {batch}' if len(where) == 3 else ''} is {got[where]!r} and "
        f"should be {want[where]!r} (bound {bound[where]:.3g}); {owned}{share}; {problem}",
        batch=batch,
        row=row,
        col=col,
        block=block,
        warp=owner[0],
        lane=owner[1],
        register=owner[2],
        got=float(got[where]),
        want=float(want[where]),
    )


__all__ = [
    "Arrays",
    "Outcome",
    "Problem",
    "View",
    "check_problem",
    "epilogue_operands",
    "epilogues",
    "make_arrays",
    "operand_values",
    "problems",
    "reference",
    "rounded",
    "specs",
    "strided",
]
