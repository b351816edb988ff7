"""CUDA for the emulator: the header that stands for the toolkit's, and the headers of its names."""

from __future__ import annotations

from pathlib import Path

from tilegen.emulator.vocabulary import Vocabulary

_HERE = Path(__file__).parent

VOCABULARY = Vocabulary(
    name="cuda",
    suffix=".cu",
    header="tg_cuda.hpp",
    include=(_HERE / "include", _HERE / "toolkit"),
    inline_ptx=True,
)
