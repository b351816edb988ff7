"""What to change so that a refused spec is legal: the nearest value of a field, or of a few at once.

What is proposed has been derived and breaks no rule; where nothing near does, nothing is proposed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import islice, product
from math import inf, log2
from typing import TYPE_CHECKING, Any

from tilegen.dtypes import DTYPES
from tilegen.errors import SpecError
from tilegen.hardware import Arch
from tilegen.rules import Candidate, Violation, shown, violations
from tilegen.spec import TileSpec, Types

if TYPE_CHECKING:
    from tilegen.backend import Backend

# Specs derived for one field, and for all of the tile at once: each takes about a millisecond.
MOST_OF_ONE, MOST_OF_ALL = 100, 400
EXTENTS = (*range(1, 16), *range(16, 64, 4), *range(64, 257, 16), 320, 384, 448, 512)
# Of tiles that are changed as a whole.
POWERS = tuple(1 << i for i in range(3, 9))


def worded(candidate: Candidate, broken: Sequence[Violation], backend: Backend) -> list[Violation]:
    """The violations, each with what a reader can do about it.

    Parameters
    ----------
    candidate : Candidate
    broken : sequence of Violation
        All that it breaks.
    backend : Backend
        Whose archs are looked through.

    Returns
    -------
    list of Violation
        With the archs where the rule is kept, if it asks for something that this arch lacks; and
        with the nearest value of the field that makes the whole spec legal. Where none does alone,
        the first one proposes a change of several fields.
    """
    glance = _Glance.of(candidate)
    proposed = [_alone(glance, violation) for violation in broken]
    if broken and not any(proposed):
        proposed[0] = _together(glance, broken)
    return [
        replace(
            violation,
            nearest="" if spec is None else _told(candidate.spec, violation.field, spec),
            proposed=spec,
            elsewhere=_elsewhere(candidate, violation, backend),
        )
        for violation, spec in zip(broken, proposed, strict=True)
    ]


# ---- other archs ---------------------------------------------------------------------------------

# Rules of what an arch has or lacks.
OF_THE_ARCH = ("types", "features", "pins", "pinned_instruction")


def _elsewhere(candidate: Candidate, violation: Violation, backend: Backend) -> str:
    """The archs on which this very field keeps the rule."""
    if violation.rule not in OF_THE_ARCH:
        return ""

    def keeps(arch: Arch) -> bool:
        if all(form.name != candidate.form.name for form in backend.forms(arch)):
            return False
        found = violations(candidate.form.derive(candidate.spec, arch))
        return all((v.rule, v.field) != (violation.rule, violation.field) for v in found)

    here = candidate.arch.name
    return on_archs([n for n, arch in backend.archs.items() if n != here and keeps(arch)], backend)


def on_archs(names: Sequence[str], backend: Backend) -> str:
    """``"from sm_89 on"`` where these are all from one on, else ``"on A and B"``; empty for none."""
    ordered = sorted(backend.archs, key=_age)
    start = min(map(ordered.index, names), default=0)
    if len(names) > 1 and set(ordered[start:]) == set(names):
        return f"from {ordered[start]} on"
    return f"on {' and '.join(names)}" if names else ""


def _age(name: str) -> tuple[int, str]:
    digits = "".join(filter(str.isdigit, name))
    return int(digits or 0), name


# ---- one field -----------------------------------------------------------------------------------


def _alone(glance: _Glance, violation: Violation) -> TileSpec | None:
    """With another value of the violated field, the nearest with which no rule is broken."""
    specs = _alternatives(glance.candidate, violation)
    fitting = (s for s in specs if glance.fits(s.types, s.block, s.warp))
    return _first_legal(glance.candidate, fitting, MOST_OF_ONE)


def _first_legal(candidate: Candidate, specs: Iterable[TileSpec], most: int) -> TileSpec | None:
    """The first that breaks no rule, of the first so many of them."""
    for spec in islice(specs, most):
        if not violations(candidate.form.derive(spec, candidate.arch)):
            return spec
    return None


@dataclass(frozen=True)
class _Glance:
    """What can be told of a tile without deriving it, which takes a hundred times as long.

    Attributes
    ----------
    candidate : Candidate
    staged : bool
        Whether the form keeps tiles of A and B in shared memory.
    """

    candidate: Candidate
    staged: bool

    @classmethod
    def of(cls, candidate: Candidate) -> _Glance:
        if candidate.shared:
            return cls(candidate, True)
        usual = candidate.spec.replace(block=(64, 64, 32), warp=(32, 32))
        return cls(candidate, bool(candidate.form.derive(usual, candidate.arch).shared))

    def fits(self, types: Types, block: tuple[int, ...], warp: tuple[int, ...]) -> bool:
        """Whether threads, sums and one stage of tiles stay within the arch's limits."""
        arch, file = self.candidate.arch, self.candidate.arch.registers
        (bm, bn, bk), (wm, wn) = block, warp
        if bm % wm or bn % wn:
            return False
        threads = (bm // wm) * (bn // wn) * (self.candidate.warp_lanes or arch.lanes)
        if threads > arch.max_threads:
            return False
        sums = wm * wn * DTYPES[types.acc].bits / file.bits / arch.lanes
        most = min(file.per_lane, (file.per_multiprocessor or inf) / threads)
        if arch.kind != "cpu" and sums > most:
            return False
        a, b = DTYPES[types.a].bytes, DTYPES[types.b].bytes
        return not self.staged or bk * (bm * a + bn * b) <= arch.shared_bytes


def _alternatives(candidate: Candidate, violation: Violation) -> Iterator[TileSpec]:
    """Specs with another value of the field, the nearest first."""
    spec, name = candidate.spec, violation.field
    if name.startswith(("block[", "warp[")):
        base, index = name[:-1].split("[")
        now, i = getattr(spec, base), int(index)
        for extent in sorted(EXTENTS, key=lambda e: (abs(e - now[i]), e)):
            if extent != now[i]:
                yield spec.replace(**{base: (*now[:i], extent, *now[i + 1 :])})
    elif name == "warp":
        divisors = [[e for e in EXTENTS if spec.block[i] % e == 0] for i in range(2)]
        pairs = [pair for pair in product(*divisors) if pair != spec.warp]
        for pair in sorted(pairs, key=lambda p: (_ratio(p, spec.warp), p)):
            yield spec.replace(warp=pair)
    elif name.startswith("types"):
        now = spec.types.model_dump()
        options = [
            {"a": o.a, "b": o.b, "acc": o.acc, "c": c, "d": d}
            for o in candidate.form.types(candidate.arch)
            for c, d in o.outputs
        ]
        for option in sorted(options, key=lambda o: sum(o[key] != now[key] for key in o)):
            yield spec.replace(types=option)
    elif name.startswith("pins."):
        yield from _of_pins(candidate, violation)
    elif name.startswith("epilogue[") and violation.nearest:
        index, key = name.removeprefix("epilogue[").split("].")
        steps = [step.model_dump() for step in spec.epilogue]
        steps[int(index)][key] = float(violation.nearest)
        with suppress(SpecError):  # the other bound is in the way
            yield spec.replace(epilogue=steps)


def _ratio(one: tuple[int, ...], other: tuple[int, ...]) -> float:
    return sum(max(v / n, n / v) for v, n in zip(one, other, strict=True))


def _of_pins(candidate: Candidate, violation: Violation) -> Iterator[TileSpec]:
    """With a pin of another value, or under the name that was meant."""
    _, backend, key = violation.field.split(".")
    pins = {name: dict(table) for name, table in candidate.spec.pins.items()}
    known = candidate.form.pins(candidate.arch)
    now = pins[backend].pop(key, None)

    def pinned(name: str, value: Any) -> TileSpec:
        return candidate.spec.replace(pins={**pins, backend: {**pins[backend], name: value}})

    if key not in known:
        yield from (pinned(name, now) for name in get_close_matches(key, known) if now is not None)
        yield candidate.spec.replace(pins=pins)
        return
    if not known[key]:
        return
    order = get_close_matches(str(now), map(str, known[key]), n=len(known[key]), cutoff=0.0)

    def nearness(value: Any) -> tuple[bool, float]:
        numbers = type(value) is int and isinstance(now, int)
        away = abs(value - now) if numbers else order.index(str(value))
        return str(value) != violation.nearest, away

    for value in sorted(known[key], key=nearness):
        if (type(value), value) != (type(now), now):
            yield pinned(key, value)


# ---- several fields ------------------------------------------------------------------------------


def _together(glance: _Glance, broken: Sequence[Violation]) -> TileSpec | None:
    """A change of several fields with which no rule is broken."""
    before = glance.candidate.spec
    for base in _mended(glance.candidate, broken):
        specs = (
            base.replace(block=block, warp=warp)
            for block, warp in _tiles(before)
            if glance.fits(base.types, block, warp)
        )
        found = _first_legal(glance.candidate, specs, MOST_OF_ALL)
        if found is not None:
            return found
    return None


def _mended(candidate: Candidate, broken: Sequence[Violation]) -> Iterator[TileSpec]:
    """The spec with the types and pins mended that break a rule: what is left is the tile's."""
    mended = candidate
    for violation in broken:
        if violation.field.startswith(("block", "warp")):
            continue
        for spec in islice(_alternatives(mended, violation), MOST_OF_ONE):
            other = candidate.form.derive(spec, candidate.arch)
            if all(v.field != violation.field for v in violations(other)):
                mended = other
                break
        else:
            return
    yield mended.spec
    # Blocks that are asked for beside each other leave each thread few registers.
    pins = {name: dict(table) for name, table in mended.spec.pins.items()}
    for table in pins.values():
        if table.pop("min_blocks", None) is not None:
            yield mended.spec.replace(pins=pins)


def _tiles(before: TileSpec) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Other blocks with other warp tiles, those first that are like the ones before."""
    now = (*before.block, *before.warp)
    warps = product((*POWERS, before.warp[0]), (*POWERS, before.warp[1]))
    tiles = {
        (bm, bn, bk, *warp)
        for warp in warps
        for bm in _multiples(warp[0], before.block[0])
        for bn in _multiples(warp[1], before.block[1])
        for bk in (*POWERS, before.block[2])
    }

    axes = [{n: abs(log2(n / x)) for n in {t[i] for t in tiles}} for i, x in enumerate(now)]

    def away(tile: tuple[int, ...]) -> tuple[float, tuple[int, ...]]:
        return sum(axis[n] for axis, n in zip(axes, tile, strict=True)), tile

    for tile in sorted(tiles, key=away):
        yield tile[:3], tile[3:]


def _multiples(warp: int, block: int) -> set[int]:
    """Of a warp's extent: the nearest ones to the block's, and the usual ones."""
    near = block // warp * warp
    return {n for n in (near, near + warp, *POWERS, 512) if n and n % warp == 0}


# ---- in words ------------------------------------------------------------------------------------


def _told(before: TileSpec, field: str, after: TileSpec) -> str:
    """The field's value in another spec, ``with`` what else differs: ``64 with block[2] = 32``.

    Where the field itself stays as it is, what differs alone: ``block[0] = 128, block[2] = 32``.
    """
    changes = _differences(before, after)
    own = [name for name in changes if name == field or _part_of(name, field)]
    renamed = _renamed(before, field, after)
    rest = {n: to for n, to in changes.items() if n not in own and not (renamed and n == renamed)}
    told = ", ".join(f"{name} = {to}" if to else f"no {name}" for name, to in rest.items())
    if not own:
        return told
    if field in ("block", "warp"):
        value = shown(getattr(after, field))
    elif field == "types":
        value = ", ".join(f"{name} {to}" for name, to in after.types.model_dump().items())
    else:
        value = changes[field] or renamed.rpartition(".")[2] or "left out"
    return f"{value} with {told}" if told else value


def _renamed(before: TileSpec, field: str, after: TileSpec) -> str:
    """The pin that has the field's value now; empty where the field was not renamed."""
    if not field.startswith("pins."):
        return ""
    _, backend, key = field.split(".")
    old, new = before.pins[backend], after.pins.get(backend, {})
    if key in new:
        return ""
    return next((f"pins.{backend}.{n}" for n in new if n not in old and new[n] == old[key]), "")


def _part_of(name: str, field: str) -> bool:
    return name.startswith((f"{field}[", f"{field}."))


def _differences(before: TileSpec, after: TileSpec) -> dict[str, str]:
    """Field to its new value; empty for a pin that is taken away."""
    out: dict[str, str] = {}
    for base in ("block", "warp"):
        old, new = getattr(before, base), getattr(after, base)
        changed = [i for i, (x, y) in enumerate(zip(old, new, strict=True)) if x != y]
        out |= {f"{base}[{i}]": str(new[i]) for i in changed}
    types = after.types.model_dump()
    out |= {
        f"types.{k}": str(types[k]) for k, v in before.types.model_dump().items() if v != types[k]
    }
    for backend, table in before.pins.items():
        now = after.pins.get(backend, {})
        for key in (*table, *(key for key in now if key not in table)):
            if key not in now:
                out[f"pins.{backend}.{key}"] = ""
            elif key not in table or (type(table[key]), table[key]) != (type(now[key]), now[key]):
                out[f"pins.{backend}.{key}"] = shown(now[key])
    for i, (old, new) in enumerate(zip(before.epilogue, after.epilogue, strict=True)):
        for key in ("low", "high"):
            if getattr(old, key) != getattr(new, key):
                out[f"epilogue[{i}].{key}"] = repr(getattr(new, key))
    return out
