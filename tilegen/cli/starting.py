"""``tilegen init``: a starting spec, commented."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from tilegen import registry
from tilegen.cli.failures import say
from tilegen.cli.shared import ArchName, AsJson, Output, named
from tilegen.errors import PlanError, SpecError
from tilegen.files import write_atomically
from tilegen.lower import lower
from tilegen.spec import TileSpec

# A and B, then what they are summed in and what C and D hold.
STARTING_TYPES = {
    "f64": ("f64", "f64"),
    "f32": ("f32", "f32"),
    "tf32": ("f32", "f32"),
    "f16": ("f32", "f16"),
    "bf16": ("f32", "bf16"),
    "e4m3": ("f32", "f16"),
    "e5m2": ("f32", "f16"),
    "e4m3fnuz": ("f32", "f16"),
    "e5m2fnuz": ("f32", "f16"),
    "s8": ("s32", "s32"),
    "u8": ("s32", "s32"),
}
STARTING_TILES = (
    ((128, 128, 32), (64, 32)),
    ((128, 128, 16), (64, 32)),
    ((64, 64, 32), (32, 32)),
    ((64, 64, 16), (32, 32)),
    ((32, 32, 16), (32, 32)),
)


def init(
    types: Annotated[str, typer.Option("--types", "-t", help="Element type of A and B.")] = "f32",
    backend: Annotated[str | None, typer.Option("--backend", "-b")] = None,
    arch: ArchName = None,
    output: Output = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print or write a starting spec, commented."""
    if arch is not None and backend is None:
        raise typer.BadParameter("--arch needs --backend")
    spec = starting_spec(types, backend, arch)
    as_json_file = output is not None and output.suffix == ".json"
    text = commented(spec, backend or "opencl", as_json_file=as_json_file)
    if output is None:
        say({"path": None, "text": text} if as_json else text.rstrip("\n"))
        return
    if output.is_dir():
        raise SpecError(f"{output}: it is a folder; name a file")
    if output.exists() and not force:
        raise SpecError(f"{output}: the file exists; --force overwrites it")
    with named(output):
        write_atomically(output, text.encode())
    say({"path": str(output), "text": text} if as_json else f"wrote {output}")


def starting_spec(types: str, backend: str | None, arch: str | None) -> TileSpec:
    """A spec for these types; for a backend, the first of a few tiles that it can build."""
    kinds = starting_types(types)
    refused: PlanError | None = None
    for block, warp in STARTING_TILES:
        spec = TileSpec(
            block=block, warp=warp, stages=2, types=kinds,
        )  # fmt: skip
        if backend is None:
            return spec
        try:
            lower(spec, backend, arch)
        except PlanError as error:
            refused = refused or error
            continue
        return spec
    assert refused is not None
    raise refused


def starting_types(types: str) -> dict[str, str]:
    """The types of a spec whose A and B are of one; raises ``SpecError`` for an unknown one."""
    if types not in STARTING_TYPES:
        from difflib import get_close_matches

        near = get_close_matches(types, STARTING_TYPES, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise SpecError(f"--types {types!r} is not one of {', '.join(STARTING_TYPES)}{hint}")
    acc, out = STARTING_TYPES[types]
    return {"a": types, "b": types, "acc": acc, "c": out, "d": out}


def commented(spec: TileSpec, backend: str = "opencl", *, as_json_file: bool = False) -> str:
    """The spec as TOML in which every key says what it is for; JSON has no comments.

    Parameters
    ----------
    backend : str
        Whose pins the example shows.
    """
    if as_json_file:
        return json.dumps(spec.model_dump(mode="json", exclude_none=True), indent=2) + "\n"
    t, plugin = spec.types, registry.get(backend)
    forms = plugin.forms(next(iter(plugin.archs.values())))

    def line(key: str, value: str, says: str) -> str:
        return f"{f'{key} = {value}':<25} # {says}"

    numbers = [
        line("name", f'"{spec.name}"', "what the kernel's name starts with"),
        line("block", f"{list(spec.block)}", "M and N of D per thread block; its step in K"),
        line(
            "warp", f"{list(spec.warp)}", "M and N of the tile of one warp (wavefront, simdgroup)"
        ),
        line("stages", f"{spec.stages}", "at most so many tiles of K in flight"),
        line("# thread", "[8, 8]", "at most: M and N of one lane's micro-tile (scalar FMA only)"),
        line("# split_k", "4", "at most: blocks that share one output tile along K"),
        line("batch", '"none"', 'or "strided": count and strides are arguments of the launch'),
    ]
    types = [
        line("a", f'"{t.a}"', "f64 f32 tf32 f16 bf16 e4m3 e5m2 e4m3fnuz e5m2fnuz s8 u8 s32"),
        line("b", f'"{t.b}"', "as A's, on most targets"),
        line(
            "acc",
            f'"{t.acc}"',
            "what products are summed in; alpha's and beta's type, but f32 where whole sums leave s32",
        ),
        line("c", f'"{t.c}"', "read only where beta is not 0"),
        line("d", f'"{t.d}"', "the output; left out, the type of C"),
    ]
    layout = [line(o, f'"{getattr(spec.layout, o)}"', '"row" or "col"') for o in "abcd"]
    parts = [
        ["# A tile of D = epilogue(alpha * A·B + beta * C); 'tilegen plan' explains its numbers."],
        numbers,
        ["[types]", *types],
        ["[layout]", *layout],
        [
            "# Steps of the epilogue, in order:",
            "# bias, relu, gelu, gelu_tanh, silu, clamp, scale, residual.",
            "# [[epilogue]]",
            line("# op", '"bias"', "scale and bias are vectors"),
            line("# along", '"n"', "one element per column of D"),
        ],
        [
            "# Choices for one backend that are otherwise the plan's.",
            f"# [pins.{backend}]",
            f'# form = "{forms[-1].name}"',
        ],
    ]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"
