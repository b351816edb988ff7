"""The corpus of faults in the emulator: each text has its stated verdict, and none harms who asked.

A sample runs here, the correct kernels in it; TILEGEN_TEST_DEEP=1 runs all.
"""

from __future__ import annotations

import hashlib
import os

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
