"""CUDA plans: what a target lowers, refuses and predicts, and what is read of ptxas."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import pytest

import tilegen as tg
from tilegen import registry
from tilegen.build import find_device
from tilegen.emulator import EmulatorRun
from tilegen.errors import PlanError
from tilegen_cuda.archs import ARCHS
from tilegen_cuda.device import runnable
from tilegen_cuda.emulated import EmulatedDevice, EmulatedProgram, multiply_adds
from tilegen_cuda.toolchain import resources

BASE = {"block": (128, 128, 16), "warp": (64, 32)}
FMA = {"pins": {"cuda": {"form": "fma"}}}
F64 = {"types": dict.fromkeys(("a", "b", "acc", "c", "d"), "f64"), **FMA}
HALVES = {"types": {"a": "f16", "b": "f16", "acc": "f32", "c": "f16"}}


def plan(arch: str = "sm_80", **changes: Any) -> tg.KernelPlan:
    return tg.lower(tg.TileSpec(**{**BASE, **changes}), "cuda", arch)


def mechanisms(made: tg.KernelPlan) -> dict[str, str]:
    return {c.operand: c.mechanism for c in made.copies}


def test_what_lies_the_same_way_in_both_memories_is_copied_behind_the_threads() -> None:
    assert mechanisms(plan()) == {"a": "vector_load", "b": "cp_async"}
    assert mechanisms(plan(layout={"a": "col"})) == {"a": "cp_async", "b": "cp_async"}
    assert mechanisms(plan(layout={"b": "col"})) == {"a": "vector_load", "b": "vector_load"}
    assert mechanisms(plan("sm_75")) == {"a": "vector_load", "b": "vector_load"}
    pinned = plan(pins={"cuda": {"copy": "registers"}})
    assert mechanisms(pinned) == {"a": "vector_load", "b": "vector_load"}
    assert pinned.pipeline.waits == "barrier"
    assert plan().pipeline.waits == "cp_async_group"


def test_stages_fall_to_what_fits() -> None:
    made = plan("sm_75", stages=8)
    assert made.pipeline.stages == 4
    assert any("stages 8 -> 4" in note and "65536 bytes" in note for note in made.notes)
    assert plan("sm_90", stages=8).pipeline.stages == 8


def test_shared_memory_over_48_kib_is_the_launch_s_affair() -> None:
    small, large = plan(stages=2), plan(stages=4)
    assert small.numbers["DYNAMIC_BYTES"] == 0
    assert large.numbers["DYNAMIC_BYTES"] == large.budget.shared_bytes > 48 * 1024
    assert "extern __shared__" not in tg.emit(small).text
    assert "extern __shared__" in tg.emit(large).text


def test_tiles_begin_where_a_vector_may() -> None:
    made = plan(block=(24, 40, 7), warp=(24, 20), stages=3)
    a, b = made.shared
    assert (a.start, b.start % 16) == (0, 0)
    assert b.start >= a.bytes
    assert made.budget.shared_bytes == b.start + b.bytes


def test_registers_are_those_of_a_full_block() -> None:
    assert plan().budget.registers[0].limit == 255
    assert plan(warp=(32, 32)).budget.registers[0].limit == 128
    four = plan(block=(64, 64, 16), warp=(32, 32), pins={"cuda": {"min_blocks": 4}})
    assert four.budget.registers[0].limit == 128
    assert "__launch_bounds__(THREADS, 4)" in tg.emit(four).text


@pytest.mark.parametrize("arch", ARCHS)
def test_occupancy_stays_within_the_arch(arch: str) -> None:
    made, limits = plan(arch), ARCHS[arch]
    blocks = made.budget.blocks_per_multiprocessor
    assert blocks is not None
    assert blocks >= 1
    taken = made.budget.shared_bytes + limits.shared_reserved_bytes
    assert blocks * taken <= limits.shared_per_multiprocessor
    assert blocks * made.threads <= limits.max_threads_per_multiprocessor
    assert made.budget.occupancy == blocks * made.threads / limits.max_threads_per_multiprocessor


def test_a_block_takes_one_kibibyte_more_than_it_asks_for() -> None:
    """Two blocks of half an Ampere multiprocessor's shared memory do not fit beside each other."""
    from dataclasses import replace

    from tilegen.plan import RegisterUse
    from tilegen.tiling import occupancy

    use = RegisterUse("32-bit", 10, 0, 0, 0, 255)
    arch = ARCHS["sm_80"]
    assert occupancy(arch, 128, 82 * 1024, use)[0] == 1
    assert occupancy(replace(arch, shared_reserved_bytes=0), 128, 82 * 1024, use)[0] == 2


