"""Judges the register model: draws specs, compiles them with NVRTC, and holds the plan against ptxas.

    python docs/register_model.py compile mma_sync --seed 1 --count 400 -o FILE.json
    python docs/register_model.py report FILE.json...      the errors of the model as it stands
    python docs/register_model.py worst FILE.json...       the specs on which it is furthest off
    python docs/register_model.py table                    rewrite the table in docs/registers.md

``compile`` adds to the file what is not in it yet and stops after ``--seconds``, so that it can be
called again. A file holds specs and what ptxas said; ``report`` plans the specs anew, so that a model
is fitted on one file and judged on another without compiling.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tilegen as tg
from tilegen import registry
from tilegen.backend import Form, Resources
from tilegen.files import write_atomically
from tilegen.hardware import Arch
from tilegen.lower import attempt
from tilegen.processors import cores
from tilegen.sweep import Compiled
from tilegen.sweep.workers import compile_all

BACKEND = registry.get("cuda")
ARCHS = ("sm_80", "sm_90", "sm_120")
STEPS = ("bias", "scale", "residual", "relu", "gelu", "gelu_tanh", "silu", "clamp")
HERE = Path(__file__).parent
RECORDS, PAGE = HERE / "registers", HERE / "registers.md"
BEGIN, END = "<!-- table: python docs/register_model.py table -->", "<!-- end of table -->"
# Records of earlier texts, good for a fit: of those before launch bounds named blocks, and of those of
# which one entry has not changed since.
EARLIER = ("unnamed", "earlier")
# BLOCK_K of drawn specs, and of those drawn for long loops over it.
DEPTHS = {"fma": (4, 8, 8, 16, 16, 20, 32), "mma_sync": (16, 16, 32, 32, 64, 64, 128)}
LONG = (192, 256, 320, 512, 768, 1024)
# A spill of fewer bytes is a handful of stores outside of the main loop.
FEW_BYTES = 64
# Sums beyond this share of the registers are known to spill, and take ptxas a minute.
MOST_SUMS = 0.78


@dataclass(frozen=True)
class Case:
    """A spec on an arch with its plan, which the rule for registers alone may refuse."""

    arch: str
    spec: tg.TileSpec
    plan: tg.KernelPlan

    @property
    def key(self) -> str:
        return f"{self.arch} {self.spec.canonical}"


def planned(arch: str, spec: tg.TileSpec) -> Case | None:
    """The spec's plan, or ``None`` where another rule than that for registers refuses it."""
    plan, _ = attempt(spec, BACKEND, BACKEND.archs[arch], ("registers",))
    return None if plan is None else Case(arch, spec, plan)


def draw(form: str, seed: int, depths: Sequence[int] = ()) -> Iterator[Case]:
    """Cases of a form without end, the same for the same seed; of other depths than the form's if given."""
    source = random.Random(f"{form} {seed}")
    while True:
        name = source.choice(ARCHS)
        arch = BACKEND.archs[name]
        kind = next(f for f in BACKEND.forms(arch) if f.name == form)
        case = planned(name, drawn(source, kind, arch, depths or DEPTHS[form]))
        if case is None:
            continue
        use = case.plan.budget.registers[0]
        if use.accumulators <= MOST_SUMS * use.limit:
            yield case


def drawn(source: random.Random, form: Form, arch: Arch, depths: Sequence[int]) -> tg.TileSpec:
    """One spec, legal or not: tiles from small to too large, all types, layouts and epilogues."""
    types = source.choice(form.types(arch))
    c, d = source.choice(types.outputs)
    if form.name == "fma":
        warp = source.choice((8, 16, 24, 32, 48, 64, 96)), source.choice((8, 16, 32, 48, 64, 96))
    else:
        warp = (
            source.choice((16, 32, 32, 48, 64, 64, 96, 128)),
            source.choice((8, 16, 24, 32, 32, 48, 64, 64, 96, 128)),
        )
    depth = source.choice(depths)
    warps = source.choice((1, 1, 2, 2, 3, 4)), source.choice((1, 2, 2, 4))
    pins: dict[str, Any] = {"form": form.name}
    for pin, share in (("copy", 0.2), ("swizzle", 0.3), ("epilogue", 0.3), ("min_blocks", 0.2)):
        values = form.pins(arch).get(pin, ())
        if values and source.random() < share:
            pins[pin] = source.choice(values[:3] if pin == "min_blocks" else values)
    data: dict[str, Any] = {
        "block": (warp[0] * warps[0], warp[1] * warps[1], depth),
        "warp": warp,
        "stages": source.randint(1, 5),
        "types": {"a": types.a, "b": types.b, "acc": types.acc, "c": c, "d": d},
        "layout": {x: source.choice(("row", "col")) for x in "abcd"},
        "batch": source.choice(("none", "none", "strided")),
        "epilogue": epilogue(source, "s32" if types.acc == d == "s32" else "float"),
        "pins": {"cuda": pins},
    }
    if source.random() < 0.3:
        data["thread"] = source.choice((2, 4, 8)), source.choice((2, 4, 8))
    if form.name != "fma" and source.random() < 0.15:
        data["split_k"] = source.randint(2, 4)
    return tg.TileSpec(**data)


