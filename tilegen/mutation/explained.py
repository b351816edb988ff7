"""The survivors that are understood: patterns of mutants, each with the reason why nothing can tell them."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, fields
from importlib.resources.abc import Traversable

from tilegen.errors import SpecError

from .operators import Mutant

EQUIVALENT, OUT_OF_REACH = "equivalent", "out of reach"


@dataclass(frozen=True)
class Explanation:
    """Why mutants of a pattern survive; every pattern is searched for, an empty one fits all.

    Attributes
    ----------
    reason : str
        In one sentence.
    kind : str
        ``"equivalent"``: the text means the same for every problem. ``"out of reach"``: it does
        not, and what would show it cannot be run here.
    template, operator, function, before, after : str
        Regular expressions.
    """

    reason: str
    kind: str = EQUIVALENT
    template: str = ""
    operator: str = ""
    function: str = ""
    before: str = ""
    after: str = ""

    def fits(self, template: str, mutant: Mutant) -> bool:
        return bool(
            re.search(self.template, template)
            and re.fullmatch(self.operator or ".*", mutant.operator)
            and re.fullmatch(self.function or ".*", mutant.function)
            and re.search(self.before, mutant.before)
            and re.search(self.after, mutant.after)
        )


def read(file: Traversable) -> list[Explanation]:
    """The explanations of a TOML file.

    Raises
    ------
    SpecError
        If an entry has no reason, another kind, an unknown key or a pattern that is none.
    """
    out = []
    known = {f.name for f in fields(Explanation)}
    for number, entry in enumerate(
        tomllib.loads(file.read_text(encoding="utf-8")).get("explained", ()), 1
    ):
        where = f"{file.name}, entry {number}"
        if unknown := sorted(set(entry) - known):
            raise SpecError(
                f"{where}: {unknown[0]!r} is not a known key; known: {', '.join(sorted(known))}"
            )
        if not entry.get("reason"):
            raise SpecError(f"{where}: the reason is missing")
        if entry.get("kind", EQUIVALENT) not in (EQUIVALENT, OUT_OF_REACH):
            raise SpecError(
                f"{where}: kind is {entry['kind']!r}, not {EQUIVALENT!r} or {OUT_OF_REACH!r}"
            )
        for key in known - {"reason", "kind"}:
            try:
                re.compile(entry.get(key, ""))
            except re.error as error:
                raise SpecError(f"{where}: {key} is no regular expression: {error}") from None
        out.append(Explanation(**entry))
    return out
