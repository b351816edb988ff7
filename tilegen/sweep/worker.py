"""The process that compiles for a sweep: a compiler may crash, and Ctrl-C must not wait for it."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import time
from collections.abc import Mapping
from typing import BinaryIO

from tilegen.backend import Resources
from tilegen.build import compile
from tilegen.errors import TilegenError
from tilegen.render import KernelSource

# What the compiler said of each entry, the seconds it took, and why there is nothing.
Answer = tuple[Mapping[str, Resources], float, str]


def answer(source: KernelSource) -> Answer:
    """Compile one source into the disk cache; an error becomes its sentence."""
    begin = time.perf_counter()
    try:
        said, why = dict(compile(source).resources), ""
    except TilegenError as error:
        log = getattr(error, "log", "").strip().splitlines()
        said, why = {}, f"{error}: {log[0]}" if log else str(error)
    except Exception as error:  # one point that fails does not end the sweep
        said, why = {}, f"{type(error).__name__}: {error}"
    return said, time.perf_counter() - begin, " ".join(why.split())


def serve(questions: BinaryIO, answers: BinaryIO) -> None:
    """Answer until the other end closes."""
    while True:
        try:
            source = pickle.load(questions)
        except EOFError:
            return
        pickle.dump(answer(source), answers)
        answers.flush()


def main() -> None:
    # The terminal sends Ctrl-C to all of its processes; the one that asked ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Drivers and compilers print what they like.
    answers = os.fdopen(os.dup(1), "wb")
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
