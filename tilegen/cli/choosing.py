"""``tilegen choose``: a starting spec for a shape, and how the candidates rank."""

from __future__ import annotations

from typing import Annotated

import typer

from tilegen.choose import choices
from tilegen.cli.failures import say
from tilegen.cli.shared import ArchName, AsJson, BackendName
from tilegen.cli.starting import starting_types
from tilegen.errors import SpecError


def choose(
    m: Annotated[int, typer.Argument(metavar="M", min=0)],
    n: Annotated[int, typer.Argument(metavar="N", min=0)],
    k: Annotated[int, typer.Argument(metavar="K", min=0)],
    backend: BackendName,
    arch: ArchName = None,
    types: Annotated[str, typer.Option("--types", "-t", help="Element type of A and B.")] = "f32",
    layout: Annotated[
        str, typer.Option("--layout", "-l", help="Majorness of A, B and C: n row, t column.")
    ] = "nnn",
    batch: Annotated[
        int | None, typer.Option("--batch", min=1, help="Products of one launch.")
    ] = None,
    count: Annotated[int, typer.Option("--count", min=1, help="How many candidates.")] = 5,
    as_json: AsJson = False,
) -> None:
    """The spec that the backend's model expects to be the fastest on a shape, and those after it."""
    if len(layout) != 3 or set(layout) - set("nt"):
        raise SpecError(
            f"--layout {layout!r}: three letters are needed, n (row) or t (column) each"
        )
    majors = {o: {"n": "row", "t": "col"}[x] for o, x in zip("abc", layout, strict=True)}
    ranked = choices(
        (m, n, k), types=starting_types(types), layout=majors, backend=backend, arch=arch,
        batch=batch,
    )[:count]  # fmt: skip
    if as_json:
        say(
            [
                {
                    "spec": c.spec.model_dump(mode="json", exclude_defaults=True),
                    "seconds": c.seconds,
                }
                for c in ranked
            ]
        )
        return
    best = ranked[0].seconds
    lines = [
        f"# {i}: block {list(c.spec.block)}, warp {list(c.spec.warp)}, form {c.plan.form}: expected "
        + (f"{c.seconds / best:.3f} of the first one's time" if best else "to take no time")
        for i, c in enumerate(ranked, 1)
    ]
    say("\n".join([*lines, ranked[0].spec.to_toml().rstrip("\n")]))
