"""A starting spec for a shape: the backend's tiles, lowered and ranked by its model of time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tilegen import registry
from tilegen.backend import Chooser
from tilegen.errors import BackendError, PlanError, SpecError
from tilegen.hardware import Arch
from tilegen.lower import find_arch, lower
from tilegen.plan import KernelPlan
from tilegen.spec import Layouts, TileSpec, Types

Shape = tuple[int, int, int]


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


def choose(
    shape: Shape,
    *,
    types: Types | Mapping[str, str] | None = None,
    layout: Layouts | Mapping[str, str] | None = None,
    backend: str = "opencl",
    arch: str | Arch | None = None,
    batch: int = 1,
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
    batch : int
        Products of one launch.
    tiles : iterable of mapping, optional
        Candidates (``block``, ``warp``, and what else a spec may say) instead of the backend's.
    **more
        Further keys of every candidate's spec (``name``, ``epilogue``, ``batch``, ``pins``).

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
    (128, 128, 16)
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
    batch: int = 1,
    tiles: Iterable[Mapping[str, Any]] | None = None,
    **more: Any,
) -> list[Choice]:
    """Every candidate that the target can build, the one expected to be the fastest first.

    Parameters as for :func:`choose`.
    """
    if len(shape) != 3 or any(isinstance(e, bool) or not isinstance(e, int) for e in shape):
        raise SpecError(f"shape = {shape!r}: three whole numbers are needed, M, N and K")
    if min(*shape, batch) < 0:
        raise SpecError(f"shape = {shape!r}, batch = {batch}: none may be negative")
    plugin = registry.get(backend)
    if not isinstance(plugin, Chooser):
        raise BackendError(f"{backend} ships no tiles to choose from and no model of their time")
    target, _ = find_arch(plugin, arch)
    common = {
        **more,
        **({} if types is None else {"types": types}),
        **({} if layout is None else {"layout": layout}),
    }
    found: list[Choice] = []
    refusal: PlanError | None = None
    wanted = TileSpec(**{"block": (1, 1, 1), "warp": (1, 1), **common})
    for tile in plugin.tiles(wanted, target) if tiles is None else tiles:
        spec = TileSpec(**{**common, **tile})
        try:
            plan = lower(spec, backend, target)
        except PlanError as error:
            refusal = refusal or error
            continue
        found.append(Choice(spec, plan, plugin.estimate(plan, shape, batch)))
    if not found:
        raise refusal or SpecError("tiles: no candidate is given")
    return sorted(found, key=lambda choice: choice.seconds)
