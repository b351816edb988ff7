"""Finds the `asm` statements of C++ text and takes them apart; the PTX itself is not looked at here."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from tilegen.emulator.ptx.findings import CONSTRAINT, Refused
from tilegen.emulator.ptx.literals import Piece, decode, quoted_end, raw_string_end, skip_space

_WORD = re.compile(r"[A-Za-z_]\w*")
_ASM = {"asm", "__asm__", "__asm"}
_QUALIFIERS = {"volatile", "__volatile__", "__volatile", "inline", "__inline__"}
_STRING = re.compile(r'(?:u8|u|U|L)?R?"')
_STRING_MACRO = re.compile(
    r'^[ \t]*#[ \t]*define[ \t]+([A-Za-z_]\w*)[ \t]+((?:"(?:\\.|[^"\\\n])*"[ \t]*(?:\\\r?\n[ \t]*)?)+)$',
    re.MULTILINE,
)


@dataclass(frozen=True)
class Operand:
    """One operand of an `asm` statement.

    Attributes
    ----------
    constraint : str
        The letter alone: h, r, l, f, d or n.
    mode : str
        ``=`` written, ``+`` read and written, empty for an input.
    expression : str
        C++, as written, on one line.
    line : int
    """

    constraint: str
    mode: str
    expression: str
    line: int


@dataclass(frozen=True)
class Statement:
    """One `asm` statement.

    Attributes
    ----------
    start, end : int
        ``text[start:end]`` is the statement, its semicolon not included.
    line : int
    volatile : bool
    template : str
        The joined string.
    lines : tuple of int
        The line of each character of `template`.
    operands : tuple of Operand
        Outputs, then inputs: the n of ``%n``.
    clobbers : tuple of str
    extended : bool
        Whether there is any colon. Without one, ``%`` has no meaning of its own.
    error : Refused or None
        Why the statement could not be read; everything else is then empty.
    """

    start: int
    end: int
    line: int
    volatile: bool = False
    template: str = ""
    lines: tuple[int, ...] = ()
    operands: tuple[Operand, ...] = ()
    clobbers: tuple[str, ...] = ()
    extended: bool = False
    error: Refused | None = None


class _Source:
    def __init__(self, text: str) -> None:
        self.text = text
        self._breaks = [m.start() for m in re.finditer("\n", text)]
        self.macros = {m[1]: m[2] for m in _STRING_MACRO.finditer(text)}

    def line(self, at: int) -> int:
        return bisect_right(self._breaks, at - 1) + 1 if at else 1


def statements(text: str) -> Iterator[Statement]:
    """The `asm` statements of C++ text, in order; those inside macro definitions too."""
    source = _Source(text)
    at = 0
    while at < len(text):
        at = skip_space(text, at)
        if at >= len(text):
            return
        if (raw := raw_string_end(text, at)) is not None:
            at = raw
        elif text[at] in "\"'":
            at = quoted_end(text, at)
        elif (word := _WORD.match(text, at)) is not None:
            at = word.end()
            if word[0] in _ASM and (found := _statement(source, word.start(), at)) is not None:
                yield found
                at = found.end
        elif text[at].isdigit():
            # A digit separator is no quote.
            at = re.compile(r"\d(?:[\w.]|'(?=\w))*").match(text, at).end()  # type: ignore[union-attr]
        else:
            at += 1


def _statement(source: _Source, start: int, at: int) -> Statement | None:
    text = source.text
    volatile = False
    while (word := _WORD.match(text, at := skip_space(text, at))) and word[0] in _QUALIFIERS:
        volatile |= "volatile" in word[0]
        at = word.end()
    line = source.line(start)
    if at >= len(text) or text[at] != "(":
        return None
    end = _closing(text, at)
    try:
        return _parts(source, start, at + 1, end, volatile)
    except Refused as error:
        return Statement(start, end, line, volatile, error=error)


def _closing(text: str, at: int) -> int:
    """One past the bracket that closes the one at `at`."""
    depth = 0
    while at < len(text):
        at = skip_space(text, at)
        if at >= len(text):
            break
        if (raw := raw_string_end(text, at)) is not None:
            at = raw
            continue
        if text[at] in "\"'":
            at = quoted_end(text, at)
            continue
        if text[at] in "([{":
            depth += 1
        elif text[at] in ")]}":
            depth -= 1
            if not depth:
                return at + 1
        at += 1
    return len(text)


def _parts(source: _Source, start: int, at: int, end: int, volatile: bool) -> Statement:
    text = source.text
    template, at = _pieces(source, at, end - 1)
    operands: list[Operand] = []
    clobbers: list[str] = []
    section = 0
    while (at := skip_space(text, at)) < end - 1:
        if text[at] == ":":
            section += 1
            at += 1
        elif text[at] == ",":
            at += 1
        elif section in (1, 2):
            operand, at = _operand(source, at, end - 1, output=section == 1)
            operands.append(operand)
        elif section == 3:
            piece, at = _pieces(source, at, end - 1)
            clobbers.append(piece.text)
        else:
            raise Refused(source.line(at), f"'{text[at]}' in an asm statement is not read")
    return Statement(
        start, end, source.line(start), volatile, template.text, template.lines,
        tuple(operands), tuple(clobbers), extended=section > 0,
    )  # fmt: skip


def _pieces(source: _Source, at: int, end: int) -> tuple[Piece, int]:
    """Adjacent string literals, and macros that stand for some, as one piece."""
    text = source.text
    chars: list[str] = []
    lines: list[int] = []
    while (at := skip_space(text, at)) < end:
        line = source.line(at)
        if _STRING.match(text, at):
            raw = raw_string_end(text, at)
            stop = raw if raw is not None else quoted_end(text, text.index('"', at))
            piece = decode(text, at, stop, line)
            chars.append(piece.text)
            lines.extend(piece.lines)
            at = stop
        elif word := _WORD.match(text, at):
            body = _macro(source, word[0], line)
            chars.append(body)
            lines.extend([line] * len(body))
            at = word.end()
        elif text[at] == "#":
            raise Refused(
                line, "an asm string made with the '#' of a macro is not read; write it out"
            )
        else:
            break
    if not chars:
        raise Refused(source.line(at), "an asm statement needs a string literal here")
    return Piece("".join(chars), tuple(lines)), at


def _macro(source: _Source, name: str, line: int) -> str:
    if name not in source.macros:
        raise Refused(line, f"'{name}' in an asm string is no macro of this text for a string")
    body = source.macros[name]
    out, at = "", 0
    while (at := skip_space(body, at)) < len(body):
        stop = quoted_end(body, at)
        out += decode(body, at, stop, line).text
        at = stop
    return out


def _operand(source: _Source, at: int, end: int, *, output: bool) -> tuple[Operand, int]:
    text = source.text
    line = source.line(at)
    if text[at] == "[":
        raise Refused(line, "operands with [names] are not part of CUDA's asm")
    piece, at = _pieces(source, at, end)
    at = skip_space(text, at)
    if at >= end or text[at] != "(":
        raise Refused(line, f'the constraint "{piece.text}" has no (expression)')
    stop = _closing(text, at)
    letter = piece.text.lstrip("=+&")
    mode = "+" if "+" in piece.text else "=" if "=" in piece.text else ""
    if letter not in set("hrlfdn") or (letter == "n" and output):
        raise Refused(line, f'the constraint "{piece.text}" is not known', CONSTRAINT)
    if output != bool(mode):
        kind = 'an output starts with "=" or "+"' if output else 'an input has no "=" or "+"'
        raise Refused(line, f'the constraint "{piece.text}" is misplaced: {kind}', CONSTRAINT)
    return Operand(letter, mode, one_line(text[at + 1 : stop - 1]), line), stop


def one_line(expression: str) -> str:
    """C++ without comments and line breaks; strings are left as they are."""
    out: list[str] = []
    at = 0
    while at < len(expression):
        nxt = skip_space(expression, at)
        if nxt > at:
            out.append(" ")
            at = nxt
            continue
        stop = at + 1
        if expression[at] in "\"'":
            stop = quoted_end(expression, at)
        out.append(expression[at:stop])
        at = stop
    return "".join(out).strip()
