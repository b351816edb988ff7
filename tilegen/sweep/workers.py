"""Sources to compilers in processes of their own, a few at a time."""

from __future__ import annotations

import os
import pickle
import queue
import subprocess
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import suppress
from typing import Any

from tilegen.render import KernelSource

from .worker import Answer


def compile_all(
    sources: Sequence[KernelSource], count: int
) -> Generator[tuple[int, Answer], None, None]:
    """Compile each source; its index and what was said of it, in the order they are done.

    The processes are not those of ``multiprocessing``, which would import the caller's script
    again. Each is served by a thread; leaving the iterator ends them all.
    """
    asked: queue.SimpleQueue[int] = queue.SimpleQueue()
    for index in range(len(sources)):
        asked.put(index)
    done: queue.SimpleQueue[tuple[int, Answer]] = queue.SimpleQueue()
    workers = [_Worker(sources, asked, done) for _ in range(min(count, len(sources)))]
    try:
        for worker in workers:
            worker.start()
        for _ in sources:
            yield done.get()
    finally:
        for worker in workers:
            worker.end()


# Ctrl-C is the asking process's to answer, from before anything is imported on.
START = (
    "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); "
    f"from {__package__}.worker import main; main()"
)


class _Worker:
    """A thread, and the process that it asks."""

    def __init__(self, sources: Sequence[KernelSource], asked: Any, done: Any) -> None:
        self._sources, self._asked, self._done = sources, asked, done
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._ended = False

    def start(self) -> None:
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while not self._ended:
            try:
                index = self._asked.get_nowait()
            except queue.Empty:
                return
            self._done.put((index, self._ask(self._sources[index])))

    def end(self) -> None:
        """End the process; the thread then finds its pipe closed and returns."""
        with self._lock:
            self._ended = True
            if self._process is not None:
                self._process.kill()
                self._process.wait()

    def _ask(self, source: KernelSource) -> Answer:
        try:
            process = self._running()
            assert process.stdin is not None
            assert process.stdout is not None
            pickle.dump(source, process.stdin)
            process.stdin.flush()
            answer: Answer = pickle.load(process.stdout)
            return answer
        except Exception as error:  # whatever it is, the others go on
            return {}, 0.0, self._how_it_ended(error)

    def _running(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._ended:
                raise OSError("the sweep has ended")
            if self._process is None:
                # What can be imported here can be imported there.
                path = os.pathsep.join(p or os.getcwd() for p in sys.path)
                self._process = subprocess.Popen(
                    [sys.executable, "-c", START],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    env={**os.environ, "PYTHONPATH": path},
                )
            return self._process

    def _how_it_ended(self, error: Exception) -> str:
        process, self._process = self._process, None
        if process is None:
            return f"no process could be started: {error}"
        with suppress(OSError):
            process.kill() if process.poll() is None else None
        status = process.wait()
        return f"the process that compiled it ended with status {status}"
