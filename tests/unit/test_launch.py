"""What a call launches, with a device that only takes notes: order, regions, sizes, workspaces."""

from __future__ import annotations

import gc
import pickle
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import pytest
from emulated.split_k import SPLITS, source

import tilegen as tg
from tilegen import entries
from tilegen.build import KernelBinary
from tilegen.hardware import Arch
from tilegen.host_arrays import host_empty, host_operand
from tilegen.plan import Access, Argument, Entry, Formula, KernelPlan
from tilegen.render import KernelSource
from tilegen_cuda.emulated import EmulatedSession

PLANES = 4 * SPLITS


@dataclass(eq=False)
class Space:
    """A workspace whose regions are their own description."""

    number: int
    size: int

    def region(self, offset: int, size: int, element: str) -> tuple[int, int, int, str]:
        return self.number, offset, size, element


@dataclass
class Session:
    device: Notes
    stream: Any
    alignment: int = 64

    def operand(self, name: str, array: Any, *, writes: bool) -> Any:
        return host_operand(name, array, writes=writes)

    def empty(self, shape: tuple[int, ...], dtype: str, majorness: str) -> Any:
        return host_empty(shape, dtype, majorness)

    def workspace(self, size: int, *, kept: bool) -> Space:
        space = Space(next(self.device.numbers), size)
        self.device.spaces.append(weakref.ref(space))
        self.device.sizes.append(size)
        return space

    def begin(self) -> None:
        self.device.queued.append(("begin", None, {}, self.stream))

    def finish(self) -> None:
        self.device.queued.append(("finish", None, {}, self.stream))


@dataclass
class Notes:
    """A device that runs nothing."""

    arch: Arch
    name: str = "notes"
    selector: str = "notes:0"
    rung: str = "notes"
    queued: list[tuple[str, int | None, dict[str, Any], Any]] = field(default_factory=list)
    spaces: list[weakref.ref[Space]] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    numbers: count[int] = field(default_factory=count)

    def load(self, binary: KernelBinary) -> Notes:
        return self

    def session(self, arrays: Sequence[Any], stream: Any) -> Session:
        return Session(self, stream)

    def launch(
        self, entry: Entry, grid: int, arguments: Sequence[tuple[Argument, Any]], stream: Any
    ) -> None:
        self.queued.append((entry.name, grid, {a.name: v for a, v in arguments}, stream))

    def bind(
        self, entry: Entry, grid: int, arguments: Sequence[tuple[Argument, Any]], stream: Any
    ) -> Callable[[], None]:
        return lambda: self.launch(entry, grid, arguments, stream)


def noted(text: KernelSource | None = None, **arch: Any) -> tuple[tg.Kernel, Notes]:
    text = text or source()
    device = Notes(replace(text.plan.arch, **arch))
    binary = KernelBinary(text, b"", "", {}, tg.backend.Toolchain("none"))
    return tg.Kernel(binary, device, device), device


def changed(change: Callable[[Entry], Entry]) -> KernelSource:
    text = source()
    plan = replace(text.plan, entries=tuple(change(e) for e in text.plan.entries))
    return replace(text, plan=plan)


def zeros(*shape: int) -> Any:
    array = host_empty(shape, "f32", "row")
    array[...] = 0
    return array


