"""A few processes that judge mutants; one that ends is replaced, and its end is the verdict."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

from .worker import Task, serve

CRASHED = "crash"
TIMED_OUT = "timeout"
# A process that waits for ever uses no processor time, so the clock ends it; on a loaded machine late.
WALL_SECONDS = 300.0
PRELOAD = ["tilegen.mutation.worker", "tilegen.mutation.checks"]


@dataclass(frozen=True)
class Verdict:
    """What became of one task.

    Attributes
    ----------
    kind : str
        One of the words of :mod:`tilegen.mutation.worker`, or of this module.
    detail : str
    seconds : float
        Processor time that it took.
    taken : tuple of int
        Of the unchanged text: the trials that its entries take.
    """

    kind: str
    detail: str
    seconds: float
    taken: tuple[int, ...] = ()


@dataclass
class _Slot:
    cpu: int | None
    process: Any = None
    pipe: Connection | None = None
    doing: Any = None
    since: float = 0.0


@dataclass
class Pool:
    """Use as a context; :meth:`run` maps tasks to verdicts in the order in which they are done.

    Attributes
    ----------
    jobs : int
        Processes, each tied to one processor where the system can do that.
    """

    jobs: int
    _slots: list[_Slot] = field(default_factory=list)

    def __enter__(self) -> Pool:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(PRELOAD)
        cpus: list[int | None] = [None]
        if hasattr(os, "sched_getaffinity"):
            cpus = [*sorted(os.sched_getaffinity(0))]
        self._slots = [_Slot(cpus[i % len(cpus)]) for i in range(self.jobs)]
        return self

    def __exit__(self, *_: object) -> None:
        for slot in self._slots:
            self._end(slot)

    def run(self, tasks: Iterable[tuple[Any, Task]]) -> Iterator[tuple[Any, Verdict]]:
        """Judge tasks; each comes with a mark by which the caller knows its verdict again.

        The next task is taken from ``tasks`` when a process is free, so that it may depend on the
        verdicts before it.
        """
        waiting, more = iter(tasks), True
        while True:
            for slot in self._slots:
                if more and slot.doing is None:
                    try:
                        mark, task = next(waiting)
                    except StopIteration:
                        more = False
                        break
                    self._give(slot, mark, task)
            busy = [slot for slot in self._slots if slot.doing is not None]
            if not busy:
                return
            ready = wait([s.pipe for s in busy if s.pipe is not None], timeout=1.0)
            for slot in busy:
                if slot.pipe in ready:
                    yield slot.doing, self._answer(slot)
                    slot.doing = None
                elif time.monotonic() - slot.since > WALL_SECONDS:
                    mark, slot.doing = slot.doing, None
                    self._end(slot)
                    yield mark, Verdict(TIMED_OUT, f"no end after {WALL_SECONDS:g} s", 0.0)

    def _give(self, slot: _Slot, mark: Any, task: Task) -> None:
        if slot.process is None or not slot.process.is_alive():
            self._end(slot)
            mine, theirs = self._context.Pipe()
            slot.process = self._context.Process(target=serve, args=(theirs, slot.cpu), daemon=True)
            slot.process.start()
            theirs.close()
            slot.pipe = mine
        slot.doing, slot.since = mark, time.monotonic()
        assert slot.pipe is not None
        slot.pipe.send(task)

    def _answer(self, slot: _Slot) -> Verdict:
        assert slot.pipe is not None
        try:
            return Verdict(*slot.pipe.recv())
        except (EOFError, OSError):
            slot.process.join(10)
            code = slot.process.exitcode
            self._end(slot)
        seconds = time.monotonic() - slot.since
        if code == -signal.SIGXCPU:
            return Verdict(TIMED_OUT, "it used up its processor time", seconds)
        how = signal.Signals(-code).name if code is not None and code < 0 else f"exit status {code}"
        return Verdict(CRASHED, how, seconds)

    @staticmethod
    def _end(slot: _Slot) -> None:
        if slot.process is not None:
            slot.process.kill()
            slot.process.join()
            slot.process.close()
        if slot.pipe is not None:
            slot.pipe.close()
        slot.process = slot.pipe = None
