"""Running a program in child processes, once for each order and once under the race detector."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tilegen.emulator import job
from tilegen.emulator.accesses import AccessUse, BankUse, banks_of, uses_of
from tilegen.emulator.findings import Finding
from tilegen.emulator.job import Argument, JobFile, Launch, Outcome, RawFinding
from tilegen.emulator.lines import lines_of
from tilegen.emulator.program import Program, compile
from tilegen.emulator.toolchain import BANKS, PLAIN, RACES
from tilegen.emulator.vocabulary import Vocabulary
from tilegen.errors import LaunchError
from tilegen.processors import cores

# The child watches its processor time itself; the parent only ends one that cannot.
GRACE = 5.0
# Seconds of processor time: of one run, and of one thread between two barriers.
TIMEOUT, LOOP_SECONDS = 60.0, 2.0
# What only a run that counts accesses has.
COUNTED = ("stretches", "parted")


@dataclass(frozen=True)
class EmulatorRun:
    """What running a kernel text gave.

    Attributes
    ----------
    findings : tuple of Finding
        Empty for a kernel without a fault.
    arrays : tuple of ndarray
        For each array argument, in order, its content after the launch (of the first order). The
        same array given twice is one of them; one with gaps of many megabytes is read-only.
    counts : mapping
        Of the first run: switches, barriers, collectives, shared_bytes, races. Where accesses are
        counted, also stretches (of warps between two barriers) and parted (those in which the lanes
        of one made different accesses), of the race run.
    seconds : mapping
        Processor time of the launch alone for each run, by the run's name.
    compile_seconds : float
        0 where the cache held the program.
    output : str
        What the kernel printed.
    accesses : tuple of AccessUse
        What each line asks of shared and global memory; if ``banks`` was asked for.
    """

    findings: tuple[Finding, ...]
    arrays: tuple[npt.NDArray[Any], ...]
    counts: dict[str, int]
    seconds: dict[str, float]
    compile_seconds: float
    output: str = field(default="", repr=False)
    accesses: tuple[AccessUse, ...] = ()

    @property
    def banks(self) -> dict[int, BankUse]:
        """Line of the text to how it uses the banks of shared memory."""
        return banks_of(self.accesses)

    @property
    def clean(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def __str__(self) -> str:
        return "\n".join(map(str, self.findings)) or "no findings"


def run_name(order: int, races: bool = False) -> str:
    """What findings call a run."""
    if races:
        return "races"
    return ("forward", "reverse")[order] if order < 2 else f"seed {order}"


def run(
    text: str | Program,
    language: str | Vocabulary = "cuda",
    *,
    entry: str,
    grid: int | Sequence[int],
    block: int | Sequence[int],
    args: Sequence[Argument] = (),
    outputs: Sequence[int] = (),
    shared_bytes: int = 0,
    shared_limit: int = 0,
    warp_size: int | None = None,
    orders: Sequence[int] = (0, 1, 2),
    races: bool = True,
    timeout: float | None = None,
    loop_seconds: float | None = None,
    defines: Sequence[str] = (),
    banks: bool = False,
    arithmetic: str = "f32",
) -> EmulatorRun:
    """Run a kernel text on this machine's processor and say what is wrong with it.

    Parameters
    ----------
    text : str or Program
        The source as the device's compiler would get it, or what ``compile`` made of it.
    language : str or Vocabulary
    entry : str
        The kernel; for a template, the instance: ``"gemm<float, 8>"``.
    grid, block : int or up to three ints
        Blocks, and threads of a block.
    args : sequence
        Arrays and numbers, one for each parameter. Arrays are copied, never changed; the same array
        given twice is one buffer. ``Buffer`` says more of an array; ``bytes`` is a structure.
    outputs : sequence of int
        Positions in ``args`` of which every element must be written exactly once. Race runs check it.
    shared_bytes : int
        Dynamic shared memory of the launch.
    shared_limit : int
        The device's bytes of shared memory for one block; 0: not checked.
    warp_size : int, optional
        Left out: the language's.
    orders : sequence of int
        0 runs threads forward, 1 in reverse, each other number is a seed.
    races : bool
        Whether one more run, in the first order, goes through the race detector.
    timeout : float, optional
        Seconds of processor time for one run, each run. Left out: 60, and 240 under the race detector.
    loop_seconds : float, optional
        Seconds of processor time for one thread between two barriers, in each run. Left out: 2, and
        16 under the race detector.
    defines : sequence of str
        Macros as ``NAME=VALUE``.
    banks : bool
        Whether the race run counts what warps ask of memory, line by line: bank conflicts, sectors.
        It takes a few times as long then.
    arithmetic : str
        Of matrix instructions on floats: ``"f32"`` rounds each product and each sum, K ascending;
        ``"hopper"`` gives the bits of an H200's tensor cores (docs/matrix-arithmetic.md). f64 is by
        FMA in both, and has its bits.

    Raises
    ------
    CompileError
        If the text does not compile, or there is no compiler.
    LaunchError
        If the arguments do not fit the kernel: their count, the size and kind (floating or integral)
        of an array's elements, a number that its parameter does not hold.
    """
    program = text if isinstance(text, Program) else compile(text, language, entry, defines)
    if entry not in program.entries:
        raise LaunchError(f"{entry!r} is not among the entries: {', '.join(program.entries)}")
    if banks and not races:
        raise LaunchError("bank conflicts are counted by the race run: races=False leaves it out")
    if arithmetic not in job.ARITHMETICS:
        raise LaunchError(f"arithmetic {arithmetic!r} is none of {', '.join(job.ARITHMETICS)}")
    if not orders:
        raise LaunchError("no order is given; 0 runs threads forward")
    if strange := [order for order in orders if not 0 <= order < 2**31]:
        raise LaunchError(f"order {strange[0]}: 0 is forward, 1 reverse, up to {2**31 - 1} a seed")
    wrong = [n for n in outputs if not 0 <= n < len(args) or isinstance(args[n], (int, float))]
    if wrong:
        raise LaunchError(f"outputs: argument {wrong[0]} is not an array")
    modes = {False: PLAIN, True: BANKS if banks else RACES}
    built = program.executables([modes[False], modes[True]] if races else [modes[False]])
    launch = Launch(
        entry=program.entries.index(entry),
        grid=job.sequence_of(grid, "grid"),
        block=job.sequence_of(block, "block"),
        arguments=tuple(args),
        outputs=frozenset(outputs),
        warp_size=warp_size or program.language.warp_size,
        shared_bytes=shared_bytes,
        shared_limit=shared_limit,
        order=orders[0],
        flags=0,
        loop_seconds=LOOP_SECONDS if loop_seconds is None else loop_seconds,
        timeout=TIMEOUT if timeout is None else timeout,
    )
    planned = [(order, False) for order in orders] + ([(orders[0], True)] if races else [])
    gathered = _Gathered(list(program.findings))
    model = job.ARITHMETICS.index(arithmetic) << 8
    jobs: list[tuple[Path, Launch]] = []
    for order, watched in planned:
        flags = model | job.POISON | (job.DELAY if order != 1 else 0)
        if watched:
            flags |= job.RACES | (job.BANKS if banks else 0)
        one = replace(launch, order=order, flags=flags)
        # The race detector costs time that the kernel is not to blame for; what was asked for holds.
        if watched and timeout is None:
            one = replace(one, timeout=4 * TIMEOUT)
        if watched and loop_seconds is None:
            one = replace(one, loop_seconds=8 * LOOP_SECONDS)
        jobs.append((built[modes[watched]], one))
    with closing(_children(jobs, program)) as children:
        for (order, watched), child in zip(planned, children, strict=True):
            gathered.add(run_name(order, watched), child, watched)
    return gathered.finish(program)


@dataclass
class _Child:
    findings: list[Finding]
    outcome: Outcome | None
    output: str
    accesses: tuple[AccessUse, ...] = ()


def _children(
    jobs: Iterable[tuple[Path, Launch]], program: Program
) -> Generator[_Child, None, None]:
    """Run each, as many at once as there are processors; what became of them, in the order given."""
    started: deque[_Started] = deque()
    waiting = iter(jobs)
    try:
        while True:
            while len(started) < cores() and (one := next(waiting, None)) is not None:
                started.append(_Started(*one))
            if not started:
                return
            yield started[0].finish(program)
            started.popleft()
    finally:
        for left in started:
            left.end()


class _Started:
    """A child that runs."""

    def __init__(self, executable: Path, launch: Launch) -> None:
        self._executable, self._launch = executable, launch
        with ExitStack() as opened:
            self._file = opened.enter_context(JobFile(launch))
            # A file, which unlike a pipe holds nobody up and needs no reading meanwhile.
            output = os.memfd_create("tilegen-output")
            self._said = opened.enter_context(open(output, "w+b"))
            number = self._file.file.fileno()
            self._process = subprocess.Popen(
                [str(executable), str(number)], pass_fds=(number,), stdin=subprocess.DEVNULL,
                stdout=self._said, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            self._opened = opened.pop_all()

    def finish(self, program: Program) -> _Child:
        """Wait for its end, and read what it found."""
        killed = not _has_ended(self._process, 2 * self._launch.timeout + GRACE)
        if killed:
            self._process.kill()
        self._process.wait()
        with self._opened:
            self._said.seek(0)
            said = self._said.read()
            outcome = None if killed else self._file.outcome()
        output = said.decode("utf-8", "replace")
        if outcome is not None:
            found = _located(outcome.findings, self._executable, program)
            return _Child(found, outcome, output, _accesses(outcome, self._executable, program))
        if killed:
            lost = Finding("time-limit", f"the child was ended after {self._launch.timeout:g} s")
        else:
            lost = Finding("crash", _ended(self._process.returncode, output))
        return _Child([lost], None, output)

    def end(self) -> None:
        """End it, if it has not ended yet."""
        self._process.kill()
        self._process.wait()
        self._opened.close()


def _has_ended(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether a child ends within that time: told at once, where ``Popen.wait`` looks now and then."""
    try:
        handle = os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # Linux before 5.3, or a sandbox that forbids it
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        return bool(poll.poll(1000 * seconds))
    finally:
        os.close(handle)