def epilogue(source: random.Random, kind: str) -> list[dict[str, Any]]:
    """None of the time up to three steps, half of the time none."""
    if source.random() < 0.5:
        return []
    known = [s for s in STEPS if kind == "float" or s in ("bias", "residual", "relu", "clamp")]
    out: list[dict[str, Any]] = []
    for op in source.sample(known, source.randint(1, 3)):
        step: dict[str, Any] = {"op": op}
        if op in ("bias", "scale"):
            step["along"] = source.choice("mn")
        if op == "clamp":
            step |= {"low": -1.0, "high": 6.0}
        out.append(step)
    return out


def compile_cases(
    form: str,
    seed: int,
    count: int,
    out: Path,
    seconds: float,
    jobs: int,
    depths: Sequence[int] = (),
) -> None:
    """Add to the file what it lacks of the first ``count`` cases of a seed."""
    begin = time.monotonic()
    told = (
        json.loads(out.read_text()) if out.exists() else {"form": form, "seed": seed, "cases": []}
    )
    if (told["form"], told["seed"]) != (form, seed):
        raise SystemExit(f"{out} holds {told['form']}, seed {told['seed']}")
    known = set(map(key_of, told["cases"]))
    endless = draw(form, seed, depths)
    wanted = {case.key: case for case in (next(endless) for _ in range(count))}
    todo = [case for key, case in wanted.items() if key not in known]
    answers = compile_all([tg.emit(case.plan) for case in todo], jobs)
    for index, (said, took, why) in answers:
        case = todo[index]
        told["compiler"] = str(BACKEND.toolchain(BACKEND.archs[case.arch]))
        told["cases"].append(
            {
                "arch": case.arch,
                "spec": case.spec.model_dump(mode="json", exclude_defaults=True),
                "error": why,
                "seconds": round(took, 2),
                "blocks": int(case.plan.numbers["MIN_BLOCKS"]),
                "entries": {
                    name: [r.registers, r.spill_bytes, r.stack_bytes, r.all_shared_bytes]
                    for name, r in said.items()
                },
            }
        )
        # What is done is kept, whatever ends this.
        write(told, list(wanted), out)
        if time.monotonic() - begin > seconds:
            answers.close()
            break
    print(f"{out}: {len(told['cases'])} of {count} cases")


def write(told: dict[str, Any], wanted: list[str], out: Path) -> None:
    """One case a line, in the order in which they were drawn."""
    order = {key: place for place, key in enumerate(wanted)}
    cases = sorted(told["cases"], key=lambda c: order.get(key_of(c), 0))
    head = {name: value for name, value in told.items() if name != "cases"}
    lines = ",\n".join(map(json.dumps, cases))
    text = json.dumps(head)[:-1] + ', "cases": [\n' + lines + "\n]}\n"
    write_atomically(out, text.encode())


def key_of(told: dict[str, Any]) -> str:
    """As :attr:`Case.key`, of a case in a file."""
    return f"{told['arch']} {json.dumps(told['spec'], sort_keys=True)}"


@dataclass(frozen=True)
class Judged:
    """A case beside what ptxas said of it."""

    case: Case
    compiled: Compiled

    @property
    def limit(self) -> int:
        return self.case.plan.budget.registers[0].limit

    @property
    def predicted(self) -> int:
        """What the model expects ptxas to say: it never says more than the limit."""
        return min(self.case.plan.budget.registers[0].predicted, self.limit)

    @property
    def error(self) -> int:
        assert self.compiled.registers is not None
        return self.predicted - self.compiled.registers

    @property
    def refused(self) -> bool:
        return self.case.plan.budget.registers[0].spills

    @property
    def doubted(self) -> bool:
        return self.case.plan.budget.registers[0].doubtful

    @property
    def fits(self) -> bool:
        return not (self.refused or self.doubted)

    @property
    def spilled(self) -> bool:
        return bool(self.compiled.spill_bytes)

    @property
    def by_choice(self) -> bool:
        """Whether every entry that spills has registers left: ptxas wanted one more warp to fit."""
        return all(
            (r.registers or 0) < self.limit - 8
            for r in self.compiled.entries.values()
            if r.spill_bytes
        )


