"""Sweeping without a compiler: the points that lists span, their order, files, what is refused."""

from __future__ import annotations

import csv
import json
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import tilegen as tg
import tilegen.cli as cli
from tilegen import registry
from tilegen.backend import DYNAMIC_SHARED, Resources, Toolchain
from tilegen.errors import BackendError, PlanError, SpecError
from tilegen.sweep.points import parse_values, points
from tilegen.sweep.rows import Compiled
from tilegen.sweep.table import text

# The attribute of that name is the function.
RUN = import_module("tilegen.sweep.run")
SPEC = tg.TileSpec(block=(64, 64, 16), warp=(32, 32))
F32 = str(Path(__file__).parents[2] / "examples" / "gemm_f32.toml")
TILES: dict[str, Any] = {
    "block": [(64, 64, 16), (128, 64, 16)],
    "warp": [(32, 32), (64, 32)],
    "stages": [2, 3],
}


def predicted(**more: Any) -> tg.Sweep:
    return tg.sweep(SPEC, backend="cuda", arch="sm_90", compile=False, **{**TILES, **more})


def with_compiled(found: tg.Sweep, **numbers: Any) -> tg.Sweep:
    """Every row with what a compiler might have said of both entries."""
    rows = []
    for row in found.rows:
        said = {e.name: Resources(**numbers) for e in row.plan.main_entries}
        rows.append(replace(row, compiled=Compiled.of(row.plan, said, 1.25)))
    return replace(found, rows=tuple(rows), compiler="a compiler")


def test_every_combination_is_a_point_the_last_axis_the_fastest() -> None:
    axes = {"warp": [(32, 32), (64, 32)], "stages": [2, 3], "pins.cuda.swizzle": ["pad", "xor"]}
    found = points(SPEC, axes)
    assert len(found) == len({p.spec.digest for p in found}) == 8
    assert str(found[1]) == "warp 32x32, stages 2, pins.cuda.swizzle xor"
    assert found[5].spec == tg.TileSpec(
        block=(64, 64, 16), warp=(64, 32), stages=2, pins={"cuda": {"swizzle": "xor"}}
    )


def test_no_list_is_the_spec_itself() -> None:
    (only,) = points(SPEC, {})
    assert only.spec == SPEC


def test_other_pins_and_tables_stay_as_they_are() -> None:
    spec = SPEC.replace(
        pins={"cuda": {"min_blocks": 2}, "opencl": {"form": "work_group"}}, layout={"a": "col"}
    )
    (only,) = points(spec, {"pins.cuda.swizzle": ["pad"], "layout.b": ["col"]})
    assert only.spec.pins == {
        "cuda": {"min_blocks": 2, "swizzle": "pad"},
        "opencl": {"form": "work_group"},
    }
    assert (only.spec.layout.a, only.spec.layout.b) == ("col", "col")


@pytest.mark.parametrize(("own", "expected"), [({}, "col"), ({"d": "row", "c": "col"}, "row")])
def test_d_follows_c_unless_it_is_another(own: dict[str, str], expected: str) -> None:
    spec = SPEC.replace(layout=own)
    (only,) = points(spec, {"layout.c": ["col"]})
    assert only.spec.layout.d == expected


def test_values_as_the_command_line_takes_them() -> None:
    assert parse_values("64x64x16,128x128x32", "block") == [(64, 64, 16), (128, 128, 32)]
    assert parse_values("2, 3", "stages") == [2, 3]
    assert parse_values("pad,true,-1", "x") == ["pad", True, -1]
    with pytest.raises(SpecError, match="stages = '2,,3' holds an empty value"):
        parse_values("2,,3", "stages")


