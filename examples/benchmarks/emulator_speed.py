"""What checking costs without a GPU: products of 256 x 256 x 256, and configurations a minute.

    python examples/benchmarks/emulator_speed.py [--configurations 60]

Times of a launch are processor time, the least of several runs; run it on a machine that is quiet.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import tilegen as tg
from tilegen import emulator
from tilegen.dtypes import DTYPES
from tilegen.errors import PlanError
from tilegen_cuda.archs import dynamic_bytes

N, RUNS = 256, 7
HAND_WRITTEN = Path(__file__).parents[2] / "tests" / "emulated" / "texts" / "mma_gemm.cu"
HALVES = {"a": "f16", "b": "f16", "acc": "f32", "c": "f32"}
EMITTED: dict[str, tuple[str, dict[str, Any]]] = {
    "fma f32 128x128x16, cp.async and registers": (
        "sm_80",
        {"block": (128, 128, 16), "warp": (64, 32), "stages": 3},
    ),
    "fma f32 64x64x16, cp.async and registers": (
        "sm_80",
        {"block": (64, 64, 16), "warp": (32, 32)},
    ),
    "fma f32 64x64x16, registers": ("sm_75", {"block": (64, 64, 16), "warp": (32, 32)}),
    "mma_sync f16 128x128x32, cp.async": (
        "sm_80",
        {"block": (128, 128, 32), "warp": (64, 32), "stages": 3, "types": HALVES},
    ),
}
FORMS = ("fma", "mma_sync")


def timed(
    text: str,
    entry: str,
    grid: int | Sequence[int],
    block: int,
    args: list[Any],
    out: int,
    shared: int,
) -> str:
    """Compile once from nothing, run several times; the best of each kind of run."""
    program = emulator.compile(text, "cuda", [entry])
    best: dict[str, float] = {}
    alone = emulator.compile(text + "\n", "cuda", [entry])
    alone.executables(["plain"])
    compiling = 0.0
    for _ in range(RUNS):
        run = emulator.run(
            program, "cuda", entry=entry, grid=grid, block=block, args=args, outputs=[out],
            shared_bytes=shared, orders=(0,),
        )  # fmt: skip
        assert run.clean, str(run)
        compiling = max(compiling, run.compile_seconds)
        for name, seconds in run.seconds.items():
            best[name] = min(best.get(name, seconds), seconds)
    plain, races = best["forward"], best["races"]
    return (
        f"{1000 * plain:.0f} ms plain, {1000 * races:.0f} ms under the race detector "
        f"({races / plain:.1f} times); {alone.seconds:.2f} s to compile the first, {compiling:.2f} s both"
    )


def emitted(name: str) -> str:
    arch, data = EMITTED[name]
    source = tg.emit(tg.lower(tg.TileSpec(**data), "cuda", arch))
    types = source.plan.spec.types
    draw = np.random.default_rng(0)
    a, b = (draw.standard_normal((N, N)).astype(DTYPES[t].numpy) for t in (types.a, types.b))
    d = np.zeros((N, N), np.float32)
    known = {"M": N, "N": N, "K": N, "alpha": np.float32(1), "beta": np.float32(0)}
    # The text takes halves by their bits.
    known |= {x: v.view(np.uint16) if v.itemsize == 2 else v for x, v in (("a", a), ("b", b))}
    known |= {"c": d, "d": d, "batch": 1, **dict.fromkeys(("lda", "ldb", "ldc", "ldd"), N)}
    entry = source.plan.main_entries[0]
    names = [argument.name for argument in entry.arguments]
    return timed(
        source.text, entry.symbol, entry.grid(M=N, N=N, K=N, batch=1), entry.block,
        [known[name] for name in names], names.index("c"), dynamic_bytes(entry.shared_bytes),
    )  # fmt: skip


def mma() -> str:
    draw = np.random.default_rng(0)
    a, b = (draw.standard_normal((N, N)).astype(np.float16) for _ in "ab")
    c = np.zeros((N, N), np.float32)
    shared = 3 * (128 + 128) * 32 * 2
    return timed(
        HAND_WRITTEN.read_text(),
        "gemm",
        (N // 128, N // 128),
        256,
        [c, a, b, N, N, N],
        0,
        shared,
    )


def drawn(form: str, draw: random.Random) -> tg.TileSpec:
    """A small spec of a form, legal or not."""
    warps = draw.choice((1, 2)), draw.choice((1, 2))
    warp = draw.choice(((16, 16), (32, 16), (16, 32), (32, 32)))
    depth = draw.choice((4, 8)) * draw.choice((1, 2, 3))
    types = dict.fromkeys(("a", "b", "acc", "c"), "f32")
    if form == "mma_sync":
        depth = draw.choice((16, 32, 64))
        narrow, acc = draw.choice((("f16", "f32"), ("bf16", "f32"), ("f16", "f16"), ("s8", "s32")))
        types = {"a": narrow, "b": narrow, "acc": acc, "c": draw.choice((narrow, acc))}
    return tg.TileSpec(
        block=(warps[0] * warp[0], warps[1] * warp[1], depth),
        warp=warp,
        stages=draw.choice((1, 2, 3, 4)),
        types=types,
        layout={x: draw.choice(("row", "col")) for x in "abcd"},
        batch=draw.choice(("none", "strided")),
        epilogue=draw.choice(([], [{"op": "bias"}], [{"op": "relu"}, {"op": "residual"}])),
        pins={"cuda": {"form": form}},
    )


def check(case: tuple[str, int]) -> str:
    """One configuration, drawn by its number, from the spec to a report on six problems."""
    form, number = case
    draw = random.Random(number)
    spec = drawn(form, draw)
    try:
        kernel = tg.load(
            tg.emit(tg.lower(spec, "cuda", draw.choice(("sm_75", "sm_80")))), "emulator"
        )
    except PlanError:
        return "refused"
    tg.verify(kernel, examples=6, seed=number)
    return "checked"


def configurations(form: str, count: int) -> str:
    """How many are checked a minute, in every order and under the race detector, by all cores."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TILEGEN_CACHE"] = folder
        check((form, 0))  # the runtime is built once for a machine
        start = time.perf_counter()
        with multiprocessing.get_context("spawn").Pool() as pool:
            said = pool.map(check, [(form, n) for n in range(1, count + 1)], chunksize=1)
        seconds = time.perf_counter() - start
    done = said.count("checked")
    return (
        f"{form}: {done} of {count} drawn configurations checked (6 problems each; the others are refused) "
        f"in {seconds:.0f} s: {60 * done / seconds:.0f} a minute on {os.cpu_count()} cores"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--configurations", type=int, default=60)
    count = parser.parse_args().configurations
    kept = os.environ.get("TILEGEN_CACHE")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TILEGEN_CACHE"] = folder
        warm = tg.emit(tg.lower(tg.TileSpec(block=(16, 16, 8), warp=(16, 16)), "cuda", "sm_80"))
        one = np.ones((16, 16), np.float32)
        tg.load(warm, "emulator")(one, one)  # builds the runtime
        for name in EMITTED:
            print(f"{name}: {emitted(name)}", flush=True)
        print(f"mma.sync f16 128x128x32, by hand: {mma()}", flush=True)
    if kept is not None:
        os.environ["TILEGEN_CACHE"] = kept
    for form in FORMS if count else ():
        print(configurations(form, count), flush=True)


if __name__ == "__main__":
    main()
