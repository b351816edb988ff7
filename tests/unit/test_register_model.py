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
from tilegen.errors import PlanError
from tilegen.plan import RegisterUse
from tilegen.sweep import Compiled
from tilegen_cuda import register_model
from tilegen_cuda.register_model import MAY_SPILL, Fitted, fitted

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
    assert (told["'may spill' that spill"], told["'may spill' that do not"]) == (0, 0)
    assert told["of those that do not, %"] == 50


def test_what_is_doubted_is_counted_apart(model: Any) -> None:
    plan = tg.lower(tg.TileSpec(block=(64, 64, 16), warp=(32, 32)), "cuda", "sm_90")
    use = replace(RegisterUse("32-bit", 32, 16, 0, 80, 128), doubtful=True)
    changed = replace(plan, budget=replace(plan.budget, registers=(use,)))
    cases = [
        model.Judged(
            model.Case("sm_90", plan.spec, changed),
            Compiled.of(
                changed, {e.name: Resources(128, s, 0, 16384) for e in plan.main_entries}, None
            ),
        )
        for s in (0, 0, 16)
    ]
    told = model.report(cases)
    assert (told["'may spill' that spill"], told["'may spill' that do not"]) == (1, 2)
    assert told["'fits' that spill"] == told["'spills' that do not"] == 0


def test_the_page_s_table_is_that_of_its_records(model: Any) -> None:
    page = (ROOT / "docs" / "registers.md").read_text()
    assert model.with_table(page) == page, "run: python docs/register_model.py table"


def test_every_term_has_a_fitted_number_and_none_is_left_over(model: Any) -> None:
    # Of terms that no drawn spec has nothing is known; those that have one are all in the file.
    for form in ("fma", "mma_sync"):
        known = set(fitted(form).registers)
        seen: set[str] = set()
        for case in islice(model.draw(form, 5), 60):
            kind = next(f for f in model.BACKEND.forms(case.plan.arch) if f.name == form)
            numbers = kind.derive(case.spec, case.plan.arch).numbers
            for terms in numbers["register_terms"].values():
                seen |= set(terms)
            assert set(numbers["register_risks"]) <= set(fitted(form).risks)
        assert seen <= known


def test_a_sum_of_terms_and_what_is_computed_ahead() -> None:
    made = Fitted(
        {"x": 2.0, "ahead: y": 10.0}, {"taken": 0.5, "kept": 0.5, "z": 3.0}, 8, 2, (2, 4), 0
    )
    terms = {"x": 20, "ahead: y": 3}
    assert (made.taken(terms), made.kept(terms)) == (70, 40)
    assert made.need({"wide": terms, "narrow": {"x": 20}}, {"z": 2}) == 55 + 6
    # Within reach of a number at which one more warp fits, of the limit too; never more, nor too few.
    assert [made.snapped(r, 255) for r in (126, 132, 133, 125, 254, 999)] == [
        128,
        128,
        133,
        125,
        255,
        255,
    ]
    assert made.snapped(200, 168) == 168
    assert made.snapped(3, 255) == 24


def use_of(beyond: int, model: Any, monkeypatch: pytest.MonkeyPatch) -> RegisterUse:
    made = Fitted({"x": 1.0}, {"taken": 1.0, "kept": 0.0}, 8, 2, (0, 0), 0)
    monkeypatch.setattr(register_model, "fitted", lambda form: made)
    use, blocks = register_model.register_use(
        "any",
        {"wide": {"x": 128 + beyond}, "narrow": {"x": 60}},
        {},
        arch=model.BACKEND.archs["sm_80"],
        threads=512,
        shared_bytes=0,
        blocks=None,
        accumulators=64,
        operands=40,
        staging=30,
    )
    assert (blocks, use.limit) == (1, 128)
    return use


