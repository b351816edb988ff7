"""The contract of a matrix product on a kernel that tilegen did not write, on the emulator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tilegen.checklist.lines import FAIL, PASS, UNMEASURED, Line
from tilegen.checklist.meaning import SCRATCH, Meaning, Word, blocks
from tilegen.dtypes import DTYPES
from tilegen.entries import Formula
from tilegen.errors import VerifyError
from tilegen.spec import TileSpec
from tilegen.tiling import CONTIGUOUS

if TYPE_CHECKING:
    from tilegen.emulator import EmulatorRun, Finding, Program
    from tilegen.testing import Problem

ITEM = "contract"
# Forwards and backwards, and the race detector besides.
ORDERS = (0, 1)
ENDLESS = ("endless-loop", "time-limit")
NOT_TRIED = "not tried: the kernel does not end"


@dataclass(frozen=True)
class _Family:
    """Whose error growth holds."""

    family: str = "fma"


@dataclass(frozen=True)
class ForeignPlan:
    """As much of a plan as the check of a problem reads; who owns an element is not known."""

    spec: TileSpec
    name: str

    @property
    def instruction(self) -> _Family:
        return _Family()

    @property
    def block(self) -> tuple[int, int, int]:
        return self.spec.block

    @property
    def ownership(self) -> dict[str, Any]:
        return {}


@dataclass(frozen=True)
class ForeignKernel:
    """A foreign kernel, called like one of tilegen's own; each call is a launch on the emulator.

    Attributes
    ----------
    program : Program
    entry : str
    grid : tuple of Formula
        In M, N and K.
    block : tuple of int
    shared_bytes : int
        Dynamic shared memory.
    meaning : Meaning
    plan : ForeignPlan
    hidden : frozenset of str
        Operands of which the kernel gets no element: any access to them is one outside of an array.
    """

    program: Program
    entry: str
    grid: tuple[Formula, ...]
    block: tuple[int, ...]
    shared_bytes: int
    shared_limit: int
    meaning: Meaning
    plan: ForeignPlan
    hidden: frozenset[str] = frozenset()

    def explain(self, *_: Any, **__: Any) -> str:
        return f"{self.entry}: taken"

    def __call__(
        self, a: Any, b: Any, c: Any = None, *, alpha: float, beta: float, out: Any
    ) -> Any:
        grid, values, written = self.call(a, b, c, alpha, beta, out)
        if not all(grid):
            return out
        # A kernel that does not end would take as long in every order, and under the race detector.
        first = self.run(grid, values, written, orders=ORDERS[:1], races=False)
        if does_not_end(first):
            raise _EndlessError(f"the emulator found {first_of(first.findings)}")
        run = self.run(grid, values, written, orders=ORDERS)
        if not run.clean:
            raise VerifyError(f"the emulator found {first_of(run.findings)}")
        # Arrays come back in the order in which they were given, the same one once.
        given = list({id(v): None for v in values if isinstance(v, np.ndarray)})
        out[...] = run.arrays[given.index(id(values[written[0]]))]
        return out

    def call(
        self, a: Any, b: Any, c: Any, alpha: float, beta: float, out: Any
    ) -> tuple[tuple[int, ...], list[Any], list[int]]:
        """Grid, values of the parameters, and positions of those that are written."""
        sizes = {"M": a.shape[0], "N": b.shape[1], "K": a.shape[1]}
        operands = {"A": a, "B": b, "C": out if c is None else c, "D": out, "CD": out}
        numbers = {**sizes, "alpha": alpha, "beta": beta}
        values = [self._value(w, operands, numbers, sizes) for w in self.meaning.words]
        written = [i for i, w in enumerate(self.meaning.words) if w.name in ("D", "CD")]
        return blocks(self.grid, *sizes.values()), values, written

    def run(
        self, grid: tuple[int, ...], values: list[Any], written: list[int], **options: Any
    ) -> EmulatorRun:
        """One launch; ``options`` are the emulator's."""
        from tilegen import emulator

        return emulator.run(
            self.program,
            entry=self.entry,
            grid=grid,
            block=self.block,
            args=values,
            outputs=written,
            shared_bytes=self.shared_bytes,
            shared_limit=self.shared_limit,
            **options,
        )

    def counted(self, **options: Any) -> EmulatorRun:
        """A problem of a few whole tiles; ``options`` are the emulator's."""
        from tilegen.testing import make_arrays

        problem = whole_tiles(self.meaning, self.plan.spec)
        arrays = make_arrays(problem, self.plan.spec)
        call = self.call(arrays.a, arrays.b, arrays.c, 1.0, problem.beta, arrays.out)
        return self.run(*call, **options)

    def _value(
        self, word: Word, operands: dict[str, Any], numbers: dict[str, Any], sizes: dict[str, int]
    ) -> Any:
        if word.kind == "operand":
            whole = operands[word.name]
            return np.empty(0, whole.dtype) if word.name in self.hidden else whole
        if word.kind == "stride":
            name = word.name[-1].upper()
            array = operands["CD" if name in "CD" and self.meaning.in_place else name]
            axis = 0 if getattr(self.plan.spec.layout, word.name[-1]) == "row" else 1
            return array.strides[axis] // array.itemsize
        if word.kind == "scratch":
            assert word.size is not None
            return _scratch(word, word.size(**sizes))
        return word.number if word.kind == "number" else numbers[word.name]


