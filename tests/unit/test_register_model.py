"""The register model and what judges it: draws, the judgement's counts, and the page's numbers."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import tilegen as tg
from tilegen.backend import Resources
from tilegen.plan import RegisterUse
from tilegen.sweep import Compiled

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def model() -> Any:
    location = importlib.util.spec_from_file_location(
        "register_model", ROOT / "docs" / "register_model.py"
    )
    assert location is not None
    assert location.loader is not None
    module = importlib.util.module_from_spec(location)
    sys.modules["register_model"] = module  # its dataclasses look for it there
    location.loader.exec_module(module)
    return module


@pytest.mark.parametrize("form", ["fma", "mma_sync"])
def test_the_same_seed_draws_the_same_specs(model: Any, form: str) -> None:
    first, again, other = (
        [case.key for case in islice(model.draw(form, seed), 12)] for seed in (1, 1, 2)
    )
    assert first == again
    assert not set(first) & set(other)
    case = next(model.draw(form, 1))
    assert case.plan.form == form
    assert case.plan.arch.name in model.ARCHS


def test_what_is_counted(model: Any) -> None:
    plan = tg.lower(tg.TileSpec(block=(64, 64, 16), warp=(32, 32)), "cuda", "sm_90")

    def judged(needs: int, registers: int, spilled: int) -> Any:
        use = RegisterUse("32-bit", 32, 16, 0, needs - 48, 128)
        changed = replace(plan, budget=replace(plan.budget, registers=(use,)))
        said = {e.name: Resources(registers, spilled, 0, 16384) for e in plan.main_entries}
        case = model.Case("sm_90", plan.spec, changed)
        return model.Judged(case, Compiled.of(changed, said, None))

    cases = [judged(100, 104, 0), judged(100, 96, 8), judged(200, 128, 400), judged(140, 120, 0)]
    told = model.report(cases)
    # Nothing above the limit of 128 is held against ptxas.
    assert [j.error for j in cases] == [-4, 4, 0, 8]
    assert (told["median error"], told["largest"]) == (4, 8)
    assert (told["spilled"], told["'fits' that spill"], told["of them by choice"]) == (2, 1, 1)
    assert told["of them over 64 bytes"] == 0
    assert told["'spills' that do not"] == 1
    assert told["of those that do not, %"] == 50


def test_the_page_s_table_is_that_of_its_records(model: Any) -> None:
    page = (ROOT / "docs" / "registers.md").read_text()
    assert model.with_table(page) == page, "run: python docs/register_model.py table"


def test_what_is_expected_stays_within_the_limit_and_a_need_beyond_it_stays() -> None:
    use = RegisterUse("32-bit", 64, 32, 0, 40, 168)
    assert use.expected(10).predicted == 146
    assert use.expected(100).predicted == 168
    assert use.expected(-10).predicted == 126
    over = replace(use, limit=128)
    assert over.expected(100) == over
    assert over.spills


@pytest.mark.parametrize("form", ["fma", "mma_sync"])
def test_more_sums_and_more_to_move_take_more_registers(form: str) -> None:
    types = {"a": "tf32", "b": "tf32"} if form == "mma_sync" else {}

    def predicted(block: tuple[int, int, int], warp: tuple[int, int]) -> int:
        pins = {"cuda": {"form": form}}
        spec = tg.TileSpec(block=block, warp=warp, types=types, pins=pins)
        return tg.lower(spec, "cuda", "sm_90").budget.registers[0].predicted

    base = predicted((64, 64, 16), (32, 32))
    assert predicted((128, 64, 16), (64, 32)) > base
    assert predicted((64, 64, 32), (32, 32)) > base


def test_fp8_takes_more_on_hopper_which_has_no_instruction_for_it() -> None:
    spec = tg.TileSpec(
        block=(64, 64, 32), warp=(32, 32), types={"a": "e4m3", "b": "e4m3"}, layout={"b": "col"}
    )
    uses = {a: tg.lower(spec, "cuda", a).budget.registers[0] for a in ("sm_89", "sm_90", "sm_120")}
    assert uses["sm_90"].operands == 2 * uses["sm_120"].operands == 2 * uses["sm_89"].operands
