"""What a call costs the host on a GPU: the time until it returns, with the launch queued and not awaited.

    python examples/benchmarks/cuda_host_time.py [--calls 200] [--rounds 25] [--json FILE]

Each call is timed by itself; the GPU is waited for after every round alone, which is short enough for
its queue to take (it holds about a thousand launches). Arrays are CuPy's and, where it is there, torch's.
Every result is compared. Exit status 1: a call is over the limit. Needs a GPU, CuPy and NVRTC.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import tilegen as tg
from tilegen import registry

# Microseconds, medians.
CALL, PREPARED = 15.0, 5.0
SPEC: dict[str, Any] = {"block": (64, 64, 16), "warp": (32, 32), "stages": 2}
SIZE = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=200, help="of a round; all of them queue up")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    gpus = registry.get("cuda").devices()
    if not gpus:
        raise SystemExit("no CUDA GPU was found (tilegen targets)")
    import cupy as cp

    kernel = tg.build(tg.TileSpec(**SPEC), "cuda", device=gpus[0])
    print(
        f"{gpus[0].name}, {gpus[0].arch.name}, CuPy {cp.__version__}, Python {sys.version.split()[0]}"
    )
    print(f"{SIZE} x {SIZE} x {SIZE}, microseconds of the host's: median, and the least\n")
    told, failed = {}, False
    for name, limit, call in cases(cp, kernel):
        taken = measured(cp, call, options.calls, options.rounds)
        median, least = statistics.median(taken) / 1000, min(taken) / 1000
        over = limit is not None and median > limit
        failed |= over
        bound = "" if limit is None else f"  of {limit:g}{', OVER' if over else ''}"
        print(f"{name:44} {median:7.2f} {least:7.2f}{bound}")
        told[name] = {"median_us": median, "least_us": least, "limit_us": limit}
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"device": gpus[0].name, "calls": told}, file, indent=2)
    raise SystemExit(int(failed))


def cases(cp: Any, kernel: tg.Kernel) -> Iterator[tuple[str, float | None, Callable[[], object]]]:
    """Names, limits and calls, each checked before it is handed out."""
    draw = cp.random.default_rng(1)
    a, b, c = (draw.integers(-3, 4, (SIZE, SIZE)).astype("float32") for _ in "abc")
    out, stream = cp.empty((SIZE, SIZE), "float32"), cp.cuda.Stream(non_blocking=True)
    cp.cuda.Device().synchronize()
    want = a @ b

    def checked(call: Callable[[], Any], expected: Any = want) -> Callable[[], Any]:
        for _ in range(2):  # the first call of a kind is looked at more closely
            got = call()
            cp.cuda.Device().synchronize()
            assert bool((cp.asarray(got) == expected).all())
        return call

    yield "kernel(a, b, out=d)", CALL, checked(lambda: kernel(a, b, out=out))
    yield "kernel(a, b)", CALL, checked(lambda: kernel(a, b))
    yield (
        "kernel(a, b, c, alpha=2, beta=-1, out=d)", CALL,
        checked(lambda: kernel(a, b, c, alpha=2, beta=-1, out=out), 2 * want - c),
    )  # fmt: skip
    yield (
        "kernel(a, b, out=d, stream=s)", CALL,
        checked(lambda: kernel(a, b, out=out, stream=stream)),
    )  # fmt: skip
    yield "kernel.prepare(a, b, out=d)()", PREPARED, checked(kernel.prepare(a, b, out=out))
    prepared = kernel.prepare(a, b, out=out, stream=stream)
    yield "kernel.prepare(a, b, out=d, stream=s)()", PREPARED, checked(prepared)
    yield from split(cp, a, b, want, checked)
    yield from tensors(kernel, a, b, checked)
    yield "cupy.matmul(a, b, out=d)", None, checked(lambda: cp.matmul(a, b, out=out))


def split(
    cp: Any, a: Any, b: Any, want: Any, checked: Callable[..., Callable[[], Any]]
) -> Iterator[tuple[str, float | None, Callable[[], object]]]:
    """Two launches and a workspace, where a form of the GPU splits K."""
    types = {"a": "f16", "b": "f16", "acc": "f32", "c": "f32", "d": "f32"}
    spec = tg.TileSpec(block=(64, 64, 32), warp=(32, 32), stages=2, split_k=4, types=types)
    gpu = registry.get("cuda").devices()[0]
    try:
        plan = tg.lower(spec, "cuda", gpu.arch)
    except tg.PlanError as error:
        print(f"(no kernel that splits K: {error})")
        return
    if plan.split_k == 1:
        print("(no form of this GPU splits K)")
        return
    kernel, half = tg.load(tg.emit(plan), gpu), [x.astype("float16") for x in (a, b)]
    out = cp.empty((SIZE, SIZE), "float32")
    yield "split K: kernel(a, b, out=d)", None, checked(lambda: kernel(*half, out=out), want)
    yield "split K: kernel.prepare(a, b, out=d)()", None, checked(kernel.prepare(*half, out=out))


def tensors(
    kernel: tg.Kernel, a: Any, b: Any, checked: Callable[..., Callable[[], Any]]
) -> Iterator[tuple[str, float | None, Callable[[], object]]]:
    try:
        import torch
    except ImportError:
        print("(torch is not here)")
        return
    if not torch.cuda.is_available():
        print("(torch sees no GPU)")
        return
    left, right = torch.from_dlpack(a), torch.from_dlpack(b)
    out = torch.empty((SIZE, SIZE), device="cuda")
    yield "torch: kernel(a, b, out=d)", None, checked(lambda: kernel(left, right, out=out))
    yield "torch: kernel(a, b)", None, checked(lambda: kernel(left, right))
    yield "torch: kernel.prepare(a, b, out=d)()", PREPARED, checked(
        kernel.prepare(left, right, out=out)
    )  # fmt: skip
    yield "torch.matmul(a, b, out=d)", None, checked(lambda: torch.matmul(left, right, out=out))


def measured(cp: Any, call: Callable[[], object], calls: int, rounds: int) -> list[int]:
    """Nanoseconds of every call of every round but the first two."""
    taken: list[int] = []
    clock = time.perf_counter_ns
    for turn in range(rounds + 2):
        times = [0] * calls
        for place in range(calls):
            start = clock()
            call()
            times[place] = clock() - start
        cp.cuda.Device().synchronize()
        if turn >= 2:
            taken += times
    return taken


if __name__ == "__main__":
    main()
