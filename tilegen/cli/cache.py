"""``tilegen cache``: where compiled kernels are kept, how many, and away with them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from tilegen.build import cache_path
from tilegen.cli.failures import say
from tilegen.cli.shared import AsJson


def cache_where(as_json: AsJson = False) -> None:
    """Print where compiled kernels are kept."""
    path = str(cache_path())
    say({"path": path} if as_json else path)


def cache_size(as_json: AsJson = False) -> None:
    """Print how many files there are and how large they are."""
    sizes = []
    for path in cached_files():
        with suppress(FileNotFoundError):  # another process may clear it meanwhile
            sizes.append(path.stat().st_size)
    where = str(cache_path())
    say(
        {"path": where, "files": len(sizes), "bytes": sum(sizes)}
        if as_json
        else f"{len(sizes)} files, {sum(sizes)} bytes in {where}"
    )


def cache_clear(as_json: AsJson = False) -> None:
    """Remove every compiled kernel; files that are not tilegen's stay."""
    removed = 0
    for path in cached_files():
        path.unlink(missing_ok=True)
        removed += 1
    where = str(cache_path())
    say({"path": where, "removed": removed} if as_json else f"removed {removed} files from {where}")


def cached_files() -> list[Path]:
    """The files that tilegen keeps in its cache folder, and no other."""
    folder = cache_path()
    found = [p for p in folder.glob("*.bin") if len(p.stem) == 64]
    found += [p for p in folder.glob(".*.bin.*") if len(p.name.split(".")[1]) == 64]
    found += [p for p in (folder / "refused").glob("*") if p.is_file()]
    return sorted(p for p in found if not p.is_dir())
