"""Fits the register model: what one of each of its terms takes, from what ptxas said of drawn specs.

    python docs/register_fit.py          rewrites backends/tilegen_cuda/registers.json

A sum of terms is fitted by least absolute deviations (a few specs are far off and must not pull the
rest); what stands at the limit says only that at least so much is taken. Whether a kernel spills is then
fitted to the sums that folds without it predict, by logistic regression.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from register_model import BACKEND, RECORDS

import tilegen as tg
from tilegen.tiling import registers_left
from tilegen_cuda import register_model as model
from tilegen_cuda.register_model import AHEAD, FEW_LEFT, PREFERRED

OUT = Path(__file__).parents[1] / "backends" / "tilegen_cuda" / "registers.json"
# What is fitted on, by form: the last are of earlier texts, without blocks in their launch bounds, and
# before those of which the widest entry alone is the same.
FILES = ("fit", "fit_more", "fit_sm_120", "fit_long", "unnamed", "earlier")
FITTED_ON = {form: tuple(f"{form}-{file}" for file in FILES) for form in ("mma_sync", "fma")}
FOLDS = 6
# Deviations below count by their square.
SMALL = 3.0
RIDGE = 0.05
# A byte that is spilled tells of an eighth of a register beyond the limit.
BYTES = 8
# Of those that do not spill so many are refused, and at most so many doubted, those included; of those
# that do spill so many are called fine, unless that makes too many doubted.
REFUSED, DOUBTED, CALLED_FINE = 0.035, 0.12, 0.015
# Share of its registers that a thread gives up for one more block: kernels that are not in doubt spilled no
# more often with it.
SQUEEZE = {"mma_sync": 0.0, "fma": 0.1}
# A prediction is held to the limit within so many registers where spills are judged.
FAR = 60.0
# Spilling kernels count so much more than those that do not.
WEIGHT = 4.0
Array = NDArray[np.float64]
# Terms are counted while nothing is fitted yet.
UNFITTED = model.Fitted(defaultdict(float), defaultdict(float), 1e9, 1e9, (0, 0), 0.0)


@dataclass(frozen=True)
class Record:
    """One kernel: the terms of its entries, and what ptxas said of them.

    ``asked`` says that its launch bounds named more than one block without a pin: to learn from, at
    times more than a plan names. ``long`` says the same of its loop over BLOCK_K.
    """

    entries: Mapping[str, Mapping[str, float]]
    risks: Mapping[str, float]
    said: Mapping[str, tuple[int, int]]
    limit: int
    sums: int
    asked: bool
    long: bool

    @property
    def spilled(self) -> bool:
        return any(bytes_ for _, bytes_ in self.said.values())


def records(form: str) -> list[Record]:
    """All cases of the form's files, with today's terms."""
    out = []
    for name in FITTED_ON[form]:
        path = RECORDS / f"{name}.json"
        cases = json.loads(path.read_text())["cases"] if path.exists() else []
        for told in cases:
            arch = BACKEND.archs[told["arch"]]
            kind = next(f for f in BACKEND.forms(arch) if f.name == form)
            spec = tg.TileSpec.from_dict(told["spec"])
            candidate = kind.derive(spec, arch)
            if told["error"] or "register_terms" not in candidate.numbers:
                continue
            entries = candidate.numbers["register_terms"]
            said = {}
            for entry, (registers, spill, _, _) in told["entries"].items():
                variant = entry.removeprefix(f"{spec.name}_")
                if variant in entries:
                    said[variant] = (registers, spill)
            # What the text that was compiled left a thread, whatever blocks a plan asks for now.
            pinned = spec.pins["cuda"].get("min_blocks", 1)
            limit = registers_left(arch, candidate.threads, told.get("blocks", pinned))
            risks = {
                **candidate.numbers["register_risks"],
                FEW_LEFT: limit < arch.registers.per_lane,
            }
            sums = candidate.registers[0].accumulators
            asked = "min_blocks" not in spec.pins["cuda"] and told.get("blocks", 1) > 1
            long = name.endswith("_long")
            out.append(Record(entries, risks, said, limit, sums, asked, long))
    return out


def rows(told: Sequence[Record]) -> list[tuple[Mapping[str, float], float, bool]]:
    """Terms of an entry, what it takes, and whether that is only the least; no sums in memory."""
    return [
        (record.entries[v], registers + spill / BYTES, registers >= record.limit - 1)
        for record in told
        for v, (registers, spill) in record.said.items()
        if not (spill and registers < record.sums)
    ]


def fit(told: Sequence[Record]) -> dict[str, float]:
    """Registers that one of each term takes."""
    data = rows(told)
    names = list(dict.fromkeys(name for terms, _, _ in data for name in terms))
    x = np.array([[float(terms.get(n, 0)) for n in names] for terms, _, _ in data])
    y = np.array([taken for _, taken, _ in data])
    at_limit = np.array([least for _, _, least in data])
    scale = np.abs(x).mean(0) + 1e-9
    x = x / scale
    one = np.eye(len(names)) * RIDGE
    b = np.linalg.solve(x.T @ x + one, x.T @ y)
    for _ in range(80):
        off = y - x @ b
        weight = np.where(at_limit & (off < 0), 1e-4, 1 / np.maximum(np.abs(off), SMALL))
        wx = x * weight[:, None]
        b = np.linalg.solve(x.T @ wx + one * weight.mean(), wx.T @ y)
    return {n: round(float(v), 2) for n, v in zip(names, b / scale, strict=True)}


def taken(registers: Mapping[str, float], terms: Mapping[str, float]) -> tuple[float, float]:
    """What an entry takes, with what it computes ahead and without."""
    all_, ahead = 0.0, 0.0
    for name, count in terms.items():
        one = registers.get(name, 0.0) * count
        all_, ahead = all_ + one, ahead + one * name.startswith(AHEAD)
    return all_, all_ - ahead


def without_themselves(told: Sequence[Record]) -> list[list[tuple[float, float]]]:
    """Of each record what its entries take by a fit without it."""
    fold = np.random.default_rng(0).integers(0, FOLDS, len(told))
    out: list[list[tuple[float, float]]] = [[] for _ in told]
    for k in range(FOLDS):
        registers = fit([r for r, f in zip(told, fold, strict=True) if f != k])
        for i in np.flatnonzero(fold == k):
            out[i] = [taken(registers, t) for t in told[i].entries.values()]
    return out


def logistic(x: Array, y: Array) -> Array:
    """Coefficients, the constant last, of a ridge logistic regression by Newton's method."""
    x = np.c_[x, np.ones(len(x))]
    weight = np.where(y > 0, WEIGHT, 1.0)
    b = np.zeros(x.shape[1])
    for _ in range(100):
        p = 1 / (1 + np.exp(-np.clip(x @ b, -30, 30)))
        slope = x.T @ (weight * (y - p)) - np.r_[b[:-1], 0]
        curve = (x * (weight * p * (1 - p))[:, None]).T @ x + np.diag(np.r_[np.ones(len(b) - 1), 0])
        step = np.linalg.solve(curve + 1e-9 * np.eye(len(b)), slope)
        b = b + step
        if np.abs(step).max() < 1e-9:
            break
    return b


