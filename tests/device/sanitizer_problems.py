"""Small problems on a GPU, every form and type and entry: what compute-sanitizer watches.

``compute-sanitizer --tool memcheck python tests/device/sanitizer_problems.py``

initcheck takes a cp.async of 16 bytes for a read of 16 bytes, however few of them it was told to copy
(PTX ISA, cp.async: src-size), so it is asked about the same kernels with copies through registers:
``compute-sanitizer --tool initcheck python tests/device/sanitizer_problems.py registers``
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import tilegen as tg
from tilegen import registry
from tilegen.errors import PlanError
from tilegen.testing import Problem, View, check_problem

STEPS = [{"op": "bias"}, {"op": "relu"}, {"op": "residual"}]
LAYOUTS = ("rrrr", "ccrr", "rccc")
NAMES = {"r": "row", "c": "col"}


def specs(device: Any, copies: Sequence[str]) -> list[tg.TileSpec]:
    """One spec for each form, type and some majornesses; then split K, one stage, an epilogue."""
    out, pinned = [], {"copy": copies[0]} if copies else {}
    for form in registry.get("cuda").forms(device.arch):
        for i, types in enumerate(form.types(device.arch)):
            c, d = types.outputs[0]
            for major in LAYOUTS if i < 2 else LAYOUTS[1:2]:
                base: dict[str, Any] = {
                    "block": (32, 64, 32),
                    "warp": (16, 32),
                    "stages": 3,
                    "types": {"a": types.a, "b": types.b, "acc": types.acc, "c": c, "d": d},
                    "layout": {x: NAMES[m] for x, m in zip("abcd", major, strict=True)},
                    "pins": {"cuda": {"form": form.name, **pinned}},
                }
                out.append(tg.TileSpec(**base))
            if types.acc == "f32":
                out.append(tg.TileSpec(**{**base, "split_k": 2, "epilogue": STEPS}))
                out.append(tg.TileSpec(**{**base, "stages": 1, "batch": "strided"}))
    return out


def main() -> None:
    """Solve two problems with every entry."""
    (device, *_), count = registry.get("cuda").devices(), 0
    for spec in specs(device, sys.argv[1:]):
        try:
            kernel = tg.build(spec, "cuda", device=device)
        except PlanError as refusal:
            print(refusal)
            continue
        batch = 2 if spec.batch == "strided" else None
        for view in (
            View(multiple=16),
            View(multiple=8),
            View(multiple=4, pad=2),
            View(1, offset=1),
        ):
            views = dict.fromkeys((*"abcd", "bias", "residual"), view)
            for m, n, k in ((64, 128, 96), (33, 65, 71)):
                check_problem(kernel, Problem(m, n, k, batch=batch, beta=2.0, views=views))
                count += 1
    print(f"{count} problems solved")


if __name__ == "__main__":
    main()
