"""The one list of legality rules; lowering, checking, sweeping and drawing all call it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from tilegen.dtypes import DTYPES
from tilegen.hardware import Arch, Instruction
from tilegen.plan import RegisterUse, SharedTile, shared_end
from tilegen.spec import TileSpec

if TYPE_CHECKING:
    from tilegen.backend import Form


@dataclass(frozen=True)
class Candidate:
    """A spec on an arch in one form, with the numbers derived so far, legal or not.

    A number that could not be derived, since another one is illegal, is ``None`` or empty.

    Attributes
    ----------
    form : Form
    instruction : Instruction or None
        ``None``: the form has none for these types.
    threads : int
        Threads per block.
    warp_lanes : int
        Lanes of a warp in this form; 0: the arch's.
    lanes : (int, int) or None
        How a warp's lanes lie on its tile; ``None``: no arrangement divides it.
    thread, passes : (int, int)
    stages, split_k : int
        After lowering.
    shared : tuple of SharedTile
    registers : tuple of RegisterUse
    needs : frozenset of str
        Features that the arch must have.
    numbers : dict
        What only the form itself reads.
    notes : tuple of str
    """

    spec: TileSpec
    backend: str
    arch: Arch
    form: Form
    instruction: Instruction | None = None
    threads: int = 0
    warp_lanes: int = 0
    lanes: tuple[int, int] | None = None
    thread: tuple[int, int] = (1, 1)
    passes: tuple[int, int] = (1, 1)
    stages: int = 1
    split_k: int = 1
    shared: tuple[SharedTile, ...] = ()
    registers: tuple[RegisterUse, ...] = ()
    needs: frozenset[str] = frozenset()
    numbers: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def shared_bytes(self) -> int:
        """All tiles, and what lies between them where a form gives each its start."""
        return shared_end(self.shared)


@dataclass(frozen=True)
class Violation:
    """One broken rule in words.

    Attributes
    ----------
    rule : str
        The rule's name.
    field : str
        The spec's field to change (``"block[0]"``, ``"types.a"``).
    value : object
        What it is now.
    need : str
        What the rule asks for, with the limit.
    nearest : str
        The nearest legal value, ``with`` other changes that it takes; empty if there is none.
    elsewhere : str
        Archs of the backend that keep the rule with the field as it is: ``"from sm_89 on"``.
    proposed : TileSpec or None
        The spec with what ``nearest`` says, which breaks no rule.
    """

    rule: str
    field: str
    value: object
    need: str
    nearest: str = ""
    elsewhere: str = ""
    proposed: TileSpec | None = None

    def __str__(self) -> str:
        text = f"{self.field} = {shown(self.value)}: {self.need}"
        if self.elsewhere:
            text += f"; legal {self.elsewhere}"
        return f"{text}; nearest legal value: {self.nearest}" if self.nearest else text


Rule = Callable[[Candidate], Iterable[Violation]]
AXES = ("M", "N", "K")


def shown(value: object) -> str:
    """A value of a spec as messages give it."""
    return str(list(value)) if isinstance(value, tuple) else str(value)


def types_offered(c: Candidate) -> Iterator[Violation]:
    """The form multiplies these types on this arch."""
    offered = c.form.types(c.arch)
    if not offered and c.needs - c.arch.features:
        return  # features_present says why
    wanted = c.spec.types
    key = (wanted.a, wanted.b, wanted.acc)
    if any(key == (o.a, o.b, o.acc) and (wanted.c, wanted.d) in o.outputs for o in offered):
        return
    where = f"{c.backend} {c.arch.name}, form {c.form.name}"
    for name in ("a", "b", "acc"):
        choices = list(dict.fromkeys(getattr(o, name) for o in offered))
        if getattr(wanted, name) not in choices:
            value = getattr(wanted, name)
            need = f"{where} offers {', '.join(choices)}"
            yield Violation("types", f"types.{name}", value, need)
            return
    matching = [o for o in offered if key == (o.a, o.b, o.acc)]
    if not matching:
        combos = ", ".join(f"{o.a} x {o.b} -> {o.acc}" for o in offered)
        yield Violation(
            "types", "types", " x ".join(key[:2]) + f" -> {key[2]}", f"{where} offers {combos}"
        )
        return
    outputs = ", ".join(f"c {x} with d {y}" for o in matching for x, y in o.outputs)
    yield Violation("types", "types.d", wanted.d, f"{where} writes {outputs}")


def features_present(c: Candidate) -> Iterator[Violation]:
    """The arch has what the form and the types ask for."""
    lacking = sorted(c.needs - c.arch.features)
    field, value = "types", f"{c.spec.types.a} x {c.spec.types.b}"
    if lacking and not c.form.types(c.arch):
        field, value = f"pins.{c.backend}.form", c.form.name
    for feature in lacking:
        yield Violation("features", field, value, f"needs {feature}, which {c.arch.name} lacks")


def epilogue_fits_its_type(c: Candidate) -> Iterator[Violation]:
    """Bounds are values of the type that the epilogue is computed in; one of whole numbers stays whole."""
    kind = DTYPES[c.spec.types.compute]
    for i, step in enumerate(c.spec.epilogue):
        if not kind.is_float and step.op in ("gelu", "gelu_tanh", "silu", "scale"):
            yield Violation(
                "epilogue",
                f"epilogue[{i}].op",
                step.op,
                f"the epilogue is computed in {kind.name}, which {step.op} would leave; bias, relu, "
                "clamp and residual stay in it, and types.d = f32, s8 or u8 makes it one of f32",
            )
        for bound in ("low", "high"):
            value = getattr(step, bound)
            if value is None or kind.holds(value):
                continue
            need = f"the epilogue is computed in {kind.name}, "
            if kind.is_float:
                need += f"which goes to {kind.largest!r} and would make it infinite"
            else:
                need += f"so it must be a whole number of it, +-{kind.largest:.0f} at most"
            near = max(-kind.largest, min(kind.largest, value))
            near = near if kind.is_float else float(round(near))
            yield Violation("epilogue", f"epilogue[{i}].{bound}", value, need, repr(near))


def pins_known(c: Candidate) -> Iterator[Violation]:
    """Every pin of this backend has a name and a value that the form knows."""
    known = c.form.pins(c.arch)
    for key, value in c.spec.pins.get(c.backend, {}).items():
        where = f"pins.{c.backend}.{key}"
        if key not in known:
            near = get_close_matches(key, known, n=1)
            yield Violation(
                "pins",
                where,
                value,
                f"form {c.form.name} knows the pins {', '.join(known) or 'none'}",
                near[0] if near else "",
            )
        # A truth value is no number, although Python finds True == 1.
        elif known[key] and (type(value), value) not in [(type(v), v) for v in known[key]]:
            choices = ", ".join(map(shown, known[key]))
            near = get_close_matches(str(value), map(str, known[key]), n=1)
            if isinstance(value, int):
                whole = [v for v in known[key] if isinstance(v, int)]
                near = [str(v) for v in sorted(whole, key=lambda v: abs(v - value))[:1]]
            yield Violation(
                "pins", where, value, f"must be one of {choices}", near[0] if near else ""
            )


def warps_tile_the_block(c: Candidate) -> Iterator[Violation]:
    """Whole warp tiles fill the block tile."""
    for i in range(2):
        block, warp = c.spec.block[i], c.spec.warp[i]
        if block % warp:
            yield Violation(
                "warps",
                f"block[{i}]",
                block,
                f"BLOCK_{AXES[i]} must be a multiple of warp[{i}] = {warp}",
            )


def instructions_tile_the_warp(c: Candidate) -> Iterator[Violation]:
    """Whole instructions fill the warp tile and the K step."""
    if c.instruction is None:
        return
    tile = (c.instruction.m, c.instruction.n, c.instruction.k)
    for i in range(2):
        if c.spec.warp[i] % tile[i]:
            yield Violation(
                "instruction",
                f"warp[{i}]",
                c.spec.warp[i],
                f"WARP_{AXES[i]} must be a multiple of MMA_{AXES[i]} = {tile[i]} "
                f"of {c.instruction.name}",
            )
    if c.spec.block[2] % tile[2]:
        yield Violation(
            "instruction",
            "block[2]",
            c.spec.block[2],
            f"BLOCK_K must be a multiple of MMA_K = {tile[2]} of {c.instruction.name}",
        )


def lanes_tile_the_warp(c: Candidate) -> Iterator[Violation]:
    """The lanes of a warp divide its tile evenly."""
    if c.instruction is not None and c.lanes is None:
        yield Violation(
            "lanes",
            "warp",
            c.spec.warp,
            f"the {c.warp_lanes or c.arch.lanes} lanes of a warp must divide the tile evenly along "
            "M and N, which no arrangement of them does",
        )


def threads_fit(c: Candidate) -> Iterator[Violation]:
    """A block has no more threads than the arch allows."""
    if c.threads > c.arch.max_threads:
        yield Violation(
            "threads",
            "warp",
            c.spec.warp,
            f"the block has {c.threads} threads and {c.arch.name} allows "
            f"{c.arch.max_threads}; fewer, larger warp tiles make fewer threads",
        )


def shared_memory_fits(c: Candidate) -> Iterator[Violation]:
    """All stages fit in the shared memory of a block."""
    if c.shared_bytes > c.arch.shared_bytes:
        yield Violation(
            "shared",
            "block[2]",
            c.spec.block[2],
            f"{c.stages} stage(s) of A and B take {c.shared_bytes} bytes of shared "
            f"memory and {c.arch.name} allows {c.arch.shared_bytes}",
        )


def registers_fit(c: Candidate) -> Iterator[Violation]:
    """The prediction stays within what one lane can have, where a spill is a fault."""
    if c.arch.kind == "cpu":
        return
    for use in c.registers:
        if use.spills:
            there = f"{c.arch.name} has {use.limit}"
            blocks = c.spec.pins.get(c.backend, {}).get("min_blocks", 1)
            if use.limit < c.arch.registers.per_lane and blocks != 1:
                there = (
                    f"{blocks} blocks of {c.threads} threads (pins.{c.backend}.min_blocks) leave each "
                    f"{use.limit} on {c.arch.name}"
                )
            elif use.limit < c.arch.registers.per_lane:
                there = f"{c.threads} threads a block leave each {use.limit} on {c.arch.name}"
            yield Violation(
                "registers",
                "warp",
                c.spec.warp,
                f"{use.predicted} {use.file} registers a lane are predicted "
                f"({use.accumulators} of them accumulators) and {there}: the kernel would spill",
            )


RULES: tuple[Rule, ...] = (
    types_offered,
    features_present,
    epilogue_fits_its_type,
    pins_known,
    warps_tile_the_block,
    instructions_tile_the_warp,
    lanes_tile_the_warp,
    threads_fit,
    shared_memory_fits,
    registers_fit,
)


def violations(candidate: Candidate) -> list[Violation]:
    """Every rule that the candidate breaks, the form's own rules last."""
    return [v for rule in (*RULES, *candidate.form.rules) for v in rule(candidate)]
