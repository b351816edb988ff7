"""Compiling, the disk cache, folders that were built, devices by name, several threads and processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilegen as tg
from tilegen import registry
from tilegen.backend import Device
from tilegen.build import cache_path, find_device
from tilegen.dtypes import DTYPES
from tilegen.files import write_together
from tilegen_opencl.device import OpenCLDevice

CPUS = [d for d in registry.get("opencl").devices() if d.arch.name == "cpu"]
pytestmark = [
    pytest.mark.compiles,
    pytest.mark.skipif(not CPUS, reason="no OpenCL CPU device: pip install 'tilegen[cpu]'"),
]
SPEC = tg.TileSpec(block=(32, 32, 16), warp=(32, 32))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TILEGEN_CACHE", str(tmp_path / "cache"))
    return cache_path()


def source() -> tg.KernelSource:
    return tg.emit(tg.lower(SPEC, "opencl", "cpu"))


def solves(kernel: tg.Kernel) -> bool:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, s).astype(np.float32) for s in ((37, 41), (41, 35)))
    return np.array_equal(kernel(a, b), a @ b)


def test_the_cache_is_used_and_a_damaged_entry_is_rebuilt(cache: Path) -> None:
    first = tg.compile(source())
    assert not first.cached
    again = tg.compile(source())
    assert again.cached
    assert again.data == first.data
    assert again.resources == first.resources
    [entry] = cache.glob("*.bin")
    for damage in (entry.read_bytes()[:-7], b"", b"{}\nabc", b"\xff" * 100):
        entry.write_bytes(damage)
        rebuilt = tg.compile(source())
        assert not rebuilt.cached
        assert solves(tg.load(rebuilt))
    assert tg.compile(source()).cached
    assert [p.name for p in cache.iterdir()] == [entry.name]


def head_of(entry: Path) -> tuple[dict[str, Any], bytes]:
    head, _, data = entry.read_bytes().partition(b"\n")
    return json.loads(head), data


def with_head(entry: Path, **changes: Any) -> bytes:
    head, data = head_of(entry)
    return json.dumps({**head, **changes}).encode() + b"\n" + data


def test_every_malformed_head_is_rebuilt(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = tg.compile(source())
    # What a rebuild gives is known; the compiler need not be asked each time.
    monkeypatch.setattr(type(registry.get("opencl")), "compile", lambda *_: built)
    [entry] = cache.glob("*.bin")
    whole = entry.read_bytes()
    head, data = head_of(entry)
    names = list(head["resources"])
    damages = [
        *(with_head(entry, **{key: value}) for key in head for value in (None, 5, [1])
          if key not in ("kernel", "toolchain")),
        with_head(entry, resources={}),
        with_head(entry, resources=dict.fromkeys(names)),
        with_head(entry, resources={name: {"registers": "x"} for name in names}),
        with_head(entry, resources={name: {"extra": [1]} for name in names}),
        with_head(entry, resources={name: {"extra": {"a": "b"}} for name in names}),
        with_head(entry, resources={name: {"speed": 1} for name in names}),
        b"[" * 200_000 + b"\n" + data,
        b'{"resources":' * 100_000 + b"\n" + data,
        b"null\n" + data,
        b"1" * 10_000 + b"\n" + data,
    ]  # fmt: skip
    for damage in damages:
        entry.write_bytes(damage)
        assert not tg.compile(source()).cached, damage[:80]
        assert entry.read_bytes() == whole
        assert tg.compile(source()).cached


def test_a_file_under_another_key_is_not_taken(cache: Path) -> None:
    tg.compile(source())
    [entry] = cache.glob("*.bin")
    other = tg.emit(tg.lower(SPEC.replace(epilogue=({"op": "relu"},)), "opencl", "cpu"))
    tg.compile(other)
    [second] = set(cache.glob("*.bin")) - {entry}
    second.write_bytes(entry.read_bytes())
    kernel = tg.load(other)
    assert not kernel.binary.cached
    a = -np.ones((3, 3), np.float32)
    assert (kernel(a, -a) == 0).all()


def test_a_cached_binary_that_the_driver_refuses_is_rebuilt(cache: Path) -> None:
    import hashlib

    tg.compile(source())
    [entry] = cache.glob("*.bin")
    head, _ = head_of(entry)
    junk = b"no program" * 50
    head["sha256"] = hashlib.sha256(junk).hexdigest()
    forged = json.dumps(head).encode() + b"\n" + junk
    for load in (lambda: tg.load(source()), lambda: tg.load(tg.compile(source()))):
        entry.write_bytes(forged)
        kernel = load()
        assert not kernel.binary.cached
        assert solves(kernel)
        assert tg.load(source()).binary.cached


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_or_a_folder_in_the_place_of_an_entry(cache: Path) -> None:
    tg.compile(source())
    [entry] = cache.glob("*.bin")
    entry.unlink()
    os.mkfifo(entry)
    # A reader that waits for the pipe would wait for ever: it gets a process and a limit.
    code = (
        "import tilegen as tg\n"
        "k = tg.build(tg.TileSpec(block=(32, 32, 16), warp=(32, 32)), 'opencl', 'cpu')\n"
        "assert not k.binary.cached\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)
    assert entry.is_file()
    assert tg.compile(source()).cached
    entry.unlink()
    entry.mkdir()
    (entry / "kept").write_text("")
    assert solves(tg.load(source()))
    assert [p.name for p in cache.iterdir()] == [entry.name]


def test_files_are_written_together_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_bytes(b"old")
    real = os.fdopen
    opened: list[int] = []

    def full(handle: int, mode: str) -> Any:
        opened.append(handle)
        if len(opened) == 2:
            os.close(handle)
            raise OSError(28, "no space left on device")
        return real(handle, mode)

    monkeypatch.setattr(os, "fdopen", full)
    with pytest.raises(OSError, match="no space"):
        write_together(tmp_path, {"a": b"new", "b": b"new"})
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"old"


def test_what_cannot_be_built_or_loaded_is_said() -> None:
    wrong: list[tuple[Any, str]] = [
        (lambda: tg.load(5), "load: .* is needed, not int"),  # type: ignore[arg-type]
        (lambda: tg.load(None), "not NoneType"),  # type: ignore[arg-type]
        (lambda: tg.load(SPEC), "not TileSpec"),  # type: ignore[arg-type]
        (lambda: tg.compile("text"), "compile: a KernelSource is needed, not str"),  # type: ignore[arg-type]
        (lambda: tg.emit(SPEC), "emit: a KernelPlan is needed, not TileSpec"),  # type: ignore[arg-type]
        (lambda: tg.lower({}, "opencl"), "lower: a TileSpec is needed, not dict"),  # type: ignore[arg-type]
        (lambda: tg.build("s.toml", "opencl"), "build: a TileSpec is needed"),  # type: ignore[arg-type]
        (lambda: tg.save(SPEC, None, "x"), "save: a KernelSource is needed"),  # type: ignore[arg-type]
    ]
    for call, says in wrong:
        with pytest.raises(tg.SpecError, match=says):
            call()
    with pytest.raises(tg.BackendError, match="name is needed, not NoneType"):
        tg.lower(SPEC, None)  # type: ignore[arg-type]


def test_a_cache_that_cannot_be_written_costs_only_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TILEGEN_CACHE", str(tmp_path / "file" / "below"))
    assert solves(tg.load(tg.compile(source())))


def test_a_text_that_does_not_compile_says_where_and_why(cache: Path) -> None:
    from dataclasses import replace

    broken = replace(source(), text=source().text.replace("get_group_id", "get_grp_id"))
    with pytest.raises(tg.CompileError) as caught:
        tg.compile(broken)
    assert "get_grp_id" in caught.value.log
    assert "OpenCL" in caught.value.compiler
    assert not list(cache.glob("*.bin"))


def test_a_false_plan_number_stops_the_compiler(cache: Path) -> None:
    from dataclasses import replace

    plan = tg.lower(tg.TileSpec(block=(64, 64, 16), warp=(32, 32)), "opencl", "cpu")
    lying = tg.emit(replace(plan, threads=8))
    with pytest.raises(tg.CompileError) as caught:
        tg.compile(lying)
    assert "threads_as_planned" in caught.value.log or "negative" in caught.value.log


def test_a_built_folder_runs_again(cache: Path, tmp_path: Path) -> None:
    text = source()
    files = tg.save(text, tg.compile(text), tmp_path / "out")
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == sorted(
        p.name for p in files.values()
    )
    kernel = tg.load(tmp_path / "out")
    assert solves(kernel)
    data = json.loads(files["manifest"].read_text())
    assert data["schema"] == 1
    assert data["spec_sha256"] == SPEC.digest
    assert [e["name"] for e in data["entries"]] == ["gemm_wide", "gemm_narrow"]
    files["source"].write_text(text.text + "// edited\n")
    with pytest.raises(tg.SpecError, match="changed after the build"):
        tg.load(tmp_path / "out")
    files["manifest"].write_text("{")
    with pytest.raises(tg.SpecError, match="not a manifest"):
        tg.load(tmp_path / "out")
    for text_of_it in ("[" * 200_000, '{"source":' * 100_000):
        files["manifest"].write_text(text_of_it)
        with pytest.raises(tg.SpecError, match="nested too deeply"):
            tg.load(tmp_path / "out")
    files["manifest"].write_text('{"schema": 1, "schema": 1}')
    with pytest.raises(tg.SpecError, match="stands twice"):
        tg.load(tmp_path / "out")
    with pytest.raises(tg.SpecError, match="no such file"):
        tg.load(tmp_path / "elsewhere")


def test_several_threads_share_one_kernel(cache: Path) -> None:
    kernel = tg.load(source())
    rng = np.random.default_rng(1)
    problems = [
        [rng.integers(-3, 4, s).astype(np.float32) for s in ((m, 29), (29, 33))]
        for m in range(1, 65)
    ]
    start = threading.Barrier(4)

    def work(part: list[list[np.ndarray]]) -> bool:
        start.wait()
        return all(np.array_equal(kernel(a, b), a @ b) for a, b in part for _ in range(5))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, [problems[i::4] for i in range(4)]))


def test_two_processes_build_the_same_at_once(cache: Path) -> None:
    code = (
        "import tilegen as tg, numpy as np\n"
        "k = tg.build(tg.TileSpec(block=(32, 32, 16), warp=(32, 32)), 'opencl', 'cpu')\n"
        "a = np.ones((3, 5), np.float32)\n"
        "assert (k(a, a.T.copy()) == 5).all()\n"
    )
    runs = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
    assert [run.wait(timeout=120) for run in runs] == [0, 0]
    assert len(list(cache.iterdir())) == 1


class Named:
    def __init__(self, selector: str, name: str) -> None:
        self.selector, self.name, self.arch = selector, name, registry.get("opencl").archs["cpu"]
        self.driver = f"driver of {selector}"


class Fleet:
    name = "fleet"

    def devices(self) -> list[Device]:
        return [Named("gpu:0", "Big One"), Named("gpu:1", "Big Two"), Named("cpu:0", "Small")]  # type: ignore[list-item]

    def checkers(self) -> list[Device]:
        return []

    def missing(self) -> list[object]:
        return []


@pytest.mark.parametrize(
    ("text", "selector"),
    [
        ("gpu", "gpu:0"),
        ("gpu:1", "gpu:1"),
        ("cpu", "cpu:0"),
        ("two", "gpu:1"),
        ("big:1", "gpu:1"),
        ("of cpu", "cpu:0"),
        ("driver:1", "gpu:1"),
    ],
)
def test_a_device_by_selector_or_part_of_its_name(text: str, selector: str) -> None:
    assert find_device(Fleet(), None, text).selector == selector  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("big", "fits more than one: gpu:0 .Big One., gpu:1"),
        ("huge", "no fleet device fits 'huge'"),
    ],
)
def test_no_device_or_too_many(text: str, sentence: str) -> None:
    with pytest.raises(tg.BackendError, match=sentence):
        find_device(Fleet(), None, text)  # type: ignore[arg-type]


def test_a_kernel_for_another_arch_is_refused() -> None:
    gpu = tg.emit(tg.lower(tg.TileSpec(block=(64, 64, 8), warp=(32, 32)), "opencl", "gpu"))
    with pytest.raises(tg.LaunchError, match="is for arch gpu"):
        tg.load(gpu, device="cpu")


def test_both_forms_agree_bit_for_bit_with_themselves(cache: Path) -> None:
    rng = np.random.default_rng(2)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((70, 130), (130, 50)))
    for form in ("vector_fragment", "work_group"):
        kernel = tg.build(SPEC.replace(pins={"opencl": {"form": form}}), "opencl", "cpu")
        results = {kernel(a, b).tobytes() for _ in range(5)}
        assert len(results) == 1


@pytest.mark.parametrize("warp", [(64, 1), (32, 2), (64, 2), (2, 64)])
def test_narrow_warp_tiles_on_a_cpu_are_right_or_refused(
    cache: Path, warp: tuple[int, int]
) -> None:
    spec = tg.TileSpec(block=(64, 64, 16), warp=warp, pins={"opencl": {"form": "work_group"}})
    if warp != (32, 2):
        with pytest.raises(tg.PlanError, match="the 32 lanes must lie along both M and N"):
            tg.build(spec, "opencl", "cpu")
        return
    kernel = tg.build(spec, "opencl", "cpu")
    out = np.full((64, 64), np.nan, np.float32)
    kernel(np.ones((64, 16), np.float32), np.ones((16, 64), np.float32), out=out)
    assert (out == 16).all()


def test_device_arrays_wait_for_other_queues(cache: Path) -> None:
    import pyopencl as cl
    import pyopencl.array as cla

    kernel = tg.load(source())
    other = cl.CommandQueue(kernel.device.context)
    host = np.random.default_rng(0).standard_normal((600, 600)).astype(np.float32)
    slow = cla.to_device(other, host)
    for _ in range(40):
        slow = slow * np.float32(1) + np.float32(0)
    eye = cla.to_device(kernel.device.queue, np.eye(600, dtype=np.float32))
    assert np.array_equal(kernel(eye, slow).get(), host)


def test_a_device_without_dot_products_refuses_before_any_compiler() -> None:
    gpu = registry.get("opencl").archs["gpu"]
    types = {"a": "s8", "b": "s8", "acc": "s32", "c": "s32", "d": "s32"}
    spec = tg.TileSpec(block=(64, 64, 16), warp=(32, 32), types=types)
    source = tg.emit(tg.lower(spec, "opencl", replace(gpu, features=frozenset({"integer_dot"}))))
    plain = OpenCLDevice(None, "A plain device", "gpu:0", gpu, "1.0")
    with pytest.raises(
        tg.CompileError, match=r"A plain device cannot run .*: it has no integer_dot"
    ):
        plain.compile(source)


def test_dot_products_are_found_where_the_compiler_takes_them(cache: Path) -> None:
    """Full-range bytes of either sign, whose products a saturating sum would lose."""
    found = [d for d in registry.get("opencl").devices() if "integer_dot" in d.arch.features]
    if not found:
        pytest.skip("no OpenCL device here has integer dot products")
    for a, b in (("s8", "s8"), ("s8", "u8"), ("u8", "s8"), ("u8", "u8")):
        types = {"a": a, "b": b, "acc": "s32", "c": "s32", "d": "s32"}
        pins = {"opencl": {"form": "work_group"}}
        spec = tg.TileSpec(block=(32, 32, 16), warp=(16, 32), types=types, pins=pins)
        kernel = tg.build(spec, "opencl", device=found[0])
        assert kernel.plan.instruction.name == "dot4_s32"
        ends = [(np.iinfo(DTYPES[t].numpy).min, np.iinfo(DTYPES[t].numpy).max) for t in (a, b)]
        x = np.resize(np.array(ends[0], DTYPES[a].numpy), (33, 70))
        y = np.resize(np.array(ends[1], DTYPES[b].numpy), (70, 33))
        y[:, 1::2] = ends[1][1]
        assert np.array_equal(kernel(x, y), x.astype(np.int64) @ y.astype(np.int64))
