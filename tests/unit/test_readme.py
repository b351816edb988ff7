"""The README shows what the code does: the emitted head, the support table, the refusal."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

import tilegen as tg

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_the_head_of_the_kernel_is_the_emitted_one() -> None:
    spec = tg.TileSpec(block=(128, 128, 64), warp=(64, 64))
    text = tg.emit(tg.lower(spec, "opencl", "cpu")).text
    shown = README.split("```c\n")[1].split("```")[0]
    assert text.startswith(shown)


def test_the_refusal_is_the_real_one() -> None:
    with pytest.raises(tg.PlanError) as caught:
        tg.lower(tg.TileSpec(block=(100, 128, 16), warp=(64, 32)), "opencl", "gpu")
    assert str(caught.value) in README


def test_the_support_table_follows_the_records() -> None:
    location = importlib.util.spec_from_file_location("support", ROOT / "docs" / "support.py")
    assert location is not None
    assert location.loader is not None
    support = importlib.util.module_from_spec(location)
    location.loader.exec_module(support)
    assert support.with_table(README) == README, "run: python docs/support.py table"
