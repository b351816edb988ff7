"""Memory between guard pages: an access outside of an operand ends the process instead of passing by."""

from __future__ import annotations

import ctypes
import mmap
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

PAGE = mmap.PAGESIZE
BOUNDARY = 64
NONE, READ = 0, 1  # POSIX: PROT_NONE, PROT_READ


class Guarded:
    """A :class:`tilegen.testing.Memory` whose rooms have a page behind, and one before, that traps.

    Operands are read-only once they are filled: a kernel that writes into them is stopped too.

    Parameters
    ----------
    exact : bool
        Whether the last element ends at the guard page, whatever its alignment then is; else it
        lies as near to it as the alignment asked for allows.
    front : bool
        Whether the array lies at the front guard page instead.
    margin : int
        Bytes before and behind the array that may be touched, so that a fault close by is seen in
        what was read or written and does not cost the process.
    """

    def __init__(self, *, exact: bool = False, front: bool = False, margin: int = 0) -> None:
        self.exact, self.front = exact, front
        self.margin = -(-margin // PAGE) * PAGE
        self._protect = ctypes.CDLL(None, use_errno=True).mprotect
        self._protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)

    def room(self, lead: int, size: int) -> tuple[NDArray[Any], int]:
        """See :class:`tilegen.testing.Memory`."""
        inner = max(PAGE, -(-(size + lead + BOUNDARY) // PAGE) * PAGE) + 2 * self.margin
        memory = mmap.mmap(-1, inner + 2 * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        whole = np.frombuffer(memory, np.uint8)
        for guard in (0, inner + PAGE):
            self._set(whole.ctypes.data + guard, PAGE, NONE)
        start = inner - self.margin - size
        if self.front:
            start = lead
        elif not self.exact:
            start -= (start - lead) % BOUNDARY
        return whole[PAGE : PAGE + inner], start

    def filled(self, room: NDArray[Any], *, writes: bool) -> None:
        """See :class:`tilegen.testing.Memory`."""
        if not writes:
            self._set(room.ctypes.data, room.nbytes, READ)

    def _set(self, address: int, size: int, protection: int) -> None:
        if self._protect(address, size, protection):
            raise OSError(ctypes.get_errno(), "mprotect failed")


def sparse(elements: int, kind: np.dtype[Any]) -> NDArray[Any]:
    """Zeros of which only the pages that are touched take memory.

    Raises
    ------
    OSError
        If so much address space cannot be mapped.
    """
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)
    return np.frombuffer(mmap.mmap(-1, elements * kind.itemsize, flags=flags), kind)
