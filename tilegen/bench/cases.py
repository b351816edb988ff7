"""What is measured: named suites as data, shapes drawn at random, shapes typed by hand."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches

from tilegen.errors import SpecError
from tilegen.spec import Layouts, Types

DRAWN = 20
# The largest extent of a drawn shape, so that a CPU ends in minutes and a GPU is kept busy.
DRAWN_EXTENT = {"cpu": 2048, "gpu": 8192}


@dataclass(frozen=True)
class Case:
    """One product: M, N, K, types, majornesses, and the class that it is reported under.

    Attributes
    ----------
    m, n, k : int
    kind : str
        ``"big"``, ``"prefill"``, ``"decode"``, ``"odd"``, ``"drawn"`` or ``"given"``.
    types : Types
    layout : Layouts
    """

    m: int
    n: int
    k: int
    kind: str = "given"
    types: Types = field(default_factory=Types)
    layout: Layouts = field(default_factory=Layouts)

    @property
    def name(self) -> str:
        """``"f32 NN 512x512x512"``; N is row-major, T column-major, A first."""
        t = self.types
        types = t.a if t.a == t.b else f"{t.a}*{t.b}"
        return f"{types} {self.letters} {self.m}x{self.n}x{self.k}"

    @property
    def letters(self) -> str:
        """NN, NT, TN or TT: the majornesses of A and B as stored (m, k) and (k, n)."""
        return "".join("N" if x == "row" else "T" for x in (self.layout.a, self.layout.b))

    @property
    def flop(self) -> int:
        """Operations, 2 a multiply-add."""
        return 2 * self.m * self.n * self.k


def element_types(name: str) -> Types:
    """Types of a product of ``name``: integers in s32, 16- and 8-bit floats in f32."""
    if name in ("s8", "u8"):
        return Types(a=name, b=name, acc="s32", c="s32", d="s32")  # type: ignore[arg-type]
    if name in ("e4m3", "e5m2"):
        return Types(a=name, b=name, acc="f32", c="f16", d="f16")  # type: ignore[arg-type]
    acc, out = ("f64", "f64") if name == "f64" else ("f32", "f32" if name == "tf32" else name)
    return Types(a=name, b=name, acc=acc, c=out, d=out)  # type: ignore[arg-type]


def _cubes(*sizes: int) -> tuple[Case, ...]:
    return tuple(Case(s, s, s, "big") for s in sizes)


# N, K of the projections of 8B- and 70B-class models; M is the tokens of a step.
_LLM = tuple(
    Case(m, n, k, "decode" if m <= 64 else "prefill")
    for m in (1, 16, 64, 128, 1024, 4096)
    for n, k in ((6144, 4096), (4096, 14336), (28672, 4096))
)
_ODD = tuple(
    Case(*shape, "odd")
    for shape in (
        (1000, 1000, 1000),
        (4104, 4104, 4104),
        (4095, 4097, 4091),
        (64, 64, 65536),
        (128, 128, 16384),
    )
)
_MAJORNESSES = tuple(
    Case(size, size, size, "big", layout=Layouts(a=a, b=b))
    for size in (512, 1024, 2048, 4096)
    for a in ("row", "col")
    for b in ("row", "col")
)
_TYPES = tuple(
    Case(size, size, size, "big", types=element_types(name))
    for name in ("f32", "f64", "f16", "bf16", "s8")
    for size in (1024, 2048, 4096)
)

SUITES: Mapping[str, tuple[Case, ...]] = {
    "square": _cubes(512, 1024, 2048, 4096, 8192),
    "llm": _LLM,
    "odd": _ODD,
    "majornesses": _MAJORNESSES,
    "types": _TYPES,
    "all": (*_cubes(512, 1024, 2048, 4096, 8192), *_LLM, *_ODD),
}


def suite(name: str) -> tuple[Case, ...]:
    """The cases of a named suite; ``SpecError`` names the nearest one."""
    if name not in SUITES:
        near = get_close_matches(name, SUITES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(SUITES)}"
        raise SpecError(f"there is no suite {name!r}; {hint}")
    return SUITES[name]


def drawn(count: int, seed: int, device_kind: str = "cpu") -> tuple[Case, ...]:
    """Shapes drawn at random, the same for the same seed: extents log-uniform from 16 up.

    Every second shape, on average, has extents that are multiples of 16, as most callers' are; the
    others hit the narrow entries and the tails.
    """
    rng = random.Random(seed)
    largest = DRAWN_EXTENT[device_kind]
    cases = []
    for _ in range(count):
        m, n, k = (int(16 * (largest / 16) ** rng.random()) for _ in range(3))
        if rng.random() < 0.5:
            m, n, k = (extent // 16 * 16 for extent in (m, n, k))
        cases.append(Case(m, n, k, "drawn"))
    return tuple(cases)


def parse_shapes(text: str) -> tuple[Case, ...]:
    """``"512,4095x4097x4091"``: cubes and M x N x K, separated by commas."""
    return tuple(_parse_shape(part.strip()) for part in text.split(","))


def _parse_shape(text: str) -> Case:
    parts = text.lower().split("x")
    if not all(p.isascii() and p.isdigit() for p in parts) or len(parts) not in (1, 3):
        raise SpecError(f"shape {text!r} is neither a size (512) nor MxNxK (1024x512x64)")
    sizes = [int(p) for p in parts] * (3 if len(parts) == 1 else 1)
    if min(sizes) < 1:
        raise SpecError(f"shape {text!r}: every extent must be at least 1")
    if max(sizes) >= 2**31:
        raise SpecError(f"shape {text!r}: every extent must be under 2^31")
    return Case(sizes[0], sizes[1], sizes[2])


def with_spec(cases: Sequence[Case], types: Types, layout: Layouts) -> tuple[Case, ...]:
    """The cases in a spec's types and layout; what a suite varies itself (majornesses) stays."""
    varied = len({case.letters for case in cases}) > 1
    out = []
    for case in cases:
        own = {"a": case.layout.a, "b": case.layout.b} if varied else {}
        out.append(replace(case, types=types, layout=Layouts(**{**layout.model_dump(), **own})))
    return tuple(out)
