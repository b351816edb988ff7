"""What can go wrong, one class per arrow of the flow; each message is one sentence a user can act on."""

from __future__ import annotations

from collections.abc import Sequence


class TilegenError(Exception):
    """Base of every error that tilegen raises on purpose."""


class TilegenWarning(UserWarning):
    """What a caller should know although nothing is wrong."""


class SpecError(TilegenError, ValueError):
    """A spec that cannot be read: a wrong type, an unknown key, a value out of range."""


class BackendError(TilegenError, LookupError):
    """A backend, arch or device that is not known here, or whose requirements are missing."""


class PlanError(TilegenError, ValueError):
    """A spec that no form of the backend can build on the arch.

    Attributes
    ----------
    violations : tuple of Violation
        Every broken rule of the form that came closest.
    """

    def __init__(self, message: str, violations: Sequence[object] = ()) -> None:
        super().__init__(message)
        self.violations = tuple(violations)


class EmitError(TilegenError):
    """A template that names what the plan does not hold: a fault of the backend, not of the spec."""


class CompileError(TilegenError):
    """The compiler refused the text, or is not there.

    Attributes
    ----------
    compiler : str
        Name and version.
    flags : str
        The flags it was given.
    source_path : str or None
        Where the refused text was saved.
    log : str
        What the compiler said.
    """

    def __init__(
        self,
        message: str,
        *,
        compiler: str = "",
        flags: str = "",
        source_path: str | None = None,
        log: str = "",
    ) -> None:
        super().__init__(message)
        self.compiler = compiler
        self.flags = flags
        self.source_path = source_path
        self.log = log


class LaunchError(TilegenError, ValueError):
    """Arguments that the kernel cannot be called with, or a launch that the driver refused."""


class VerifyError(TilegenError, AssertionError):
    """A result outside the error bound.

    Attributes
    ----------
    batch, row, col : int
        The first wrong element of D.
    block, warp, lane, register : int
        Who owns it.
    got, want : float
        What was computed and what was expected.
    """

    def __init__(
        self,
        message: str,
        *,
        batch: int = 0,
        row: int = 0,
        col: int = 0,
        block: int = 0,
        warp: int = 0,
        lane: int = 0,
        register: int = 0,
        got: float = 0.0,
        want: float = 0.0,
    ) -> None:
        super().__init__(message)
        self.batch, self.row, self.col = batch, row, col
        self.block, self.warp, self.lane, self.register = block, warp, lane, register
        self.got, self.want = got, want


def require(function: str, what: object, *kinds: type) -> None:
    """Refuse, in a sentence, what is of none of the types; raises ``SpecError``."""
    if not isinstance(what, kinds):
        names = " or ".join(kind.__name__ for kind in kinds)
        raise SpecError(f"{function}: a {names} is needed, not {type(what).__name__}")
