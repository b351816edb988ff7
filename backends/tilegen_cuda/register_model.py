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

from tilegen.plan import RegisterUse

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
    """

    registers: Mapping[str, float]
    risks: Mapping[str, float]
    refused: float
    doubted: float
    snap: tuple[float, float]

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


def register_use(
    form: str,
    entries: Mapping[str, Terms],
    risks: Terms,
    *,
    file: str,
    limit: int,
    accumulators: int,
    operands: int,
    staging: int,
) -> RegisterUse:
    """What a thread takes, of the entry that takes the most.

    Parameters
    ----------
    entries : mapping
        The terms of each main entry, by its variant.
    risks : mapping
        Terms of the whole kernel that lead to spills.
    limit : int
        What a thread can have.
    accumulators, operands, staging : int
        Of the plan; addresses are what is left of the prediction. Where ptxas is seen to take fewer,
        it loads fragments one step at a time, and the shares shrink in this order: staging, operands.
    """
    model = fitted(form)
    taken = {variant: model.snapped(model.taken(t), limit) for variant, t in entries.items()}
    beyond = model.need(entries, risks) - limit
    most = max(taken.values())
    if beyond > model.refused:
        # What would spill is told by more than there are.
        most = limit + max(1, round(beyond - model.refused))
    room = max(0, most - accumulators)
    operands = min(operands, room)
    staging = min(staging, room - operands)
    return RegisterUse(
        file,
        accumulators=accumulators,
        operands=operands,
        staging=staging,
        addressing=most - accumulators - operands - staging,
        limit=limit,
        entries=taken,
        doubtful=model.doubted < beyond <= model.refused,
    )
