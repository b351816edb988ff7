"""Public Hypothesis strategies for specs and problems, and the check that a kernel solves one."""

from tilegen.testing.arrays import make_arrays, strided
from tilegen.testing.check import check_problem
from tilegen.testing.expected import apply_epilogue, operand_values, reference, rounded
from tilegen.testing.problem import Arrays, Broadcast, Outcome, Problem, View
from tilegen.testing.strategies import epilogues, problems, specs
from tilegen.tiling import epilogue_operands

__all__ = [
    "Arrays",
    "Broadcast",
    "Outcome",
    "Problem",
    "View",
    "apply_epilogue",
    "check_problem",
    "epilogue_operands",
    "epilogues",
    "make_arrays",
    "operand_values",
    "problems",
    "reference",
    "rounded",
    "specs",
    "strided",
]
