"""The corpus of faults in the emulator: each text has its stated verdict, and none harms who asked.

A sample runs here, the correct kernels in it; TILEGEN_TEST_DEEP=1 runs all.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from emulated.faults import corpus

TEXTS = corpus.texts()
DEEP = bool(os.environ.get("TILEGEN_TEST_DEEP"))


def _drawn(text: corpus.Text) -> bool:
    # The same ones each time, spread over all kernels and files.
    return hashlib.sha256(text.name.encode()).digest()[0] < 32


SAMPLE = [t for t in TEXTS if DEEP or t.group == "correct" or _drawn(t)]


def test_names_and_texts_are_different() -> None:
    assert len({t.name for t in TEXTS}) == len(TEXTS)
    assert len({t.digest for t in TEXTS}) == len(TEXTS)


def test_the_corpus_is_as_large_as_it_says() -> None:
    assert sum(t.fault for t in TEXTS) >= 300
    assert sum(not t.fault and t.group != "correct" for t in TEXTS) >= 40, "harmless changes"
    assert sum(t.device for t in TEXTS) >= 300
    assert all(t.why for t in TEXTS)


def test_the_page_is_what_the_record_says(monkeypatch: pytest.MonkeyPatch) -> None:
    docs = Path(__file__).parents[2] / "docs"
    monkeypatch.syspath_prepend(str(docs))
    import fidelity
    import fidelity_record
    import fidelity_table

    record = fidelity.read(fidelity.RECORD)
    rows = fidelity_record.collect(record)
    assert not [r.name for r in rows if r.clean == bool(r.text.verdict)], "verdicts have changed"
    hint = "run: python docs/fidelity.py table"
    assert fidelity_table.table(record) == fidelity.TABLE.read_text(encoding="utf-8"), hint
    assert fidelity_table.rows(record) == fidelity.ROWS.read_text(encoding="utf-8"), hint


@pytest.mark.parametrize(
    ("found", "of", "low", "high"),
    [(10, 10, 0.722, 1.0), (0, 20, 0.0, 0.161), (50, 100, 0.404, 0.596)],
)
def test_wilsons_interval(
    monkeypatch: pytest.MonkeyPatch, found: int, of: int, low: float, high: float
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "docs"))
    from fidelity_record import wilson

    assert wilson(found, of) == pytest.approx((low, high), abs=0.001)


@pytest.mark.parametrize("text", SAMPLE, ids=lambda t: t.name)
def test_verdict(text: corpus.Text) -> None:
    orders = (0, 1, 2, 3) if text.group == "correct" else corpus.ORDERS
    judged = corpus.judge(text, orders)
    if not text.verdict:
        assert judged.clean, f"{text.why}\n{judged.said}"
        return
    missing = set(text.verdict) - set(judged.verdict)
    # Where a wild address of a mutant leads to is not the same each time.
    needed = text.group == "planted" or missing == set(text.verdict)
    assert not (missing and needed), f"not {sorted(missing)}, but {judged.verdict}: {judged.said}"
