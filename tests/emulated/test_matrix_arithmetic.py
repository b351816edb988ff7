"""Matrix instructions on random operands: the emulator's bits are those of the H200 on record.

The record is docs/matrix-arithmetic.md's. Cases of many products, which it has by checksums, are run
under TILEGEN_TEST_DEEP.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emulated.matrix_draws import Case, cases
from emulated.matrix_forms import FORMS, NUMPY, Form, text
from emulated.matrix_record import Record, Run, kept, on_emulator, read, together

from tilegen import cli

DEEP = bool(os.environ.get("TILEGEN_TEST_DEEP"))
PLAIN = [form for form in FORMS if form.d in ("s32", "f64")]
F16_SUMS = [form for form in FORMS if form.d == "f16" and form.a == "f16"]
FLOATS = [form for form in FORMS if form.is_float]
ROUNDED_OTHERWISE = [form for form in FORMS if form.d == "f32"]


@pytest.fixture(scope="module")
def record() -> Record:
    return read()


@pytest.fixture(scope="module")
def program() -> Any:
    return together(FORMS)


def name(form: Form) -> str:
    return form.name


def agrees(record: Record, case: Case, run: Run) -> None:
    out = run(case, record.operands(case))
    np.testing.assert_array_equal(kept(case, out), record.results[case.name], case.name)
    assert record.has(case, out), f"{case.name}: rows that are not kept differ"


@pytest.mark.parametrize("form", FORMS, ids=name)
def test_hopper_has_the_bits_of_the_h200(form: Form, record: Record, program: Any) -> None:
    run = on_emulator(form, "hopper", program)
    for case in cases(form):
        if DEEP or case.times == 1:
            agrees(record, case, run)


@pytest.mark.parametrize("form", PLAIN, ids=name)
def test_integers_and_f64_have_them_by_default(form: Form, record: Record, program: Any) -> None:
    run = on_emulator(form, program=program)
    for case in cases(form):
        agrees(record, case, run)


@pytest.mark.parametrize("form", F16_SUMS, ids=name)
def test_f16_sums_of_f16_have_them_by_default_unless_sums_cancel(
    form: Form, record: Record, program: Any
) -> None:
    run = on_emulator(form, program=program)
    for draw in ("normal", "uniform", "wide", "small"):
        agrees(record, Case(form, draw, 1), run)


@pytest.mark.parametrize("form", [form for form in FORMS if form.n < 64], ids=name)
def test_small_integers_have_them_by_default(form: Form, record: Record, program: Any) -> None:
    agrees(record, Case(form, "small", 1), on_emulator(form, program=program))


@pytest.mark.parametrize("form", [f for f in FLOATS if f.n < 64], ids=name)
def test_nans_infinities_and_signed_zeros_are_the_same_by_default(
    form: Form, record: Record, program: Any
) -> None:
    case = Case(form, "special", 1)
    got = kept(case, on_emulator(form, program=program)(case, record.operands(case)))
    want = record.results[case.name]
    with np.errstate(invalid="ignore"):
        special = [~np.isfinite(x) | (x == 0) for x in (v.view(NUMPY[form.d]) for v in (got, want))]
    assert special[1].any()
    np.testing.assert_array_equal(special[0], special[1])
    np.testing.assert_array_equal(got[special[1]], want[special[1]])


@pytest.mark.parametrize("form", ROUNDED_OTHERWISE, ids=name)
def test_the_record_tells_the_arithmetics_apart(form: Form, record: Record, program: Any) -> None:
    case = Case(form, "wide", 1)
    out = on_emulator(form, program=program)(case, record.operands(case))
    assert not record.has(case, out)


def test_every_result_is_on_record(record: Record) -> None:
    names = {case.name for form in FORMS for case in cases(form)}
    assert set(record.results) == set(record.about["digests"]) == names
    assert record.about["device"] == "NVIDIA H200"
    assert not record.about["failed"]


@pytest.mark.parametrize(
    ("words", "want"),
    # In f32 each 1 + 2^-24 is a tie that rounds to 1; Hopper adds all eight to 1 before it rounds.
    [((), 1.0), (("--arithmetic", "f32"), 1.0), (("--arithmetic", "hopper"), 1 + 2.0**-21)],
)
def test_the_command_takes_an_arithmetic(
    tmp_path: Path, words: tuple[str, ...], want: float
) -> None:
    form = FORMS[0]
    assert form.name == "mma.sync.m16n8k8.f32.f16.f16.f32"
    (tmp_path / "k.cu").write_text(text(form))
    for operand, count in (("a", 128), ("b", 64)):
        np.save(tmp_path / f"{operand}.npy", np.full(count, 2.0**-12, np.float16).view(np.uint32))
    arguments = ("out:f32[128]", tmp_path / "a.npy", tmp_path / "b.npy", "f32[128]=1", 1)
    given = [word for argument in arguments for word in ("--arg", str(argument))]
    command = ["emulate", str(tmp_path / "k.cu"), "--entry", form.entry, "--save", str(tmp_path)]
    assert cli.run([*command, *given, *words]) == 0
    assert (np.load(tmp_path / "array0.npy") == np.float32(want)).all()


def test_the_command_names_the_arithmetics(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "k.cu").write_text(text(FORMS[0]))
    words = ["emulate", str(tmp_path / "k.cu"), "--entry", FORMS[0].entry]
    assert cli.run([*words, "--arithmetic", "ampere"]) == 2
    assert "'ampere' is none of f32, hopper" in capsys.readouterr().err
