"""What is on record of matrix instructions: some bits of every case, and a digest of them all.

Of results (count, m, n) a record holds the bits of every fourth row and the SHA-256 of the whole; of a
case of many products no bits but one CRC for each product.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from emulated.matrix_draws import Case, Operands
from emulated.matrix_forms import NUMPY, Array, Form, images, matrices, text

RECORD = Path(__file__).parents[1] / "data" / "matrix_h200.npz"
Launch = Callable[[int, int, list[Array], int], Array]
Run = Callable[[Case, Operands], Array]


def bits(values: Array) -> Array:
    return np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}")


def digest(out: Array) -> str:
    return hashlib.sha256(np.ascontiguousarray(out).tobytes()).hexdigest()


def rows(form: Form) -> Array:
    """Rows whose bits are kept: 0, 5, 10, 15, 16, 21, ..., even and odd ones alike."""
    i = np.arange(form.m)
    return i[i % 4 == i // 4 % 4]


def sampled(form: Form, operands: Operands) -> Operands:
    """What the kept rows are made of."""
    at = rows(form)
    return Operands(operands.a[:, :, at], operands.b, operands.c[:, at])


def kept(case: Case, out: Array) -> Array:
    """What a record holds of a case beside its digest."""
    if case.times == 1:
        return bits(out[:, rows(case.form)])
    return np.array([zlib.crc32(np.ascontiguousarray(x).tobytes()) for x in out], np.uint32)


@dataclass(frozen=True)
class Record:
    """Of one machine.

    Attributes
    ----------
    about : dict
        Machine, seed, and by case the digests of operands and results.
    results : dict
        What ``kept`` makes of each case, by its name.
    """

    about: dict[str, Any]
    results: dict[str, Array]

    def operands(self, case: Case) -> Operands:
        """Drawn again, and the same as then."""
        drawn = case.operands(self.about["seed"])
        if drawn.digest != self.about["operands"][case.name]:
            raise ValueError(f"{case.name}: drawn otherwise than on record")
        return drawn

    def has(self, case: Case, out: Array) -> bool:
        """Whether these are the recorded results, every bit of them."""
        return digest(out) == self.about["digests"][case.name]

    def save(self, path: Path) -> None:
        """Whole or not at all; all arrays as one, since each costs a file in the archive."""
        about = self.about | {"kept": {k: [x.dtype.str, x.shape] for k, x in self.results.items()}}
        joined = np.frombuffer(b"".join(x.tobytes() for x in self.results.values()), np.uint8)
        text = np.frombuffer(json.dumps(about).encode(), np.uint8)
        temporary = path.with_name(path.name + ".part.npz")
        np.savez_compressed(temporary, about=text, kept=joined)
        temporary.replace(path)


def read(path: Path = RECORD) -> Record:
    with np.load(path) as data:
        about, joined = json.loads(data["about"].tobytes()), data["kept"].tobytes()
    results, start = {}, 0
    for name, (kind, shape) in about.pop("kept").items():
        results[name] = np.frombuffer(joined, kind, int(np.prod(shape)), start).reshape(shape)
        start += results[name].nbytes
    return Record(about, results)


# ---- where a text runs --------------------------------------------------------------------------


def launched(form: Form, launch: Launch) -> Run:
    """Operands to what the kernel reads, and what it wrote to D as (count, m, n)."""

    def run(case: Case, operands: Operands) -> Array:
        inputs = list(images(form, operands.a, operands.b, operands.c))
        if form.d in ("s32", "f32"):
            inputs[2] = inputs[2].view(NUMPY[form.d])
        return matrices(form, case.count, launch(case.count, form.threads, inputs, case.steps))

    return run


def on_emulator(form: Form, arithmetic: str = "f32", program: Any = None) -> Run:
    """The form's kernel, or the one of that name in a program of several."""
    from tilegen import emulator

    program = program or emulator.compile(text(form), "cuda", form.entry)

    def launch(grid: int, block: int, inputs: list[Array], steps: int) -> Array:
        a, b, c = inputs
        out = np.zeros_like(c)
        result = emulator.run(
            program, entry=form.entry, grid=grid, block=block, args=[out, a, b, c, steps],
            orders=(0,), races=False, arithmetic=arithmetic,
        )  # fmt: skip
        if result.findings:
            raise RuntimeError(str(result))
        return result.arrays[0]

    return launched(form, launch)


def together(forms: Sequence[Form]) -> Any:
    """One emulated program of many kernels, which compiles faster than each alone."""
    from tilegen import emulator

    helper = "// K-major, no swizzle"
    texts = [text(form) for form in forms]
    shared = [t[: t.index('extern "C"')] for t in texts if t.startswith(helper)][:1]
    bodies = [t[t.index('extern "C"') :] for t in texts]
    return emulator.compile("".join(shared + bodies), "cuda", [form.entry for form in forms])
