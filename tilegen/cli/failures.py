"""What goes wrong, told: one sentence and an exit status."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from tilegen.errors import CompileError, TilegenError, VerifyError

FINE, FAILED, WRONG, PIPE_CLOSED, INTERRUPTED = 0, 1, 2, 141, 130
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
        drop_output()  # what is left in the buffer may be what could not be written
    return FAILED if told["kind"] == "VerifyError" else WRONG


def _details(told: dict[str, Any]) -> Iterator[str]:
    for key in ("compiler", "flags", "source"):
        if told.get(key):
            yield f"  {key}: {told[key]}"
    lines = str(told.get("log", "")).splitlines()
    for line in lines[:LOG_LINES]:
        yield f"  | {line}"
    if len(lines) > LOG_LINES:
        yield f"  | ... {len(lines) - LOG_LINES} more lines"


def drop_output() -> None:
    # Python flushes stdout once more at exit, and would complain a second time.
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


def say(what: Any) -> None:
    """Print text as it is, anything else as JSON."""
    print(what if isinstance(what, str) else json.dumps(what, indent=2, allow_nan=False))
