"""What makes a language known to the emulator: a header with its words, and where it finds others."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import cast

from tilegen.errors import BackendError


@dataclass(frozen=True)
class Vocabulary:
    """A language that kernels are written in, for a host C++ compiler.

    Attributes
    ----------
    name : str
    suffix : str
        Of a file in this language, with the dot.
    header : str
        Included before the kernel text; it includes ``tg_runtime.hpp``.
    include : tuple of Path
        Folders for ``header`` and for what the text itself includes.
    warp_size : int
        Lanes that run together unless the launch says otherwise.
    inline_ptx : bool
        Whether ``asm`` statements hold PTX and are translated.
    """

    name: str
    suffix: str
    header: str
    include: tuple[Path, ...]
    warp_size: int = 32
    inline_ptx: bool = False


def find(language: str | Vocabulary) -> Vocabulary:
    """The vocabulary that the backend of a language brings along.

    Raises
    ------
    BackendError
        If no package ``tilegen_<language>`` with an ``emulator`` is installed.
    """
    if isinstance(language, Vocabulary):
        return language
    module = f"tilegen_{language}.emulator"
    try:
        return cast(Vocabulary, import_module(module).VOCABULARY)
    except ModuleNotFoundError as error:
        if not module.startswith(error.name or "?"):
            raise
        raise BackendError(
            f"language {language!r} has no vocabulary for the emulator: there is no {module}"
        ) from None