def _scratch(word: Word, elements: int) -> np.ndarray[Any, Any]:
    kind = np.dtype(SCRATCH[word.name]) if word.name in SCRATCH else DTYPES[word.name].numpy
    whole = kind.kind in "iu"
    unset = -1 if whole else float("nan")
    fill = unset if word.number != word.number else int(word.number) if whole else word.number
    return np.full(max(1, elements), fill, np.int64 if whole else np.float64).astype(kind)


class _EndlessError(VerifyError):
    """A launch that does not end."""


def does_not_end(run: EmulatorRun) -> bool:
    """Whether a run was ended that would not have ended by itself."""
    return any(finding.kind in ENDLESS for finding in run.findings)


def first_of(findings: Sequence[Finding]) -> Finding:
    """What names a line says more than what only shows in the results."""
    return min(findings, key=lambda finding: finding.line is None)


@dataclass(frozen=True)
class Clause:
    """One promise of the contract, and the problems that try it.

    Attributes
    ----------
    name : str
    problems : tuple of Problem
    reason : str
        Why it is not tried, where it is not.
    hidden : frozenset of str
        Operands that must not be read.
    """

    name: str
    problems: tuple[Problem, ...] = ()
    reason: str = ""
    hidden: frozenset[str] = frozenset()


def whole_tiles(meaning: Meaning, spec: TileSpec) -> Problem:
    """Two tiles in each direction, two steps of K."""
    from tilegen.testing import Problem

    m, n, k = (2 * extent for extent in spec.block)
    return Problem(m, n, k, beta=meaning.beta, in_place=meaning.in_place)


def clauses(meaning: Meaning, spec: TileSpec, examples: int, seed: int) -> Iterator[Clause]:
    """The contract, the plain promises first, as far as the mapping gives what they are about."""
    from tilegen.testing import View

    (bm, bn, bk), (mm, mn, mk) = spec.block, meaning.multiples
    whole = replace(whole_tiles(meaning, spec), m=bm, n=bn, seed=seed)
    large = replace(whole, m=2 * bm, n=3 * bn, k=4 * bk)
    yield Clause("whole tiles", (whole, replace(large, values="position"), large))

    def sized(*sizes: tuple[int, int, int]) -> tuple[Problem, ...]:
        fitting = [(m, n, k) for m, n, k in sizes if not (m % mm or n % mn or k % mk)]
        return tuple(replace(whole, m=m, n=n, k=k) for m, n, k in dict.fromkeys(fitting))

    deep = whole.k
    yield _drawn(
        "tails of M and N",
        sized((1, 1, deep), (bm + 1, bn, deep), (bm, bn + 1, deep), (2 * bm - 1, 2 * bn - 1, deep)),
        meaning,
    )
    yield _drawn(
        "tails of K", sized(*((bm, bn, k) for k in (1, bk - 1, bk + 1, 2 * bk + 3, mk))), meaning
    )
    empty = sized((0, bn, deep), (bm, 0, deep), (0, 0, 0), (bm, bn, 0))
    yield _drawn("sizes of 0", empty, meaning)
    if DTYPES[spec.types.a].is_float:
        yield Clause("values drawn at random", (replace(large, values="normal"),))
        yield Clause("NaN and infinities pass through", (replace(large, specials=True),))
    else:
        yield Clause("values drawn at random", (replace(large, values="normal"),))
    missing = "the mapping names no {}"
    if meaning.has("alpha"):
        yield Clause("alpha", tuple(replace(whole, alpha=x) for x in (2.0, -1.0, 0.0)))
        unread = replace(whole, alpha=0.0)
        yield Clause("A and B unread where alpha is 0", (unread,), hidden=frozenset("AB"))
    else:
        yield Clause("alpha", reason=missing.format("alpha"))
    if meaning.has("beta") and meaning.reads_c:
        yield Clause("beta", tuple(replace(whole, beta=x) for x in (1.0, 2.0, -1.0)))
        # What becomes D is there to be written, and holds NaN; another C is not there at all.
        unread = replace(whole, poison_c=True)
        yield Clause("C unread where beta is 0", (unread,), hidden=frozenset("C"))
    else:
        yield Clause("beta", reason=missing.format("beta and no C"))
    padded = [o for o in "abcd" if _pads(meaning, o)]
    if padded:
        pads = [[(o, pad_of(meaning, o, p))] for o in padded for p in (4, 3)]
        pads.append([(o, pad_of(meaning, o, 5)) for o in padded])
        drawn = dict.fromkeys(map(tuple, pads))
        views = [{o: View(pad=p) for o, p in one} for one in drawn]
        yield Clause("leading dimensions", tuple(replace(whole, views=v) for v in views))
    else:
        yield Clause("leading dimensions", reason=missing.format("lda, ldb, ldc or ldd"))
    reason = "" if examples else "--examples 0 asks for none"
    yield Clause("problems drawn at random", draw(meaning, spec, examples, seed), reason)


