"""Verdicts kept in a file: a long run goes on where it was cut off, and new explanations need no new one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tilegen.backend import Device
from tilegen.errors import SpecError
from tilegen.render import KernelSource
from tilegen.testing import Problem

from .pool import Verdict
from .problems import Trial, race_problems, trials
from .worker import SURVIVED

# Who gave a verdict: the device, or the checker that sees every access.
NATIVE, RACES = "native", "race checker"
# Digits of a digest that tell a few dozen trials apart.
DIGITS = 8


class Journal:
    """A line of JSON for each verdict, known by what decides it: the text, the device, the trials.

    What fell in some trials falls with more of them, so that new trials ask only for a new run of
    what survived.

    Parameters
    ----------
    path : Path or None
        ``None``: nothing is kept.

    Raises
    ------
    SpecError
        If the file holds something else.
    """

    def __init__(self, path: Path | None) -> None:
        self._path, self._known = path, dict[str, tuple[frozenset[str], Verdict]]()
        self._tried: dict[tuple[str, str], frozenset[str]] = {}
        if path is None or not path.exists():
            return
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            try:
                entry = json.loads(line)
                identity, tried = entry.pop("id"), frozenset(entry.pop("trials"))
                self._known[identity] = tried, Verdict(**{**entry, "taken": ()})
            except (ValueError, KeyError, TypeError, AttributeError):
                raise SpecError(
                    f"{path}, line {number}: it is no verdict that tilegen kept"
                ) from None

    def find(self, text: str, source: KernelSource, device: Device, by: str) -> Verdict | None:
        """The verdict of an earlier run, if there is one that still holds."""
        found = self._known.get(_identity(text, device, by)) if self._path else None
        if found is None:
            return None
        (tried, verdict), now = found, self._trials(source, by)
        holds = tried <= now if verdict.kind != SURVIVED else tried >= now
        return verdict if holds else None

    def keep(
        self, text: str, source: KernelSource, device: Device, by: str, verdict: Verdict
    ) -> None:
        """Write the verdict down at once."""
        if self._path is None:
            return
        identity, tried = _identity(text, device, by), self._trials(source, by)
        self._known[identity] = tried, verdict
        line = {"id": identity, "trials": sorted(tried), **asdict(verdict), "taken": []}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def _trials(self, source: KernelSource, by: str) -> frozenset[str]:
        """What a text of this plan is run through, as digests."""
        if (source.name, by) not in self._tried:
            some: Sequence[Trial | Problem] = (
                race_problems(source.plan) if by == RACES else trials(source.plan)
            )
            self._tried[source.name, by] = frozenset(
                hashlib.sha256(repr(one).encode()).hexdigest()[:DIGITS] for one in some
            )
        return self._tried[source.name, by]


def _identity(text: str, device: Device, by: str) -> str:
    return hashlib.sha256(json.dumps((text, device.name, by)).encode()).hexdigest()
