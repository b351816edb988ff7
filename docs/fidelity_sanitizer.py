"""compute-sanitizer's verdicts on texts of the fault corpus: a second opinion beside the emulator's.

Each text runs once under one tool, in a process of its own: racecheck, and memcheck or synccheck where the
emulator found a fault of their kind, or in a correct kernel.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fidelity
from emulated.faults import corpus

TOOLS = {
    "racecheck": {"data-race", "missing-proxy-fence", "order-dependent"},
    "memcheck": {"out-of-bounds", "misaligned"},
    "synccheck": {"divergent-barrier", "divergent-collective", "bad-mbarrier", "deadlock"},
}
SUMMARY = re.compile(r"(?:ERROR SUMMARY|RACECHECK SUMMARY): (\d+)")
SECONDS = 60.0


def planned(texts: tuple[corpus.Text, ...], only: str) -> list[tuple[str, int]]:
    """Tools and numbers of texts: correct kernels with every tool first, then faults with theirs."""
    out = [
        (tool, i)
        for i, t in enumerate(texts)
        if t.device and only in t.name
        for tool, kinds in TOOLS.items()
        if t.group == "correct" or (t.group == "planted" and kinds & set(t.verdict))
    ]
    return sorted(out, key=lambda pair: (texts[pair[1]].hangs, texts[pair[1]].group != "correct"))


def verdict(tool: str, number: int, device: str) -> str:
    """``clean``, the number of errors, or why there is none."""
    command = [
        shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer", "--tool", tool,
        "--print-limit", "3", sys.executable, str(fidelity.WORKER), device, str(number),
    ]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return "timeout"
    except OSError as error:
        return f"no tool: {error}"
    found = SUMMARY.findall(done.stdout + done.stderr)
    if not found:
        said = (done.stdout + done.stderr).strip().splitlines()
        return f"no summary: {said[-1][:120] if said else ''}"
    errors = max(map(int, found))
    return f"{errors} errors" if errors else "clean"


def sanitize(device: str, path: Path, workers: int, seconds: float, only: str) -> None:
    """Fill the record's sanitizer part until the time is over."""
    end = time.monotonic() + seconds
    texts = corpus.texts()
    kept = fidelity.read(path)
    out: dict[str, dict[str, str]] = {}

    def one(pair: tuple[str, int]) -> None:
        tool, number = pair
        if time.monotonic() < end:
            out.setdefault(texts[number].name, {"text": texts[number].digest})[tool] = verdict(
                tool, number, device
            )

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(one, planned(texts, only)))
    kept["sanitizer"] = out
    fidelity.write(path, kept)
    print(f"{sum(len(v) - 1 for v in out.values())} sanitizer runs")
