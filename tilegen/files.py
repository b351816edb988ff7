"""Files that other processes may see: written whole or not at all, read without waiting."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tilegen.errors import SpecError


def write_atomically(path: Path, data: bytes) -> None:
    """Write under a temporary name in the same folder, then rename; nothing half-written stays."""
    write_together(path.parent, {path.name: data})


def write_together(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write several files of one folder; a full disk or Ctrl-C changes none of them.

    Raises
    ------
    OSError
        If one cannot be written; between the first rename and the last, earlier files are new.
    """
    # All temporaries are written before the first rename.
    pending: list[tuple[str, Path]] = []
    try:
        for name, data in files.items():
            handle, temporary = tempfile.mkstemp(dir=folder, prefix=f".{name}.")
            pending.append((temporary, folder / name))
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.chmod(temporary, 0o644)
        while pending:
            os.replace(*pending[0])
            pending.pop(0)
    finally:
        for temporary, _ in pending:
            with suppress(OSError):
                os.unlink(temporary)


def source_text(path: Path) -> str:
    """The text of a kernel's source.

    Raises
    ------
    SpecError
        If it is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise SpecError(
            f"{path}: it is not UTF-8 text ({error.reason} at byte {error.start})"
        ) from None


def read_file(path: Path, limit: int) -> bytes:
    """The bytes of a regular file of at most ``limit`` bytes.

    Raises
    ------
    OSError
        If there is none, or it is something else (a pipe would be waited for without end).
    """
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_size > limit:
            raise OSError(f"{path}: no file of at most {limit} bytes")
        return file.read()
