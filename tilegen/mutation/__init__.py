"""Mutation testing of emitted kernels: small faults put into the text, and whether the checks see them."""

from __future__ import annotations

from .language import Language, Support
from .operators import OPERATORS, Mutant, mutants
from .run import Result, mutate

__all__ = ["OPERATORS", "Language", "Mutant", "Result", "Support", "mutants", "mutate"]
