"""A light reading of C-like text: tokens without comments, brackets, functions, operands, statements."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from .language import Language

TOKEN = re.compile(
    r"""
    (?P<comment>//[^\n]*|/\*.*?\*/)
  | (?P<directive>^[ \t]*\#(?:[^\n\\]|\\.|\\\n)*)
  | (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
  | (?P<number>(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[uUlLfFhH]*)
  | (?P<word>[A-Za-z_]\w*)
  | (?P<mark><<=|>>=|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||::|[-+*/%&|^]=|[-+*/%&|^~!<>=?:;,.(){}\[\]])
    """,
    re.VERBOSE | re.MULTILINE | re.DOTALL,
)
PRECEDENCE = {
    "*": 10, "/": 10, "%": 10, "+": 9, "-": 9, "<<": 8, ">>": 8, "<": 7, ">": 7, "<=": 7, ">=": 7,
    "==": 6, "!=": 6, "&": 5, "^": 4, "|": 3, "&&": 2, "||": 1,
}  # fmt: skip
ASSIGNMENTS = frozenset({"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="})
HEADS = frozenset({"if", "for", "while", "switch"})
KEYWORDS = HEADS | {"else", "do", "return", "break", "continue", "case", "goto", "typedef", "enum"}
PAIRS = {"(": ")", "[": "]", "{": "}"}


@dataclass(frozen=True)
class Token:
    """One token and where it stands in the text."""

    kind: str
    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Function:
    """A function definition, in indices of tokens: its name, parameter list and body with brackets."""

    name: str
    start: int
    parameters: tuple[int, int]
    body: tuple[int, int]


class Code:
    """A text, read once; what the operators ask."""

    def __init__(self, text: str, language: Language) -> None:
        self.text, self.language = text, language
        self.tokens = [
            Token(str(m.lastgroup), m.group(), m.start(), m.end())
            for m in TOKEN.finditer(text)
            if m.lastgroup not in ("comment", "directive")
        ]
        self._lines = [0, *(m.end() for m in re.finditer("\n", text))]

    def __len__(self) -> int:
        return len(self.tokens)

    def word(self, i: int) -> str:
        return self.tokens[i].text if 0 <= i < len(self.tokens) else ""

    def line(self, offset: int) -> int:
        """The number, from 1, of the line that holds this offset."""
        return bisect_right(self._lines, offset)

    def lines_of(self, start: int, end: int) -> tuple[int, int]:
        """Offsets of the whole lines that hold a stretch of the text."""
        first = self._lines[self.line(start) - 1]
        newline = self.text.find("\n", end)
        return first, len(self.text) if newline < 0 else newline

    def part(self, first: int, last: int) -> str:
        """The text of the tokens from ``first`` to ``last``, both included."""
        return self.text[self.tokens[first].start : self.tokens[last].end]

    @cached_property
    def partner(self) -> dict[int, int]:
        """Each bracket's other one."""
        out: dict[int, int] = {}
        open_ones: list[int] = []
        for i, token in enumerate(self.tokens):
            if token.text in PAIRS and token.kind == "mark":
                open_ones.append(i)
            elif token.text in PAIRS.values() and token.kind == "mark" and open_ones:
                j = open_ones.pop()
                out[i], out[j] = j, i
        return out

    @cached_property
    def typedefs(self) -> frozenset[str]:
        names = set()
        for i, token in enumerate(self.tokens):
            if token.text == "typedef":
                end = next(j for j in range(i, len(self)) if self.word(j) == ";")
                names.add(self.word(end - 1))
        return frozenset(names)

    def is_type(self, i: int) -> bool:
        word = self.word(i)
        return (
            word in self.language.qualifiers
            or word in self.typedefs
            or re.fullmatch(self.language.types, word) is not None
        )

    @cached_property
    def functions(self) -> list[Function]:
        out = []
        i = 0
        while i < len(self):
            if self.word(i) == "{" and not self._opens_scope(i):
                close = self.partner.get(i, len(self))
                before = i - 1
                if (
                    self.word(before) == ")"
                    and self.tokens[self.partner[before] - 1].kind == "word"
                ):
                    opening = self.partner[before]
                    out.append(
                        Function(self.word(opening - 1), opening - 1, (opening, before), (i, close))
                    )
                i = close
            i += 1
        return out

    def _opens_scope(self, i: int) -> bool:
        """Whether a bracket opens a namespace or a block of ``extern "C"``: functions stand in it."""
        j = i - 1
        while self.word(j) == "::" or (self.tokens[j].kind == "word" and self.word(j - 1) == "::"):
            j -= 1
        return "namespace" in (self.word(j), self.word(j - 1)) or (
            self.word(j - 1) == "extern" and self.tokens[j].kind == "string"
        )

    @cached_property
    def enums(self) -> list[tuple[int, int]]:
        """What stands before and behind the constants of each enum, or ``constexpr`` outside of functions."""
        out = []
        for i, token in enumerate(self.tokens):
            if token.text == "enum" and self.word(i + 1) == "{":
                out.append((i + 1, self.partner[i + 1]))
        for i, token in enumerate(self.tokens):
            declares = token.text == "constexpr" and self.is_type(i + 1) and self.word(i + 3) == "="
            if declares and self.function_at(i) is None:
                out.append((i + 1, next(self._ends(i, len(self)), len(self))))
        return out

    @cached_property
    def constants(self) -> frozenset[str]:
        """Names that an enum, or ``constexpr`` outside of functions, defines."""
        return frozenset(
            self.word(i)
            for start, end in self.enums
            for i in range(start + 1, end)
            if self.word(i + 1) == "=" and (i == start + 1 or self.word(i - 1) == ",")
        )

    def function_at(self, i: int) -> Function | None:
        return next((f for f in self.functions if f.start <= i <= f.body[1]), None)

    @cached_property
    def skipped(self) -> frozenset[int]:
        """Tokens of hints, of checks at compile time and of typedefs."""
        out: set[int] = set()
        for i, token in enumerate(self.tokens):
            if token.text in self.language.hints and self.word(i + 1) == "(":
                out.update(range(i, self.partner[i + 1] + 1))
            starts = i == 0 or self.word(i - 1) in (";", "}", "{")
            if starts and re.match(self.language.asserts, self.text[token.start :]):
                out.update(
                    range(i, next(j for j in range(i, len(self)) if self.word(j) == ";") + 1)
                )
        return frozenset(out)

    @cached_property
    def active(self) -> list[int]:
        """Tokens that may be changed: of function bodies and enums, hints and checks left out."""
        ranges = [f.body for f in self.functions] + self.enums
        inside = (i for first, last in ranges for i in range(first + 1, last))
        return sorted(set(inside) - self.skipped)

    @cached_property
    def head_ends(self) -> frozenset[int]:
        """The bracket that closes the head of each if, for or while."""
        return frozenset(
            self.partner[i + 1]
            for i, token in enumerate(self.tokens)
            if token.text in HEADS and self.word(i + 1) == "("
        )

    def _is_cast(self, close: int) -> bool:
        first = self.partner[close] + 1
        return first < close and all(
            self.is_type(i) or self.word(i) == "*" for i in range(first, close)
        )

    def is_binary(self, i: int) -> bool:
        """Whether the token is an operator between two operands."""
        word, before, after = self.word(i), self.word(i - 1), self.word(i + 1)
        if word not in PRECEDENCE or self.tokens[i].kind != "mark":
            return False
        if after in (")", ",", ";", "]", ">") or before in (
            *PAIRS,
            ",",
            ";",
            "?",
            ":",
            "}",
            "~",
            "!",
        ):
            return False
        if before in PRECEDENCE or before in ASSIGNMENTS or before in KEYWORDS:
            return False
        if i - 1 in self.head_ends or (before == ")" and word in "*&+-" and self._is_cast(i - 1)):
            return False
        return not (word in ("*", "&") and self.is_type(i - 1))

    def operands(self, i: int) -> tuple[int, int]:
        """First token of the left and last of the right operand of a binary operator."""
        rank = PRECEDENCE[self.word(i)]
        return self._left(i, rank), self._right(i, rank)

    def _left(self, i: int, rank: int) -> int:
        j = i - 1
        while j >= 0:
            if self.word(j) in PAIRS.values() and j not in self.head_ends:
                j = self.partner[j] - 1
                continue
            if (
                self._stops(j)
                or j in self.head_ends
                or (self.is_binary(j) and PRECEDENCE[self.word(j)] < rank)
            ):
                break
            j -= 1
        return j + 1

    def _right(self, i: int, rank: int) -> int:
        j = i + 1
        while j < len(self):
            if self.word(j) in PAIRS:
                j = self.partner[j] + 1
                continue
            if self._stops(j) or (self.is_binary(j) and PRECEDENCE[self.word(j)] <= rank):
                break
            j += 1
        return j - 1

    def _stops(self, j: int) -> bool:
        word = self.word(j)
        if self.tokens[j].kind not in ("mark", "word"):
            return False
        return (
            word in (",", ";", "?", ":", "{", "}", "(", ")", "[", "]")
            or word in ASSIGNMENTS
            or word in KEYWORDS
        )

    def condition_of(self, question: int) -> int:
        """The first token of the condition before a ``?``."""
        return self._left(question, 0)

    def arguments(self, opening: int) -> list[tuple[int, int]]:
        """First and last token of each argument between a bracket and its partner."""
        close, out, first, j = self.partner[opening], [], opening + 1, opening + 1
        while j < close:
            if self.word(j) in PAIRS:
                j = self.partner[j]
            elif self.word(j) == ",":
                out.append((first, j - 1))
                first = j + 1
            j += 1
        return [*out, (first, close - 1)] if first < close else out

    def split(self, first: int, last: int, mark: str) -> list[tuple[int, int]]:
        """The stretches between the marks of this kind, outside of inner brackets."""
        out, j, start = [], first, first
        while j <= last:
            if self.word(j) in PAIRS:
                j = self.partner[j]
            elif self.word(j) == mark:
                out.append((start, j - 1))
                start = j + 1
            j += 1
        return [*out, (start, last)]

    @cached_property
    def statements(self) -> list[tuple[int, int]]:
        """First and last token (the semicolon) of each simple statement in a function body."""
        out = []
        for function in self.functions:
            first, last = function.body
            i = first + 1
            while i < last:
                word = self.word(i)
                if word in ("{", "}", "else", "do"):
                    i += 1
                elif word in HEADS:
                    i = self.partner[i + 1] + 1
                else:
                    end = next(self._ends(i, last), last)
                    if self.word(end) == ";":
                        out.append((i, end))
                    i = end + 1
        return out

    def _ends(self, i: int, last: int) -> Iterator[int]:
        while i < last:
            if self.word(i) in PAIRS:
                i = self.partner[i]
            elif self.word(i) == ";":
                yield i
            i += 1

    def is_declaration(self, first: int) -> bool:
        return self.is_type(first)
