"""Sweeping: every point of given lists, with what the plan predicts and what the compiler says.

``points`` are combined, each is lowered into a row (``rows``), ``workers`` compile what the disk
cache does not hold, and ``run`` puts the result together; ``table`` and ``plot`` show it.
"""

from .rows import Compiled, Refusal, Row, Sweep
from .run import sweep

__all__ = ["Compiled", "Refusal", "Row", "Sweep", "sweep"]
