"""What ptxas will take, as a sum of named terms: how often each occurs, times what one of it takes.

A form counts the terms of every entry (``mma_registers.py``, ``fma_registers.py``). What one of each
takes is fitted to what ptxas said of drawn specs and lies in ``registers.json``: docs/registers.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from tilegen.hardware import Arch
from tilegen.plan import RegisterUse
from tilegen.tiling import blocks_beside_registers, registers_left

# A term's name and how often it occurs in an entry.
Terms = Mapping[str, float]
# Terms of what ptxas computes ahead where there is room, and can do without.
AHEAD = "ahead: "
# A note for what is in doubt.
MAY_SPILL = "registers are close to the limit: it may spill, which compiling it tells"
# A thread has its place and its sizes in registers, whatever else it does.
FEWEST = 24
# Where one more warp fits into a quarter of a multiprocessor: ptxas likes to stop there.
PREFERRED = (56, 64, 72, 80, 96, 128, 168)
# With few registers ptxas computes anew what it would keep.
FEW_LEFT = "a limit below 255"


@dataclass(frozen=True)
class Fitted:
    """What is fitted of a form.

    Attributes
    ----------
    registers : mapping
        Registers that one of each term takes.
    risks : mapping
        The same of what leads to spills: ``"taken"`` and ``"kept"``, of which a share counts, and
        terms beside them; all of them together are held against the limit.
    refused, doubted : float
        Beyond the limit by so much a kernel is said to spill; beyond it by the other it may.
    snap : (float, float)
        So close below and above a preferred number ptxas takes that number.
    squeeze : float
        Share of its registers that a thread gives up for one more block of a multiprocessor.
    """

    registers: Mapping[str, float]
    risks: Mapping[str, float]
    refused: float
    doubted: float
    snap: tuple[float, float]
    squeeze: float

    def taken(self, terms: Terms) -> float:
        """Registers that an entry of these terms takes where there is room."""
        return sum(self.registers[name] * count for name, count in terms.items())

    def kept(self, terms: Terms) -> float:
        """The same without what is computed ahead."""
        return self.taken({n: c for n, c in terms.items() if not n.startswith(AHEAD)})

    def need(self, entries: Mapping[str, Terms], risks: Terms) -> float:
        """What is held against the limit, of the entry that needs the most."""
        beside = sum(self.risks.get(name, 0.0) * count for name, count in risks.items())
        return beside + max(
            self.risks["taken"] * self.taken(t) + self.risks["kept"] * self.kept(t)
            for t in entries.values()
        )

    def beyond(self, entries: Mapping[str, Terms], risks: Terms, arch: Arch, limit: int) -> float:
        """By how many registers they need more than the limit."""
        few = {FEW_LEFT: limit < arch.registers.per_lane}
        return self.need(entries, {**risks, **few}) - limit

    def snapped(self, registers: float, limit: int) -> int:
        """The number that ptxas takes for so many: never above the limit."""
        below, above = self.snap
        for step in (*(p for p in PREFERRED if p < limit), limit):
            if step - below <= registers <= step + above:
                return step
        return max(FEWEST, min(round(registers), limit))


@cache
def fitted(form: str) -> Fitted:
    """The form's share of ``registers.json``."""
    told: dict[str, Any] = json.loads((files(__package__) / "registers.json").read_text())[form]
    return Fitted(**{**told, "snap": tuple(told["snap"])})


def _most_blocks(arch: Arch, threads: int, shared_bytes: int) -> int:
    """Blocks that a multiprocessor holds, however few registers they take."""
    return min(blocks_beside_registers(arch, threads, shared_bytes).values(), default=1)


def blocks_asked(
    model: Fitted,
    entries: Mapping[str, Terms],
    risks: Terms,
    arch: Arch,
    threads: int,
    shared_bytes: int,
) -> int:
    """Blocks of a multiprocessor that the kernel's launch bounds name.

    As many as fit by what is predicted, or with a little less: left to itself, ptxas may take a few
    registers too many for the last of them, or spill to make room for one that does not fit by shared
    memory. One where that is not safe.
    """
    beside = _most_blocks(arch, threads, shared_bytes)
    taken = max(model.snapped(model.taken(t), arch.registers.per_lane) for t in entries.values())
    for blocks in range(beside, 1, -1):
        left = registers_left(arch, threads, blocks)
        if (
            left >= taken * (1 - model.squeeze)
            and model.beyond(entries, risks, arch, left) <= model.doubted
        ):
            return blocks
    return 1


def register_use(
    form: str,
    entries: Mapping[str, Terms],
    risks: Terms,
    *,
    arch: Arch,
    threads: int,
    shared_bytes: int,
    blocks: int | None,
    accumulators: int,
    operands: int,
    staging: int,
) -> tuple[RegisterUse, int]:
    """What a thread takes, of the entry that takes the most, and the blocks of the launch bounds.

    Parameters
    ----------
    entries : mapping
        The terms of each main entry, by its variant.
    risks : mapping
        Terms of the whole kernel that lead to spills.
    threads, shared_bytes : int
        Of a block.
    blocks : int or None
        Blocks of a multiprocessor that the spec asks for; ``None``: chosen here.
    accumulators, operands, staging : int
        Of the plan; addresses are what is left of the prediction. Where ptxas is seen to take fewer,
        it loads fragments one step at a time, and the shares shrink in this order: staging, operands.
    """
    model = fitted(form)
    asked = blocks or blocks_asked(model, entries, risks, arch, threads, shared_bytes)
    limit = registers_left(arch, threads, asked)
    taken = {variant: model.snapped(model.taken(t), limit) for variant, t in entries.items()}
    beyond = model.beyond(entries, risks, arch, limit)
    first = max(taken, key=lambda variant: taken[variant])
    if blocks is None and beyond <= model.refused:
        # What was not trusted to fit beside one more block is expected to take more than that leaves it.
        left = registers_left(arch, threads, asked + 1)
        beside = _most_blocks(arch, threads, shared_bytes)
        if asked < beside and taken[first] <= left < limit:
            taken[first] = left + 1
    most = taken[first]
    if beyond > model.refused:
        # What would spill is told by more than there are.
        most = limit + max(1, round(beyond - model.refused))
    room = max(0, most - accumulators)
    operands = min(operands, room)
    staging = min(staging, room - operands)
    use = RegisterUse(
        arch.registers.name,
        accumulators=accumulators,
        operands=operands,
        staging=staging,
        addressing=most - accumulators - operands - staging,
        limit=limit,
        entries=taken,
        doubtful=model.doubted < beyond <= model.refused,
    )
    return use, asked
