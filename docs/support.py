"""Keeps docs/support.json, the record of what was checked where, and writes the README's table from it.

    python docs/support.py record --device gpu      check every form on that device and record it
    python docs/support.py record --backend cuda --device emulator --arch sm_80
    python docs/support.py compile --backend cuda   compile every form for every arch, without a device
    python docs/support.py table                    rewrite the table in README.md

A record holds the digest of the template it was made with; where the template has changed since,
the table says "not run".
"""

from __future__ import annotations

import argparse
import datetime
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import tilegen as tg
from tilegen import registry
from tilegen.backend import TypeCombination
from tilegen.render import template_digest

HERE = Path(__file__).parent
RECORDS, README = HERE / "support.json", HERE.parent / "README.md"
BEGIN, END = "<!-- support table: python docs/support.py table -->", "<!-- end of table -->"
ALL_TYPES = (
    "f64", "f32", "tf32", "f16", "bf16", "e4m3", "e5m2", "e4m3 e5m2", "e5m2 e4m3",
    "s8", "u8", "s8 u8", "u8 s8",
)  # fmt: skip
COMPILER = "compiler"
# Each column of the table, and the rungs that fill it.
COLUMNS = {
    "emulator or CPU runtime": ("emulator", "CPU runtime"),
    "compiler, no device": (COMPILER,),
    "device": ("device",),
}
TILES: list[dict[str, Any]] = [
    {"block": (64, 64, 16), "warp": (32, 32)},
    {"block": (32, 48, 20), "warp": (16, 48), "batch": "strided", "epilogue": [{"op": "bias"}]},
]
MAJORS = [
    ("row", "row", "row"),
    ("row", "col", "row"),
    ("col", "row", "col"),
    ("col", "col", "col"),
]


def plans(backend: str, arch: str) -> list[tg.KernelPlan]:
    """One plan per form and type of an arch, for its template and instruction.

    A device class assumes no sub-groups; its devices may have them.
    """
    plugin = registry.get(backend)
    static = plugin.archs[arch]
    target = replace(static, features=static.features | {"sub_groups"}, warp_sizes=(16,))
    out = []
    for form in plugin.forms(target):
        data = of_types(TILES[0], form.types(target)[0])
        spec = tg.TileSpec(**data, pins={backend: {"form": form.name}})
        out.append(tg.lower(spec, backend, target))
    return out


