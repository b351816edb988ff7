"""C++ string literals and comments: where they end and what they hold, character by character."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tilegen.emulator.ptx.findings import Refused

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'", "0": "\0", "v": "\v"}
_RAW = re.compile(r'(?:u8|u|U|L)?R"([^ ()\\\t\v\f\n]{0,16})\(')
_SPACE = re.compile(r"(?:\s|\\\r?\n)+")


@dataclass(frozen=True)
class Piece:
    """Decoded characters of a literal, and the line of the kernel text that each stands on."""

    text: str
    lines: tuple[int, ...]


def skip_space(text: str, at: int) -> int:
    """The next place that holds neither white space, a continued line nor a comment."""
    while True:
        start = at
        if match := _SPACE.match(text, at):
            at = match.end()
        if text.startswith("//", at):
            at = _end_of_line(text, at)
        elif text.startswith("/*", at):
            end = text.find("*/", at + 2)
            at = len(text) if end < 0 else end + 2
        if at == start:
            return at


def _end_of_line(text: str, at: int) -> int:
    # A line comment runs on over a backslash at the end of its line.
    while True:
        end = text.find("\n", at)
        if end < 0:
            return len(text)
        if text[:end].rstrip("\r").endswith("\\"):
            at = end + 1
        else:
            return end


def raw_string_end(text: str, at: int) -> int | None:
    """One past a raw string literal that begins at `at`, else None."""
    match = _RAW.match(text, at)
    if match is None:
        return None
    end = text.find(f'){match[1]}"', match.end())
    return len(text) if end < 0 else end + len(match[1]) + 2


def quoted_end(text: str, at: int) -> int:
    """One past the literal whose opening quote stands at `at`."""
    quote = text[at]
    at += 1
    while at < len(text) and text[at] != quote:
        at += 2 if text[at] == "\\" else 1
    return min(at + 1, len(text))


def decode(text: str, start: int, end: int, line: int) -> Piece:
    """What the literal ``text[start:end]`` holds; `line` is where it starts."""
    if (match := _RAW.match(text, start)) is not None:
        body = text[match.end() : end - len(match[1]) - 2]
        return Piece(body, _lines_of(body, line))
    out: list[str] = []
    lines: list[int] = []
    at = text.index('"', start) + 1
    while at < end - 1:
        char, width = text[at], 1
        if char == "\\":
            follow = text[at + 1]
            if follow in "\r\n":
                at += 3 if text.startswith("\r\n", at + 1) else 2
                line += 1
                continue
            if follow not in _ESCAPES:
                raise Refused(line, f"the escape '\\{follow}' in an asm string is not known")
            char, width = _ESCAPES[follow], 2
        out.append(char)
        lines.append(line)
        at += width
    return Piece("".join(out), tuple(lines))


def _lines_of(body: str, line: int) -> tuple[int, ...]:
    out = []
    for char in body:
        out.append(line)
        line += char == "\n"
    return tuple(out)
