"""PTX text to tokens (PTX ISA, "Syntax")."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tilegen.emulator.ptx.findings import CONSTRAINT, Refused

_TOKEN = re.compile(
    r"""
    (?P<space>\s+|//[^\n]*|/\*.*?\*/)
  | (?P<operand>%(?P<index>\d+))
  | (?P<name>%{0,2}[A-Za-z_$][\w$]*)
  | (?P<float>0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}|\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)
  | (?P<int>(?:0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?)
  | (?P<sign>::|[.,;:{}()\[\]@!|+\-<>=*&~^/%])
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True)
class Token:
    """One token.

    Attributes
    ----------
    kind : str
        ``operand`` (its `text` is the number), ``name``, ``float``, ``int``, ``sign`` or ``end``.
    text : str
    line : int
        Of the kernel text.
    glued : bool
        Whether nothing stands between it and the token before it: ``add .s32`` is not PTX.
    """

    kind: str
    text: str
    line: int
    glued: bool = False


def tokens(text: str, lines: Sequence[int], *, extended: bool) -> list[Token]:
    """Tokens of the PTX in an asm string.

    Parameters
    ----------
    text : str
        With escapes decoded.
    lines : sequence of int
        The line of each character.
    extended : bool
        Whether the statement has operands: then ``%0`` is one and ``%%`` is a percent sign.

    Raises
    ------
    Refused
        At a character that PTX does not have.
    """
    out: list[Token] = []
    at, glued = 0, False
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise Refused(lines[at], f"'{text[at]}' is not PTX")
        kind = match.lastgroup or ""
        kind = "operand" if kind == "index" else kind
        if kind == "space":
            glued = False
        else:
            out.append(_token(kind, match, lines[at], glued, extended))
            glued = True
        at = match.end()
    out.append(Token("end", "", lines[-1] if lines else 0))
    return out


def _token(kind: str, match: re.Match[str], line: int, glued: bool, extended: bool) -> Token:
    body = match[0]
    if kind == "operand":
        if not extended:
            raise Refused(line, f"{body} in an asm without operands", CONSTRAINT)
        return Token(kind, match["index"], line, glued)
    if kind == "name" and body.startswith("%%"):
        if not extended:
            raise Refused(line, f"{body} in an asm without colons: one % is enough there")
        body = body[1:]
    return Token(kind, body, line, glued)
