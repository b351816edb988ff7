"""The process in which mutants are built and run: one may crash, hang or write anywhere."""

from __future__ import annotations

import os
import re
import resource
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tilegen import registry
from tilegen.backend import Backend, Device
from tilegen.build import find_device
from tilegen.errors import CompileError, VerifyError
from tilegen.render import KernelSource

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from .checks import Checks
    from .language import Support

COMPILES_NOT = "compile error"
ASSERTED = "static assert"
WRONG = "wrong result"
STRAY = "stray write"
REFUSED = "launch refused"
SURVIVED = "survived"
PASSED = SURVIVED, ""
UNFIT = "unfit"

Answer = tuple[str, str, float, tuple[int, ...]]


@dataclass(frozen=True)
class Task:
    """A text to judge under the plan of a source.

    Attributes
    ----------
    source : KernelSource
        Unchanged.
    text : str or None
        ``None``: the unchanged one, which must pass.
    device : str
        Selector.
    cpu_seconds : float
        After so much processor time the process is ended.
    taken : tuple of int
        See :class:`tilegen.mutation.checks.Checks`.
    """

    source: KernelSource
    text: str | None
    device: str
    cpu_seconds: float
    taken: tuple[int, ...] = ()


def serve(pipe: Connection, cpu: int | None) -> None:
    """Answer tasks until the other end closes."""
    if cpu is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {cpu})
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 2)
    worker = Worker()
    while True:
        try:
            task = pipe.recv()
        except EOFError:
            return
        pipe.send(worker.judge(task))


def limit_cpu(seconds: float) -> None:
    """Let the kernel of the system end this process after so many more seconds of processor time."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    at = int(used.ru_utime + used.ru_stime + seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (at, hard))


class Worker:
    """Keeps the trials of the source that it was last asked about."""

    def __init__(self) -> None:
        self._digest = ""
        self._checks: Checks | None = None
        self._backend: Backend | None = None
        self._device: Device | None = None

    def judge(self, task: Task) -> Answer:
        """What became of the text, in which words, and what it took."""
        before = os.times()
        taken: tuple[int, ...] = ()
        try:
            if self._checks is None or self._digest != task.source.digest:
                self._prepare(task)
            before = os.times()
            limit_cpu(task.cpu_seconds)
            if task.text is None:
                kind, detail, taken = *PASSED, self._sound(task)
            else:
                kind, detail = self._mutant(replace(task.source, text=task.text))
        except Exception as error:
            kind, detail = UNFIT, f"{task.source.name}: {type(error).__name__}: {error}"
        after = os.times()
        seconds = after.user + after.system - before.user - before.system
        return kind, detail[:400], seconds, taken

    def _sound(self, task: Task) -> tuple[int, ...]:
        assert self._checks is not None
        return tuple(self._checks.sound(self._compile(task.source)))

    def _mutant(self, source: KernelSource) -> tuple[str, str]:
        assert self._checks is not None
        try:
            # The emulator compiles at the first launch.
            self._checks.run(self._compile(source))
        except CompileError as error:
            log = error.log or str(error)
            asserted = re.search(self._support().language.assert_log, log)
            return (ASSERTED if asserted else COMPILES_NOT), log
        except VerifyError as error:
            return (STRAY if "outside D" in str(error) else WRONG), str(error)
        except Exception as error:
            # A launch that the core or the driver refuses, the latter in its own classes.
            return REFUSED, f"{type(error).__name__}: {error}"
        return PASSED

    def _support(self) -> Support:
        support: Any = getattr(self._backend, "mutation")()  # noqa: B009
        return support  # type: ignore[no-any-return]

    def _compile(self, source: KernelSource) -> Any:
        assert self._backend is not None
        chain = self._backend.toolchain(source.plan.arch, self._device)
        return self._backend.compile(source, replace(chain, flags=self._support().flags))

    def _prepare(self, task: Task) -> None:
        from .checks import Checks

        self._checks = None
        self._backend = registry.get(task.source.plan.backend)
        self._device = find_device(self._backend, task.source.plan.arch, task.device)
        self._checks = Checks(task.source.plan, self._device, task.taken)
        self._digest = task.source.digest