def _ended(status: int, output: str) -> str:
    if status < 0:
        return f"the child ended by {signal.Signals(-status).name}"
    said = output.strip().splitlines()
    return f"the child ended with status {status}" + (f": {said[-1]}" if said else "")


def _located(found: Sequence[RawFinding], executable: Path, program: Program) -> list[Finding]:
    # A return address belongs to the instruction before it.
    addresses = {a - 1 for f in found for a in (f.address, f.other_address) if a}
    lines = lines_of(executable, addresses, f"kernel{program.language.suffix}")
    out: list[Finding] = []
    for f in found:
        if f.kind == "bad-argument" and not f.line and not f.address:
            raise LaunchError(f.message)
        line = f.line or lines.get(f.address - 1)
        other = f.other_line or lines.get(f.other_address - 1)
        told = Finding(f.kind, f.message, line, other_line=other, count=f.count)
        if f.block is not None:
            told = replace(told, block=f.block, thread=f.thread, warp=f.warp, lane=f.lane)
        # One line of the text may be several places in the program.
        same = [i for i, o in enumerate(out) if _place(o) == _place(told)]
        if same:
            out[same[0]] = replace(out[same[0]], count=out[same[0]].count + told.count)
        else:
            out.append(told)
    return out


def _accesses(outcome: Outcome, executable: Path, program: Program) -> tuple[AccessUse, ...]:
    addresses = {site.address - 1 for site in outcome.accesses if site.address}
    return uses_of(
        outcome.accesses, lines_of(executable, addresses, f"kernel{program.language.suffix}")
    )


