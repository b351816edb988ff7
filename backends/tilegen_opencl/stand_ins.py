"""Built-ins that a checker lacks, defined before an emitted text that calls them; the text is unedited."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

from tilegen.errors import CompileError

from .sub_groups import lanes_needed

if TYPE_CHECKING:
    from tilegen.render import KernelSource

# What oclgrind's compiler knows; the later of two such options counts.
LANGUAGE = "-cl-std=CL1.2"


def with_stand_ins(source: KernelSource) -> str:
    """The text, after definitions of its sub-group functions or its dot products, where it has such.

    Lines are counted from the start of the text itself.

    Raises
    ------
    CompileError
        If it needs sub-groups, and a work-group is more than one, which barriers cannot tell apart.
    """
    plan = source.plan
    lanes = lanes_needed(plan)
    if lanes and plan.threads != lanes:
        raise CompileError(
            f"{source.name} has {plan.threads} work-items a work-group; barriers stand in for "
            f"one sub-group of {lanes} lanes: block must be warp"
        )
    names = {
        "sub_groups_by_barriers.cl": lanes > 0,
        "dot_products_by_bytes.cl": plan.instruction.k > 1,
    }
    folder = files("tilegen_templates") / "opencl"
    needed = [folder / name for name, is_needed in names.items() if is_needed]
    if not needed:
        return source.text
    before = "".join(file.read_text(encoding="utf-8") for file in needed)
    return f"{before}#line 1\n{source.text}"
