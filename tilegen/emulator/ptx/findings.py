"""What a translation says about the inline PTX that it read."""

from __future__ import annotations

from dataclasses import dataclass

UNKNOWN = "unknown-instruction"
CONSTRAINT = "constraint"
CLOBBER = "missing-clobber"
VOLATILE = "not-volatile"
SCOPE = "asm-scope"

REFUSAL, ERROR, WARNING = "refusal", "error", "warning"
_SEVERITY = {UNKNOWN: REFUSAL, CONSTRAINT: ERROR}


@dataclass(frozen=True, order=True)
class Finding:
    """One remark on one `asm` statement.

    Attributes
    ----------
    line : int
        Of the kernel text, from 1.
    kind : str
        ``unknown-instruction``, ``constraint``, ``missing-clobber``, ``not-volatile`` or
        ``asm-scope``.
    message : str
        One sentence that names the instruction or the operand.
    """

    line: int
    kind: str
    message: str

    @property
    def severity(self) -> str:
        """What the kind means.

        ``refusal``: the emulator does not know what stands there, and running it fails by name.
        ``error``: the statement is wrong under every compiler. ``warning``: it works only as long as
        the compiler happens not to use a freedom that the statement gives it.
        """
        return _SEVERITY.get(self.kind, WARNING)

    def __str__(self) -> str:
        return f"line {self.line}: {self.message}"


@dataclass(frozen=True)
class Translation:
    """Kernel text with every `asm` statement replaced by C++ that does what its PTX says.

    Attributes
    ----------
    text : str
        Has as many lines as the original; what is not an `asm` statement is unchanged.
    findings : tuple of Finding
        In the order of the text.
    """

    text: str
    findings: tuple[Finding, ...]

    @property
    def refusals(self) -> tuple[Finding, ...]:
        """What the emulator cannot execute; the text fails by name where it would be reached."""
        return tuple(f for f in self.findings if f.severity == REFUSAL)


class Refused(Exception):
    """Inside a translation: an instruction, a modifier or a form that is not known.

    Attributes
    ----------
    line : int
        Of the kernel text.
    """

    def __init__(self, line: int, message: str, kind: str = UNKNOWN) -> None:
        super().__init__(message)
        self.line = line
        self.kind = kind
