"""Matrix instructions on random floats: a device's results on record, and the emulator's beside them.

    python docs/matrix_floats.py check                    every text compiles for sm_90a (no device)
    python docs/matrix_floats.py record --out FILE.npz    run the texts on the device and keep the bits
    python docs/matrix_floats.py record --out FILE.npz --on emulator      the same path, without one
    python docs/matrix_floats.py table                    rewrite the tables in matrix-arithmetic.md

Texts and operands are those of tests/emulated/matrix_forms.py and matrix_draws.py.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

import matrix_tables as tables  # noqa: E402
from emulated import matrix_record as recorded  # noqa: E402
from emulated.matrix_draws import MANY, Case, Operands, cases  # noqa: E402
from emulated.matrix_forms import FORMS, Array, Form, text  # noqa: E402
from emulated.matrix_record import RECORD, Record, Run  # noqa: E402

PAGE = HERE / "matrix-arithmetic.md"
SEED = 20261130
ARCH = "sm_90a"
TORCH = {
    "f16": "float16", "bf16": "bfloat16", "tf32": "float32", "f32": "float32", "f64": "float64",
    "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2",
}  # fmt: skip


# ---- where a text runs --------------------------------------------------------------------------


def cubin(source: str) -> bytes:
    """A text through NVRTC, without a driver."""
    from cuda.bindings import nvrtc

    def call(result: tuple[Any, ...]) -> Any:
        error, *rest = result
        if error != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise RuntimeError(str(error))
        return rest[0] if rest else None

    program = call(nvrtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, [], []))
    options = [f"--gpu-architecture={ARCH}".encode(), b"--std=c++17"]
    try:
        call(nvrtc.nvrtcCompileProgram(program, len(options), options))
    except RuntimeError as error:
        log = b" " * call(nvrtc.nvrtcGetProgramLogSize(program))
        call(nvrtc.nvrtcGetProgramLog(program, log))
        raise RuntimeError(f"{error}: {log.decode(errors='replace')}") from None
    code = b" " * call(nvrtc.nvrtcGetCUBINSize(program))
    call(nvrtc.nvrtcGetCUBIN(program, code))
    return code


def on_device(form: Form) -> Run:
    """The form's kernel, compiled by NVRTC and launched through CuPy."""
    import cupy

    module = cupy.cuda.function.Module()
    module.load(cubin(text(form)))
    kernel = module.get_function(form.entry)

    def launch(grid: int, block: int, inputs: list[Array], steps: int) -> Array:
        a, b, c = (cupy.asarray(x) for x in inputs)
        d = cupy.asarray(np.full_like(inputs[2].view(np.uint8), 0xCC).view(inputs[2].dtype))
        kernel((grid,), (block,), (d, a, b, c, np.int32(steps)))
        cupy.cuda.runtime.deviceSynchronize()
        return cupy.asnumpy(d)  # type: ignore[no-any-return]

    return recorded.launched(form, launch)


def on_mmasim(form: Form) -> Run:
    """The published model of Hopper's float arithmetic (PyPI mmasim, which needs torch)."""
    import torch
    from mmasim.nv_ptx import MMA, WGMMA

    kinds = [getattr(torch, TORCH.get(t, "")) for t in (form.a, form.b, form.d)]
    operation = (MMA if form.kind == "mma" else WGMMA)(
        "Hopper", form.name.split(".", 2 if form.kind == "mma" else 1)[-1]
    )

    def tensor(x: Array, kind: Any) -> Any:
        raw = np.ascontiguousarray(x).view(f"u{x.dtype.itemsize}")
        return torch.from_numpy(raw.copy()).view(kind)

    def run(case: Case, operands: Operands) -> Array:
        out = np.zeros_like(operands.c)
        for n in range(case.count):
            d = tensor(operands.c[n], kinds[2])
            for s in range(case.steps):
                a, b = tensor(operands.a[s, n], kinds[0]), tensor(operands.b[s, n], kinds[1])
                d = operation(a, b, d)
            out[n] = d.numpy()
        return out

    return run


RUNNERS: dict[str, Callable[[Form], Run]] = {
    "device": on_device,
    "emulator": recorded.on_emulator,
    "model": partial(recorded.on_emulator, arithmetic="hopper"),
    "mmasim": on_mmasim,
}


# ---- record -------------------------------------------------------------------------------------


def _machine(on: str) -> dict[str, Any]:
    about: dict[str, Any] = {"numpy": np.__version__, "device": on}
    if on != "device":
        return about
    import cupy
    from cuda.bindings import nvrtc

    properties = cupy.cuda.runtime.getDeviceProperties(0)
    return {
        **about,
        "device": properties["name"].decode(),
        "driver": cupy.cuda.runtime.driverGetVersion(),
        "nvrtc": list(nvrtc.nvrtcVersion()[1:]),
        "cupy": cupy.__version__,
    }


