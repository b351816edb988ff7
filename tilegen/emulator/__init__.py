"""The emulator: kernel text, unedited, compiled by a host C++ compiler and run on the processor.

Text and arguments flow in; results and findings come out. The kernel runs in a child process under
a time limit, so that no text can harm or hang the caller.
"""

from __future__ import annotations

from tilegen.emulator.accesses import AccessUse, BankUse
from tilegen.emulator.findings import KINDS, Finding
from tilegen.emulator.job import Buffer, TensorMap
from tilegen.emulator.program import Program, compile
from tilegen.emulator.runs import EmulatorRun, run
from tilegen.emulator.vocabulary import Vocabulary

__all__ = [
    "KINDS",
    "AccessUse",
    "BankUse",
    "Buffer",
    "EmulatorRun",
    "Finding",
    "Program",
    "TensorMap",
    "Vocabulary",
    "compile",
    "run",
]
