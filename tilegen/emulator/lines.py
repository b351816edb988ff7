"""From addresses in a program to lines of the kernel text, by its DWARF line table."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from pathlib import Path


def lines_of(program: Path, addresses: Iterable[int], source: str) -> dict[int, int]:
    """The line of ``source`` that each code address comes from; other files' lines are left out."""
    wanted = set(addresses)
    if not wanted:
        return {}
    rows = _rows(program, source)
    starts = [row[0] for row in rows]
    found = {}
    for address in wanted:
        at = bisect_right(starts, address) - 1
        if at >= 0 and rows[at][1]:
            found[address] = rows[at][1]
    return found


def _rows(program: Path, source: str) -> list[tuple[int, int]]:
    # Each row is where a run of code begins and its line; 0 where it is another file's or none.
    from elftools.elf.elffile import ELFFile  # late: only findings need it

    rows: list[tuple[int, int]] = []
    with program.open("rb") as file:
        dwarf = ELFFile(file).get_dwarf_info()
        for unit in dwarf.iter_CUs():
            table = dwarf.line_program_for_CU(unit)
            if table is None:
                continue
            names = [entry.name.decode() for entry in table["file_entry"]]
            base = 1 if table["version"] < 5 else 0
            for entry in table.get_entries():
                state = entry.state
                if state is None:
                    continue
                named = names[state.file - base] == source and not state.end_sequence
                rows.append((state.address, state.line if named else 0))
    return sorted(rows, key=lambda row: row[0])
