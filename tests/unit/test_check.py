"""The self-check list on fixed plans: what each line says, what fails and what is only told."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from unit.test_five_kernels import cuda_mma_sync, cuda_wgmma, hip_mfma, metal_direct

import tilegen as tg
from tilegen.backend import DYNAMIC_SHARED, Resources
from tilegen.checklist.compiled import Compiled, compiled_lines, foreign_lines, log_lines
from tilegen.checklist.contract import clauses, draw
from tilegen.checklist.lines import CheckReport, Line, Suggestion
from tilegen.checklist.macros import changed as changed_macros
from tilegen.checklist.macros import changes, nearest_macros, numbers_of
from tilegen.checklist.meaning import Meaning, blocks, grid_of, tile_of
from tilegen.checklist.nearest import changed, neighbours
from tilegen.checklist.spec import note_lines
from tilegen.checklist.support import Count, Traffic
from tilegen.checklist.traffic import Counted, diverged_lines, sectors, traffic_lines
from tilegen.errors import SpecError
from tilegen.plan import Copy, KernelPlan
from tilegen.report import plan_rows, plan_text
from tilegen.spec import TileSpec
from tilegen_cuda import checks, profile
from tilegen_cuda.archs import ARCHS
from tilegen_cuda.counting import tile_of as counted_tile
from tilegen_cuda.foreign import plain_name

SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["schema", "name", "backend", "arch", "compiler", "passed", "lines", "suggestion"],
    "properties": {
        "schema": {"const": 1},
        "name": {"type": "string"},
        "backend": {"type": "string"},
        "arch": {"type": "string"},
        "compiler": {"type": ["string", "null"]},
        "passed": {"type": "boolean"},
        "suggestion": {
            "type": ["object", "null"],
            "required": ["changes", "tried"],
            "properties": {"changes": {"type": "object"}, "tried": {"type": "integer"}},
        },
        "lines": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": [
                    "item", "where", "predicted", "measured", "limit", "unit", "verdict", "note",
                ],
                "properties": {
                    "item": {"type": "string"},
                    "where": {"type": "string"},
                    "predicted": {"type": ["number", "string", "null"]},
                    "measured": {"type": ["number", "string", "null"]},
                    "limit": {"type": ["number", "string", "null"]},
                    "unit": {"type": "string"},
                    "verdict": {"enum": ["pass", "FAIL", "info", "not measured"]},
                    "note": {"type": "string"},
                },
            },
        },
    },
}  # fmt: skip
NOTHING = Counted(missing="no host compiler here")


def said(plan: KernelPlan, **changes: Any) -> Compiled:
    """What a compiler says that meets the plan, with some of it changed."""
    out = {}
    for entry in plan.entries:
        uses = [u for u in plan.budget.registers if u.entry in (entry.name, entry.symbol)]
        use = (uses or [u for u in plan.budget.registers if not u.entry])[0]
        out[entry.name] = replace(
            Resources(
                registers=use.predicted,
                spill_bytes=0,
                spill_load_bytes=0,
                stack_bytes=0,
                shared_bytes=entry.shared_bytes,
            ),
            **changes,
        )
    return Compiled(out, "ptxas")


def lines(plan: KernelPlan, compiled: Compiled, counted: Counted = NOTHING) -> CheckReport:
    found = (*compiled_lines(plan, compiled), *traffic_lines(plan, counted, 32))
    return CheckReport(plan.name, plan.backend, plan.arch.name, "ptxas", found)


# ---- the compiler's numbers ----------------------------------------------------------------------


def test_a_kernel_that_meets_its_plan_passes() -> None:
    report = lines(cuda_mma_sync(), said(cuda_mma_sync()))
    assert report.passed
    for item in ("registers", "spills", "stack frame", "shared memory", "launch bounds"):
        assert {x.verdict for x in report.find(item)} == {"pass"}, item
    (main,) = report.find("registers", "gemm_main16")
    assert (main.predicted, main.measured, main.limit) == (126, 126, 255)
    (reduce,) = report.find("registers", "gemm_reduce")
    assert (reduce.predicted, reduce.measured) == (40, 40)


def test_a_spill_fails_and_says_what_to_change() -> None:
    plan = cuda_mma_sync()
    spilt = {"spill_bytes": 24, "spill_load_bytes": 36, "stack_bytes": 16, "registers": 255}
    report = lines(plan, said(plan, **spilt))
    assert not report.passed
    spills = report.find("spills")
    assert {x.verdict for x in spills} == {"FAIL"}
    assert spills[0].measured == "24 stored, 36 loaded"
    assert "smaller warp or thread tile" in spills[0].note
    assert {x.note for x in report.find("stack frame")} == {"what is spilled lies there"}


def test_a_spill_with_registers_to_spare_is_not_for_want_of_them() -> None:
    plan = cuda_mma_sync()
    (line,) = lines(plan, said(plan, spill_bytes=16, registers=95)).find("spills", "gemm_main16")
    assert line.verdict == "FAIL"
    assert "with 95 of 255 registers in use" in line.note
    (line,) = lines(plan, said(plan, spill_bytes=16, registers=255)).find("spills", "gemm_main16")
    assert "smaller warp or thread tile" in line.note


def test_a_stack_frame_without_a_spill_fails_too() -> None:
    report = lines(cuda_mma_sync(), said(cuda_mma_sync(), stack_bytes=64))
    assert {x.item for x in report.failures} == {"stack frame"}
    assert "known at compile time" in report.failures[0].note


def test_a_miss_is_told_and_is_no_fault() -> None:
    report = lines(cuda_mma_sync(), said(cuda_mma_sync(), registers=120))
    (line,) = report.find("registers", "gemm_main16")
    assert (line.verdict, line.note) == ("info", "6 fewer than predicted")
    assert report.passed


def test_a_prediction_at_the_limit_is_told_as_one() -> None:
    plan = cuda_mma_sync()
    use = replace(plan.budget.registers[0], limit=126)
    plan = replace(plan, budget=replace(plan.budget, registers=(use,)))
    for registers, note in (
        (126, "predicted at the limit"),
        (120, "predicted at the limit; 6 fewer than predicted"),
    ):
        (line,) = lines(plan, said(plan, registers=registers)).find("registers", "gemm_main16")
        assert (line.predicted, line.note) == (126, note)
    assert "126 of 126 a lane, at the limit: 64 accumulators" in plan_text(plan)
    assert "at the limit" not in plan_text(cuda_mma_sync())
    (told,) = plan.to_dict()["budget"]["registers"]
    assert told["at_limit"]


def test_notes_that_depart_from_nothing_have_a_heading_of_their_own() -> None:
    spec = tg.TileSpec(
        block=(64, 64, 16),
        warp=(32, 32),
        stages=16,
        split_k=2,
        layout={"a": "row", "b": "col", "c": "row"},
        pins={"cuda": {"swizzle": "none", "form": "fma"}},
    )
    plan = tg.lower(spec, "cuda", "sm_75")
    departures = [x.note for x in note_lines(plan) if x.item == "planned otherwise"]
    remarks = [x.note for x in note_lines(plan) if x.item == "note"]
    assert [note.split()[0] for note in departures] == ["split_k", "stages"]
    assert len(remarks) == 2
    assert all("extra cycles" in note for note in remarks)
    assert sorted((*departures, *remarks)) == sorted(plan.notes)
    sections = {row.section: [] for row in plan_rows(plan)}
    for row in plan_rows(plan):
        sections[row.section].append(row.text)
    assert sections["planned otherwise"] == departures
    assert sections["notes"] == remarks


def test_more_registers_than_a_block_leaves_fail() -> None:
    plan = cuda_mma_sync()
    few = replace(plan.budget, registers=(replace(plan.budget.registers[0], limit=128),))
    plan = replace(plan, budget=few)
    (line,) = lines(plan, said(plan, registers=130)).find("registers", "gemm_main16")
    assert line.verdict == "FAIL"


@pytest.mark.parametrize(
    ("registers", "blocks"),
    [(126, "2 blocks (25.0%), by registers"), (64, "3 blocks (37.5%), by shared memory"),
     (129, "1 block (12.5%), by registers")],
)  # fmt: skip
def test_occupancy_follows_the_compilers_registers(registers: int, blocks: str) -> None:
    (line,) = lines(cuda_mma_sync(), said(cuda_mma_sync(), registers=registers)).find(
        "occupancy", "gemm_main16"
    )
    assert line.measured == blocks
    assert line.verdict == "info"
    assert line.predicted == "2 blocks (25.0%), by registers"
    assert bool(line.note) == (registers != 126)


def test_blocks_that_are_asked_for_and_do_not_fit_fail() -> None:
    plan = replace(cuda_mma_sync(), numbers={"MIN_BLOCKS": 2})
    report = lines(plan, said(plan, registers=200))
    (line,) = report.find("occupancy", "gemm_main16")
    assert (line.verdict, line.limit) == ("FAIL", "at least 2 blocks")
    assert "registers bounds them" in line.note


def test_shared_memory_is_exact() -> None:
    plan = cuda_mma_sync()
    report = lines(plan, said(plan, shared_bytes=0, extra={DYNAMIC_SHARED: 49152}))
    (line,) = report.find("shared memory", "gemm_main16")
    assert (line.measured, line.verdict) == (49152, "pass")
    assert "49152 of them dynamic" in line.note
    (more,) = lines(plan, said(plan, shared_bytes=49168)).find("shared memory", "gemm_main16")
    assert (more.verdict, more.note) == ("FAIL", "16 more than predicted")
    (over,) = lines(plan, said(plan, shared_bytes=166928)).find("shared memory", "gemm_main16")
    assert "16 bytes over what a block of sm_80 can have" in over.note


def test_a_compiled_kernel_that_takes_too_few_threads_fails() -> None:
    (line, *_) = lines(cuda_mma_sync(), said(cuda_mma_sync(), max_threads=128)).find(
        "launch bounds"
    )
    assert (line.predicted, line.measured, line.verdict) == (256, 128, "FAIL")


def test_without_a_compiler_the_reason_is_told() -> None:
    plan = cuda_mma_sync()
    report = lines(plan, Compiled({}, missing="NVRTC is not installed: pip install x"))
    assert report.passed
    for item in ("registers", "spills", "stack frame", "shared memory", "occupancy"):
        assert {x.verdict for x in report.find(item)} == {"not measured"}, item
        assert {x.note for x in report.find(item)} == {"NVRTC is not installed: pip install x"}


def test_roles_and_register_files_have_lines_of_their_own() -> None:
    hopper = lines(cuda_wgmma(), said(cuda_wgmma()))
    (consumer,) = hopper.find("registers", "gemm_tma, consumer")
    assert (consumer.predicted, consumer.limit, consumer.verdict) == (208, 232, "not measured")
    mfma = lines(hip_mfma(), said(hip_mfma()))
    assert {x.where for x in mfma.find("registers")} >= {"gemm_main16, vgpr", "gemm_main16, agpr"}


def test_a_serialized_wgmma_fails() -> None:
    log = (
        "ptxas info : Used 90 registers\n"
        "ptxas warning : (C7510) Potential Performance Loss: wgmma.mma_async instructions are "
        "serialized due to insufficient register resources\n"
    )
    (line,) = log_lines(tuple(checks.faults_of_log(log)))
    assert line.verdict == "FAIL"
    assert "C7510" in line.note
    assert not list(log_lines(tuple(checks.faults_of_log("ptxas info : Used 90 registers"))))


def test_foreign_kernels_are_judged_by_their_block() -> None:
    arch = ARCHS["sm_80"]
    compiled = Compiled(
        {"k": Resources(registers=80, spill_bytes=0, stack_bytes=0, shared_bytes=4096)}
    )
    found = {x.item: x for x in foreign_lines(arch, compiled, 1024, 0)}
    assert (found["registers"].limit, found["registers"].verdict) == (64, "FAIL")
    assert (found["occupancy"].verdict, found["occupancy"].measured) == (
        "FAIL", "0 blocks (0.0%), by registers",
    )  # fmt: skip
    found = {x.item: x for x in foreign_lines(arch, compiled, 256, 200_000)}
    assert (found["shared memory"].measured, found["shared memory"].verdict) == (204096, "FAIL")
    found = {x.item: x for x in foreign_lines(arch, compiled, None, 0)}
    assert found["occupancy"].verdict == "not measured"
    assert "--block" in found["occupancy"].note


# ---- memory --------------------------------------------------------------------------------------


def test_fragment_loads_per_mma() -> None:
    (line,) = lines(cuda_mma_sync(), said(cuda_mma_sync())).find("fragment loads per mma")
    assert line.predicted == 12 / 32
    assert "8 ldmatrix_x4 of A, 4 ldmatrix_x4 of B, 32 mma a warp and K step" in line.note
    (line,) = lines(hip_mfma(), said(hip_mfma())).find("fragment loads per mma")
    assert line.predicted == 16 / 16
    (line,) = lines(cuda_wgmma(), said(cuda_wgmma())).find("fragment loads per mma")
    assert line.predicted == 0
    assert "B is read by the instruction itself" in line.note
    direct, guarded = lines(metal_direct(), said(metal_direct())).find("fragment loads per mma")
    assert (direct.predicted, guarded.predicted) == (0.5, None)


def counted(plan: KernelPlan, *traffic: Traffic) -> Counted:
    m, n, k = plan.block
    return Counted({plan.main_entries[0].name: Count(traffic, m * n * k)})


def test_counted_fragment_loads_and_conflicts() -> None:
    plan = cuda_mma_sync()
    warps, steps = 8, 1
    both = Traffic(10, "shared", False, "ab", 12 * warps * steps, 0, 48 * warps, 0)
    copies = Traffic(5, "shared", True, "a", 64, 0, 256, 32)
    report = lines(plan, said(plan), counted(plan, both, copies))
    (loads,) = report.find("fragment loads per mma")
    assert (loads.measured, loads.verdict) == (0.375, "pass")
    (reads,) = report.find("bank conflicts", "b's tile, loads")
    assert (reads.measured, reads.verdict) == (0, "pass")
    (stores,) = report.find("bank conflicts", "a's tile, stores")
    assert (stores.predicted, stores.measured, stores.verdict) == (0, 0.5, "info")
    assert stores.note == "0.5 more than predicted"
    (unseen,) = report.find("bank conflicts", "b's tile, stores")
    assert unseen.verdict == "not measured"


def test_flop_per_shared_load_is_the_formula() -> None:
    plan = tg.lower(TileSpec(block=(128, 64, 16), warp=(64, 32)), "cuda", "sm_80")
    (line,) = lines(plan, said(plan)).find("FLOP per shared load")
    tm, tn = plan.thread[0] * plan.passes[0], plan.thread[1] * plan.passes[1]
    assert line.predicted == round(2 * tm * tn / (tm + tn), 4)
    assert f"2 * {tm} * {tn} / ({tm} + {tn})" in line.note


@pytest.mark.parametrize(
    ("copy", "touched"),
    [
        # A warp's 32 lanes cover 8 rows of 64 bytes.
        (Copy("a", "global", "shared", "cp_async", 8, 2, "k"), (16, 16)),
        (Copy("a", "global", "shared", "element_load", 1, 16, "k"), (2, 2)),
        # Pairs of f32 that four lanes of a row hold side by side.
        (Copy("d", "register", "global", "vector_store", 2, 32, "n"), (8, 4)),
        # Each lane's element of a column lies in a row of its own.
        (Copy("d", "register", "global", "element_store", 1, 64, "n"), (8, 2)),
        (Copy("a", "global", "shared", "tma", 4096, 1, "k", box=(64, 64)), None),
    ],
    ids=lambda value: value.mechanism if isinstance(value, Copy) else None,
)
def test_sectors_of_a_warp(copy: Copy, touched: tuple[int, int] | None) -> None:
    plan = cuda_mma_sync()
    assert sectors(plan, copy, 32) == touched


def test_coalescing_is_judged_against_the_fewest() -> None:
    plan = cuda_mma_sync()
    loads = Traffic(7, "global", False, "a", 100, 51200, 3200, 1600)
    (line,) = lines(plan, said(plan), counted(plan, loads)).find(
        "global access", "a, loads of main16"
    )
    assert (line.predicted, line.measured, line.limit) == (16, 32, 16)
    assert "16 bytes an access by cp_async" in line.note
    assert "16 more than predicted" in line.note
    assert "2 times the fewest sectors" in line.note


def test_where_sectors_are_not_known_only_the_width_is_told() -> None:
    plan = cuda_mma_sync()
    found = list(traffic_lines(plan, NOTHING, 0))
    told = [x for x in found if x.item == "global access"]
    assert {x.predicted for x in told} == {None}
    assert all("moves at least is not known" in x.note for x in told)


def test_divergence_is_the_emulators_word() -> None:
    count = Count((), 1, ("the emulator found line 9: divergent-barrier: x",), 2, 8)
    (line,) = diverged_lines(Counted({"e": count}))
    assert (line.verdict, line.measured) == ("FAIL", 1)
    (line,) = diverged_lines(Counted({"e": Count((), 1, (), 2, 8)}))
    assert line.verdict == "pass"
    assert "part in 2 of 8" in line.note


def test_a_line_of_the_text_is_put_to_the_tile_that_it_fills() -> None:
    plan = cuda_mma_sync()
    assert counted_tile(plan, (0, 24576)) == "a"
    assert counted_tile(plan, (24576, 49152)) == "b"
    assert counted_tile(plan, (0, 49152)) == "ab"
    assert counted_tile(plan, (50000, 50064)) == ""


# ---- the report ----------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [cuda_mma_sync, hip_mfma, metal_direct, cuda_wgmma])
def test_the_report_is_json_of_its_schema_and_a_table(make: Any) -> None:
    plan = make()
    report = replace(lines(plan, said(plan)), suggestion=Suggestion({"warp": (32, 32)}, 2))
    jsonschema.validate(report.to_dict(), SCHEMA)
    text = str(report)
    assert text.splitlines()[0] == f"{plan.name}, {plan.backend} {plan.arch.name}, ptxas"
    assert "nearest that passes: warp = [32, 32] (compiled, the 2nd nearest tried)" in text
    assert text.splitlines()[-1].startswith("passed: ")


def test_a_note_that_holds_for_several_lines_is_said_once() -> None:
    note = "there is no compiler here"
    twice = (Line("a", note=note), Line("b", note=note), Line("c", note="x"), Line("d", note=note))
    assert str(CheckReport("k", "b", "a", "", twice)).count(note) == 2


def test_suggestions_in_words() -> None:
    assert "none of the 5 nearest" in str(Suggestion({}, 5))
    told = str(Suggestion({"pins.cuda.min_blocks": None, "stages": 2}, 11))
    assert "without pins.cuda.min_blocks with stages = 2 (compiled, the 11th" in told


# ---- neighbours ----------------------------------------------------------------------------------


def test_neighbours_come_nearest_first_and_keep_the_rest() -> None:
    spec = TileSpec(block=(128, 64, 16), warp=(64, 32), stages=2, pins={"cuda": {"min_blocks": 3}})
    found = [change for change, _ in neighbours(spec, "cuda")]
    assert found[0] == {"pins.cuda.min_blocks": 2}
    assert {"warp": (32, 32)} in found
    assert found.index({"warp": (32, 32)}) < found.index({"warp": (16, 32)})
    assert {"pins.cuda.min_blocks": None} in found
    for change, other in neighbours(spec, "cuda"):
        assert other == changed(spec, change)
        assert other.types == spec.types
    assert changed(spec, {"pins.cuda.min_blocks": None}).pins == {"cuda": {}}


def test_macros_and_template_arguments_are_numbers_to_change() -> None:
    now = numbers_of("gemm<float, 64, 8>", ["TM=16", "NAME=x"])
    assert now == {0: 64, 1: 8, "TM": 16}
    assert next(changes({"TM": 16})) in ({"TM": 8}, {"TM": 32})
    assert changed_macros("gemm<float, 64, 8>", ["TM=16", "NAME=x"], {1: 4, "TM": 8}) == (
        "gemm<float, 64, 4>", ["TM=8", "NAME=x"],
    )  # fmt: skip


def test_the_nearest_macros_are_those_that_pass() -> None:
    def passes(entry: str, defines: Any) -> bool:
        return "TM=8" in defines and "<32>" in entry

    found = nearest_macros("k<64>", ["TM=16", "N=3"], passes)
    assert found is not None
    assert found.changes == {"TM": 8, "entry": "k<32>"}
    assert nearest_macros("k", [], passes) is None
    none = nearest_macros("k<64>", [], lambda *_: False)
    assert none is not None
    assert none.changes == {}


# ---- what arguments mean -------------------------------------------------------------------------


def test_a_mapping_is_read_in_order() -> None:
    meaning = Meaning.parse("A:f16, B:f16:col D:f32 M N K lda ldb ldd alpha 1 u32[M*N]=0")
    assert [w.kind for w in meaning.words] == [
        *["operand"] * 3, *["size"] * 3, *["stride"] * 3, "scalar", "number", "scratch",
    ]  # fmt: skip
    assert (meaning.types.a, meaning.types.d, meaning.types.acc) == ("f16", "f32", "f32")
    assert meaning.layout.b == "col"
    assert not meaning.in_place
    assert Meaning.parse("A B CD").beta == 1
    assert Meaning.parse("A B CD beta").beta == 0
    assert Meaning.parse("A:s8 B:s8 D:s32").types.acc == "s32"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("A B M", "one of D and CD is needed"),
        ("A D", "B is missing"),
        ("A A B D", "A is there twice"),
        ("A B C CD", "CD is C already"),
        ("A B D:f33", "'f33' is no type"),
        ("A B D alhpa", "did you mean 'alpha'"),
        ("A B D M:f32", "have a type and a layout"),
        ("A B D u32[M**2]", "not plain arithmetic"),
    ],
)
def test_a_mapping_that_cannot_be_read_says_why(text: str, says: str) -> None:
    with pytest.raises(SpecError, match=re.escape(says)):
        Meaning.parse(text)


@pytest.mark.parametrize(
    ("grid", "tile"),
    [
        ("(N+63)/64,(M+31)/32", (32, 64)),
        ("N/64,M/32", (32, 64)),
        ("((M+127)/128)*((N+63)/64)", (128, 64)),
        ("132", (16, 16)),
    ],
)
def test_the_grid_tells_the_block_tile(grid: str, tile: tuple[int, int]) -> None:
    formulas = grid_of(grid)
    assert (tile_of(formulas, "M"), tile_of(formulas, "N")) == tile


@pytest.mark.parametrize("grid", ["X/2", "M//2", "M/0", "1,2,3,4", ""])
def test_a_grid_that_is_none(grid: str) -> None:
    with pytest.raises(SpecError, match="--grid"):
        grid_of(grid)


@pytest.mark.parametrize(
    ("grid", "sizes", "launched"),
    [
        ("(N+31)/32,(M+31)/32", (0, 64, 8), (2, 0)),
        ("M-31", (0, 1, 1), (0,)),
        ("N/(M+1)*3,N/M", (0, 9, 9), (0, 0)),
        ("N/M", (3, 9, 9), (3,)),
    ],
)
def test_the_blocks_of_a_problem_are_never_fewer_than_none(
    grid: str, sizes: tuple[int, int, int], launched: tuple[int, ...]
) -> None:
    assert blocks(grid_of(grid), *sizes) == launched


@pytest.mark.parametrize(
    ("words", "multiples"),
    [
        ("A lda B ldb D ldd M N K", {"a": 16, "b": 8, "d": 8}),
        ("A:col lda B:col ldb D:col ldd M N K", {"a": 128, "b": 16, "d": 128}),
        ("A:col lda B CD ldc M N K", {"a": 128, "c": 8, "d": 8}),
    ],
)
def test_multiples_reach_the_leading_dimensions(words: str, multiples: dict[str, int]) -> None:
    meaning = Meaning.parse(words, (128, 8, 16))
    spec = meaning.spec(grid_of("N/8,M/128"))
    (fixed,) = (c for c in clauses(meaning, spec, 0, 0) if c.name == "leading dimensions")
    tried = (*fixed.problems, *draw(meaning, spec, 20, 0))
    assert draw(meaning, spec, 0, 0) == ()
    for operand, multiple in multiples.items():
        pads = {problem.view(operand).pad for problem in tried}
        assert len(pads - {0}) >= 1
        assert all(pad % multiple == 0 for pad in pads)


def test_multiples_are_three_sizes() -> None:
    with pytest.raises(SpecError, match="three sizes"):
        Meaning.parse("A B D", (64, 64))
    spec = Meaning.parse("A B D", (32, 64, 24)).spec(grid_of("(N+15)/16,(M+15)/16"))
    assert spec.block == (32, 64, 24)


# ---- NVIDIA's tools ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("symbol", "name"),
    [("gemm", "gemm"), ("_Z4gemmPKfS0_Pfiii", "gemm"), ("_ZN5tiles4gemmILi64EEEvPf", "tiles::gemm"),
     ("_Z4gemmILi16ELi8EEvPKf", "gemm")],
)  # fmt: skip
def test_mangled_names(symbol: str, name: str) -> None:
    assert plain_name(symbol) == name


# As Nsight Compute 2025.3 printed it on an H200, of a kernel called gemm_wide.
NCU = (Path(__file__).parents[1] / "data" / "ncu_h200.csv").read_text(encoding="utf-8")


def test_the_profilers_csv_is_read() -> None:
    assert profile.metrics_of(NCU) == {"issue utilisation": 15.33, "warps resident": 71.76}
    thousands = NCU.replace('"15.33"', '"1,015.33"')
    assert profile.metrics_of(thousands)["issue utilisation"] == 1015.33
    assert profile.metrics_of("==WARNING== No kernels were profiled.\n") == {}
    assert profile.metrics_of("") == {}


class Gpu:
    name, selector, arch, also_runs = "NVIDIA H200", "gpu:0", ARCHS["sm_90"], ()


def fake_ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prints: str) -> Path:
    """A program that keeps its arguments and prints what it is told."""
    tool = tmp_path / "ncu"
    (tmp_path / "prints").write_text(prints)
    tool.write_text(
        f"#!{sys.executable}\nimport sys\n"
        f"open({str(tmp_path / 'called')!r}, 'w').write('\\n'.join(sys.argv[1:]))\n"
        f"print(open({str(tmp_path / 'prints')!r}).read())\n"
    )
    tool.chmod(0o755)
    monkeypatch.setenv(profile.TOOL_VARIABLE, str(tool))
    monkeypatch.setattr("tilegen_cuda.device.devices", lambda: [Gpu()])
    return tmp_path / "called"


@pytest.fixture
def source() -> tg.KernelSource:
    return tg.emit(tg.lower(TileSpec(block=(64, 64, 16), warp=(32, 32)), "cuda", "sm_90"))


def test_a_profile_of_a_device(
    source: tg.KernelSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = fake_ncu(tmp_path, monkeypatch, NCU)
    found = profile.profile(source, "gemm_wide")
    assert found.device == "NVIDIA H200"
    assert found.metrics["issue utilisation"] == 15.33
    words = called.read_text().splitlines()
    assert words[words.index("--kernel-name") + 1] == "gemm_wide"
    assert "smsp__issue_active.avg.pct_of_peak_sustained_active" in " ".join(words)
    assert words[-3:-1] == ["-m", "tilegen_cuda.profile"]


@pytest.mark.parametrize(
    ("prints", "says"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", "run as root"),
        ("==WARNING== No kernels were profiled.", "No kernels were profiled"),
        ("", "ncu says nothing"),
    ],
)
def test_a_profiler_that_gives_nothing_says_why(
    prints: str, says: str, source: tg.KernelSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_ncu(tmp_path, monkeypatch, prints)
    assert says in profile.profile(source, "gemm_wide").reason


def test_without_device_or_profiler_the_reason_is_told(
    source: tg.KernelSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilegen_cuda.device.devices", list)
    assert "no device that runs sm_90" in profile.profile(source, "gemm_wide").reason
    fake_ncu(tmp_path, monkeypatch, "")
    monkeypatch.setenv(profile.TOOL_VARIABLE, os.fspath(tmp_path / "nowhere"))
    assert profile.profile(source, "gemm_wide").reason == profile.NO_TOOL
