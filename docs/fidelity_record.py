"""The record of the corpus, text by text: what the emulator, a GPU and compute-sanitizer said of each."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from emulated.faults import corpus

NOTES = Path(__file__).with_name("fidelity_notes.toml")
OUTCOMES = ("right", "wrong", "varies", "stray", "error", "hang", "not compiled")
# A text counts to the first of these that the emulator reports.
CLASSES = {
    "race, missing barrier": ("data-race", "order-dependent"),
    "missing wait of asynchronous work": ("async-in-flight",),
    "missing fence": ("missing-proxy-fence", "missing-fence"),
    "mbarrier": ("bad-mbarrier",),
    "deadlock, endless loop": ("deadlock", "endless-loop", "time-limit"),
    "divergence": ("divergent-barrier", "divergent-collective", "inactive-lane"),
    "out of bounds": ("out-of-bounds",),
    "misaligned": ("misaligned",),
    "assembly": ("missing-clobber", "constraint", "bad-argument", "unknown-instruction", "not-volatile"),
    "output written twice or never": ("never-written", "written-twice"),
    "wrong results alone": (corpus.WRONG,),
}  # fmt: skip


@cache
def notes() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = tomllib.loads(NOTES.read_text(encoding="utf-8"))
    return found


@dataclass(frozen=True)
class Row:
    """One text with its records."""

    text: corpus.Text
    emulator: dict[str, Any]
    device: dict[str, Any]
    sanitizer: dict[str, str]

    @property
    def name(self) -> str:
        return self.text.name

    @property
    def verdict(self) -> list[str]:
        return list(self.emulator["verdict"])

    @property
    def clean(self) -> bool:
        return not self.verdict

    @property
    def unaided(self) -> bool:
        """Found by a finding, without knowing the right results."""
        return bool(set(self.verdict) - {corpus.WRONG})

    @cached_property
    def outcome(self) -> str:
        d = self.device
        if not d:
            return "not run"
        if "error" in d:
            return {"timeout": "hang", "not-compiled": "not compiled"}.get(d["error"], "error")
        if d.get("stray"):
            return "stray"
        if d["right"] == d["launches"]:
            return "right"
        return "varies" if d["results"] > 1 else "wrong"

    @property
    def ran(self) -> bool:
        return self.outcome in OUTCOMES[:-1]

    @property
    def bad(self) -> bool:
        return self.ran and self.outcome != "right"

    @property
    def klass(self) -> str:
        for name, kinds in CLASSES.items():
            if set(kinds) & set(self.verdict):
                return name
        assert self.clean, self.verdict
        return "clean"

    @property
    def why(self) -> str:
        return notes().get(self.name, {}).get("why") or self.text.why

    @property
    def errors(self) -> list[str]:
        """Sanitizer tools that found something."""
        return [tool for tool, said in self.sanitizer.items() if said.endswith(" errors")]

    @property
    def said(self) -> str:
        d = self.device
        if self.outcome == "error":
            return str(d["error"]).removeprefix("CUDA_ERROR_").lower().replace("_", " ")
        if self.outcome == "varies":
            return f"varies: {d['right']} of {d['launches']} right"
        return self.outcome

    @property
    def sanitized(self) -> str:
        return ", ".join(f"{t}: {v}" for t, v in sorted(self.sanitizer.items())) or "not run"


def collect(record: dict[str, Any]) -> list[Row]:
    """The record's rows in the corpus's order; raises ``ValueError`` where a record is of another text."""
    out = []
    for text in corpus.texts():
        parts = [
            dict(record[part].get(text.name, {})) for part in ("emulator", "device", "sanitizer")
        ]
        for part in parts:
            if part and part.pop("text") != text.digest:
                raise ValueError(f"{text.name} has changed since it was recorded")
        if not parts[0]:
            raise ValueError(f"{text.name} has no verdict: python docs/fidelity.py emulate")
        out.append(Row(text, parts[0], parts[1], parts[2]))
    return out


def wilson(found: int, of: int, z: float = 1.96) -> tuple[float, float]:
    """The 95 % interval of a share, by Wilson's score."""
    share, spread = (
        found / of,
        z * ((found / of) * (1 - found / of) / of + z * z / (4 * of * of)) ** 0.5,
    )
    middle, scale = share + z * z / (2 * of), 1 + z * z / of
    return (middle - spread) / scale, (middle + spread) / scale