def test_packs_then_the_product_then_the_sum_on_one_stream() -> None:
    kernel, device = noted()
    m, n, k = 7, 5, 6
    kernel(zeros(m, k), zeros(k, n), alpha=2, stream="mine")
    assert [name for name, *_ in device.queued] == [
        "begin", "gemm_pack_a", "gemm_pack_b", "gemm_any", "gemm_reduce", "finish",
    ]  # fmt: skip
    assert {stream for *_, stream in device.queued} == {"mine"}
    said = {name: (grid, values) for name, grid, values, _ in device.queued}
    planes, packed = PLANES * m * n, (m + n) * k * 4
    (grid, values) = said["gemm_any"]
    assert grid == (m * n + 63) // 64 * SPLITS
    assert values == {
        "M": m, "N": n, "K": k, "split_k": SPLITS, "alpha": 2,
        "packed_a": (0, planes, m * k * 4, "f32"), "packed_b": (0, planes + m * k * 4, n * k * 4, "f32"),
        "partial": (0, 0, planes, "f32"),
    }  # fmt: skip
    grid, values = said["gemm_pack_b"]
    assert (values["rows"], values["cols"], values["ld"]) == (k, n, n)
    assert values["packed"] == (0, planes + m * k * 4, n * k * 4, "f32")
    assert said["gemm_reduce"][1]["planes"] == SPLITS
    assert said["gemm_reduce"][1]["partial"] == (0, 0, planes, "f32")
    assert device.sizes == [planes + packed]


def test_what_the_wide_entry_launches_needs_less() -> None:
    kernel, device = noted()
    kernel(zeros(8, 4), zeros(4, 12))
    assert [name for name, *_ in device.queued][1:-1] == ["gemm_main", "gemm_reduce"]
    assert device.sizes == [PLANES * 8 * 12]


@pytest.mark.parametrize("shape", [(0, 5, 4), (5, 0, 4), (0, 0, 0)])
def test_an_output_without_elements_launches_nothing(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    kernel, device = noted()
    kernel(zeros(m, k), zeros(k, n))
    kernel.prepare(zeros(m, k), zeros(k, n))()
    assert (device.queued, device.sizes) == ([], [])


def test_without_a_sum_the_packs_have_nothing_and_the_rest_runs() -> None:
    kernel, device = noted()
    kernel(zeros(3, 0), zeros(0, 2))
    names = [name for name, *_ in device.queued]
    assert "gemm_reduce" in names
    assert not [name for name in names if "pack_" in name]
    device.queued.clear()
    kernel(zeros(3, 7), zeros(7, 2), alpha=0)
    assert [name for name, *_ in device.queued][-3:] == ["gemm_any", "gemm_reduce", "finish"]


def test_a_call_drops_its_workspace_and_a_prepared_one_keeps_its_own() -> None:
    kernel, device = noted()
    a, b = zeros(8, 4), zeros(4, 4)
    for _ in range(2):
        kernel(a, b)
    gc.collect()
    assert [space() for space in device.spaces] == [None, None]
    device.queued.clear()
    prepared = kernel.prepare(a, b)
    assert not device.queued
    prepared()
    prepared()
    regions = [v["partial"] for n, _, v, _ in device.queued if n in ("gemm_main", "gemm_reduce")]
    assert regions == [(2, 0, PLANES * 8 * 4, "f32")] * 4
    gc.collect()
    assert device.spaces[2]() is not None
    del prepared
    device.queued.clear()
    gc.collect()
    assert device.spaces[2]() is None


def test_threads_never_share_a_workspace() -> None:
    kernel, device = noted()

    def work(number: int) -> None:
        for _ in range(30):
            kernel(zeros(4 * number, 4), zeros(4, 4), stream=number)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(1, 9)))
    by_stream: dict[Any, list[int]] = {}
    for name, _, values, stream in device.queued:
        if name in ("gemm_main", "gemm_reduce"):
            by_stream.setdefault(stream, []).append(values["partial"][0])
            assert values["partial"][2] == PLANES * 4 * stream * 4
    assert sorted(by_stream) == list(range(1, 9))
    for numbers in by_stream.values():
        assert numbers[::2] == numbers[1::2]
    used = [number for numbers in by_stream.values() for number in numbers[::2]]
    assert len(set(used)) == len(used) == 8 * 30


