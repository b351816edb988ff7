"""Draws mutants.toml: a sample of the generic operators' mutants of every kernel.

    python -m emulated.faults.draw [--each 6] [--seed 1]        in tests/, with backends/ on the path

Verdicts of mutants are what the emulator said when they were drawn; a survivor's reason is written by
hand and kept when the file is drawn again.
"""

from __future__ import annotations

import argparse
import json
import random
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tilegen.mutation.operators import Mutant, mutants
from tilegen_cuda.mutation import CUDA

from . import corpus

FILE = corpus.HERE / "mutants.toml"
# With these a device may hang as well.
HANGS = {
    "deadlock", "endless-loop", "time-limit", "divergent-barrier", "divergent-collective", "bad-mbarrier",
}  # fmt: skip
HEAD = "# Drawn by draw.py: one change each, by the operators of tilegen/mutation; the emulator's verdicts.\n"


def drawn(kernel: corpus.Kernel, seed: int) -> Iterator[Mutant]:
    """The kernel's mutants in random order, one of each operator in turn."""
    found: dict[str, list[Mutant]] = {}
    for mutant in mutants(kernel.text, CUDA):
        found.setdefault(mutant.operator, []).append(mutant)
    source = random.Random(f"{seed} {kernel.name}")
    for some in found.values():
        source.shuffle(some)
    while found:
        names = sorted(found)
        source.shuffle(names)
        for name in names:
            yield found[name].pop()
            if not found[name]:
                del found[name]


def span(text: str, mutant: Mutant) -> tuple[str, str]:
    """What is replaced, grown by whole lines until it stands once in the text, and by what."""
    start, end = mutant.start, mutant.end
    while text.count(text[start:end]) != 1:
        start = text.rfind("\n", 0, max(start - 1, 0)) + 1
        newline = text.find("\n", end + 1)
        end = len(text) if newline < 0 else newline
    changed = text[start : mutant.start] + mutant.replacement + text[mutant.end : end]
    return text[start:end], changed


def entries(
    kernel: corpus.Kernel, each: int, seed: int, reasons: dict[Any, Any]
) -> list[dict[str, Any]]:
    """The first mutants that compile."""
    out: list[dict[str, Any]] = []
    planted = {t.text for t in corpus.texts() if t.group != "mutant"}
    for number, mutant in enumerate(drawn(kernel, seed)):
        old, new = span(kernel.text, mutant)
        name = f"{mutant.operator} {number} at line {mutant.line}"
        if mutant.apply(kernel.text) in planted:
            continue
        text = corpus.Text(name, kernel, mutant.apply(kernel.text), (), "", "mutant")
        judged = corpus.judge(text)
        if judged.verdict == (corpus.NOT_COMPILED,):
            continue
        said = str(judged.said).splitlines()[0].replace("no findings", "Results are wrong.")
        entry = {"kernel": kernel.name, "name": name, "old": old, "new": new,
                 "verdict": list(judged.verdict), "why": "" if judged.clean else said[:200]}  # fmt: skip
        if known := reasons.get((kernel.name, old, new)):
            entry |= {key: known[key] for key in ("why", "fault") if key in known}
        if HANGS & set(judged.verdict):
            entry["hangs"] = True
        out.append(entry)
        if len(out) == each:
            break
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--each", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    known = tomllib.loads(FILE.read_text(encoding="utf-8"))["text"] if FILE.exists() else []
    reasons = {(e["kernel"], e["old"], e["new"]): e for e in known if not e["verdict"] and e["why"]}
    with ThreadPoolExecutor(2) as pool:
        made = pool.map(
            lambda k: entries(k, options.each, options.seed, reasons), corpus.kernels().values()
        )
        lines = [HEAD]
        for one in (entry for some in made for entry in some):
            # JSON's strings, lists and booleans are TOML's.
            body = "\n".join(f"{k} = {json.dumps(v, ensure_ascii=False)}" for k, v in one.items())
            lines.append(f"\n[[text]]\n{body}\n")
    FILE.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