def _drawn(name: str, problems: tuple[Problem, ...], meaning: Meaning) -> Clause:
    told = ", ".join(f"{n} of {axis}" for axis, n in zip("MNK", meaning.multiples, strict=True))
    return Clause(name, problems, "" if problems else f"only multiples are asked for: {told}")


def _pads(meaning: Meaning, operand: str) -> bool:
    """Whether rows of the operand may lie further apart than they are long."""
    if operand in "cd" and meaning.in_place:
        return meaning.has("ldc") or meaning.has("ldd")
    return meaning.has(f"ld{operand}") and meaning.has(operand.upper())


def pad_of(meaning: Meaning, operand: str, pad: int) -> int:
    """What keeps the leading dimension a multiple, where the size along the rows is to be one."""
    axis = CONTIGUOUS[operand][getattr(meaning.layout, operand)]
    multiple = meaning.multiples["mnk".index(axis)]
    return -(-pad // multiple) * multiple


def draw(meaning: Meaning, spec: TileSpec, examples: int, seed: int) -> tuple[Problem, ...]:
    """Problems from the strategies of :mod:`tilegen.testing`, brought within what the mapping gives."""
    from tilegen.testing import View, problems
    from tilegen.testing.drawing import use_drawn

    out: list[Problem] = []

    def collect(problem: Problem) -> None:
        m, n, k = (
            -(-size // multiple) * multiple
            for size, multiple in zip(
                (problem.m, problem.n, problem.k), meaning.multiples, strict=True
            )
        )
        views = {
            o: View(pad=pad_of(meaning, o, problem.view(o).pad))
            for o in "abcd"
            if _pads(meaning, o)
        }
        if meaning.in_place and "d" in views:
            views["c"] = views["d"]
        out.append(
            replace(
                problem,
                m=m,
                n=n,
                k=k,
                alpha=problem.alpha if meaning.has("alpha") else 1.0,
                beta=problem.beta if meaning.has("beta") and meaning.reads_c else meaning.beta,
                poison_c=problem.poison_c and meaning.reads_c,
                in_place=meaning.in_place,
                views=views,
            )
        )

    drawn = problems(spec, largest=2 * max(spec.block[:2]) + 1)
    use_drawn(drawn, examples, seed, collect, shrink=False)
    return tuple({repr(problem): problem for problem in out}.values())


def in_words(problem: Problem) -> str:
    """The problem as one would say it, without what is as usual."""
    parts = [f"M = {problem.m}, N = {problem.n}, K = {problem.k}"]
    parts += [f"{n} = {v:g}" for n, v in (("alpha", problem.alpha), ("beta", problem.beta))]
    parts += [f"rows of {o.upper()} padded by {v.pad}" for o, v in problem.views.items() if v.pad]
    parts += [f"{problem.values} values"] if problem.values != "integers" else []
    parts += ["NaN in C"] * problem.poison_c + ["NaN in A and B"] * problem.poison_ab
    return ", ".join([*parts, *["NaN and infinities in A, B and C"] * problem.specials])


def contract_lines(
    kernel: ForeignKernel, examples: int, seed: int, told: Callable[[str], None]
) -> Iterator[Line]:
    """Each promise of the contract: how many problems kept it, or the first that did not, in words."""
    from tilegen.testing import check_problem

    endless = False
    for clause in clauses(kernel.meaning, kernel.plan.spec, examples, seed):
        if endless:
            yield Line(ITEM, clause.name, verdict=UNMEASURED, note=clause.reason or NOT_TRIED)
            continue
        if not clause.problems:
            yield Line(ITEM, clause.name, verdict=UNMEASURED, note=clause.reason)
            continue
        told(clause.name)
        failed, done = "", 0
        asked = replace(kernel, hidden=clause.hidden)
        for problem in clause.problems:
            try:
                check_problem(asked, problem)  # type: ignore[arg-type]
            except VerifyError as error:
                endless = isinstance(error, _EndlessError)
                failed = str(error).removesuffix(f"; {problem}") + f"; {in_words(problem)}"
                break
            done += 1
        line = Line(ITEM, clause.name, None, f"{done} of {len(clause.problems)} problems")
        yield replace(line, verdict=FAIL if failed else PASS, note=failed)
