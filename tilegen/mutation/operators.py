"""Mutation operators: each makes one small change to an emitted text, as a slip of the pen would."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice, pairwise

from .language import Language
from .names import sisters
from .tokens import ASSIGNMENTS, HEADS, KEYWORDS, Code

Change = tuple[int, int, str]  # first and last token, and what stands there instead


@dataclass(frozen=True)
class Mutant:
    """One changed text, told by what changed.

    Attributes
    ----------
    operator : str
    function : str
        Whose body it is in; ``enum`` for a constant, however it is declared.
    line : int
        Of the unchanged text, from 1.
    before, after : str
        The code that was changed and what it became, white space closed up; of a change inside a
        long line, the whole line.
    start, end : int
        What is replaced: characters of the unchanged text.
    replacement : str
    key : tuple of str
        The same for the same change at the same place of a template, whatever numbers another
        kernel has there.
    """

    operator: str
    function: str
    line: int
    before: str
    after: str
    start: int = field(repr=False)
    end: int = field(repr=False)
    replacement: str = field(repr=False)
    key: tuple[str, ...] = field(repr=False)

    def apply(self, text: str) -> str:
        """The changed text."""
        return text[: self.start] + self.replacement + text[self.end :]

    def __str__(self) -> str:
        return (
            f"line {self.line}, {self.function}, {self.operator}: {self.before}  ->  {self.after}"
        )


def barrier(code: Code) -> Iterator[Change]:
    """A barrier is left out, or orders less."""
    for first, last in code.statements:
        if code.word(first) in code.language.barriers:
            yield first, last, ";"
            for i in range(first, last):
                for weaker in code.language.fences.get(code.word(i), ()):
                    yield i, i, weaker


SHIFTED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}


def comparison(code: Code) -> Iterator[Change]:
    """A comparison takes one value more, or one less."""
    for i in code.active:
        word = code.word(i)
        if word in SHIFTED and code.is_binary(i):
            yield i, i, SHIFTED[word]
            if word not in ("==", "!="):
                _, last = code.operands(i)
                bound = code.part(i + 1, last)
                yield i + 1, last, f"({bound} {'-' if word in ('<', '>=') else '+'} 1)"


def guard(code: Code) -> Iterator[Change]:
    """A condition always holds, never holds, or holds where it should not; a part of it is left out."""
    for i in code.active:
        word = code.word(i)
        if word == "if":
            first, last = i + 2, code.partner[i + 1] - 1
        elif word == "?" and code.word(i - 1) != "(":
            first, last = code.condition_of(i), i - 1
        elif word == "for" and len(parts := code.split(i + 2, code.partner[i + 1] - 1, ";")) == 3:
            yield parts[1][0], parts[1][1], "0"
            continue
        else:
            if word in ("&&", "||") and code.is_binary(i):
                first, last = code.operands(i)
                yield first, last, code.part(first, i - 1)
                yield first, last, code.part(i + 1, last)
                yield i, i, "||" if word == "&&" else "&&"
            continue
        condition = code.part(first, last)
        for changed in ("1", "0", f"!({condition})"):
            yield first, last, changed


def bound(code: Code) -> Iterator[Change]:
    """A clamp is left out on either side, or turned round."""
    for i in code.active:
        if code.word(i) in ("min", "max") and code.word(i + 1) == "(":
            close = code.partner[i + 1]
            for first, last in code.arguments(i + 1):
                yield i, close, f"({code.part(first, last)})"
            yield i, i, "max" if code.word(i) == "min" else "min"


SWAPPED = {"+": "-", "-": "+", "*": "+", "/": "%", "%": "/", "<<": ">>", ">>": "<<"}


def term(code: Code) -> Iterator[Change]:
    """A term or factor is left out, or meets the other in the wrong way."""
    for i in code.active:
        word = code.word(i)
        if word not in (*SWAPPED, "^", "&", "|") or not code.is_binary(i):
            continue
        if word in SWAPPED:
            yield i, i, SWAPPED[word]
        first, last = code.operands(i)
        yield first, last, f"({code.part(first, i - 1)})"
        right = code.part(i + 1, last)
        yield first, last, f"(-({right}))" if word == "-" else f"({right})"


def step(code: Code) -> Iterator[Change]:
    """A loop takes steps of another length; a sum is overwritten, or counted down."""
    for i in code.active:
        word = code.word(i)
        if word in ("++", "--") and code.tokens[i + 1].kind == "word":
            yield i, i + 1, f"{code.word(i + 1)} {word[0]}= 2"
        elif word == "+=":
            yield i, i, "-="
            yield i, i, "="
            if code.word(i - 2) == ";" and code.tokens[i - 1].kind == "word":
                yield i, i, "+= 1 +"


INTEGER = re.compile(r"(\d+)([uUlL]*)")


def literal(code: Code) -> Iterator[Change]:
    """A number is one more, or one less; a fraction is a thousandth off, or has the other sign."""
    for i in code.active:
        token = code.tokens[i]
        if token.kind != "number":
            continue
        if whole := INTEGER.fullmatch(token.text):
            value, suffix = int(whole[1]), whole[2]
            yield i, i, f"{value + 1}{suffix}"
            yield i, i, f"{value - 1}{suffix}" if value else f"(-1{suffix})"
        elif not token.text.lower().startswith("0x"):
            suffix = token.text.lstrip("0123456789.eE+-")
            number = float(token.text.removesuffix(suffix))
            yield i, i, f"{number * 1.001:.9g}{suffix}" if number else f"1.0{suffix}"
            yield i, i, f"(-{token.text})"


def constant(code: Code) -> Iterator[Change]:
    """A named constant is one more, or one less, than its formula says."""
    for start, end in code.enums:
        for first, last in code.split(start + 1, end - 1, ","):
            if code.word(first + 1) == "=":
                value = code.part(first + 2, last)
                if last > first + 2:
                    yield first + 2, last, f"({value}) + 1"
                    yield first + 2, last, f"({value}) - 1"


def name(code: Code) -> Iterator[Change]:
    """A name is taken for its sister: lda for ldb, row for col, M for N."""
    functions = frozenset(f.name for f in code.functions)
    known: dict[str, frozenset[str]] = {}
    for i in code.active:
        function, word = code.function_at(i), code.word(i)
        if (
            function is None
            or code.tokens[i].kind != "word"
            or word in KEYWORDS
            or _declares(code, i)
        ):
            continue
        if word in functions:
            others = functions
        else:
            if function.name not in known:
                words = {t.text for t in code.tokens[function.start : function.body[1]]}
                known[function.name] = frozenset((words | code.constants) - functions)
            others = known[function.name]
        for sister in islice(sisters(word, others - {function.name}), 2):
            yield i, i, sister


def _declares(code: Code, i: int) -> bool:
    """Whether the word is being declared here, so that another name would only not compile."""
    after = code.word(i + 1)
    return (code.is_type(i - 1) or code.word(i - 1) in ("*", ",")) and (
        after in ("=", "[", ";", ",") and _in_declaration(code, i)
    )


def _in_declaration(code: Code, i: int) -> bool:
    j, depth = i - 1, 0
    while j > 0 and (depth or code.word(j) not in (";", "{", "}", "(")):
        depth += {")": 1, "]": 1, "(": -1, "[": -1}.get(code.word(j), 0)
        j -= 1
    declares = code.is_type(j + 1)
    # Behind a `=` of the same declarator a name is used, not declared.
    between = [code.word(x) for x in range(j + 1, i)]
    tail = between[len(between) - between[::-1].index(",") :] if "," in between else between
    return declares and "=" not in tail and not any(w in ASSIGNMENTS for w in tail)


def statement(code: Code) -> Iterator[Change]:
    """An assignment, call or jump is left out, or changes places with the next of its kind."""
    for first, last in code.statements:
        word = code.word(first)
        drops = (
            not code.is_declaration(first) and word not in code.language.barriers and last > first
        )
        if (
            drops
            and not (word == "return" and last > first + 1)
            and not set(range(first, last)) & code.skipped
        ):
            yield first, last, ";"
    for (first, last), (start, end) in zip(code.statements, code.statements[1:], strict=False):
        assigns = code.word(first + 1) == "=" == code.word(start + 1)
        if start == last + 1 and assigns and code.word(first) == code.word(start):
            yield first, end, f"{code.part(start, end)} {code.part(first, last)}"


def argument(code: Code) -> Iterator[Change]:
    """Two arguments of a call change places."""
    own = frozenset(f.name for f in code.functions) | code.language.multiply_adds
    for i in code.active:
        if code.word(i) in own and code.word(i + 1) == "(":
            parts = code.arguments(i + 1)
            first_pair = 1 if code.word(i) in code.language.multiply_adds else 0
            for left, right in list(pairwise(parts))[first_pair:]:
                one, other = code.part(*left), code.part(*right)
                if one != other:
                    yield left[0], right[1], f"{other}, {one}"


def narrow(code: Code) -> Iterator[Change]:
    """An integer is held in a type of fewer bits."""
    for function in code.functions:
        for i in range(function.start, function.body[1]):
            if i not in code.skipped and code.word(i) in code.language.narrower:
                yield i, i, code.language.narrower[code.word(i)]


# What keys say of a change whose own words are numbers, which keys do without.
TURNS = ("more", "less")
ALWAYS = {"1": "always", "0": "never"}

IMMEDIATE = re.compile(r"(?<![\w.%:])\d+(?![\w.:])")


def assembly(code: Code) -> Iterator[Change]:
    """In inline assembly, an instruction is taken for its sister, or an immediate is one more or less."""
    if not code.language.assembly:
        return
    for first, last in code.statements:
        if code.word(first) not in code.language.assembly:
            continue
        for i in range(first, last):
            token = code.tokens[i]
            if token.kind != "string" or token.text.startswith("'"):
                continue
            for pattern, other in code.language.mnemonics:
                for found in re.finditer(pattern, token.text):
                    yield i, i, _spliced(token.text, found, found.expand(other))
            for found in IMMEDIATE.finditer(token.text):
                value = int(found[0])
                for changed in (value + 1, value - 1) if value else (1,):
                    yield i, i, _spliced(token.text, found, str(changed))


def _spliced(text: str, found: re.Match[str], new: str) -> str:
    return text[: found.start()] + new + text[found.end() :]


OPERATORS: dict[str, Callable[[Code], Iterator[Change]]] = {
    f.__name__: f
    for f in (
        barrier, comparison, guard, bound, term, step, literal, constant, name, statement, argument, narrow,
        assembly,
    )
}  # fmt: skip


def mutants(
    text: str, language: Language, operators: tuple[str, ...] = tuple(OPERATORS)
) -> list[Mutant]:
    """Every mutant of a text, in the order of the text; no two of them alike.

    Parameters
    ----------
    operators : tuple of str
        Names from :data:`OPERATORS`.
    """
    code = Code(text, language)
    seen: dict[str, Mutant] = {}
    for operator in operators:
        turns: Counter[tuple[int, int]] = Counter()
        for first, last, replacement in OPERATORS[operator](code):
            mutant = _mutant(code, operator, first, last, replacement, turns[first, last])
            turns[first, last] += 1
            seen.setdefault(mutant.apply(text), mutant)
    return sorted(seen.values(), key=lambda m: (m.start, m.end, m.operator, m.replacement))


def _mutant(
    code: Code, operator: str, first: int, last: int, replacement: str, turn: int
) -> Mutant:
    start, end = code.tokens[first].start, code.tokens[last].end
    top, bottom = code.lines_of(start, end)
    function = code.function_at(first)
    before = code.text[top:bottom]
    after = code.text[top:start] + replacement + code.text[end:bottom]
    above = code.text[:top].rstrip().rpartition("\n")[2]
    below = code.text[bottom:].lstrip().partition("\n")[0]
    name = function.name if function else "enum"
    # A number that is one more differs from kernel to kernel; that it is the first change does not.
    changed = TURNS[turn] if operator == "literal" else ALWAYS.get(replacement, replacement)
    # A line that stands more than once in its function is known by the ones beside it.
    body = (
        code.text[code.tokens[function.start].start : code.tokens[function.body[1]].end]
        if function
        else ""
    )
    beside = (above, below) if body.count(before.strip()) > 1 else ()
    place = (name, before[: start - top], before, changed, *beside)
    return Mutant(
        operator=operator,
        function=name,
        line=code.line(start),
        before=_closed(before),
        after=_closed(after),
        start=start,
        end=end,
        replacement=replacement,
        key=(operator, str(last - first), *(_general(part, code.language) for part in place)),
    )


# The names of element types in names of functions: load_f16_as_f32_v4.
STORED = re.compile(r"(?<![A-Za-z0-9])(?:bf|f|s|u)\d+(?![A-Za-z0-9])")


def _general(text: str, language: Language) -> str:
    """The text without what differs between kernels of one template: numbers and element types."""
    typeless = re.sub(rf"\b(?:{language.types})\b", "type", STORED.sub("type", _closed(text)))
    return re.sub(r"\d+", "#", typeless)


def _closed(text: str) -> str:
    return " ".join(text.split())


__all__ = ["HEADS", "OPERATORS", "Mutant", "mutants"]
