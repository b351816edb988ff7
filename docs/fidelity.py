"""Runs the fault corpus in the emulator and on a GPU, and writes docs/fidelity.md from the two records.

    python docs/fidelity.py emulate                 the emulator's verdicts into docs/fidelity.json
    python docs/fidelity.py record --device 0       the device's outcomes (--device dry: no GPU is needed)
    python docs/fidelity.py sanitize --device 0     what compute-sanitizer says there
    python docs/fidelity.py merge --out FILE        a device's record made elsewhere into docs/fidelity.json
    python docs/fidelity.py table                   docs/fidelity.md and docs/fidelity-rows.md

The corpus lies in tests/emulated/faults. On a device each text is compiled by NVRTC and launched 20
times, alone and beside other work, in processes that end with the first CUDA error or hang:
docs/fidelity_device.py.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path += [str(HERE.parent / "tests"), str(HERE.parent), str(HERE.parent / "backends")]

from emulated.faults import corpus  # noqa: E402

RECORD, TABLE, ROWS = (HERE / f"fidelity{end}" for end in (".json", ".md", "-rows.md"))
WORKER = HERE / "fidelity_device.py"
# Seconds for one answer: a compilation and 20 launches; a hang is told by the worker itself, after 2 s.
ANSWER_SECONDS, STARTS = 40.0, 4


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def write(path: Path, record: dict[str, Any]) -> None:
    """One text a line, so that a change shows as one."""
    parts = []
    for part, values in record.items():
        if part in ("emulator", "device", "sanitizer"):
            lines = ",\n".join(
                f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(values.items())
            )
            parts.append(f" {json.dumps(part)}: {{\n{lines}\n }}")
        else:
            parts.append(f" {json.dumps(part)}: {json.dumps(values)}")
    temporary = path.with_suffix(".new")
    temporary.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")
    temporary.replace(path)


def emulate(path: Path, jobs: int, only: str) -> None:
    """Judge texts, and keep the verdicts."""
    texts = [t for t in corpus.texts() if only in t.name]
    with ThreadPoolExecutor(jobs) as pool:
        judged = list(pool.map(corpus.judge, texts))
    record = read(path)
    kept = record.setdefault("emulator", {})
    for text, judgement in zip(texts, judged, strict=True):
        before = kept.get(text.name, {}).get("verdict")
        if before is not None and before != list(judgement.verdict):
            print(f"{text.name}: {before} is now {list(judgement.verdict)}")
        kept[text.name] = {
            "text": text.digest,
            "verdict": list(judgement.verdict),
            "digest": judgement.digest,
        }
    write(path, record)


def merge(source: Path, path: Path) -> None:
    """Take over what a device said; of results that are not always the same only how many there were."""
    found, kept = read(source), read(path)
    for outcome in found["device"].values():
        digests = outcome.pop("digests")
        outcome["results"] = len(digests)
        if len(digests) == 1:
            (outcome["digest"],) = digests
    kept |= {part: found[part] for part in ("date", "name", "device", "sanitizer")}
    write(path, kept)


class Worker:
    """A process that runs texts, and is started again when one has ended it."""

    def __init__(self, device: str) -> None:
        self.device, self.name = device, ""
        self.process: subprocess.Popen[bytes] | None = None

    def _line(self, seconds: float) -> dict[str, Any] | None:
        assert self.process is not None
        assert self.process.stdout is not None
        timer = threading.Timer(seconds, self.process.kill)
        timer.start()
        try:
            line = self.process.stdout.readline()
        finally:
            timer.cancel()
        try:
            answer: dict[str, Any] = json.loads(line)
        except ValueError:
            return None
        return answer

    def start(self) -> None:
        """Raises ``RuntimeError`` if it does not start, again and again."""
        for _ in range(STARTS):
            self.process = subprocess.Popen(
                [sys.executable, str(WORKER), self.device],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            hello = self._line(60.0)
            if hello is not None:
                self.name = hello["device"]
                return
            self.stop()
        raise RuntimeError("no worker starts: see what it printed")

    def run(self, number: int) -> dict[str, Any]:
        if self.process is None:
            self.start()
        assert self.process is not None
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(f"{number}\n".encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            self.stop()
            return self.run(number)
        answer = self._line(ANSWER_SECONDS)
        if answer is None:
            self.stop()
            return {"error": "timeout", "said": "the worker did not answer"}
        if answer.get("error") not in (None, "not-compiled"):
            self.stop()
        answer.pop("text")
        return answer

    def stop(self) -> None:
        # A process with a kernel that hangs may take a while to go; nobody waits for it.
        if self.process is not None:
            self.process.kill()
            self.process = None


def record(device: str, path: Path, workers: int, seconds: float, only: str) -> None:
    """Run every safe text on the device, those that may hang last; what came of it goes into the record."""
    end = time.monotonic() + seconds
    texts = corpus.texts()
    order = [i for i, t in enumerate(texts) if t.device and only in t.name]
    queue = deque(sorted(order, key=lambda i: (texts[i].hangs, i)))
    kept = read(path)
    kept |= {"date": datetime.date.today().isoformat(), "device": {}}
    lock = threading.Lock()
    saved = time.monotonic()

    def work() -> None:
        nonlocal saved
        worker = Worker(device)
        while time.monotonic() < end:
            with lock:
                if not queue:
                    break
                number = queue.popleft()
            answer = worker.run(number)
            with lock:
                kept["device"][texts[number].name] = {"text": texts[number].digest, **answer}
                kept["name"] = worker.name or kept.get("name", "")
                if time.monotonic() > saved + 10:
                    saved = time.monotonic()
                    write(path, kept)
        worker.stop()

    with ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(work) for _ in range(workers)]
    write(path, kept)
    for future in futures:
        future.result()
    left = f", {len(queue)} left for want of time" if queue else ""
    print(f"{len(kept['device'])} texts run on {kept.get('name')}{left}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["emulate", "record", "sanitize", "merge", "table"])
    parser.add_argument("--device", default="0", help="number of the CUDA device, or dry")
    parser.add_argument("--out", type=Path, default=RECORD)
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=240.0)
    parser.add_argument("--only", default="", help="part of the names of texts")
    options = parser.parse_args()
    if options.what == "emulate":
        emulate(options.out, 2, options.only)
    elif options.what == "record":
        record(options.device, options.out, options.workers, options.seconds, options.only)
    elif options.what == "sanitize":
        from fidelity_sanitizer import sanitize

        sanitize(options.device, options.out, options.workers, options.seconds, options.only)
    elif options.what == "merge":
        merge(options.out, RECORD)
    else:
        from fidelity_table import rows, table

        TABLE.write_text(table(read(options.out)), encoding="utf-8")
        ROWS.write_text(rows(read(options.out)), encoding="utf-8")


if __name__ == "__main__":
    main()
