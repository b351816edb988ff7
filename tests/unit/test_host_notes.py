"""What the head of a CUDA text tells a host program."""

from __future__ import annotations

from typing import Any

import pytest

import tilegen as tg
from tilegen_cuda.host_notes import host_notes

TILE: dict[str, Any] = {"name": "qk", "block": (64, 64, 32), "warp": (32, 32)}
BF16 = {"a": "bf16", "b": "bf16", "acc": "f32", "c": "bf16"}


def notes(arch: str = "sm_80", **changes: Any) -> list[str]:
    plan = tg.lower(tg.TileSpec(**{**TILE, **changes}), "cuda", arch)
    told = host_notes(plan)
    text = tg.emit(plan).text
    assert "".join(f"// {line}\n" for line in told) in text
    assert text.count("namespace qk_kernel {\n") == 1
    assert text.endswith("\n}  // namespace qk_kernel\n")
    return told


def test_static_shared_memory_asks_for_nothing() -> None:
    told = notes(layout={"a": "col", "b": "row", "c": "col"})
    assert told[0].startswith('host      qk_kernel::qk_wide in C++, "qk_wide" in a cubin;')
    assert "ld from row to row of b and column to column of a, c, d;" in told[1]
    assert "batch is 1;" in told[1]
    assert "batch is 1;" not in notes(batch="strided")[1]
    assert "dynamic   0 bytes: shared memory is static" in told
    assert not any("Attribute" in line for line in told)


@pytest.mark.parametrize("types", [{}, BF16], ids=["fma", "mma_sync"])
def test_dynamic_shared_memory_must_be_allowed(types: dict[str, str]) -> None:
    changes = {"types": types, "stages": 8, "block": (64, 64, 32)}
    plan = tg.lower(tg.TileSpec(**{**TILE, **changes}), "cuda", "sm_80")
    size = plan.numbers["DYNAMIC_BYTES"]
    assert size > 48 * 1024
    told = "\n".join(notes(**changes))
    mains = ", ".join(e.name for e in plan.main_entries)
    assert f"dynamic   {size} bytes at each launch" in told
    assert f"once for each of {mains}:" in told
    assert (
        f"cudaFuncSetAttribute(entry, cudaFuncAttributeMaxDynamicSharedMemorySize, {size})" in told
    )
    assert (
        f"cuFuncSetAttribute(entry, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, {size})"
        in told
    )


def test_conditions_are_those_of_the_entries() -> None:
    told = notes(types=BF16, layout={"c": "col", "d": "row"})
    assert told[-5:] == [
        "choose    the first that may run:",
        "          qk_wide: a, b, d at multiples of 16 bytes, strides multiples of 8, steps 1; "
        "c at multiples of 2 bytes, steps 1",
        "          qk_by8: a, b at multiples of 8 bytes, strides multiples of 4, steps 1",
        "          qk_by4: a, b at multiples of 4 bytes, strides multiples of 2, steps 1",
        "          qk_narrow: any addresses and strides",
    ]


def test_a_split_of_k_tells_its_workspace_and_its_reduction() -> None:
    changes = {"types": BF16, "split_k": 3}
    told = notes(**changes)
    plan = tg.lower(tg.TileSpec(**{**TILE, **changes}), "cuda", "sm_80")
    wide, narrow = plan.entry("qk_reduce_wide"), plan.entry("qk_reduce_narrow")
    assert told[-3:] == [
        f"partial   {plan.entries[0].workspace} bytes of workspace, at a multiple of 16 bytes",
        f"then      qk_reduce_wide behind qk_wide, on the same stream: {wide.grid} blocks, 256 threads",
        "then      qk_reduce_narrow behind qk_by8, qk_by4, qk_narrow, on the same stream: "
        f"{narrow.grid} blocks, 256 threads",
    ]
