"""What the operators must know of a language, and what a backend brings so that its texts can be mutated."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tilegen.render import KernelSource
    from tilegen.testing import Problem


@dataclass(frozen=True)
class Language:
    """The spellings of a C-like kernel language, as data.

    Attributes
    ----------
    types : str
        Regular expression of the built-in type names; names from ``typedef`` come from the text.
    qualifiers : frozenset of str
        Words that stand beside a type in a declaration.
    barriers : frozenset of str
        Calls that wait for the other threads of the block.
    fences : mapping
        An argument of a barrier to the ones that order less.
    narrower : mapping
        An integer type to the one that holds fewer values.
    multiply_adds : frozenset of str
        Calls of three operands whose order counts.
    hints : frozenset of str
        Words whose argument list only advises the compiler or states the launch; left alone.
    asserts : str
        Regular expression of the beginning of a statement that checks the text at compile time.
    assert_log : str
        Regular expression of what the compiler's log says where such a check fails.
    assembly : frozenset of str
        Words that begin a statement of inline assembly.
    mnemonics : sequence of (str, str)
        In its strings: regular expressions, and what is easily written in their place.
    """

    types: str
    qualifiers: frozenset[str] = frozenset()
    barriers: frozenset[str] = frozenset()
    fences: Mapping[str, Sequence[str]] = field(default_factory=dict)
    narrower: Mapping[str, str] = field(default_factory=dict)
    multiply_adds: frozenset[str] = frozenset()
    hints: frozenset[str] = frozenset()
    asserts: str = r"static_assert\b"
    assert_log: str = r"static assert"
    assembly: frozenset[str] = frozenset()
    mnemonics: Sequence[tuple[str, str]] = ()


# A source with a mutated text, and problems to run it on; returns what was found, in words.
RaceChecker = Callable[["KernelSource", Sequence["Problem"]], Sequence[str]]


@dataclass(frozen=True)
class Support:
    """What a backend brings to ``tilegen mutate``.

    Attributes
    ----------
    language : Language
    corpus : Traversable
        TOML: specs that together hold every statement of every template.
    explained : Traversable
        TOML: mutants that cannot be told from the text, each with the reason.
    flags : str
        Compiler flags for the mutants: those under which the compiler is fast and runs every
        access that the text holds.
    races : callable or None
        Finds races and stray accesses that a native run does not show; ``None`` where nothing
        that does is installed.
    """

    language: Language
    corpus: Traversable
    explained: Traversable
    flags: str = ""
    races: RaceChecker | None = None


class Mutable(Protocol):
    """A backend whose texts can be mutated."""

    def mutation(self) -> Support: ...
