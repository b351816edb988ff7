"""The corpus of faults: correct kernels, texts with one planted fault or one mutation, and their verdicts.

``kernels.toml`` names the correct kernels, ``planted_*.toml`` and ``mutants.toml`` hold one small replacement
each. What a text does is judged here by the emulator; ``docs/fidelity.py`` runs the same texts on a GPU.
"""

from __future__ import annotations

import hashlib
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tilegen import emulator
from tilegen.errors import CompileError

from .operands import MAKERS, Array, Operands

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
WRONG, NOT_COMPILED = "wrong", "not-compiled"
ORDERS = (0, 1, 2)


@dataclass(frozen=True)
class Kernel:
    """A correct kernel and its launch."""

    name: str
    text: str
    entry: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int
    make: str
    numbers: str

    @property
    def operands(self) -> Operands:
        return _made(self.make, self.numbers)


@cache
def _made(make: str, numbers: str) -> Operands:
    return MAKERS[make](**tomllib.loads(numbers)) if numbers else MAKERS[make]()


@dataclass(frozen=True)
class Text:
    """One text of the corpus.

    Attributes
    ----------
    name : str
        Kernel and change.
    kernel : Kernel
    text : str
    verdict : tuple of str
        What the emulator must say: kinds of findings, or ``"wrong"`` for wrong results. Empty for a
        text that is right.
    why : str
        In one sentence: what is wrong, or why the change does no harm.
    group : str
        ``"correct"``, ``"planted"`` or ``"mutant"``.
    device : bool
        Whether it may run on a GPU.
    hangs : bool
        Whether it may hang there.
    fault : bool
        Whether something is wrong with it, seen or not.
    """

    name: str
    kernel: Kernel
    text: str
    verdict: tuple[str, ...]
    why: str
    group: str
    device: bool = True
    hangs: bool = False
    fault: bool = False

    @property
    def digest(self) -> str:
        """Of the text and the launch: a record of another text is not one of this."""
        k = self.kernel
        parts = (self.text, k.entry, k.grid, k.block, k.shared, k.make, k.numbers)
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def replaced(text: str, old: str, new: str, nth: int | None = None) -> str:
    """``old`` stands once in the text, or its ``nth`` occurrence, from 1, is meant."""
    count = text.count(old)
    if count != 1 and nth is None:
        raise ValueError(f"{old!r} stands {count} times in the text")
    if nth is None:
        return text.replace(old, new)
    parts = text.split(old)
    if not 1 <= nth < len(parts):
        raise ValueError(f"{old!r} stands {count} times in the text, not {nth}")
    return old.join(parts[:nth]) + new + old.join(parts[nth:])


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if not isinstance(value, str) else f'"{value}"'


@cache
def kernels() -> dict[str, Kernel]:
    """The correct kernels by name."""
    out = {}
    for name, about in tomllib.loads((HERE / "kernels.toml").read_text(encoding="utf-8")).items():
        path = ROOT / about["file"] if "file" in about else HERE / "kernels" / f"{name}.cu"
        numbers = dict(about["operands"])
        make = numbers.pop("make")
        lines = "\n".join(f"{key} = {_toml(value)}" for key, value in numbers.items())
        out[name] = Kernel(
            name, path.read_text(encoding="utf-8"), about["entry"], tuple(about["grid"]),
            tuple(about["block"]), about.get("shared", 0), make, lines,
        )  # fmt: skip
    return out


def _changed(entry: dict[str, Any], group: str) -> Text:
    kernel = kernels()[entry["kernel"]]
    text = kernel.text
    changes = entry.get("changes") or [entry]
    for change in changes:
        text = replaced(text, change["old"], change["new"], change.get("nth"))
    return Text(
        f"{kernel.name}: {entry['name']}", kernel, text, tuple(entry["verdict"]), entry["why"], group,
        entry.get("device", True), entry.get("hangs", False), entry.get("fault", bool(entry["verdict"])),
    )  # fmt: skip


@cache
def texts() -> tuple[Text, ...]:
    """Every text of the corpus: the correct ones first, then by file."""
    out = [
        Text(name, kernel, kernel.text, (), "The kernel as it is.", "correct")
        for name, kernel in kernels().items()
    ]
    for path in (*sorted(HERE.glob("planted_*.toml")), HERE / "mutants.toml"):
        if path.exists():
            group = "mutant" if path.stem == "mutants" else "planted"
            entries = tomllib.loads(path.read_text(encoding="utf-8"))["text"]
            out += [_changed(entry, group) for entry in entries]
    return tuple(out)


@dataclass(frozen=True)
class Judgement:
    """What the emulator says of a text.

    Attributes
    ----------
    verdict : tuple of str
        Kinds of findings in alphabetical order, ``"wrong"`` last where results are wrong; empty if
        all is well.
    said : str
        The findings, or the compiler's refusal.
    digest : str
        Of all arrays after the launch; empty where there are none.
    """

    verdict: tuple[str, ...]
    said: str
    digest: str

    @property
    def clean(self) -> bool:
        return not self.verdict


def digest_of(arrays: tuple[Array, ...] | list[Array]) -> str:
    """Of the bits of arrays."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]


def same(arrays: tuple[Array, ...] | list[Array], expected: tuple[Array, ...]) -> bool:
    """Whether arrays hold what they should, by value."""
    return len(arrays) == len(expected) and all(
        np.array_equal(got, want) for got, want in zip(arrays, expected, strict=True)
    )


def judge(text: Text, orders: tuple[int, ...] = ORDERS) -> Judgement:
    """Run a text in the emulator, in every order and under the race detector."""
    kernel, operands = text.kernel, text.kernel.operands
    try:
        run = emulator.run(
            text.text, entry=kernel.entry, grid=kernel.grid, block=kernel.block, args=operands.args,
            outputs=operands.outputs, shared_bytes=kernel.shared, shared_limit=227 * 1024,
            orders=orders, timeout=8.0, loop_seconds=0.5, arithmetic="hopper",
        )  # fmt: skip
    except CompileError as error:
        return Judgement((NOT_COMPILED,), str(error), "")
    wrong = [] if same(run.arrays, operands.expected) else [WRONG]
    kinds = sorted({f.kind for f in run.findings})
    return Judgement((*kinds, *wrong), str(run), digest_of(run.arrays) if run.arrays else "")