def test_the_sum_has_a_say_in_which_entry_runs() -> None:
    def demanding(entry: Entry) -> Entry:
        if entry.name == "gemm_main":
            return replace(entry, after=("gemm_wide_sum",))
        return entry

    text = changed(demanding)
    wide = replace(
        text.plan.entry("gemm_reduce"), name="gemm_wide_sum", symbol_name="gemm_reduce",
        accesses=(Access("d", 4, 16, 4),),
    )  # fmt: skip
    plan: KernelPlan = replace(text.plan, entries=(*text.plan.entries, wide))
    kernel, _ = noted(replace(text, plan=plan))
    out = zeros(8, 12)
    assert kernel.prepare(zeros(8, 8), zeros(8, 8), out=out[:, :8]).entry == "gemm_main"
    assert kernel.prepare(zeros(8, 8), zeros(8, 8), out=out[:, 1:9]).entry == "gemm_any"
    assert "gemm_main: out starts at an address that 16 does not divide" in kernel.explain(
        zeros(8, 8), zeros(8, 8), out=out[:, 1:9]
    )


def test_formulas_may_name_the_device_and_strides() -> None:
    def persistent(entry: Entry) -> Entry:
        return replace(entry, grid=Formula("multiprocessors * 2 + lda")) if entry.after else entry

    kernel, device = noted(changed(persistent), multiprocessors=11)
    kernel(zeros(3, 5), zeros(5, 3))
    assert next(grid for name, grid, *_ in device.queued if name == "gemm_any") == 27
    kernel, _ = noted(changed(persistent))
    with pytest.raises(tg.LaunchError, match="the launch knows no multiprocessors"):
        kernel(zeros(3, 5), zeros(5, 3))


def test_a_workspace_that_no_address_reaches_is_refused() -> None:
    def huge(entry: Entry) -> Entry:
        return replace(entry, workspace=Formula("split_k * M * 4611686018427387904"))

    kernel, device = noted(changed(huge))
    with pytest.raises(tg.LaunchError, match=r"workspace: \d+ bytes are more than an address"):
        kernel(zeros(3, 5), zeros(5, 3))
    assert device.queued == []


@pytest.mark.parametrize("majorness", ["row", "col"])
@pytest.mark.parametrize("rows", [2**30, 2**31])
def test_an_output_that_no_memory_holds_is_refused_with_its_bytes(
    rows: int, majorness: str
) -> None:
    """A call with broadcast operands asks for it easily; NumPy counts to 2**63 - 1 bytes."""
    says = f"out: {rows} x {2**30} elements of f32 need {4 * rows * 2**30} bytes, and there is no memory"
    session = EmulatedSession()
    with pytest.raises(tg.LaunchError, match=says):
        session.empty((rows, 2**30), "f32", majorness)
    with pytest.raises(tg.LaunchError, match="workspace: there is no memory for its 4"):
        session.workspace(4 * 2**60, kept=False)


def test_the_manifest_says_it_all() -> None:
    from tilegen.build import manifest

    entries = {entry["name"]: entry for entry in manifest(source(), None)["entries"]}
    main, pack = entries["gemm_any"], entries["gemm_pack_b"]
    assert (main["before"], main["after"]) == (["gemm_pack_a", "gemm_pack_b"], ["gemm_reduce"])
    assert main["workspace"] == "split_k * M * N * 4 + (M + N) * K * 4"
    assert pack["symbol"] == "gemm_pack"
    assert pack["arguments"][-1]["value"] == "split_k * M * N * 4 + M * K * 4"
    assert manifest(source(), None)["plan"]["split_k"] == SPLITS


def test_formulas_of_one_text_are_compiled_once_and_refused_each_time() -> None:
    text = "(M + 126) / 127 * lda % 7"
    before = entries._code.cache_info().misses
    one, other = Formula(text), pickle.loads(pickle.dumps(Formula(text)))
    assert entries._code.cache_info().misses == before + 1
    assert one == other
    assert {f(M=n, lda=n + 1) for f in (one, other) for n in (300,)} == {3 * 301 % 7}
    assert one(M=1, lda=5) == 5
    for _ in range(2):
        for wrong in ("M // 2", "M ** 2", "M +", "1.5 * M", "f(M)"):
            with pytest.raises(ValueError, match=r"is|holds"):
                Formula(wrong)
