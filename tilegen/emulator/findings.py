"""What the emulator finds: kinds of faults and where they are."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

# Each kind in the words that `tilegen emulate` prints beside it.
KINDS = {
    "asm-scope": "an asm statement that cannot stand twice in a function",
    "assert": "an assertion of the kernel text failed",
    "async-in-flight": "asynchronous work that nobody waits for",
    "bad-barrier": "a barrier that the hardware does not have",
    "bad-tensor-map": "an address without an encoded tensor map, or one of another rank",
    "constraint": "an asm statement whose constraints do not fit its instructions",
    "bad-descriptor": "a wgmma descriptor that the hardware does not take",
    "bad-mbarrier": "an mbarrier that is not there, overwritten, or arrived at too often",
    "crash": "the kernel ended the child process",
    "data-race": "two accesses of which neither is ordered before the other",
    "deadlock": "nobody can go on",
    "division-by-zero": "an integer division by zero",
    "divergent-barrier": "a barrier that not all threads come to together",
    "divergent-collective": "a warp instruction that not all its lanes come to together",
    "endless-loop": "a thread that comes neither to a barrier nor to its end",
    "inactive-lane": "a value taken from a lane that takes no part",
    "bad-argument": "an instruction with an operand that it does not take",
    "missing-clobber": "an asm statement that touches memory and does not say so",
    "misaligned": "an address that is no multiple of the access",
    "missing-fence": "a wgmma whose registers no wgmma.fence has handed over",
    "missing-proxy-fence": "generic writes read through the async proxy without a fence",
    "never-written": "elements of an output that no thread wrote",
    "not-volatile": "an asm statement that the compiler may drop",
    "order-dependent": "results that depend on the order in which threads run",
    "out-of-bounds": "an access outside of what the kernel was given",
    "shared-limit": "more shared memory than there is",
    "stack-overflow": "local variables that need more than the stack",
    "time-limit": "the launch took too long",
    "trap": "the kernel called its trap",
    "unknown-instruction": "an instruction that the emulator does not know",
    "wrong-space": "an address of another state space",
    "written-twice": "an output element that was written more than once",
}


@dataclass(frozen=True)
class Finding:
    """One fault.

    Attributes
    ----------
    kind : str
        A key of ``KINDS``.
    message : str
    line : int or None
        Of the kernel text, from 1.
    block, thread : tuple of int, int, or None
        Where it was first seen: block index (x, y, z) and the thread's number in its block.
    warp, lane : int or None
    other_line : int or None
        Of a race: where the other access stands.
    count : int
        How often the same kind was seen at the same line in one run.
    runs : tuple of str
        The runs that found it: ``"forward"``, ``"reverse"``, ``"seed 2"``, ``"races"``.
    """

    kind: str
    message: str
    line: int | None = None
    block: tuple[int, int, int] | None = None
    thread: int | None = None
    warp: int | None = None
    lane: int | None = None
    other_line: int | None = None
    count: int = 1
    runs: tuple[str, ...] = ()

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line is not None else ""
        who = ""
        if self.block is not None:
            who = f" [block {self.block}, thread {self.thread}, warp {self.warp}, lane {self.lane}]"
        other = f" at line {self.other_line}" if self.other_line is not None else ""
        times = f" ({self.count} times)" if self.count > 1 else ""
        runs = f" ({', '.join(self.runs)})" if self.runs else ""
        return f"{where}{self.kind}: {self.message}{other}{who}{times}{runs}"

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able data."""
        return asdict(self)
