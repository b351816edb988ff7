"""Namespaces of a kernel text: where a kernel is called from outside, and what the linker calls an array."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

_COMMENT = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)+'""", re.DOTALL)
_SCOPE = re.compile(r"\bnamespace\s+(\w+(?:\s*::\s*\w+)*)\s*\{|[{}]")
# A name that is followed by its parameters; __launch_bounds__(...) and the like stand before it.
_KERNEL = re.compile(
    r"__global__(?:[^;{}()]|\b__\w+__\s*\((?:[^()]|\([^()]*\))*\))*?\b(?!__\w+__\b)(\w+)\s*\("
)


def bare(text: str) -> str:
    """The text with blanks for its comments and strings; all the rest keeps its place."""
    return _COMMENT.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)


# Asked for once for each entry and mode of a program, of the same text.
@lru_cache(maxsize=8)
def kernels(text: str) -> Mapping[str, Sequence[str]]:
    """The kernels of a text and the namespaces that each stands in; ``""`` for none."""
    shown, found = bare(text), dict[str, list[str]]()
    for match in _KERNEL.finditer(shown):
        spaces, space = found.setdefault(match[1], []), namespace_at(shown, match.start())
        if space not in spaces:
            spaces.append(space)
    return found


def namespace_at(shown: str, place: int) -> str:
    """The namespace at a place of a bare text: ``"outer::inner"``, or ``""``."""
    opened: list[str] = []
    for match in _SCOPE.finditer(shown, 0, place):
        if match[0] != "}":
            opened.append(re.sub(r"\s", "", match[1] or ""))
        elif opened:
            opened.pop()
    return "::".join(filter(None, opened))


def qualified(text: str, entry: str) -> str:
    """An entry as it is called from outside of the namespace that it is in.

    Parameters
    ----------
    text : str
    entry : str
        A kernel, or the instance of a template (``"gemm<float, 8>"``). What is qualified already, is
        not in the text or is there in several namespaces, stays as it is.
    """
    name = entry.partition("<")[0].strip()
    spaces = kernels(text).get(name, ())
    return f"{spaces[0]}::{entry}" if len(spaces) == 1 and spaces[0] else entry


def linked(namespace: str, name: str) -> str:
    """What the linker calls a variable of a namespace (Itanium C++ ABI, 5.1)."""
    if not namespace:
        return name
    parts = [*namespace.split("::"), name]
    return f"_ZN{''.join(f'{len(part)}{part}' for part in parts)}E"