def test_what_is_beyond_the_limit_spills_may_spill_or_is_kept_within_it(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {b: use_of(b, model, monkeypatch) for b in (-20, 2, 3, 8, 9, 40)}
    assert [u.spills for u in told.values()] == [False, False, False, False, True, True]
    assert [u.doubtful for u in told.values()] == [False, False, True, True, False, False]
    assert [u.predicted for u in told.values()] == [108, 128, 128, 128, 129, 160]
    # Sums are there whatever happens; the rest shares what is left.
    few = told[-20]
    assert (few.accumulators, few.operands, few.staging, few.addressing) == (64, 40, 4, 0)
    assert (few.of("wide"), few.of("narrow"), few.of("other")) == (108, 60, 108)
    assert told[40].of("narrow") == 160


@pytest.mark.parametrize(
    ("taken", "threads", "shared_bytes", "risk", "blocks"),
    [
        # 65536 registers of a multiprocessor, 512 a lane of its four parts: 4 warps of 128 each.
        (128, 128, 0, 0, 4),
        (129, 128, 0, 0, 3),
        # 3 warps a block: 5 blocks put 4 warps into a part, 4 blocks 3.
        (128, 96, 0, 0, 5),
        (160, 96, 0, 0, 4),
        # 167936 bytes, and 1024 more a block: not more than shared memory holds, and than 32.
        (40, 128, 40 * 1024, 0, 4),
        (24, 32, 0, 0, 32),
        # What may spill in what is left to it is not held to it.
        (128, 128, 0, 3, 3),
        (255, 128, 0, 3, 1),
    ],
)
def test_launch_bounds_name_the_blocks_that_are_predicted(
    model: Any, taken: int, threads: int, shared_bytes: int, risk: int, blocks: int
) -> None:
    made = Fitted({"x": 1.0}, {"taken": 1.0, "kept": 0.0, "risk": 1.0}, 8, 2, (0, 0), 0)
    arch, entries = model.BACKEND.archs["sm_80"], {"wide": {"x": taken}, "narrow": {"x": 24}}
    asked = register_model.blocks_asked(made, entries, {"risk": risk}, arch, threads, shared_bytes)
    assert asked == blocks


def test_a_pin_says_how_many_blocks_the_launch_bounds_name() -> None:
    spec = tg.TileSpec(block=(64, 64, 16), warp=(32, 32))
    left = {}
    for pins in ({}, {"min_blocks": 1}, {"min_blocks": 2}):
        plan = tg.lower(spec.replace(pins={"cuda": pins}), "cuda", "sm_80")
        asked = plan.numbers["MIN_BLOCKS"]
        left[asked] = plan.budget.registers[0].limit
        assert asked == pins.get("min_blocks", plan.budget.blocks_per_multiprocessor)
        bounds = f"__launch_bounds__(THREADS, {asked})"
        assert tg.emit(plan).text.count(bounds) == 2
    assert len(left) == 3
    assert sorted(left.items()) == sorted(left.items(), key=lambda x: -x[1])


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


def test_a_loop_too_deep_for_its_addresses_is_refused_with_the_nearest_depth() -> None:
    spec = tg.TileSpec(
        block=(64, 64, 256), warp=(64, 64), stages=1, types={"a": "bf16", "b": "bf16"}
    )
    spec = spec.replace(pins={"cuda": {"form": "mma_sync"}})
    with pytest.raises(PlanError, match=r"block\[2\] = 256: 16 steps .* legal value: ") as raised:
        tg.lower(spec, "cuda", "sm_90")
    nearest = int(str(raised.value).rpartition(" ")[2])
    assert nearest in range(64, 256, 16)
    assert tg.lower(spec.replace(block=(64, 64, nearest)), "cuda", "sm_90").block[2] == nearest
    with pytest.raises(PlanError, match=f"legal value: {nearest}"):
        tg.lower(spec.replace(block=(64, 64, nearest + 16)), "cuda", "sm_90")
    # Too many sums spill at any depth.
    large = spec.replace(block=(128, 96, 32), warp=(128, 96), stages=3)
    with pytest.raises(PlanError, match="the kernel would spill") as raised:
        tg.lower(large, "cuda", "sm_90")
    assert "BLOCK_K" not in str(raised.value)


def test_what_may_spill_is_said_and_not_refused() -> None:
    # NVRTC 13.0 spills 44 bytes in the widest entry, and none where four warps share the tile.
    spec = tg.TileSpec(
        block=(64, 64, 32), warp=(64, 64), stages=3, types={"a": "bf16", "b": "bf16"}
    )
    plan = tg.lower(spec, "cuda", "sm_80")
    (use,) = plan.budget.registers
    assert (use.spills, use.doubtful) == (False, True)
    assert MAY_SPILL in plan.notes
    assert "perhaps" in str(plan)
    told = ", ".join(f"{variant} {use.of(variant)}" for variant in ("wide", "by8", "by4", "narrow"))
    assert told in " ".join(str(plan).split())
    sure = tg.lower(spec.replace(block=(128, 128, 32)), "cuda", "sm_80")
    assert MAY_SPILL not in sure.notes
    assert not sure.budget.registers[0].doubtful


def test_fp8_takes_more_on_hopper_which_has_no_instruction_for_it() -> None:
    # NVRTC 13.0: 122, 94 and 100 registers in the widest entry on sm_90, sm_89 and sm_120.
    spec = tg.TileSpec(
        block=(64, 64, 32), warp=(32, 32), types={"a": "e4m3", "b": "e4m3"}, layout={"b": "col"}
    )
    hopper, ada, blackwell = (
        tg.lower(spec, "cuda", a).budget.registers[0].predicted
        for a in ("sm_90", "sm_89", "sm_120")
    )
    assert hopper - 20 >= ada == blackwell
