"""One point's numbers, predicted and compiled, and the records of the whole sweep."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from io import StringIO
from pathlib import Path
from typing import Any

from tilegen.backend import Resources
from tilegen.errors import SpecError
from tilegen.plan import KernelPlan, RegisterUse
from tilegen.rules import Violation
from tilegen.spec import TileSpec
from tilegen.tiling import occupancy

from .points import Point, shown


@dataclass(frozen=True)
class Compiled:
    """What the compiler said of a kernel: the most of its main entries; ``None``: nothing.

    Attributes
    ----------
    registers, spill_bytes, stack_bytes, private_bytes : int or None
        Of one thread.
    shared_bytes : int or None
        Of a block, with what the launch asks for.
    max_threads : int or None
        Of a block.
    blocks_per_multiprocessor, occupancy, bound_by
        As the plan counts them, from the compiler's registers and shared memory.
    seconds : float or None
        Of the compiler; ``None`` where the disk cache held the kernel.
    entries : mapping
        Entry name to what was said of it.
    """

    registers: int | None = None
    spill_bytes: int | None = None
    stack_bytes: int | None = None
    private_bytes: int | None = None
    shared_bytes: int | None = None
    max_threads: int | None = None
    blocks_per_multiprocessor: int | None = None
    occupancy: float | None = None
    bound_by: str = ""
    seconds: float | None = None
    entries: Mapping[str, Resources] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: KernelPlan, said: Mapping[str, Resources], seconds: float | None) -> Compiled:
        """From what a binary's ``resources`` hold."""
        mains = [said[e.name] for e in plan.main_entries if e.name in said]
        registers = _most(r.registers for r in mains)
        shared = _most(r.all_shared_bytes for r in mains)
        blocks, share, bound = None, None, ""
        if registers is not None:
            use = RegisterUse(plan.arch.registers.name, 0, 0, 0, registers, registers)
            taken = plan.budget.shared_bytes if shared is None else shared
            blocks, share, bound = occupancy(plan.arch, plan.threads, taken, use)
        return cls(
            registers=registers,
            spill_bytes=_most(r.spill_bytes for r in mains),
            stack_bytes=_most(r.stack_bytes for r in mains),
            private_bytes=_most(r.private_bytes for r in mains),
            shared_bytes=shared,
            max_threads=min((r.max_threads for r in mains if r.max_threads), default=None),
            blocks_per_multiprocessor=blocks,
            occupancy=share,
            bound_by=bound,
            seconds=seconds,
            entries=dict(said),
        )


def _most(numbers: Iterable[int | None]) -> int | None:
    return max((n for n in numbers if n is not None), default=None)


@dataclass(frozen=True)
class Row:
    """One point: its plan's numbers, and the compiler's.

    Attributes
    ----------
    point : Point
    plan : KernelPlan
    compiled : Compiled or None
        ``None`` without a compiler, or where it refused the text.
    error : str
        Why it was not compiled, where it should have been.
    spilling : bool
        Whether only the prediction of its registers refuses it.
    """

    point: Point
    plan: KernelPlan
    compiled: Compiled | None = None
    error: str = ""
    spilling: bool = False

    @property
    def use(self) -> RegisterUse:
        """The registers of the main entries' threads, of those that need the most."""
        file = self.plan.arch.registers.name
        uses = [u for u in self.plan.budget.registers if u.file == file and not u.entry]
        return max(uses or self.plan.budget.registers, key=lambda u: u.predicted)

    @property
    def spills(self) -> bool:
        """Whether it spills: the compiler's word, else the prediction."""
        said = self.compiled.spill_bytes if self.compiled else None
        return self.use.spills if said is None else said > 0

    def numbers(self) -> dict[str, Any]:
        """Every number by its name, in the order of the columns of a CSV file."""
        plan, use, c = self.plan, self.use, self.compiled or Compiled()
        budget = plan.budget
        return {
            "block": shown(plan.block),
            "warp": shown(plan.warp),
            "thread": shown(plan.thread),
            "stages": plan.pipeline.stages,
            "split_k": plan.split_k,
            **{k: shown(v) for k, v in self.point.values.items() if k not in LOWERED},
            "form": plan.form,
            "threads": plan.threads,
            "accumulators": use.accumulators,
            "predicted_registers": use.predicted,
            "registers": c.registers,
            "register_limit": use.limit,
            "predicted_to_spill": use.spills,
            "predicted_at_limit": use.at_limit,
            "spill_bytes": c.spill_bytes,
            "stack_bytes": c.stack_bytes,
            "predicted_private_bytes": budget.private_bytes,
            "private_bytes": c.private_bytes,
            "predicted_shared_bytes": budget.shared_bytes,
            "shared_bytes": c.shared_bytes,
            "predicted_blocks": budget.blocks_per_multiprocessor,
            "blocks": c.blocks_per_multiprocessor,
            "predicted_occupancy": budget.occupancy,
            "occupancy": c.occupancy,
            "bound_by": c.bound_by or budget.bound_by,
            "flop_per_shared_load": round(budget.flop_per_shared_load, 4),
            "flop_per_global_byte": round(budget.flop_per_global_byte, 4),
            "seconds": None if c.seconds is None else round(c.seconds, 3),
            "kernel": plan.name,
            "error": self.error,
        }


# Of these the plan says what became of them.
LOWERED = ("block", "warp", "thread", "stages", "split_k")


