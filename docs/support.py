"""Keeps docs/support.json, the record of what was checked where, and writes the README's table from it.

    python docs/support.py record --device gpu      check every form on that device and record it
    python docs/support.py table                    rewrite the table in README.md

A record holds the digest of the template it was made with; where the template has changed since,
the table says "not run".
"""

from __future__ import annotations

import argparse
import datetime
import json
from pathlib import Path
from typing import Any

import tilegen as tg
from tilegen import registry
from tilegen.render import template_digest

HERE = Path(__file__).parent
RECORDS, README = HERE / "support.json", HERE.parent / "README.md"
BEGIN, END = "<!-- support table: python docs/support.py table -->", "<!-- end of table -->"
RUNGS = ("CPU runtime", "device")
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
    """One plan per form and type of an arch, for its template and instruction."""
    plugin = registry.get(backend)
    out = []
    for form in plugin.forms(plugin.archs[arch]):
        spec = tg.TileSpec(**TILES[0], pins={backend: {"form": form.name}})
        out.append(tg.lower(spec, backend, arch))
    return out


def digest(plan: tg.KernelPlan) -> str:
    return template_digest(*registry.get(plan.backend).templates, plan.template)


def record(backend: str, selector: str, examples: int) -> None:
    """Run every form on the device, every entry of it, and record the rung."""
    from tilegen.build import find_device

    device = find_device(registry.get(backend), None, selector)
    records = json.loads(RECORDS.read_text()) if RECORDS.exists() else []
    for plan in plans(backend, device.arch.name):
        problems, entries = 0, set()
        for tile in TILES:
            for a, b, d in MAJORS:
                layout = {"a": a, "b": b, "c": d}
                spec = tg.TileSpec(**tile, layout=layout, pins={backend: {"form": plan.form}})
                report = tg.verify(tg.build(spec, backend, device=device), examples=examples)
                problems += report.examples
                entries |= set(report.entries)
        key = {"backend": backend, "arch": device.arch.name, "form": plan.form, "rung": device.rung}
        records = [r for r in records if any(r[k] != v for k, v in key.items())]
        records.append(
            {
                **key,
                "types": "f32",
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
        "| backend | arch | form | types | rules, layouts | " + " | ".join(RUNGS) + " |",
        "| --- | --- | --- | --- | --- |" + " --- |" * len(RUNGS),
    ]
    for arch in registry.get("opencl").archs:
        for plan in plans("opencl", arch):
            cells = []
            for rung in RUNGS:
                found = [
                    r
                    for r in records
                    if (r["arch"], r["form"], r["rung"]) == (arch, plan.form, rung)
                    and r["template_sha256"] == digest(plan)
                ]
                text = "; ".join(
                    f"{r['problems']} problems on {r['device']}, {r['date']}" for r in found
                )
                cells.append(text or "not run")
            lines.append(f"| OpenCL | {arch} | {plan.form} | f32 | checked | {' | '.join(cells)} |")
    return "\n".join(lines)


def with_table(text: str) -> str:
    """The README's text with the table between its two marks."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{table()}\n{END}{tail}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["record", "table"])
    parser.add_argument("--backend", default="opencl")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--examples", type=int, default=50)
    options = parser.parse_args()
    if options.what == "record":
        record(options.backend, options.device, options.examples)
    else:
        README.write_text(with_table(README.read_text()))


if __name__ == "__main__":
    main()