def record(path: Path, on: str, only: str, seconds: float) -> int:
    """Run every case and keep its bits; what fails is named in the record. The exit status."""
    start, saved = time.perf_counter(), 0.0
    about: dict[str, Any] = {
        "seed": SEED, "date": datetime.date.today().isoformat(), "texts": {}, "operands": {},
        "digests": {}, "failed": {},
    }  # fmt: skip
    results: dict[str, Array] = {}
    try:
        about |= _machine(on)
    except Exception as error:
        about["failed"]["machine"] = repr(error)
    for form in FORMS:
        if only not in form.name:
            continue
        if time.perf_counter() - start > seconds:
            about["failed"][form.name] = "out of time"
            continue
        try:
            run = RUNNERS[on](form)
            about["texts"][form.name] = hashlib.sha256(text(form).encode()).hexdigest()
            for case in cases(form):
                operands = case.operands(SEED)
                out = run(case, operands)
                about["operands"][case.name] = operands.digest
                about["digests"][case.name] = recorded.digest(out)
                results[case.name] = recorded.kept(case, out)
        except Exception as error:
            about["failed"][form.name] = repr(error)[:2000]
        took = time.perf_counter() - start
        print(f"{took:6.1f} s {form.name} {about['failed'].get(form.name, 'ok')}", flush=True)
        if took - saved > 5:
            saved = took
            Record(about, results).save(path)
    Record(about, results).save(path)
    size = path.stat().st_size
    print(f"{len(results)} cases, {len(about['failed'])} failed, {size} bytes in {path}")
    return 1 if about["failed"] else 0


def check() -> int:
    """Compile every text by NVRTC; the exit status."""
    failed = 0
    for form in FORMS:
        try:
            print(form.name, len(cubin(text(form))), "bytes")
        except RuntimeError as error:
            failed += 1
            print(form.name, error)
    return 1 if failed else 0


# ---- tables -------------------------------------------------------------------------------------


def compared(
    record: Record, runner: Callable[[Form], Run]
) -> tuple[tables.Found, dict[Form, tables.Whole]]:
    """Figures of the kept rows by form, draw and steps; and what agrees as a whole, by form."""
    found: tables.Found = {}
    whole: dict[Form, tables.Whole] = {}
    for form in FORMS:
        run = runner(form)
        whole[form] = tables.Whole()
        for case in cases(form):
            if case.name not in record.results:
                print(f"{case.name} is not on record")
                continue
            operands = record.operands(case)
            out = run(case, operands)
            model, device = recorded.kept(case, out), record.results[case.name]
            products = int((model == device).sum()) if case.times > 1 else 0
            whole[form].add(case, record.has(case, out), products)
            if case.times == 1:
                found[form, case.draw, case.steps] = tables.figures(
                    case, recorded.sampled(form, operands), device, model
                )
    return found, whole


def rewritten(page: str, blocks: dict[str, str]) -> str:
    """The page with what stands between `<!-- name -->` and `<!-- end -->` replaced."""
    for name, block in blocks.items():
        head, mark, rest = page.partition(f"<!-- {name} -->")
        if not mark:
            raise SystemExit(f"{PAGE.name} has no place for {name!r}")
        _, end, tail = rest.partition("<!-- end -->")
        page = f"{head}{mark}\n{block}\n{end}{tail}"
    return page


def table(path: Path) -> None:
    record = recorded.read(path)
    about = record.about
    found, plain = compared(record, RUNNERS["emulator"])
    _, model = compared(record, RUNNERS["model"])
    sums = [
        sum(part) for part in zip(*((x.results, x.summed) for x in plain.values()), strict=True)
    ]
    driver, nvrtc = divmod(about["driver"] // 10, 100), about["nvrtc"]
    kept_results = sum(
        x.size for case, x in record.results.items() if not case.endswith(f"/x{MANY}")
    )
    machine = (
        f"{about['device']}, driver for CUDA {driver[0]}.{driver[1]}, NVRTC {nvrtc[0]}.{nvrtc[1]}, "
        f"{about['date']}, seed {about['seed']}: {len(about['texts'])} texts, {len(record.results)} cases, "
        f"{sums[0]:,} results by their digests ({kept_results:,} of them bit by bit), and {sums[1]:,} "
        "products more by their checksums."
    )
    blocks = {
        "machine": machine,
        "whole": tables.whole(plain, model),
        "equality": tables.equality(found),
        "distance": tables.distance(found),
        "bias": tables.bias(found),
    }
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8"), blocks), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["check", "record", "table"])
    parser.add_argument("--out", type=Path, default=RECORD)
    parser.add_argument("--on", choices=RUNNERS, default="device", help="what makes the record")
    parser.add_argument("--only", default="", help="forms whose name holds this")
    parser.add_argument("--seconds", type=float, default=150, help="after which no form is begun")
    options = parser.parse_args()
    if options.what == "check":
        sys.exit(check())
    if options.what == "record":
        sys.exit(record(options.out, options.on, options.only, options.seconds))
    table(options.out)


if __name__ == "__main__":
    main()
