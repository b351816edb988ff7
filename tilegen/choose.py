"""A starting spec for a shape: the backend's tiles, lowered and ranked by its model of time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from numbers import Integral
from typing import Any

from tilegen import registry
from tilegen.backend import Chooser
from tilegen.errors import BackendError, PlanError, SpecError
from tilegen.hardware import Arch
from tilegen.lower import find_arch, lower
from tilegen.plan import KernelPlan
from tilegen.spec import Layouts, TileSpec, Types

Shape = tuple[int, int, int]
LARGEST = 2**63


@dataclass(frozen=True)
class Choice:
    """One candidate, and what the model expects of it.

    Attributes
    ----------
    spec : TileSpec
    plan : KernelPlan
    seconds : float
        Expected time of the shape. Only the order of candidates is meant: the model knows no clock.
    """

    spec: TileSpec
    plan: KernelPlan
    seconds: float

    def __repr__(self) -> str:
        return f"<Choice {self.plan.name}: {1e6 * self.seconds:.3g} us expected>"


def choose(
    shape: Shape,
    *,
    types: Types | Mapping[str, str] | None = None,
    layout: Layouts | Mapping[str, str] | None = None,
    backend: str = "opencl",
    arch: str | Arch | None = None,
    batch: int | None = None,
    tiles: Iterable[Mapping[str, Any]] | None = None,
    **more: Any,
) -> TileSpec:
    """The spec that the backend's model expects to be the fastest on this shape.

    Parameters
    ----------
    shape : (int, int, int)
        M, N, K.
    types, layout : mapping, optional
        As in a spec.
    arch : str or Arch, optional
        Left out: as for :func:`tilegen.lower`.
    batch : int, optional
        Products of one launch; the spec then has ``batch = "strided"``. Left out: one, unbatched.
    tiles : iterable of mapping, optional
        Candidates (``block``, ``warp``, and what else a spec may say) instead of the backend's.
    **more
        Further keys of every candidate's spec (``name``, ``epilogue``, ``pins``).

    Returns
    -------
    TileSpec

    Raises
    ------
    BackendError
        For a backend that ships no tiles, where none are given.
    PlanError
        If the target can build none of the candidates; it states the first one's rules.
    SpecError
        For a shape that is none.

    Examples
    --------
    >>> choose((4096, 4096, 4096), backend="opencl", arch="gpu").block
    (256, 128, 16)
    """
    ranked = choices(
        shape, types=types, layout=layout, backend=backend, arch=arch, batch=batch, tiles=tiles,
        **more,
    )  # fmt: skip
    return ranked[0].spec


def choices(
    shape: Shape,
    *,
    types: Types | Mapping[str, str] | None = None,
    layout: Layouts | Mapping[str, str] | None = None,
    backend: str = "opencl",
    arch: str | Arch | None = None,
    batch: int | None = None,
    tiles: Iterable[Mapping[str, Any]] | None = None,
    **more: Any,
) -> list[Choice]:
    """Every candidate that the target can build, the one expected to be the fastest first.

    Parameters as for :func:`choose`.
    """
    if not isinstance(shape, Sequence) or len(shape) != 3 or not all(map(_is_whole, shape)):
        raise SpecError(f"shape = {shape!r}: three whole numbers are needed, M, N and K")
    if batch is not None and not _is_whole(batch):
        raise SpecError(f"batch = {batch!r}: a whole number is needed")
    count = 1 if batch is None else int(batch)
    if not 0 <= min(*shape, count) <= max(*shape, count) < LARGEST:
        raise SpecError(f"shape = {shape!r}, batch = {batch}: all must be from 0 to 2**63 - 1")
    plugin = registry.get(backend)
    if not isinstance(plugin, Chooser):
        raise BackendError(f"{backend} ships no tiles to choose from and no model of their time")
    target, _ = find_arch(plugin, arch)
    common = {
        **more,
        **({} if types is None else {"types": types}),
        **({} if layout is None else {"layout": layout}),
        **({} if batch is None else {"batch": "strided"}),
    }
    found: list[Choice] = []
    refusal: PlanError | None = None
    wanted = TileSpec(**{"block": (1, 1, 1), "warp": (1, 1), **common})
    for tile in plugin.tiles(wanted, target) if tiles is None else tiles:
        if not isinstance(tile, Mapping):
            raise SpecError(f"tiles: {tile!r} is no mapping with a block and a warp")
        spec = TileSpec(**{**common, **tile})
        try:
            plan = lower(spec, backend, target)
        except PlanError as error:
            refusal = refusal or error
            continue
        found.append(Choice(spec, plan, plugin.estimate(plan, shape, count)))
    if not found:
        raise refusal or SpecError("tiles: no candidate is given")
    fast = [choice for choice in found if isfinite(choice.seconds)]
    return sorted(fast or found, key=lambda choice: choice.seconds)


def _is_whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)