def as_compiled(told: dict[str, Any]) -> Case | None:
    """The case with the blocks that the launch bounds of its text named, whatever a plan names now."""
    spec = tg.TileSpec.from_dict(told["spec"])
    case = planned(told["arch"], spec)
    if case is None or told.get("blocks") in (None, case.plan.numbers["MIN_BLOCKS"]):
        return case
    pins = {**spec.pins["cuda"], "min_blocks": told["blocks"]}
    return planned(told["arch"], spec.replace(pins={"cuda": pins}))


def judged(path: Path) -> list[Judged]:
    """The cases of a file, planned by the model as it stands."""
    out = []
    for told in json.loads(path.read_text())["cases"]:
        case = as_compiled(told)
        if case is None or told["error"]:
            print(f"left out: {told['arch']} {told['spec']}: {told['error'] or 'refused'}")
            continue
        said = {
            n: Resources(r, spill, stack, shared)
            for n, (r, spill, stack, shared) in told["entries"].items()
        }
        out.append(Judged(case, Compiled.of(case.plan, said, None)))
    return out


def report(cases: list[Judged]) -> dict[str, float]:
    """The numbers by which the model is judged."""
    errors = sorted(abs(j.error) for j in cases)
    spilled = [j for j in cases if j.spilled]
    fine = [j for j in cases if not j.spilled]
    kept = [j for j in cases if not j.refused]
    return {
        "specs": len(cases),
        "median error": statistics.median(errors),
        "95th percentile": errors[min(len(errors) - 1, int(0.95 * len(errors)))],
        "largest": errors[-1],
        "spilled": len(spilled),
        "'fits' that spill": sum(j.fits for j in spilled),
        "of them by choice": sum(j.fits and j.by_choice for j in spilled),
        f"of them over {FEW_BYTES} bytes": sum(
            j.fits and (j.compiled.spill_bytes or 0) > FEW_BYTES for j in spilled
        ),
        "'may spill' that spill": sum(j.doubted for j in spilled),
        "'may spill' that do not": sum(j.doubted for j in fine),
        "'spills' that do not": sum(j.refused for j in fine),
        "of those that do not, %": round(100 * sum(j.refused for j in fine) / max(1, len(fine)), 1),
        "shared memory exact, %": round(
            100
            * sum(j.compiled.shared_bytes == j.case.plan.budget.shared_bytes for j in cases)
            / len(cases),
            1,
        ),
        "blocks exact where not refused, %": round(
            100
            * sum(
                j.compiled.blocks_per_multiprocessor == j.case.plan.budget.blocks_per_multiprocessor
                for j in kept
            )
            / max(1, len(kept)),
            1,
        ),
    }


def records() -> dict[str, Path]:
    """What the table's columns are made from."""
    return {
        path.stem.replace("-", ", "): path
        for path in sorted(RECORDS.glob("*.json"))
        if not path.stem.endswith(EARLIER)
    }


def table() -> str:
    """The table of the page: a row per number, a column per file of records."""
    columns = {name: report(judged(path)) for name, path in records().items()}
    names = list(next(iter(columns.values())))
    lines = [f"| | {' | '.join(columns)} |", f"| --- |{' ---: |' * len(columns)}"]
    lines += [f"| {n} | {' | '.join(f'{c[n]:g}' for c in columns.values())} |" for n in names]
    return "\n".join(lines)


def with_table(page: str) -> str:
    """The page with the table between its marks made anew."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.split(END)[1]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("compile")
    one.add_argument("form")
    one.add_argument("--seed", type=int, required=True)
    one.add_argument("--count", type=int, default=400)
    one.add_argument("--seconds", type=float, default=1e9)
    one.add_argument("--jobs", type=int, default=cores())
    one.add_argument("--long", action="store_true", help=f"BLOCK_K of {', '.join(map(str, LONG))}")
    one.add_argument("-o", type=Path, required=True)
    for name in ("report", "worst"):
        commands.add_parser(name).add_argument("files", nargs="+", type=Path)
    commands.add_parser("table")
    given = parser.parse_args()
    if given.command == "table":
        PAGE.write_text(with_table(PAGE.read_text()))
        return
    if given.command == "compile":
        depths = LONG if given.long else ()
        compile_cases(
            given.form, given.seed, given.count, given.o, given.seconds, given.jobs, depths
        )
        return
    cases = [case for path in given.files for case in judged(path)]
    if given.command == "report":
        for name, value in report(cases).items():
            print(f"{name:32} {value:g}")
        return
    for j in sorted(cases, key=lambda j: -abs(j.error))[:30]:
        use = j.case.plan.budget.registers[0]
        print(
            f"{j.error:+4} ptxas {j.compiled.registers} spilled {j.compiled.spill_bytes}, planned "
            f"{use.predicted} = {use.accumulators} + {use.operands} + {use.staging} + {use.addressing} "
            f"of {use.limit}: {j.case.key}"
        )


if __name__ == "__main__":
    main()
