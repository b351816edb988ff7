"""Ctrl-C while the command ``tilegen`` still imports: one sentence and status 130, as ever after.

The package imports this first. In any process but the command's it does nothing.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

STATUS = 130
SENTENCE = "tilegen: interrupted"


def is_command(argv: list[str], original: list[str]) -> bool:
    """Whether the process is ``tilegen`` or ``python -m tilegen``.

    Parameters
    ----------
    argv, original : list of str
        ``sys.argv`` and ``sys.orig_argv``. While Python looks for a module to run, the first
        argument is ``-m``.
    """
    if argv[:1] == ["-m"]:
        return "tilegen" in original[original.index("-m") + 1 :][:1]
    return bool(argv) and Path(argv[0]).stem == "tilegen"


def leave(*_: Any) -> None:
    """End the process at once; nothing was begun that would have to be undone."""
    with suppress(OSError):
        os.write(2, f"{SENTENCE}\n".encode())
    os._exit(STATUS)


def expect() -> None:
    """Let Ctrl-C leave at once, unless somebody else already handles it."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        with suppress(ValueError):  # not the main thread
            signal.signal(signal.SIGINT, leave)


def ready() -> None:
    """From here on Ctrl-C is an exception, so that what was begun is undone."""
    if signal.getsignal(signal.SIGINT) is leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


if is_command(getattr(sys, "argv", []), sys.orig_argv):
    expect()
