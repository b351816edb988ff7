"""A property test of your own spec. Run: python -m pytest examples/04_property_test.py

pytest comes with the [test] extra.
"""

from hypothesis import given, settings

import tilegen as tg
from tilegen.testing import Problem, check_problem, problems

SPEC = tg.TileSpec(
    block=(64, 96, 32),
    warp=(32, 48),
    layout={"a": "col", "b": "row", "c": "row"},
    epilogue=[{"op": "bias", "along": "n"}, {"op": "relu"}],
)
KERNEL = tg.build(SPEC, "opencl")


@settings(deadline=None)
@given(problems(SPEC))
def test_my_kernel(problem: Problem) -> None:
    check_problem(KERNEL, problem)
