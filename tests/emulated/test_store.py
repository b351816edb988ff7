"""The emulator's files in the cache: damaged ones are built again, and no cache is no hindrance."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tilegen import emulator
from tilegen.emulator import store
from tilegen.errors import CompileError

TEXT = """
extern "C" __global__ void twice(const float* in, float* out) {
  out[threadIdx.x] = 2 * in[threadIdx.x];
}
"""
ELF = b"\x7fELF"
# Type of an ELF file, at byte 16: what the linker takes, and what it makes.
OBJECT, PROGRAM = 1, 2


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for the module: every test leaves it whole, or its own run would have failed."""
    return tmp_path_factory.mktemp("store") / "cache"


@pytest.fixture
def cache(shared: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TILEGEN_CACHE", str(shared))
    twice()
    return shared


def twice(text: str | emulator.Program = TEXT) -> float:
    """Seconds that compiling took, 0 for what the cache held."""
    given = np.arange(32, dtype=np.float32)
    run = emulator.run(
        text, entry="twice", grid=1, block=32, args=[given, np.zeros_like(given)],
        outputs=[1], orders=(0,), races=False,
    )  # fmt: skip
    assert run.clean, str(run)
    assert np.array_equal(run.arrays[1], 2 * given)
    return run.compile_seconds


def files(cache: Path, kind: int) -> list[Path]:
    found = [p for p in cache.glob("*.bin") if p.read_bytes()[:4] == ELF]
    return [p for p in found if p.read_bytes()[16] == kind]


def is_whole(cache: Path, kind: int) -> bool:
    """Whether each file of a kind still has, or has again, the bytes that its name tells."""
    store._checked.clear()
    return all(store.is_sound(p) for p in files(cache, kind))


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def cut_to_a_header(path: Path) -> None:
    os.truncate(path, 24)


def overwrite(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:24] + b"garbage" * 1000)


@pytest.mark.parametrize("damage", [truncate, cut_to_a_header, overwrite])
def test_a_damaged_program_is_built_again(cache: Path, damage: Callable[[Path], None]) -> None:
    program = emulator.compile(TEXT, entries="twice")
    twice(program)
    for path in files(cache, PROGRAM):
        damage(path)
    # The same program and one that another process would make.
    twice(program)
    twice()
    assert any(map(store.is_sound, files(cache, PROGRAM)))


@pytest.mark.parametrize("damage", [truncate, overwrite])
def test_a_damaged_runtime_object_is_built_again(
    cache: Path, damage: Callable[[Path], None]
) -> None:
    objects = files(cache, OBJECT)
    assert len(objects) > 1
    for path in objects:
        damage(path)
    twice(TEXT + f"// {damage.__name__}\n")
    assert is_whole(cache, OBJECT)


@pytest.mark.parametrize("index", [b"\xff" * 64, b"../" * 20 + b"abcd"])
def test_a_damaged_index_is_written_again(cache: Path, index: bytes) -> None:
    for path in cache.glob("*.bin"):
        if path.read_bytes()[:4] != ELF:
            path.write_bytes(index)
    twice()
    program = emulator.compile(TEXT, entries="twice")
    before = {p: p.stat().st_mtime_ns for p in cache.glob("*.bin")}
    program.executables(["plain"])
    assert {p: p.stat().st_mtime_ns for p in cache.glob("*.bin")} == before


def test_an_executable_bit_that_was_lost_comes_back(cache: Path) -> None:
    program = emulator.compile(TEXT, entries="twice")
    twice(program)
    for again in (program, emulator.compile(TEXT, entries="twice")):
        for path in cache.glob("*.bin"):
            path.chmod(0o644)
        before = {p: p.stat().st_mtime_ns for p in cache.glob("*.bin")}
        twice(again)
        assert {p: p.stat().st_mtime_ns for p in cache.glob("*.bin")} == before


def test_a_program_that_was_cleared_away_is_built_again(cache: Path) -> None:
    program = emulator.compile(TEXT, entries="twice")
    twice(program)
    for path in files(cache, PROGRAM):
        path.unlink()
    twice(program)


CHILD = f"""
import sys, numpy as np
from tilegen import emulator
from tilegen.emulator import store
from tilegen.errors import CompileError
given = np.arange(32, dtype=np.float32)
for comment in ("", "// once more"):
    run = emulator.run({TEXT!r} + comment, entry="twice", grid=1, block=32,
        args=[given, np.zeros_like(given)], outputs=[1], orders=(0,), races=False)
    assert run.clean, str(run)
    assert np.array_equal(run.arrays[1], 2 * given)
print(*store._made_stand_in())
"""


def child(cache: Path | str, temporary: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "TILEGEN_CACHE": str(cache), "TMPDIR": str(temporary)}
    return subprocess.Popen(
        [sys.executable, "-c", CHILD], env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_without_a_usable_cache_one_temporary_folder_stands_in(tmp_path: Path) -> None:
    temporary, blocked = tmp_path / "tmp", tmp_path / "blocked"
    temporary.mkdir()
    blocked.write_text("a file, no folder")
    process = child(blocked, temporary)
    said, log = process.communicate(timeout=120)
    assert process.returncode == 0, log
    assert Path(said.strip()).parent == temporary
    # It went with its process.
    assert list(temporary.iterdir()) == []


def test_threads_share_the_folder_that_stands_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_stand_in", None)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    owner = os.getpid()
    with ThreadPoolExecutor(8) as pool:
        [folder] = set(pool.map(lambda _: store.stand_in(), range(64)))
    assert folder.is_dir()
    monkeypatch.setattr(os, "getpid", lambda: owner + 1)
    assert store.stand_in() != folder
    store._remove(folder, owner)
    assert folder.is_dir()


@pytest.mark.parametrize("folder", ["/proc/nope", "/dev/null/nope"])
def test_a_cache_folder_that_cannot_be_made(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEGEN_CACHE", folder)
    twice()
    assert files(store.stand_in(), PROGRAM)


def test_a_text_that_does_not_compile_is_tried_once(cache: Path) -> None:
    calls = []

    def fails(path: Path) -> None:
        calls.append(path)
        raise CompileError("no")

    with pytest.raises(CompileError):
        store.keep(["fails"], fails)
    assert len(calls) == 1
    assert not list(cache.glob(".*"))


def test_a_cache_without_room(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path) -> None:
        if path.parent == cache:
            raise CompileError("No space left on device")
        path.write_text("whole")

    monkeypatch.setattr(store, "_has_room", lambda _: False)
    made = store.keep(["full"], full)
    assert (made.parent, made.read_text()) == (store.stand_in(), "whole")
    assert store.keep(["full"], full) == made


def test_two_processes_on_a_cold_cache(tmp_path: Path) -> None:
    processes = [child(tmp_path / "cold", tmp_path) for _ in range(2)]
    for process in processes:
        _, log = process.communicate(timeout=200)
        assert process.returncode == 0, log
    assert is_whole(tmp_path / "cold", OBJECT)
    assert is_whole(tmp_path / "cold", PROGRAM)
