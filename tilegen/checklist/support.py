"""What a backend brings to ``tilegen check`` beyond its compiler: counts, profiles, foreign texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from tilegen.backend import Backend, Resources
from tilegen.hardware import Arch

if TYPE_CHECKING:
    from tilegen.render import KernelSource


@dataclass(frozen=True)
class Traffic:
    """What the warps of one launch asked of memory at one line of the text, counted.

    Of a line in the loop over K: in the steps that :attr:`Count.multiply_adds` belongs to.

    Attributes
    ----------
    line : int
        Of the text; 0 where it is not known.
    space : str
        ``"shared"`` or ``"global"``.
    writes : bool
    operand : str
        Whose array or tile it is; ``"d"``: also shared memory that the epilogue uses; ``"ab"``: one
        line reads the tiles of both; empty: not known.
    accesses : int
        Warp accesses.
    bytes : int
        What all lanes asked for together.
    served : int
        Shared: phases, in each of which every bank serves a word. Global: sectors touched.
    extra : int
        Shared: cycles beyond one a phase. Global: sectors beyond the fewest that hold the bytes.
    """

    line: int
    space: str
    writes: bool
    operand: str
    accesses: int
    bytes: int
    served: int
    extra: int


@dataclass(frozen=True)
class Count:
    """One entry, run and counted.

    Attributes
    ----------
    traffic : tuple of Traffic
    multiply_adds : int
        Of the steps in K that were counted.
    findings : tuple of str
        Faults that the run showed, each in a sentence with its line.
    diverged : int
        How often lanes of a warp took different ways between two barriers.
    stretches : int
        Ways of all warps between two barriers.
    """

    traffic: tuple[Traffic, ...]
    multiply_adds: int
    findings: tuple[str, ...] = ()
    diverged: int = 0
    stretches: int = 0


@dataclass(frozen=True)
class Profile:
    """What a profiler said of one entry; ``reason`` says why it said nothing.

    Attributes
    ----------
    metrics : mapping
        Item (``"issue utilisation"``) to per cent of its peak.
    device : str
    reason : str
        What is missing, and what would bring it.
    """

    metrics: Mapping[str, float] = field(default_factory=dict)
    device: str = ""
    reason: str = ""


@dataclass(frozen=True)
class ForeignBinary:
    """A text that tilegen did not write, compiled.

    Attributes
    ----------
    resources : mapping
        Kernel to what the compiler said of it.
    log : str
    compiler : str
    """

    resources: Mapping[str, Resources]
    log: str
    compiler: str


@dataclass(frozen=True)
class Support:
    """What a backend can say of its kernels beside the resources of a compiled source.

    Each is ``None`` where the backend has none; a check then says so.

    Attributes
    ----------
    count : callable or None
        Runs an entry of a source on one block tile and counts what it asks of memory. Raises
        ``BackendError`` or ``CompileError`` with what is missing here.
    profile : callable or None
        Runs a profiler on an entry of a source.
    faults_of_log : callable or None
        Sentences of a compiler's log that mean a broken kernel, although it compiled.
    compile_text : callable or None
        Compiles a foreign text: text, file name, arch, kernels that must be named (instances of
        templates) and macros as ``NAME=VALUE``.
    language : str
        That the emulator runs foreign texts in; empty: none.
    sector_bytes : int
        Bytes that global memory moves at least; 0: not known.
    sector_source : str
        The document of that number.
    """

    count: Callable[[KernelSource, str], Count] | None = None
    profile: Callable[[KernelSource, str], Profile] | None = None
    faults_of_log: Callable[[str], Sequence[str]] | None = None
    compile_text: Callable[[str, str, Arch, Sequence[str], Sequence[str]], ForeignBinary] | None = (
        None
    )
    language: str = ""
    sector_bytes: int = 0
    sector_source: str = ""


@runtime_checkable
class Checkable(Protocol):
    """A backend that says more of its kernels than its compiler's resources."""

    def checks(self) -> Support:
        """What it can say; light: nothing is loaded or looked for yet."""


def support_of(backend: Backend) -> Support:
    """The backend's support, an empty one where it brings none."""
    return backend.checks() if isinstance(backend, Checkable) else Support()