def of_types(tile: dict[str, Any], offered: TypeCombination) -> dict[str, Any]:
    """The tile in these types, the last of C and D, and as deep as instructions of narrow types ask."""
    c, d = offered.outputs[-1]
    kinds = {"a": offered.a, "b": offered.b, "acc": offered.acc, "c": c, "d": d}
    m, n, k = tile["block"]
    deep = k if offered.a in ("f32", "f64") else 32 * -(-k // 32)
    return {**tile, "block": (m, n, deep), "types": kinds}


def cases(first: bool) -> list[tuple[dict[str, Any], tuple[str, str, str]]]:
    """Tiles and majornesses: all of them for a form's first types, the mixed ones for the others."""
    return [(t, m) for t in TILES for m in MAJORS if first or len(set(m)) > 1]


def digest(plan: tg.KernelPlan) -> str:
    return template_digest(*registry.get(plan.backend).templates, plan.template)


def compile_all(backend: str) -> None:
    """Compile every form for every arch, in its types and majornesses, and record the rung."""
    records = json.loads(RECORDS.read_text()) if RECORDS.exists() else []
    for name, arch in registry.get(backend).archs.items():
        for form in registry.get(backend).forms(arch):
            texts, types, spilled = 0, [], 0
            for offered in form.types(arch):
                for tile, (x, y, z) in cases(first=not types):
                    if types and tile is not TILES[0]:
                        continue  # fourteen types by eight archs are long enough without it
                    data = {**of_types(tile, offered), "layout": {"a": x, "b": y, "c": z}}
                    spec = tg.TileSpec(**data, pins={backend: {"form": form.name}})
                    plan = tg.lower(spec, backend, name)
                    binary = tg.compile(tg.emit(plan), cache=False)
                    spilled += sum(r.spill_bytes or 0 for r in binary.resources.values())
                    texts += 1
                types.append(offered.a if offered.a == offered.b else f"{offered.a} {offered.b}")
            key = {"backend": backend, "arch": name, "form": form.name, "rung": COMPILER}
            records = [r for r in records if any(r[k] != v for k, v in key.items())]
            records.append(
                {
                    **key,
                    "types": types,
                    "mma": plan.instruction.mnemonic,
                    "device": str(binary.toolchain),
                    "texts": texts,
                    "spill_bytes": spilled,
                    "date": datetime.date.today().isoformat(),
                    "template_sha256": digest(plan),
                }
            )
            print(json.dumps(records[-1]))
    RECORDS.write_text(json.dumps(records, indent=1) + "\n")


def told(record: dict[str, Any]) -> str:
    """A record in a cell of the table."""
    if record["rung"] == COMPILER:
        spills = f"{record['spill_bytes']} bytes spilled" if record["spill_bytes"] else "no spills"
        return f"{record['texts']} texts by {record['device']}, {spills}, {record['date']}"
    return f"{record['problems']} problems on {record['device']}, {record['date']}"


def record(backend: str, selector: str, examples: int, arch: str | None = None) -> None:
    """Run every form on the device, every entry of it, and record the rung."""
    from tilegen.build import find_device

    plugin = registry.get(backend)
    device = find_device(plugin, plugin.archs[arch] if arch else None, selector)
    records = json.loads(RECORDS.read_text()) if RECORDS.exists() else []
    forms = {form.name: form for form in registry.get(backend).forms(device.arch)}
    for plan in plans(backend, device.arch.name):
        problems, entries, types = 0, set(), []
        for offered in forms[plan.form].types(device.arch):
            for tile, (x, y, z) in cases(first=not types):
                data = {**of_types(tile, offered), "layout": {"a": x, "b": y, "c": z}}
                spec = tg.TileSpec(**data, pins={backend: {"form": plan.form}})
                try:
                    kernel = tg.build(spec, backend, device=device)
                except tg.PlanError as refusal:
                    print(f"{plan.form}, {offered.a}: {refusal}")
                    break
                report = tg.verify(kernel, examples=examples)
                problems += report.examples
                entries |= {name for name, runs in report.entries.items() if runs}
            else:
                types.append(offered.a if offered.a == offered.b else f"{offered.a} {offered.b}")
        if not types:
            continue
        key = {"backend": backend, "arch": device.arch.name, "form": plan.form, "rung": device.rung}
        records = [r for r in records if any(r[k] != v for k, v in key.items())]
        records.append(
            {
                **key,
                "types": types,
                "mma": plan.instruction.mnemonic,
                "device": device.name,
                "problems": problems,
                "entries": sorted(entries),
                "date": datetime.date.today().isoformat(),
                "template_sha256": digest(plan),
            }
        )
        print(json.dumps(records[-1]))
    RECORDS.write_text(json.dumps(records, indent=1) + "\n")


def table() -> str:
    """The support table as Markdown."""
    records = json.loads(RECORDS.read_text())
    lines = [
        "| backend | arch | form | types | rules, layouts | " + " | ".join(COLUMNS) + " |",
        "| --- | --- | --- | --- | --- |" + " --- |" * len(COLUMNS),
    ]
    for backend, title in (("cuda", "CUDA"), ("opencl", "OpenCL")):
        for arch in registry.get(backend).archs:
            for plan in plans(backend, arch):
                cells, types = [], set()
                for rungs in COLUMNS.values():
                    found = [
                        r
                        for r in records
                        if (r["backend"], r["arch"], r["form"]) == (backend, arch, plan.form)
                        and r["rung"] in rungs
                        and r["template_sha256"] == digest(plan)
                    ]
                    types |= {t for r in found for t in r["types"]}
                    cells.append("; ".join(map(told, found)) or "not run")
                if backend == "opencl":
                    cells[list(COLUMNS).index("compiler, no device")] = "-"  # drivers compile it
                shown = ", ".join(t for t in ALL_TYPES if t in types) or "-"
                lines.append(
                    f"| {title} | {arch} | {plan.form} | {shown} | checked | {' | '.join(cells)} |"
                )
    return "\n".join(lines)


def with_table(text: str) -> str:
    """The README's text with the table between its two marks."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{table()}\n{END}{tail}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["record", "compile", "table"])
    parser.add_argument("--backend", default="opencl")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--arch", help="which one the emulator stands for")
    parser.add_argument("--examples", type=int, default=50)
    options = parser.parse_args()
    if options.what == "record":
        record(options.backend, options.device, options.examples, options.arch)
    elif options.what == "compile":
        compile_all(options.backend)
    else:
        README.write_text(with_table(README.read_text()))


if __name__ == "__main__":
    main()
