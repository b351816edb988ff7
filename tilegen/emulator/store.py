"""Programs and objects of the emulator in the cache: checked before they are used, built where they fail."""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from tilegen.build import CACHE_LIMIT, cache_path
from tilegen.errors import CompileError
from tilegen.files import read_file, write_atomically

_DIGEST = re.compile(r"[0-9a-f]{64}")
_MODE = 0o755
# Bytes; programs have 100 to 300 KiB.
_ROOM = 2**20
# What stat said of a file when its bytes were last found right.
_checked: dict[Path, tuple[int, ...]] = {}
_lock = threading.Lock()
# The folder that stands in for the cache, and the process it belongs to: a fork needs its own.
_stand_in: tuple[Path, int] | None = None


def keep(parts: Sequence[str], build: Callable[[Path], None]) -> Path:
    """The file that ``parts`` determine, from the cache or built.

    An index of the parts' digest holds the digest of the file, which is also its name: files and
    indices may come from several processes at once and never fit together by accident.

    Parameters
    ----------
    parts : sequence of str
        All that the file depends on.
    build : callable
        Writes the file to the path it is given.

    Raises
    ------
    CompileError
        If the build fails, and not for want of room in the cache's folder.
    """
    key = hashlib.sha256(json.dumps(["by digest", *parts]).encode()).hexdigest()
    cache = cache_path().absolute()
    for folder in (cache, *_made_stand_in()):
        found = _find(folder, key)
        if found is not None:
            return found
    # A cache that cannot be made, written, filled any further or executed from costs time only.
    try:
        cache.mkdir(parents=True, exist_ok=True)
        made = _make(cache, key, build)
        if is_sound(made):
            return made
    except OSError:
        pass
    except CompileError:
        if _has_room(cache):
            raise
    return _make(stand_in(), key, build)


def is_sound(path: Path) -> bool:
    """Whether a file of ``keep`` still has the bytes it was built with; its mode is put right."""
    try:
        if not os.access(path, os.X_OK):
            os.chmod(path, _MODE)
            if not os.access(path, os.X_OK):
                return False
        state = _state(path)
        if _checked.get(path) == state:
            return True
        if hashlib.sha256(read_file(path, CACHE_LIMIT)).hexdigest() != path.stem:
            return False
    except (OSError, MemoryError):
        return False
    _checked[path] = state
    return True


def _state(path: Path) -> tuple[int, ...]:
    found = path.stat()
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _find(folder: Path, key: str) -> Path | None:
    try:
        digest = read_file(folder / f"{key}.bin", 64).decode("ascii")
    except (OSError, ValueError):
        return None
    path = folder / f"{digest}.bin"
    return path if _DIGEST.fullmatch(digest) and is_sound(path) else None


def _make(folder: Path, key: str, build: Callable[[Path], None]) -> Path:
    handle, name = tempfile.mkstemp(dir=folder, prefix=f".{key}.bin.")
    os.close(handle)
    temporary = Path(name)
    try:
        build(temporary)
        digest = hashlib.sha256(temporary.read_bytes()).hexdigest()
        temporary.chmod(_MODE)
        path = folder / f"{digest}.bin"
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    # Without its index the file is there for this process only.
    with suppress(OSError):
        write_atomically(folder / f"{key}.bin", digest.encode())
    return path


def _has_room(folder: Path) -> bool:
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(_ROOM))
    except OSError:
        return False
    return True


def _made_stand_in() -> tuple[Path, ...]:
    made = _stand_in
    return (made[0],) if made is not None and made[1] == os.getpid() else ()


def stand_in() -> Path:
    """The folder used where the cache cannot be: one for each process, removed when it ends."""
    global _stand_in
    with _lock:
        for folder in _made_stand_in():
            if folder.is_dir():
                return folder
        _stand_in = Path(tempfile.mkdtemp(prefix="tilegen-")), os.getpid()
        atexit.register(_remove, *_stand_in)
        return _stand_in[0]


def _remove(folder: Path, owner: int) -> None:
    # A fork that ends must not take away what its parent uses.
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
