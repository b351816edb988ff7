"""What goes wrong, told: one sentence and an exit status."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, TextIO

from tilegen import interrupt
from tilegen.errors import CompileError, TilegenError, TilegenWarning, VerifyError

FINE, FAILED, WRONG, PIPE_CLOSED, INTERRUPTED = 0, 1, 2, 141, interrupt.STATUS
LOG_LINES = 8


def explained(error: Exception) -> dict[str, Any] | None:
    """What to say of an error: its sentence, its kind and what belongs to it; ``None`` for a bug."""
    kind = type(error).__name__
    if isinstance(error, CompileError):
        more = {
            "compiler": error.compiler,
            "flags": error.flags,
            "source": error.source_path,
            "log": error.log,
        }
        return {"error": sentence(error), "kind": kind, **{k: v for k, v in more.items() if v}}
    if isinstance(error, TilegenError):
        return {"error": str(error) if isinstance(error, VerifyError) else sentence(error),
                "kind": kind}  # fmt: skip
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename is not None else ""
        reason = error.strerror or str(error) or kind
        return {"error": f"{where}{reason[0].lower()}{reason[1:]}", "kind": "OSError"}
    if isinstance(error, MemoryError):
        return {"error": "there is not enough memory", "kind": kind}
    if type(error).__module__.startswith("hypothesis"):
        return {"error": f"the verification gave no steady answer: {sentence(error)}",
                "kind": "VerifyError"}  # fmt: skip
    # Typer carries its own copy of click in some versions, so its errors are known by their method.
    if callable(message := getattr(error, "format_message", None)):
        return {"error": sentence(message()), "kind": "UsageError"}
    return None


def sentence(what: object) -> str:
    return " ".join(str(what).split())


def tell(told: dict[str, Any], as_json: bool) -> int:
    """Print an error and return the exit status that goes with it."""
    with suppress(OSError):
        if as_json:
            say(told)
            sys.stdout.flush()
        else:
            print("\n".join([f"tilegen: {told['error']}", *_details(told)]), file=sys.stderr)
    if told["kind"] == "OSError":
        drop(sys.stdout)  # what is left in the buffer may be what could not be written
    return FAILED if told["kind"] == "VerifyError" else WRONG


def warned(otherwise: Callable[..., None]) -> Callable[..., None]:
    """How warnings are shown: those of tilegen's own in one line, any other as before."""

    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if not issubclass(category, TilegenWarning):
            otherwise(message, category, *where, **more)
            return
        with suppress(OSError):
            print(f"tilegen: {sentence(message)}", file=sys.stderr)

    return show


def _details(told: dict[str, Any]) -> Iterator[str]:
    for key in ("compiler", "flags", "source"):
        if told.get(key):
            yield f"  {key}: {told[key]}"
    lines = str(told.get("log", "")).splitlines()
    for line in lines[:LOG_LINES]:
        yield f"  | {line}"
    if len(lines) > LOG_LINES:
        yield f"  | ... {len(lines) - LOG_LINES} more lines"


def open_streams() -> None:
    """Give a process that was started with closed streams (``>&-``) the null device for them."""
    # Else the next file that is opened takes the number, and gets what a driver prints.
    while (handle := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(handle, True)
    os.close(handle)
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


def drop_unless_flushed(stream: TextIO) -> None:
    """Flush; what cannot be written is dropped."""
    try:
        stream.flush()
    except (OSError, ValueError):
        drop(stream)


def drop(stream: TextIO) -> None:
    """Send what a stream still holds nowhere: Python flushes at exit, and would complain again."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def say(what: Any) -> None:
    """Print text as it is, anything else as JSON."""
    print(what if isinstance(what, str) else json.dumps(what, indent=2, allow_nan=False))