def _place(finding: Finding) -> tuple[str, int | None, int | None]:
    return finding.kind, finding.line, finding.other_line


@dataclass
class _Gathered:
    """Outcomes of several runs of one launch."""

    findings: list[Finding]
    first: Outcome | None = None
    first_name: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    output: str = ""
    accesses: tuple[AccessUse, ...] = ()
    counted: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, child: _Child, watched: bool) -> None:
        for finding in child.findings:
            self._add_finding(name, finding)
        outcome = child.outcome
        if outcome is None:
            return
        self.seconds[name] = outcome.seconds
        if child.accesses:
            self.accesses = child.accesses
            self.counted = {name: outcome.counts[name] for name in COUNTED}
        if self.first is None:
            self.first, self.first_name, self.output = outcome, name, child.output
        elif not child.findings and not any(self.first_name in f.runs for f in self.findings):
            self._compare(name, outcome, watched)

    def _add_finding(self, name: str, finding: Finding) -> None:
        for i, known in enumerate(self.findings):
            if _place(known) == _place(finding):
                self.findings[i] = replace(known, runs=tuple(dict.fromkeys((*known.runs, name))))
                return
        self.findings.append(replace(finding, runs=(name,)))

    def _compare(self, name: str, outcome: Outcome, watched: bool) -> None:
        assert self.first is not None
        for number, array in outcome.arrays.items():
            other = self.first.arrays[number]
            if array.tobytes() == other.tobytes():
                continue
            unlike = _bits(array) != _bits(other)
            if watched:
                # Compiled another way; which of two NaNs an operation keeps is the compiler's choice.
                unlike[_nan(array) & _nan(other)] = False
            if not unlike.any():
                continue
            differing = np.argwhere(unlike)
            at = tuple(int(i) for i in differing[0][: array.ndim])
            self._add_finding(
                name,
                Finding(
                    "order-dependent",
                    f"argument {number} at {list(at)} is {array[at]} and {other[at]} in run "
                    f"{self.first_name!r}",
                ),
            )
            return

    def finish(self, program: Program) -> EmulatorRun:
        arrays = () if self.first is None else tuple(self.first.arrays.values())
        counts = {} if self.first is None else {**self.first.counts, **self.counted}
        if not self.counted:
            counts = {name: n for name, n in counts.items() if name not in COUNTED}
        return EmulatorRun(
            tuple(self.findings),
            arrays,
            counts,
            self.seconds,
            program.seconds,
            self.output,
            self.accesses,
        )


def _nan(array: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Where NaN stands; nowhere in types that have none."""
    if array.dtype.kind in "iub":
        return np.zeros(array.shape, np.bool_)
    try:
        return np.asarray(array != array, np.bool_)
    except TypeError:
        return np.zeros(array.shape, np.bool_)


def _bits(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    # Bytes, so that NaN compares with itself; one more axis behind those of the array.
    whole = np.ascontiguousarray(array)
    return whole.view(np.uint8).reshape(*array.shape, array.itemsize)