@pytest.mark.parametrize(
    ("axes", "words"),
    [
        ({"stages": []}, "stages: the list is empty"),
        ({"stages": [2, 3, 2]}, "stages names 2 twice"),
        ({"stages": 2}, "a list of values is needed, not int"),
        ({"pins.cuda.swizzle": "pad"}, "a list of values is needed, not str"),
        ({"stages": [0]}, "stages = 0: must be at least 1"),
        ({"blok": [(1, 2, 3)]}, "did you mean 'block'"),
        ({"stages.a": [1]}, "stages.a: stages is no table"),
        ({"stages": list(range(1000)), "split_k": list(range(101))}, "span 101000 points"),
    ],
)
def test_lists_that_span_nothing_are_refused(axes: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        points(SPEC.replace(stages=2), axes)


def test_what_a_rule_refuses_is_counted_and_listed() -> None:
    found = predicted(warp=[(32, 32), (48, 32), (8, 8), (128, 128)], block=[(64, 64, 16)])
    assert len(found) == 2
    assert found.refusals() == {"warps": 4, "threads": 2}
    listed = text(found, refused=True)
    assert "2 of 8 points are legal; refused: warps 4, threads 2" in listed
    assert "refused  threads: block 64x64x16, warp 8x8, stages 2: warp = [8, 8]" in listed
    assert "refused  threads" not in text(found)


def test_what_would_spill_is_there_where_it_is_asked_for() -> None:
    lists: dict[str, Any] = {"block": [(128, 128, 16)], "warp": [(32, 32), (128, 128)]}
    refused = predicted(**lists)
    assert refused.refusals() == {"registers": 2}
    found = predicted(**lists, spilling=True)
    assert not found.refused
    assert [row.spilling for row in found] == [False, False, True, True]
    assert found.rows[-1].use.spills
    assert "2 more are refused only since they are predicted to spill" in text(found)
    # A broken rule of another kind stays one.
    assert predicted(warp=[(32, 32), (48, 32)], spilling=True).refusals() == {"warps": 4}


def test_a_prediction_at_the_limit_is_told_as_one() -> None:
    found = predicted()
    row = found.rows[0]
    use = replace(row.use, limit=row.use.predicted)
    budget = replace(row.plan.budget, registers=(use,))
    full = replace(found, rows=(replace(row, plan=replace(row.plan, budget=budget)),))
    assert f" {use.predicted} at the limit " in text(full)
    assert "at the limit" not in text(found)
    assert full.to_dict()["rows"][0]["predicted_at_limit"] is True


def test_all_refused_is_an_error_that_names_the_nearest() -> None:
    with pytest.raises(
        PlanError, match=r"all 2 points are refused; the first one, .*nearest legal"
    ):
        predicted(block=[(64, 64, 16)], warp=[(48, 32)])


def test_the_order() -> None:
    found = predicted()
    bytes_, sums = (
        [row.plan.budget.flop_per_global_byte for row in found],
        [row.use.accumulators for row in found],
    )
    assert bytes_ == sorted(bytes_, reverse=True)
    assert sums[:4] == [64, 64, 32, 32]
    shared = [r.plan.budget.shared_bytes for r in found.sorted("predicted_shared_bytes")]
    assert shared == sorted(shared)
    assert shared[0] < shared[-1]
    back = [r.plan.budget.shared_bytes for r in found.sorted("-predicted_shared_bytes")]
    assert back == shared[::-1]
    # By numbers and not by letters, and what has no number comes last.
    assert [r.plan.block[0] for r in found.sorted("block")] == [64] * 4 + [128] * 4
    one = replace(found.rows[3], compiled=Compiled(registers=7))
    mixed = replace(found, rows=(*found.rows[:3], one))
    assert mixed.sorted("registers").rows[0] is one
    assert mixed.sorted("-registers").rows[0] is one
    with pytest.raises(SpecError, match="sort 'speed' is no column; columns: block, warp"):
        found.sorted("speed")


def test_what_spills_comes_last() -> None:
    found = with_compiled(predicted(), registers=100, spill_bytes=0)
    first = found.rows[0]
    assert first.compiled is not None
    spilled = replace(first, compiled=replace(first.compiled, spill_bytes=8))
    order = replace(found, rows=(spilled, *found.rows[1:])).sorted()
    assert order.rows[-1] is spilled


def test_the_compiler_s_numbers_are_the_most_of_the_main_entries() -> None:
    plan = predicted().rows[0].plan
    wide, narrow = (e.name for e in plan.main_entries)
    said = {
        wide: Resources(100, 0, 8, shared_bytes=16, extra={DYNAMIC_SHARED: 4096}),
        narrow: Resources(130, 24, 0, shared_bytes=16, extra={DYNAMIC_SHARED: 4096}),
    }
    c = Compiled.of(plan, said, None)
    assert (c.registers, c.spill_bytes, c.stack_bytes, c.shared_bytes) == (130, 24, 8, 4112)
    # 136 of 65536 registers a lane, 128 lanes a block.
    assert (c.blocks_per_multiprocessor, c.bound_by) == (65536 // (136 * 128), "registers")
    assert c.occupancy == 3 * 128 / 2048
    assert Compiled.of(plan, {wide: Resources(), narrow: Resources()}, None).occupancy is None


def test_csv_has_a_line_a_point_and_an_empty_cell_where_nobody_said(tmp_path: Path) -> None:
    found = predicted(set={"pins.cuda.swizzle": ["pad", "xor"]})
    found.save(tmp_path / "points.csv")
    rows = list(csv.DictReader((tmp_path / "points.csv").open()))
    assert len(rows) == 16
    assert [r["pins.cuda.swizzle"] for r in rows].count("xor") == 8
    assert {r["registers"] for r in rows} == {""}
    assert [int(r["predicted_registers"]) for r in rows] == [r.use.predicted for r in found]
    assert rows[0]["block"] == "128x64x16"
    found = with_compiled(found, registers=99, spill_bytes=0)
    assert {r["registers"] for r in csv.DictReader(found.to_csv().splitlines())} == {"99"}


def test_json_holds_each_point_s_spec(tmp_path: Path) -> None:
    found = predicted(warp=[(32, 32), (48, 32)])
    found.save(tmp_path / "points.json")
    data = json.loads((tmp_path / "points.json").read_text())
    assert data == found.to_dict()
    assert tg.TileSpec.from_dict(data["rows"][0]["spec"]) == found.rows[0].point.spec
    assert data["refused"][0]["violations"][0]["rule"] == "warps"


@pytest.mark.parametrize("suffix", ["svg", "png", "pdf"])
def test_the_plot_is_written(suffix: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / f"cliff.{suffix}"
    with_compiled(predicted(), registers=255, spill_bytes=16, stack_bytes=16).save(path)
    head = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}[suffix]
    assert path.read_bytes().startswith(head)


def test_the_plot_says_what_it_shows(tmp_path: Path) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        predicted().save(tmp_path / "a.svg")
        with_compiled(predicted(), registers=99, spill_bytes=0).save(tmp_path / "b.svg")
        with_compiled(predicted(), registers=255, spill_bytes=8).save(tmp_path / "c.svg")
    a, b, c = ((tmp_path / f"{x}.svg").read_text() for x in "abc")
    assert "predicted" in a
    assert "limit 255" in a
    assert [">compiled<" in x for x in (a, b, c)] == [False, True, False]
    assert ["compiled, spills" in x for x in (a, b, c)] == [False, False, True]
    assert ["bytes spilled" in x for x in (a, b, c)] == [False, False, True]


def test_a_plot_without_matplotlib_is_refused_before_the_sweep(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(BackendError, match=r"pip install 'tilegen\[plot\]'"):
        predicted().save(tmp_path / "x.svg")
    monkeypatch.setattr(RUN, "points", lambda *_: pytest.fail("it was run"))
    words = ["sweep", F32, "-b", "cuda", "-a", "sm_90", "-o", str(tmp_path / "x.png")]
    assert cli.run(words) == 2
    assert "the plot needs matplotlib" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--set", "pins.cuda.swizzle"], "KEY=V1,V2 is needed"),
        (["--set", "stages=2", "--stages", "3"], "stages is given twice"),
        (["--stages", "2,2"], "stages names 2 twice"),
        (["--block", "64x64"], "block[2] is missing"),
        (["--sort", "speed"], "no column"),
        (["-o", "points.txt"], "a sweep is written as .csv, .json"),
        (["--csv", "no/where.csv"], "no: there is no such folder"),
        (["--csv", "."], "it is a folder"),
        (["-a", "sm_91"], "did you mean 'sm_90"),
        (["--warp", "48x48"], "all 1 points are refused"),
    ],
)
def test_requests_that_are_wrong(
    more: list[str], words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(RUN, "compile_all", lambda *_: pytest.fail("it was compiled"))
    base = ["sweep", F32, "-b", "cuda", "-a", "sm_90"]
    assert cli.run([*base, *more]) == 2
    said = capsys.readouterr()
    assert words in said.err
    assert not said.out


def test_without_a_compiler_it_predicts_and_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = Toolchain("NVRTC", missing="NVRTC is not installed: python -m pip install it")
    monkeypatch.setattr(type(registry.get("cuda")), "toolchain", lambda *_: missing)
    words = ["sweep", F32, "-b", "cuda", "-a", "sm_90", "--stages", "2,3"]
    assert cli.run(words) == 0
    said = capsys.readouterr().out
    assert "nothing was compiled: NVRTC is not installed: python -m pip install" in said
    assert "compiled\n" not in said
    assert cli.run([*words, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["compiler"] is None
    assert data["rows"][0]["registers"] is None
    assert data["rows"][0]["predicted_registers"] > 0


def test_a_narrow_terminal_loses_columns_and_no_numbers() -> None:
    found = with_compiled(predicted(), registers=100, spill_bytes=0, stack_bytes=16)
    wide, narrow = text(found, 200), text(found, 80)
    assert "left out" not in wide
    assert max(map(len, narrow.splitlines()[2:-3])) <= 80
    assert "columns left out in 80 characters: compiled in s, stack bytes" in narrow
    assert "…" not in wide + narrow
