"""Matrix instructions on random floats: a device's results on record, and the emulator's beside them.

    python docs/matrix_floats.py check                    every text compiles for sm_90a (no device)
    python docs/matrix_floats.py record --out FILE.npz    run the texts on the device and keep the bits
    python docs/matrix_floats.py record --out FILE.npz --dry      the same path, on the emulator
    python docs/matrix_floats.py table                    rewrite the tables in matrix-arithmetic.md

Texts and operands are those of tests/emulated/matrix_forms.py and matrix_draws.py.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

from emulated.matrix_draws import Case, cases  # noqa: E402
from emulated.matrix_forms import FORMS, Array, Form, images, matrices, text  # noqa: E402

RECORD = HERE.parent / "tests" / "data" / "matrix_h200.npz"
SEED = 20261130
ARCH = "sm_90a"
Launch = Callable[[int, int, list[Array], int], Array]


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


def on_device(form: Form) -> Launch:
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

    return launch


def on_emulator(form: Form) -> Launch:
    from tilegen import emulator

    program = emulator.compile(text(form), "cuda", form.entry)

    def launch(grid: int, block: int, inputs: list[Array], steps: int) -> Array:
        a, b, c = inputs
        out = np.zeros_like(c)
        result = emulator.run(
            program, entry=form.entry, grid=grid, block=block, args=[out, a, b, c, steps],
            orders=(0,), races=False,
        )  # fmt: skip
        if result.findings:
            raise RuntimeError(str(result))
        return result.arrays[0]

    return launch


def outcome(case: Case, launch: Launch, seed: int) -> Array:
    """D as (count, m, n), of its type."""
    operands, form = case.operands(seed), case.form
    inputs = list(images(form, operands.a, operands.b, operands.c))
    if form.d == "s32":
        inputs[2] = inputs[2].view(np.int32)
    elif form.d == "f32":
        inputs[2] = inputs[2].view(np.float32)
    return matrices(form, case.count, launch(case.count, form.threads, inputs, case.steps))


def bits(values: Array) -> Array:
    return np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}")


def kept(case: Case, out: Array) -> Array:
    """What a record holds of a case: the bits, or a checksum for each product."""
    if case.times == 1:
        return bits(out)
    return np.array([zlib.crc32(np.ascontiguousarray(x).tobytes()) for x in out], np.uint32)


# ---- record -------------------------------------------------------------------------------------


def _machine(dry: bool) -> dict[str, Any]:
    about: dict[str, Any] = {"numpy": np.__version__, "device": "emulator"}
    if dry:
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


def save(path: Path, about: dict[str, Any], results: dict[str, Array]) -> None:
    """Whole or not at all."""
    temporary = path.with_name(path.name + ".part.npz")
    np.savez_compressed(temporary, about=np.array(json.dumps(about)), **results)
    temporary.replace(path)


def record(path: Path, dry: bool, only: str, seconds: float) -> int:
    """Run every case and keep its bits; what fails is named in the record. The exit status."""
    start, saved = time.perf_counter(), 0.0
    about: dict[str, Any] = {
        "seed": SEED, "date": datetime.date.today().isoformat(), "texts": {}, "operands": {},
        "digests": {}, "failed": {},
    }  # fmt: skip
    results: dict[str, Array] = {}
    try:
        about |= _machine(dry)
    except Exception as error:
        about["failed"]["machine"] = repr(error)
    for form in FORMS:
        if only not in form.name:
            continue
        if time.perf_counter() - start > seconds:
            about["failed"][form.name] = "out of time"
            continue
        try:
            launch = on_emulator(form) if dry else on_device(form)
            about["texts"][form.name] = hashlib.sha256(text(form).encode()).hexdigest()
            for case in cases(form):
                out = outcome(case, launch, SEED)
                about["operands"][case.name] = case.operands(SEED).digest
                about["digests"][case.name] = hashlib.sha256(out.tobytes()).hexdigest()
                results[case.name] = kept(case, out)
        except Exception as error:
            about["failed"][form.name] = repr(error)[:2000]
        took = time.perf_counter() - start
        print(f"{took:6.1f} s {form.name} {about['failed'].get(form.name, 'ok')}", flush=True)
        if took - saved > 5:
            saved = took
            save(path, about, results)
    save(path, about, results)
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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["check", "record", "table"])
    parser.add_argument("--out", type=Path, default=RECORD)
    parser.add_argument("--dry", action="store_true", help="on the emulator in place of the device")
    parser.add_argument("--only", default="", help="forms whose name holds this")
    parser.add_argument("--seconds", type=float, default=150, help="after which no form is begun")
    options = parser.parse_args()
    if options.what == "check":
        sys.exit(check())
    if options.what == "record":
        sys.exit(record(options.out, options.dry, options.only, options.seconds))


if __name__ == "__main__":
    main()