def spills(told: Sequence[Record]) -> dict[str, Any]:
    """What leads to spills, in registers, and from where on it is said."""
    names = list(dict.fromkeys(n for r in told for n in r.risks))
    both = [
        tuple(max(pair[i] for pair in pairs) - r.limit for i in (0, 1))
        for r, pairs in zip(told, without_themselves(told), strict=True)
    ]
    sums = np.clip(np.array(both), -FAR, FAR)
    beside = np.array([[float(r.risks.get(n, 0)) for n in names] for r in told])
    y = np.array([float(r.spilled) for r in told])
    b = logistic(np.c_[sums / 10, beside], y)
    # In registers: what is taken and what is kept count one together.
    unit = (b[0] + b[1]) / 10
    shares, rest = b[:2] / 10 / unit, b[2:-1] / unit
    score = sums @ shares + beside @ rest
    # No plan names blocks that leave a thread less than it would take.
    planned = (sums[:, 0] <= 0) | np.array([not r.asked for r in told])
    planned &= np.array([not r.long for r in told])
    fine, spilled = (np.sort(score[planned & (y == spills)]) for spills in (0, 1))
    return {
        "risks": {
            "taken": round(float(shares[0]), 2),
            "kept": round(float(shares[1]), 2),
            **{n: round(float(v), 1) for n, v in zip(names, rest, strict=True)},
        },
        "refused": round(float(np.quantile(fine, 1 - REFUSED)), 1),
        "doubted": round(
            float(max(np.quantile(spilled, CALLED_FINE), np.quantile(fine, 1 - DOUBTED))), 1
        ),
    }


def snap(told: Sequence[Record], registers: Mapping[str, float]) -> tuple[float, float]:
    """How close to a preferred number ptxas takes it: what makes the sum of errors the least."""

    def errors(below: float, above: float) -> float:
        total = 0.0
        for record in told:
            for variant, (said, spill) in record.said.items():
                if spill:
                    continue
                most = taken(registers, record.entries[variant])[0]
                for step in (*(p for p in PREFERRED if p < record.limit), record.limit):
                    if step - below <= most <= step + above:
                        most = step
                        break
                total += abs(min(most, record.limit) - said)
        return total

    return min(((b, a) for b in (0, 2, 4) for a in (0, 4, 6, 8, 10)), key=lambda w: errors(*w))


def main() -> None:
    model.fitted = lambda form: UNFITTED  # type: ignore[assignment]
    out = {}
    for form in FITTED_ON:
        told = records(form)
        registers = fit(told)
        judged = spills(told)
        snapped, squeeze = snap(told, registers), SQUEEZE[form]
        out[form] = {"registers": registers, **judged, "snap": snapped, "squeeze": squeeze}
        print(f"{form}: {len(told)} kernels, {len(registers)} terms, {judged}, {out[form]['snap']}")
    OUT.write_text(json.dumps(out, indent=2) + "\n")


if __name__ == "__main__":
    main()
