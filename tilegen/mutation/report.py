"""What a run found, as text, as a table for the documentation and as JSON."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from .operators import OPERATORS
from .run import Judged, Result
from .worker import ASSERTED, COMPILES_NOT, SURVIVED

SCHEMA = 1


def text(result: Result) -> str:
    """Kill rate, what killed, and each survivor with its reason."""
    kinds = result.kinds()
    compiled, killed = len(result.compiled), len(result.compiled) - len(result.survivors)
    lines = [
        f"{len(result.judged)} mutants of {len(result.sources)} kernels on {result.device}: "
        f"{killed} of {compiled} that compile are killed ({result.rate():.1%}; of those that mean "
        f"something else {result.rate(without_equivalent=True):.1%}), {len(result.unexplained)} "
        f"survivors are unexplained; {result.seconds:.0f} s, {result.jobs} processes",
        "killed by  "
        + ", ".join(f"{kind} {n}" for kind, n in kinds.most_common() if kind not in _ALIVE),
        f"not compiled  {kinds[COMPILES_NOT]}",
    ]
    if not result.race_checked:
        lines.append("no race checker is installed: what only a race shows was not killed")
    for (kind, reason), group in _explained(result.survivors):
        lines.append(f"{kind}, {len(group)}: {reason}")
        lines += [f"  {_where(one)}" for one in group]
    if result.unexplained:
        lines.append(f"unexplained, {len(result.unexplained)}:")
        lines += [f"  {_where(one)}" for one in result.unexplained]
    return "\n".join(lines)


_ALIVE = (SURVIVED, COMPILES_NOT)


def _where(one: Judged) -> str:
    return f"{one.source.plan.template} {one.mutant}"


def _explained(survivors: Sequence[Judged]) -> Iterator[tuple[tuple[str, str], list[Judged]]]:
    groups: dict[tuple[str, str], list[Judged]] = defaultdict(list)
    for one in survivors:
        if one.explanation is not None:
            groups[one.explanation.kind, one.explanation.reason].append(one)
    yield from sorted(groups.items())


def table(result: Result) -> str:
    """Markdown: a row for each template and operator, and the reasons of the survivors."""
    rows = ["| template | operator | mutants | compiled | killed | survived, explained | unexplained |",
            "| --- | --- | --: | --: | --: | --: | --: |"]  # fmt: skip
    templates = sorted({j.source.plan.template for j in result.judged})
    for template in templates:
        for operator in OPERATORS:
            some = [
                j
                for j in result.judged
                if j.source.plan.template == template and j.mutant.operator == operator
            ]
            if some:
                rows.append(_row(template, operator, some))
    rows.append(_row("all", "all", result.judged))
    rows += ["", "| killed by | mutants |", "| --- | --: |"]
    rows += [f"| {kind} | {n} |" for kind, n in result.kinds().most_common() if kind not in _ALIVE]
    rows += ["", "| survivors | kind | reason |", "| --: | --- | --- |"]
    rows += [
        f"| {len(group)} | {kind} | {reason} |"
        for (kind, reason), group in _explained(result.survivors)
    ]
    return "\n".join(rows)


def _row(template: str, operator: str, some: Sequence[Judged]) -> str:
    compiled = [j for j in some if j.verdict.kind != COMPILES_NOT]
    alive = [j for j in compiled if j.survived]
    open_ones = sum(j.explanation is None for j in alive)
    share = f" ({(len(compiled) - len(alive)) / len(compiled):.1%})" if compiled else ""
    return (
        f"| {template} | {operator} | {len(some)} | {len(compiled)} | {len(compiled) - len(alive)}{share} "
        f"| {len(alive) - open_ones} | {open_ones} |"
    )


def to_dict(result: Result) -> dict[str, Any]:
    """Everything, for ``--json``."""
    by_operator: dict[str, Counter[str]] = defaultdict(Counter)
    for one in result.judged:
        by_operator[one.mutant.operator][one.verdict.kind] += 1
    return {
        "schema": SCHEMA,
        "device": result.device,
        "kernels": [
            {"name": s.name, "template": s.plan.template, "sha256": s.digest}
            for s in result.sources
        ],
        "mutants": len(result.judged),
        "compiled": len(result.compiled),
        "rate": result.rate(),
        "rate_without_equivalent": result.rate(without_equivalent=True),
        "unexplained": len(result.unexplained),
        "race_checked": result.race_checked,
        "seconds": round(result.seconds, 1),
        "jobs": result.jobs,
        "kinds": dict(result.kinds()),
        "operators": {name: dict(kinds) for name, kinds in by_operator.items()},
        "judged": [one.to_dict() for one in result.judged],
    }


__all__ = ["ASSERTED", "table", "text", "to_dict"]
