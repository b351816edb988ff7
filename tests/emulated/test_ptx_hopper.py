"""TMA, mbarriers and wgmma: a warp-specialised kernel, its planted faults, and descriptors."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tilegen import emulator

TEXT = (Path(__file__).parent / "texts" / "wgmma_gemm.cu").read_text(encoding="utf-8")
SHARED = 3 * 2 * 128 * 64 * 2 + 1024


@cache
def compiled(text: str) -> emulator.Program:
    return emulator.compile(text, "cuda", "gemm")


def run(
    text: str, m: int, n: int, k: int, swizzle: int = 128
) -> tuple[emulator.EmulatorRun, np.ndarray]:
    rng = np.random.default_rng(m + n + k)
    a, b = (rng.integers(-3, 4, s).astype(ml_dtypes.bfloat16) for s in ((m, k), (n, k)))
    maps = [emulator.TensorMap(x, box=(128, 64), swizzle=swizzle) for x in (a, b)]
    result = emulator.run(
        compiled(text), entry="gemm", grid=((n + 127) // 128, (m + 127) // 128), block=384,
        args=[*maps, np.zeros((m, n), np.float32), m, n, k], outputs=[2], shared_bytes=SHARED,
    )  # fmt: skip
    return result, a.astype(np.float32) @ b.astype(np.float32).T


@pytest.mark.parametrize("shape", [(128, 128, 64), (256, 128, 256), (200, 72, 328)])
def test_the_kernel_is_right_and_clean(shape: tuple[int, int, int]) -> None:
    result, want = run(TEXT, *shape)
    assert result.clean, str(result)
    assert np.array_equal(result.arrays[2], want)


def test_tiles_may_begin_inside_the_swizzles_pattern() -> None:
    # The H200 gives the right product too: docs/fidelity.md.
    moved = TEXT.replace("+ 1023) & ~1023u", "+ 1023 & ~1023u) + 256")
    assert moved != TEXT
    result, want = run(moved, 128, 128, 128)
    assert result.clean, str(result)
    assert np.array_equal(result.arrays[2], want)


FAULTS = {
    "no wait on full": ("    mbarrier_wait(full + 8 * s, (i / STAGES) & 1);\n", ""),
    "no wait on empty": ("        mbarrier_wait(empty + 8 * s, ((i / STAGES) & 1) ^ 1);\n", ""),
    "parity not inverted": ("((i / STAGES) & 1) ^ 1", "(i / STAGES) & 1"),
    "parity fixed": ("mbarrier_wait(full + 8 * s, (i / STAGES) & 1)", "mbarrier_wait(full + 8 * s, 0)"),
    "too few bytes expected": ("8 * s, STAGE);", "8 * s, TILE);"),
    "too many bytes expected": ("8 * s, STAGE);", "8 * s, STAGE + TILE);"),
    "empty count wrong": ("mbarrier_init(empty + 8 * s, CONSUMERS)", "mbarrier_init(empty + 8 * s, 1)"),
    "wgmma not waited for before the release": ('"n"(0)', '"n"(1)'),
    "no wgmma.fence": ('asm volatile("wgmma.fence.sync.aligned;\\n" ::: "memory");', ""),
    "no barrier after init": ("  __syncthreads();\n  if (group == 0)", "  if (group == 0)"),
    "stride of the descriptor": ("1024 >> 4", "512 >> 4"),
    "swizzle mode of the descriptor": ("(uint64_t)1 << 62", "(uint64_t)2 << 62"),
    "address not shifted": ("(address & 0x3FFFF) >> 4", "(address & 0x3FFF)"),
    "k advance": ("descriptor(a + 32 * k)", "descriptor(a + 16 * k)"),
    "second consumer on the first's rows": ("part * (64 * 128)", "0 * part"),
    "coordinates swapped": ("full + 8 * s, i * BK, m0", "full + 8 * s, m0, i * BK"),
    "scale of the first k step": ("i + k > 0", "1"),
    "transposed B": ("p, 1, 1, 0, 0;", "p, 1, 1, 0, 1;"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults_are_found(name: str) -> None:
    before, after = FAULTS[name]
    assert TEXT.count(before) == 1, name
    result, want = run(TEXT.replace(before, after), 200, 72, 328)
    assert result.findings or not np.array_equal(result.arrays[2], want)


def test_a_tensor_map_without_the_swizzle_is_found() -> None:
    result, want = run(TEXT, 200, 72, 328, swizzle=0)
    assert result.findings or not np.array_equal(result.arrays[2], want)


STORE = """
#include <cuda.h>
extern "C" __global__ void k(const __grid_constant__ CUtensorMap to, const __grid_constant__ CUtensorMap from, int z) {
  extern __shared__ __align__(128) unsigned char smem[];
  unsigned s = (unsigned)__cvta_generic_to_shared(smem), b = s + 512;
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1; fence.mbarrier_init.release.cluster;" :: "r"(b) : "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(b), "n"(2 * 4 * 16 * 4) : "memory");
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];"
      :: "r"(s), "l"(&from), "r"(4), "r"(-1), "r"(z), "r"(b) : "memory");
    asm volatile("{ .reg .pred p; W: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0; @!p bra W; }" :: "r"(b) : "memory");
    ((int*)smem)[16] += 1000;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3}], [%4];"
      :: "l"(&to), "r"(4), "r"(-1), "r"(z), "r"(s) : "memory");
    asm volatile("cp.async.bulk.commit_group;\\ncp.async.bulk.wait_group.read 0;" ::: "memory");
  }
}
"""


def store(text: str) -> tuple[emulator.EmulatorRun, np.ndarray]:
    source = np.arange(3 * 5 * 24, dtype=np.int32).reshape(3, 5, 24) + 1
    maps = [emulator.TensorMap(x, box=(2, 4, 16)) for x in (np.zeros_like(source), source)]
    result = emulator.run(text, entry="k", grid=1, block=32, args=[*maps, 1], shared_bytes=520)
    want = np.zeros_like(source)
    want[1:3, 0:3, 4:20] = source[1:3, 0:3, 4:20]
    want[1, 0, 4] += 1000
    return result, want


def test_a_box_of_three_dimensions_is_loaded_and_stored_within_the_tensor() -> None:
    result, want = store(STORE)
    assert result.clean, str(result)
    assert np.array_equal(result.arrays[0], want)


def test_a_store_without_its_proxy_fence_or_wait_is_found() -> None:
    unfenced, _ = store(
        STORE.replace('asm volatile("fence.proxy.async.shared::cta;" ::: "memory");', "")
    )
    assert "missing-proxy-fence" in {f.kind for f in unfenced.findings}
    unwaited, _ = store(STORE.replace("\\ncp.async.bulk.wait_group.read 0;", ""))
    assert "async-in-flight" in {f.kind for f in unwaited.findings}
    expected = store(STORE.replace("2 * 4 * 16 * 4", "2 * 4 * 16 * 2"))[0]
    assert expected.findings


def test_what_the_driver_would_refuse_is_refused() -> None:
    from tilegen.errors import LaunchError

    x = np.zeros((64, 60), np.int32)
    odd = np.zeros((64, 61), np.int32)
    for array, box, swizzle in ((x, (8, 6), 0), (x, (8, 64), 32), (odd, (8, 8), 0), (x, (8,), 0)):
        with pytest.raises(LaunchError):
            emulator.TensorMap(array, box=box, swizzle=swizzle)
