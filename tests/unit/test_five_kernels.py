"""The plan records hold the five kernels of docs/architecture.md, with the numbers of that page."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

import tilegen as tg
from tilegen.layout import FragmentLayout, Layout
from tilegen.plan import (
    Barrier,
    Entry,
    Formula,
    Fragment,
    Fragments,
    MatrixDescriptor,
    Ownership,
    Pipeline,
    RegisterUse,
    Role,
    SharedTile,
)


@dataclass(frozen=True)
class Kernel:
    """The part of a plan that one of the five stretches."""

    block: tuple[int, int, int]
    threads: int
    mma: tuple[int, int, int]
    warps: int
    fragments: Fragments
    c: Ownership
    instruction_c: FragmentLayout
    shared: tuple[SharedTile, ...]
    pipeline: Pipeline
    registers: tuple[RegisterUse, ...]
    entries: tuple[Entry, ...] = ()
    shared_limit: int = 0
    barriers: tuple[Barrier, ...] = field(default=())


def entry(name: str, role: str, grid: str, block: int, **more: object) -> Entry:
    return Entry(name, role, "", (), (), Formula(grid), block, **more)  # type: ignore[arg-type]


MMA_SYNC = Kernel(
    block=(128, 128, 32),
    threads=128,
    mma=(16, 8, 16),
    warps=4,
    fragments=Fragments(
        a=Fragment(4, 2, 8, 32, (16, 16)),
        b=Fragment(8, 2, 4, 32, (8, 16)),
        c=Fragment(4, 8, 4, 128, (16, 8)),
    ),
    c=Ownership(
        128,
        128,
        warp=Layout((2, 2), (64, 64 * 128)),
        lane=Layout((4, 8), (2 * 128, 1)),
        register=Layout((2, 2, 4, 8), (128, 8, 16, 8 * 128)),
    ),
    instruction_c=FragmentLayout(16, 8, Layout((4, 8), (32, 1)), Layout((2, 2), (16, 8))),
    shared=tuple(
        SharedTile(o, 128, 32, 32, 3, 2, "xor", swizzle_rows=2, swizzle_mask=3, vector=8, start=s)
        for o, s in (("a", 0), ("b", 3 * 8192))
    ),
    pipeline=Pipeline(3, "cp_async_group", (Role("all", 4),)),
    registers=(RegisterUse("register", 128, 64, 0, 40, 255),),
    entries=(
        entry(
            "main16",
            "main",
            "((M + 127) / 128) * ((N + 127) / 128) * batch * split_k",
            128,
            shared_bytes=49152,
            workspace=Formula("split_k * batch * M * N * 4"),
            after=("reduce",),
        ),
        entry(
            "main2",
            "main",
            "((M + 127) / 128) * ((N + 127) / 128) * batch * split_k",
            128,
            shared_bytes=49152,
            workspace=Formula("split_k * batch * M * N * 4"),
            after=("reduce",),
        ),
        entry("reduce", "reduce", "(batch * M * N + 1023) / 1024", 256),
    ),
    shared_limit=163 * 1024,
)
MFMA = Kernel(
    block=(128, 128, 32),
    threads=256,
    mma=(32, 32, 8),
    warps=4,
    fragments=Fragments(
        a=Fragment(2, 4, 4, 8, (32, 8)),
        b=Fragment(2, 4, 4, 8, (32, 8)),
        c=Fragment(2, 2, 16, 64, (32, 32)),
    ),
    c=Ownership(
        128,
        128,
        warp=Layout((2, 2), (64, 64 * 128)),
        lane=Layout((32, 2), (128, 4)),
        register=Layout((4, 4, 2, 2), (1, 8, 32, 32 * 128)),
    ),
    instruction_c=FragmentLayout(32, 32, Layout((32, 2), (32, 4)), Layout((4, 4), (1, 8))),
    shared=tuple(
        SharedTile(o, 128, 32, 36, 2, 2, "pad", vector=4, start=s)
        for o, s in (("a", 0), ("b", 2 * 128 * 36 * 2))
    ),
    pipeline=Pipeline(2, "barrier", (Role("all", 4),)),
    registers=(
        RegisterUse("agpr", 64, 0, 0, 0, 256),
        RegisterUse("vgpr", 0, 16, 16, 24, 256),
    ),
    shared_limit=64 * 1024,
)
METAL = Kernel(
    block=(64, 64, 8),
    threads=128,
    mma=(8, 8, 8),
    warps=4,
    fragments=Fragments(
        a=Fragment(4, 1, 2, 4, (8, 8)),
        b=Fragment(4, 1, 2, 4, (8, 8)),
        c=Fragment(4, 4, 2, 32, (8, 8)),
    ),
    c=Ownership(
        64,
        64,
        warp=Layout((2, 2), (32, 32 * 64)),
        lane=Layout((2, 2, 2, 2, 2), (2 * 64, 1, 2, 4 * 64, 4)),
        register=Layout((2, 4, 4), (64, 8, 8 * 64)),
    ),
    instruction_c=FragmentLayout(
        8, 8, Layout((2, 2, 2, 2, 2), (16, 1, 2, 32, 4)), Layout((2,), (8,))
    ),
    shared=(),
    pipeline=Pipeline(1, "none", (Role("all", 4),)),
    registers=(RegisterUse("register", 32, 8, 0, 20, 128),),
)
WGMMA = Kernel(
    block=(128, 256, 64),
    threads=384,
    mma=(64, 256, 16),
    warps=8,
    fragments=Fragments(
        a=Fragment(1, 4, 0, 0, (64, 16)),
        b=Fragment(1, 4, 0, 0, (256, 16)),
        c=Fragment(1, 1, 128, 128, (64, 256)),
    ),
    c=Ownership(
        128,
        256,
        warp=Layout((4, 2), (16, 64)),
        lane=Layout((4, 8), (2 * 128, 1)),
        register=Layout((2, 2, 32), (128, 8, 8 * 128)),
    ),
    instruction_c=FragmentLayout(
        64, 256, Layout((4, 8, 4), (128, 1, 16)), Layout((2, 2, 32), (64, 8, 512))
    ),
    shared=tuple(
        SharedTile(
            o,
            rows,
            64,
            64,
            4,
            2,
            "xor",
            swizzle_rows=1,
            swizzle_mask=7,
            vector=8,
            alignment=1024,
            start=start,
            descriptor=MatrixDescriptor("k", 1, 0, 1024, 32),
        )
        for o, rows, start in (("a", 128, 0), ("b", 256, 4 * 16384))
    ),
    pipeline=Pipeline(
        4,
        "mbarrier",
        (Role("producer", 4, 40, computes=False), Role("consumer", 8, 232)),
        cluster=(2, 1),
        persistent=True,
        barriers=(
            Barrier("full", 4, 1, transaction_bytes=49152, start=196608),
            Barrier("empty", 4, 4, start=196640),
        ),
    ),
    registers=(
        RegisterUse("register", 0, 0, 0, 32, 40, role="producer"),
        RegisterUse("register", 128, 0, 0, 40, 232, role="consumer"),
    ),
    entries=(
        entry("main", "main", "132", 384, shared_bytes=197632, cluster=2),
        entry(
            "main_packed",
            "main",
            "132",
            384,
            shared_bytes=197632,
            cluster=2,
            workspace=Formula("(M * ((K + 7) / 8 * 8) + N * ((K + 7) / 8 * 8)) * 2"),
            before=("pack_a", "pack_b"),
            symbol_name="main",
        ),
        entry("pack_a", "pack", "(M * ((K + 7) / 8) + 255) / 256", 256, symbol_name="pack"),
        entry("pack_b", "pack", "(N * ((K + 7) / 8) + 255) / 256", 256, symbol_name="pack"),
    ),
    shared_limit=227 * 1024,
)
KERNELS = {"mma.sync": MMA_SYNC, "mfma": MFMA, "metal": METAL, "wgmma": WGMMA}


@pytest.mark.parametrize("name", KERNELS)
def test_ownership_is_a_bijection(name: str) -> None:
    kernel = KERNELS[name]
    assert kernel.c.is_complete()
    assert kernel.instruction_c.is_complete()
    lanes = kernel.c.lane.size * kernel.c.warp.size
    assert lanes == kernel.warps * kernel.c.lane.size
    assert kernel.c.register.size * lanes == kernel.block[0] * kernel.block[1]


@pytest.mark.parametrize("name", KERNELS)
def test_one_fragment_of_the_tile_is_the_instruction(name: str) -> None:
    kernel = KERNELS[name]
    one = kernel.instruction_c
    for lane in range(kernel.c.lane.size):
        for value in range(min(one.values, kernel.fragments.c.elements)):
            assert kernel.c.element(0, lane, value) == one(lane, value)


@pytest.mark.parametrize("name", KERNELS)
def test_registers_and_shared_memory_add_up(name: str) -> None:
    kernel = KERNELS[name]
    c = kernel.fragments.c
    accumulators = max(use.accumulators for use in kernel.registers)
    assert c.rows * c.cols * c.elements == accumulators
    assert not any(use.spills for use in kernel.registers)
    shared = sum(tile.bytes for tile in kernel.shared)
    barriers = sum(barrier.bytes for barrier in kernel.pipeline.barriers)
    assert shared + barriers <= kernel.shared_limit
    for tile in kernel.shared:
        assert tile.start % tile.alignment == 0
        places = {tile.offset(r, k) for r in range(tile.rows) for k in range(tile.cols)}
        assert len(places) == tile.rows * tile.cols


@pytest.mark.parametrize("name", ["mma.sync", "wgmma"])
def test_entries_name_each_other(name: str) -> None:
    entries = {e.name: e for e in KERNELS[name].entries}
    for e in entries.values():
        assert {*e.before, *e.after} <= set(entries)
        assert e.grid(M=129, N=257, K=33, batch=1, split_k=3) % e.cluster == 0


def test_formulas_of_the_page() -> None:
    sizes = {"M": 4095, "N": 4097, "K": 4091, "batch": 1, "split_k": 2}
    assert MMA_SYNC.entries[0].grid(**sizes) == 32 * 33 * 2
    assert MMA_SYNC.entries[0].workspace(**sizes) == 2 * 4095 * 4097 * 4
    assert WGMMA.entries[1].workspace(**sizes) == (4095 + 4097) * 4096 * 2


def test_the_first_kernel_is_the_one_that_is_built() -> None:
    plan = tg.lower(tg.TileSpec(block=(128, 128, 64), warp=(64, 64)), "opencl", "cpu")
    assert plan.fragments.c == Fragment(64, 4, 16, 16, (1, 16))
    assert (plan.numbers["ROWS"], plan.numbers["VECTORS"]) == (8, 2)
    assert plan.budget.registers[0].predicted == 19
    assert plan.budget.private_bytes == 64 * 64 * 4 + 64 * 64 * 4
    assert [e.variant for e in plan.entries] == ["wide", "narrow"]
    assert '"form": "vector_fragment"' in plan.to_json()
