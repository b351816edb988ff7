"""Hypothesis strategies: specs for a backend, and problems for a kernel."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tilegen import registry
from tilegen.hardware import Arch
from tilegen.lower import find_arch
from tilegen.plan import KernelPlan
from tilegen.spec import TileSpec
from tilegen.testing.problem import Broadcast, Problem, View
from tilegen.tiling import compute_type


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
    many, few = st.sampled_from([9, 11]), st.sampled_from([1, 2])
    tail = st.sampled_from([0, 0, 1, -1])
    plain = st.tuples(extent(bm), extent(bn))
    tall = st.builds(lambda i, j, s, t: (i * bm + s, j * bn + t), many, few, tail, tail)
    wide = st.builds(lambda i, j, s, t: (j * bm + s, i * bn + t), many, few, tail, tail)
    # (one_of would take eight times the same for one.)
    shapes = {"plain": plain, "tall": tall, "wide": wide}
    sizes = (
        plain
        if largest
        else st.sampled_from([*["plain"] * 8, "tall", "wide"]).flatmap(shapes.__getitem__)
    )

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

    def views(multiple: int) -> st.SearchStrategy[dict[str, View]]:
        pads = st.sampled_from([0, 0, 5])
        aligned = st.builds(View, pad=pads, multiple=st.just(multiple))
        return st.fixed_dictionaries({x: aligned if multiple else view(x != "d") for x in "abcd"})

    # Every second problem is one that wide accesses may run on, most of those the widest.
    how = {multiple: views(multiple) for multiple in (0, 16, 8, 4, 2)}
    multiples = st.sampled_from([0, 0, 0, 0, 0, 16, 16, 8, 4, 2])

    return st.builds(
        lambda size, **rest: Problem(size[0], size[1], **rest),
        size=sizes,
        k=depth,
        batch=st.sampled_from([None, 1, 2, 3, 0]) if spec.batch == "strided" else st.none(),
        alpha=scalar,
        beta=scalar,
        values=st.sampled_from(["normal", "integers", "position"]),
        views=multiples.flatmap(how.__getitem__),
        in_place=st.booleans(),
        poison_c=st.booleans(),
        seed=st.integers(0, 2**31 - 1),
    )