@pytest.mark.parametrize(
    ("arch", "changes", "words"),
    [
        ("sm_80", {**HALVES, **FMA}, "offers f32, f64"),
        ("sm_80", {"types": {"a": "f32", "b": "f16", "acc": "f32", "c": "f16"}}, "form fma offers"),
        ("sm_75", {"pins": {"cuda": {"copy": "cp_async"}}}, "must be one of registers"),
        ("sm_80", {"pins": {"cuda": {"copy": "dma"}}}, "must be one of cp_async, registers"),
        ("sm_80", {"pins": {"cuda": {"min_blocks": 33}}}, "nearest legal value: 1;"),
        ("sm_80", {"pins": {"cuda": {"min_blocks": "two"}}}, "must be one of 1, 2"),
        ("sm_80", {"pins": {"cuda": {"min_blocks": True}}}, "must be one of 1, 2.*value: 1"),
        ("sm_80", {"warp": (8, 8)}, "allows 1024"),
        ("sm_80", {"warp": (128, 128), "block": (128, 128, 16)}, "the kernel would spill"),
        ("sm_75", {"block": (128, 128, 128)}, "allows 65536"),
        ("sm_80", {**F64, "warp": (128, 64)}, "the kernel would spill"),
    ],
)
def test_refusals_name_the_limit(arch: str, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        plan(arch, **changes)


def test_what_ptxas_says_of_each_kernel() -> None:
    log = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'gemm_narrow' for 'sm_80'
ptxas info    : Function properties for gemm_narrow
ptxas         .     16 bytes stack frame, 24 bytes spill stores, 36 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 16 bytes cumulative stack size, 480 bytes cmem[0]
ptxas info    : Compile time = 253.975 ms
ptxas info    : Compiling entry function 'gemm_wide' for 'sm_80'
ptxas info    : Function properties for gemm_wide
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 99 registers, used 1 barriers, 16384 bytes smem, 456 bytes cmem[0]
"""
    said = resources(log)
    assert list(said) == ["gemm_narrow", "gemm_wide"]
    narrow, wide = said.values()
    assert (narrow.registers, narrow.spill_bytes, narrow.stack_bytes) == (255, 24, 16)
    assert narrow.shared_bytes == 0
    assert (wide.registers, wide.spill_bytes, wide.shared_bytes) == (99, 0, 16384)
    assert resources("") == {}


def test_which_cubins_a_device_runs() -> None:
    assert runnable(9, 0) == ("sm_90a", "sm_90")
    assert runnable(8, 9) == ("sm_89", "sm_86", "sm_80")
    assert runnable(8, 0) == ("sm_80",)
    assert runnable(7, 5) == ("sm_75",)
    assert runnable(3, 5) == ()


@pytest.mark.parametrize(
    ("selector", "few", "many"),
    [
        # Six launches of few blocks in all orders and watched, and one of many watched, per entry.
        (
            "emulator",
            [((0, 1, 2), True)] * 6 + [((1,), False), ((2,), False), ((0,), False)],
            [((1,), True), ((2,), False), ((0,), False)],
        ),
        ("emulator:full", [((0, 1, 2), True)] * 15, [((0, 1, 2), True)] * 3),
        ("emulator:quick", [((0,), False)] * 15, [((0,), False)] * 3),
    ],
)
def test_in_which_orders_the_emulator_launches(selector: str, few: list, many: list) -> None:
    device = find_device(registry.get("cuda"), ARCHS["sm_80"], selector)
    source = tg.emit(tg.lower(tg.TileSpec(block=(32, 32, 16), warp=(32, 32)), "cuda", "sm_80"))
    for entry in source.plan.main_entries[:2]:
        program = Recorded(device, source, None)
        for grid, wanted in ((4, few), (5, many)):
            for _ in wanted:
                program.launch(entry, grid, [], None)
            assert program.taken == wanted
            program.taken.clear()


class Recorded(EmulatedProgram):
    """Launches that are noted and not run."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.taken: list[tuple[tuple[int, ...], bool]] = []

    def run(self, entry: Any, grid: int, arguments: Any, **options: Any) -> Any:
        self.taken.append((options["orders"], options["races"]))
        return EmulatorRun((), (), {}, {}, 0.0)


def test_the_emulator_stands_in_where_no_device_runs_the_arch() -> None:
    from tilegen.build import find_device

    backend = registry.get("cuda")
    if not backend.devices():
        assert find_device(backend, None, None).selector == "emulator"
    found = find_device(backend, ARCHS["sm_75"], "emulator")
    assert (found.rung, found.arch.name) == ("emulator", "sm_75")
    with pytest.raises(tg.errors.BackendError, match="no cuda device fits 'cpu'"):
        find_device(backend, ARCHS["sm_80"], "cpu")


def test_what_is_proposed_is_legal_or_nothing_is() -> None:
    """Proposals that break another rule would send the reader round in a circle."""
    for changes in (
        {**F64, "block": (256, 128, 16), "warp": (64, 64)},
        {**F64, "block": (96, 128, 16), "warp": (96, 32)},
        {"block": (512, 512, 8), "warp": (64, 64)},
        {"block": (16, 16, 4096), "warp": (16, 16)},
        {"block": (100, 128, 32), "warp": (64, 32)},
    ):
        with pytest.raises(PlanError) as raised:
            plan(**changes)
        for violation in raised.value.violations:
            if violation.proposed is not None:
                tg.lower(violation.proposed, "cuda", "sm_80")


def test_a_block_that_warps_do_not_tile_is_the_only_fault() -> None:
    with pytest.raises(PlanError) as raised:
        plan(block=(100, 128, 32))
    assert [v.rule for v in raised.value.violations] == ["warps"]


def test_the_registers_that_a_block_leaves_are_not_the_arch_s() -> None:
    with pytest.raises(PlanError, match="1024 threads a block leave each 64 on sm_80"):
        plan(block=(256, 256, 16), warp=(64, 32))


def test_a_device_that_is_none_is_told_what_checks_without_one() -> None:
    from tilegen.build import find_device

    backend = registry.get("cuda")
    with pytest.raises(
        tg.errors.BackendError,
        match="check without one: emulator, emulator:full and emulator:quick",
    ):
        find_device(backend, None, "cpu")
    assert find_device(backend, None, "EMULATOR").selector == "emulator"
    spec = tg.TileSpec(**BASE)
    for call in (
        lambda: tg.lower(spec, "cuda", 80),
        lambda: tg.build(spec, "cuda", "sm_80", device=0),
    ):
        with pytest.raises(tg.errors.BackendError, match="needed, not int"):
            call()
    with pytest.raises(tg.errors.SpecError, match="a Kernel or TileSpec is needed, not str"):
        tg.verify("x")
    with pytest.raises(tg.errors.SpecError, match="examples = 0"):
        tg.verify(spec, backend="cuda", examples=0)


@pytest.mark.parametrize(
    ("threads", "blocks", "left"),
    [(256, 1, 255), (512, 1, 128), (576, 1, 96), (768, 1, 80), (64, 5, 168),
     (64, 7, 128), (1024, 1, 64)],
)  # fmt: skip
def test_a_warp_has_its_registers_in_one_of_four_parts(
    threads: int, blocks: int, left: int
) -> None:
    """As many as ptxas allows itself (NVRTC 13.0, sm_90), where it wants more."""
    from tilegen.tiling import registers_left

    assert registers_left(ARCHS["sm_90"], threads, blocks) == left


def test_what_needs_more_than_the_limit_takes_the_limit() -> None:
    from tilegen.plan import RegisterUse
    from tilegen.tiling import occupancy

    over = RegisterUse("32-bit", 300, 0, 0, 0, 128)
    assert over.spills
    assert occupancy(ARCHS["sm_80"], 512, 0, over) == (1, 0.25, "registers")


def announced(
    monkeypatch: pytest.MonkeyPatch, size: int, device: EmulatedDevice, times: int = 1
) -> list[str]:
    """What calls of a kernel warn of; nothing is run."""
    source = tg.emit(plan(block=(64, 64, 16), warp=(32, 32)))
    program = EmulatedProgram(device, source, None)  # type: ignore[arg-type]
    monkeypatch.setattr(program, "run", lambda *_, **__: SimpleNamespace(clean=True))
    entry = source.plan.main_entries[0]
    sizes = {"M": size, "N": size, "K": size}
    arguments = [(a, sizes[a.name]) for a in entry.arguments if a.name in sizes]
    grid = entry.grid(**sizes, batch=1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(times):
            program.launch(entry, grid, arguments, None)
    assert all(w.category is tg.TilegenWarning for w in caught)
    return [str(w.message) for w in caught]


def test_a_size_that_the_emulator_is_not_for_is_announced_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usual = EmulatedDevice(ARCHS["sm_80"])
    (said,) = announced(monkeypatch, 1024, usual, times=3)
    assert "this launch will take about 27 s on the emulator" in said
    assert "not for sizes like this" in said
    assert announced(monkeypatch, 512, usual) == []
    # One order of 1024 cubed takes about as long as both runs of 750 cubed.
    quick = EmulatedDevice(ARCHS["sm_80"], "emulator:quick", (0,), races=False, spares=False)
    assert [len(announced(monkeypatch, n, quick)) for n in (512, 960, 1024)] == [0, 0, 1]


def test_multiply_adds_are_those_of_whole_tiles() -> None:
    made = plan(block=(64, 64, 16), warp=(32, 32))
    assert multiply_adds(made, 6, 17) == 6 * 64 * 64 * 32
    assert multiply_adds(made, 6, 0) == 0
    half = {**HALVES, "block": (64, 64, 32), "warp": (32, 32), "split_k": 4}
    assert multiply_adds(plan(**half), 8, 32) == 2 * 64 * 64 * 32
