"""Inline PTX of CUDA kernel text, executed: translated to C++ once, when the text is compiled.

`translate` reads the `asm` statements (`statements`, `literals`), parses the PTX in them (`lexer`,
`parser`), checks each against what its constraints promise (`registers`, `context`), and writes calls on
the instruction semantics, which are C++ (``tg_ptx.hpp``) and written from the PTX ISA.
"""

from __future__ import annotations

from tilegen.emulator.ptx.findings import ERROR, REFUSAL, WARNING, Finding, Translation
from tilegen.emulator.ptx.translate import translate

__all__ = ["ERROR", "REFUSAL", "WARNING", "Finding", "Translation", "translate"]
