"""Plans, reports and targets as text for people."""

from __future__ import annotations

from tilegen.plan import KernelPlan


def plan_text(plan: KernelPlan) -> str:
    """Every number of a plan, explained."""
    return plan.to_json()
