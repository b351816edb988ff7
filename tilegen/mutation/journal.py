"""Verdicts kept in a file: a long run goes on where it was cut off, and new explanations need no new one."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path

from tilegen.backend import Device
from tilegen.errors import SpecError
from tilegen.render import KernelSource

from .pool import Verdict
from .problems import trials


class Journal:
    """A line of JSON for each verdict, known by what decides it: the text, the trials, the device.

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
        self._path, self._known = path, dict[str, Verdict]()
        if path is None or not path.exists():
            return
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            try:
                entry = json.loads(line)
                identity = entry.pop("id")
                self._known[identity] = Verdict(**{**entry, "taken": ()})
            except (ValueError, KeyError, TypeError, AttributeError):
                raise SpecError(
                    f"{path}, line {number}: it is no verdict that tilegen kept"
                ) from None

    def find(self, text: str, source: KernelSource, device: Device, by: str) -> Verdict | None:
        """The verdict of an earlier run, if there is one."""
        return self._known.get(_identity(text, source, device, by)) if self._path else None

    def keep(
        self, text: str, source: KernelSource, device: Device, by: str, verdict: Verdict
    ) -> None:
        """Write the verdict down at once."""
        if self._path is None:
            return
        identity = _identity(text, source, device, by)
        self._known[identity] = verdict
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"id": identity, **asdict(verdict), "taken": []}) + "\n")


def _identity(text: str, source: KernelSource, device: Device, by: str) -> str:
    what = (text, repr(trials(source.plan)), device.name, by)
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()