@dataclass(frozen=True)
class Refusal:
    """A point that no form can build, and the rules of the form that came closest."""

    point: Point
    violations: tuple[Violation, ...]

    @property
    def rule(self) -> str:
        return self.violations[0].rule

    def __str__(self) -> str:
        return f"{self.point}: " + "; ".join(map(str, self.violations))


@dataclass(frozen=True)
class Sweep:
    """The result: legal points as rows, the others by what refused them.

    Attributes
    ----------
    spec : TileSpec
        What all points share.
    backend, arch, compiler : str
        The compiler's name and version; empty where there is none.
    axes : tuple of str
        The keys that were swept.
    rows : tuple of Row
    refused : tuple of Refusal
    missing : str
        Why nothing was compiled; empty where it was.
    seconds : float
        Of the whole sweep.
    processes : int
        That compiled; 0 where the disk cache held everything.
    """

    spec: TileSpec
    backend: str
    arch: str
    compiler: str
    axes: tuple[str, ...]
    rows: tuple[Row, ...]
    refused: tuple[Refusal, ...] = ()
    missing: str = ""
    seconds: float = 0.0
    processes: int = 0

    def __iter__(self) -> Any:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __str__(self) -> str:
        from .table import text

        return text(self)

    @property
    def failed(self) -> tuple[Row, ...]:
        """The rows that should have been compiled and were not."""
        return tuple(row for row in self.rows if row.error)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names that :meth:`Row.numbers` gives."""
        return tuple(self.rows[0].numbers()) if self.rows else ()

    def refusals(self) -> dict[str, int]:
        """How many points each rule refused, the most first."""
        return dict(Counter(refusal.rule for refusal in self.refused).most_common())

    def sorted(self, by: str = "") -> Sweep:
        """The same with the rows in another order.

        Parameters
        ----------
        by : str
            A column, with ``-`` before it the largest first. Left out: what does not spill first,
            then by FLOP per global byte and per shared load, the most first, then the fewest
            registers.

        Raises
        ------
        SpecError
            For a column that is none.
        """
        return replace(
            self, rows=tuple(sorted(self.rows, key=self._key(by), reverse=by[:1] == "-"))
        )

    def _key(self, by: str) -> Any:
        name = by.removeprefix("-")
        if not name:
            return _best_first
        if name not in self.columns:
            raise SpecError(f"sort {name!r} is no column; columns: {', '.join(self.columns)}")

        def key(row: Row) -> tuple[bool, Any]:
            # Points without the number come last either way, tuples in order of their numbers.
            raw = row.plan
            value = {"block": raw.block, "warp": raw.warp, "thread": raw.thread}.get(
                name, row.numbers()[name]
            )
            return (value is None) != (by[:1] == "-"), 0 if value is None else value

        return key

    def to_dict(self) -> dict[str, Any]:
        """The result as plain data, ready for JSON."""
        return {
            "backend": self.backend,
            "arch": self.arch,
            "compiler": self.compiler or None,
            "missing": self.missing or None,
            "spec": self.spec.model_dump(mode="json", exclude_defaults=True),
            "axes": list(self.axes),
            "seconds": round(self.seconds, 3),
            "processes": self.processes,
            "rows": [
                {
                    **row.numbers(),
                    "spec": row.point.spec.model_dump(mode="json", exclude_defaults=True),
                    "entries": {n: asdict(r) for n, r in row.compiled.entries.items()}
                    if row.compiled
                    else None,
                }
                for row in self.rows
            ],
            "refused": [
                {
                    "point": {k: shown(v) for k, v in refusal.point.values.items()},
                    "violations": [
                        {"rule": v.rule, "field": v.field, "need": v.need}
                        for v in refusal.violations
                    ],
                }
                for refusal in self.refused
            ],
        }

    def to_csv(self) -> str:
        """The rows as CSV with a head, in the order they have; an empty cell where nobody said."""
        out = StringIO()
        writer = csv.DictWriter(out, self.columns, lineterminator="\n")
        writer.writeheader()
        for row in self.rows:
            writer.writerow(row.numbers())
        return out.getvalue()

    def save(self, path: str | Path) -> None:
        """Write ``.csv``, ``.json``, or the plot as ``.svg``, ``.png`` or ``.pdf``, by the suffix.

        Raises
        ------
        SpecError
            For any other suffix.
        BackendError
            For a plot without matplotlib.
        """
        from tilegen.files import write_atomically

        from .plot import picture

        kind = suffix(path)
        if kind == ".csv":
            data = self.to_csv().encode()
        elif kind == ".json":
            data = (json.dumps(self.to_dict(), indent=1) + "\n").encode()
        else:
            data = picture(self, kind[1:])
        write_atomically(Path(path), data)


def suffix(path: str | Path) -> str:
    """What kind of file a path names; raises what :meth:`Sweep.save` would for one it cannot write."""
    from .plot import SUFFIXES, refuse

    found = Path(path).suffix.lower()
    if found in SUFFIXES:
        refuse()
    elif found not in (".csv", ".json"):
        raise SpecError(f"{path}: a sweep is written as .csv, .json, {', '.join(SUFFIXES)}")
    return found


def _best_first(row: Row) -> tuple[Any, ...]:
    budget, c = row.plan.budget, row.compiled
    registers = c.registers if c and c.registers is not None else row.use.predicted
    return (
        bool(row.error),
        row.spills,
        -budget.flop_per_global_byte,
        -budget.flop_per_shared_load,
        registers,
    )
