"""The TileSpec: what the tile is, in words that name no architecture."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    StrictBool,
    StrictStr,
    StringConstraints,
    ValidationError,
    WithJsonSchema,
    field_validator,
    model_serializer,
    model_validator,
)

from tilegen.errors import SpecError
from tilegen.spec_faults import KEYWORDS, PINNED_NUMBERS, explain, shown

TypeName = Literal[
    "f64", "f32", "tf32", "f16", "bf16", "e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz", "s8", "u8", "s32"
]
Majorness = Literal["row", "col"]
EpilogueOp = Literal["bias", "relu", "gelu", "gelu_tanh", "silu", "clamp", "scale", "residual"]
PinValue = str | int | bool | tuple[int, ...]
Extent = Annotated[int, Field(ge=1, le=65536, strict=True)]
# A C identifier and a file name on every system: nothing else reaches the text or the folder.
# Pydantic's engine (Rust) and JSON Schema's (ECMA) both read $ as the very end of the text.
NAME = r"^[a-z][a-z0-9_]{0,39}$"
Name = Annotated[str, StringConstraints(pattern=NAME, strict=True)]
KernelName = Annotated[
    Name, WithJsonSchema({"type": "string", "pattern": NAME, "not": {"enum": sorted(KEYWORDS)}})
]
Bound = Annotated[float, Field(strict=True)]
# Strict, so that pins are kept as written: 1.0, "1" and true are not turned into 1.
_PinInt = Annotated[int, Field(ge=-(2**31), lt=2**31, strict=True)]
# A kernel's text grows with its epilogue; nothing that computes comes near these.
EPILOGUE_STEPS, PINNED_BACKENDS, PINS = 32, 16, 64
PIN_TEXT = re.compile(r"[A-Za-z0-9_.]{1,64}")


_Pin = (
    StrictStr
    | StrictBool
    | _PinInt
    | Annotated[tuple[_PinInt, ...], Field(max_length=PINNED_NUMBERS)]
)


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class _PerOperand(_Record):
    """A table with one value per operand, where D follows C unless it has its own."""

    @model_validator(mode="before")
    @classmethod
    def _d_follows_c(cls, data: Any) -> Any:
        # A value that is no choice is left to be refused once, as C's.
        choices = get_args(cls.model_fields["c"].annotation)
        if isinstance(data, Mapping) and "d" not in data and data.get("c") in choices:
            return {**data, "d": data["c"]}
        return data

    @model_serializer(mode="wrap")
    def _d_beside_c(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # A default D that is left out beside another C would be read back as C's.
        data: dict[str, Any] = handler(self)
        return {**data, "d": vars(self)["d"]} if "c" in data else data


class Types(_PerOperand):
    """Element types of A, B, the accumulator, C and D."""

    a: TypeName = "f32"
    b: TypeName = "f32"
    acc: TypeName = Field(default="f32", description="what products are summed in")
    c: TypeName = "f32"
    d: TypeName = Field(default="f32", description="the output; left out, the type of C")

    @property
    def compute(self) -> str:
        """The type of alpha, beta and the epilogue: the accumulator's, or f32.

        It is f32 to requantise s32, and for sums in f16, which only the instruction itself keeps.
        """
        requantised = self.acc == "s32" and self.d != "s32"
        return "f32" if requantised or self.acc == "f16" else self.acc


class Layouts(_PerOperand):
    """Row- or column-major, for each operand."""

    a: Majorness = "row"
    b: Majorness = "row"
    c: Majorness = "row"
    d: Majorness = Field(default="row", description="left out, the majorness of C")


class EpilogueStep(_Record):
    """One step of the epilogue, applied to alpha * A·B + beta * C before the output conversion."""

    op: EpilogueOp
    along: Literal["m", "n"] | None = Field(
        default=None, description="bias and scale: the axis that the vector runs along"
    )
    low: Bound | None = Field(default=None, description="clamp: the lower bound")
    high: Bound | None = Field(default=None, description="clamp: the upper bound")

    @model_validator(mode="after")
    def _fits_its_op(self) -> Self:
        if self.op in ("bias", "scale"):
            if self.along is None:
                object.__setattr__(self, "along", "n")
        elif self.along is not None:
            raise ValueError(f"{self.op} takes no 'along'")
        if self.op == "clamp":
            if self.low is None or self.high is None:
                raise ValueError("clamp needs 'low' and 'high'")
            if self.low > self.high:
                raise ValueError(f"clamp has low = {self.low} above high = {self.high}")
            for bound in ("low", "high"):  # -0.0 equals 0.0, so they must have one digest
                object.__setattr__(self, bound, getattr(self, bound) + 0.0)
        elif self.low is not None or self.high is not None:
            raise ValueError(f"{self.op} takes neither 'low' nor 'high'")
        return self


class TileSpec(_Record):
    """One tiled matrix product D = epilogue(alpha * A·B + beta * C), for any target.

    ``block``, ``warp``, ``types``, ``layout``, ``batch``, ``epilogue`` and ``pins`` bind: they are
    met or refused. ``thread``, ``stages`` and ``split_k`` are upper bounds that a target may lower;
    ``plan.notes`` says to what, and why.

    Parameters
    ----------
    name : str
        The names of the kernel and of its entries start with it: lower-case letters, digits and
        underscores, no keyword of C or C++. Kernels of two names go into one program.
    block : (int, int, int)
        M and N of the part of D that one thread block computes, and the step in K that it stages.
    warp : (int, int)
        M and N of the tile of one group of ``arch.lanes`` lanes.
    thread : (int, int), optional
        M and N of one lane's micro-tile; the scalar-FMA path only.
    stages : int
        Tiles of K in flight.
    split_k : int
        Blocks that share one output tile along K.
    types, layout
        Per operand; see :class:`Types` and :class:`Layouts`.
    batch : {"none", "strided"}
        The count is an argument of the launch.
    epilogue : sequence of EpilogueStep
        At most 32.
    pins : mapping
        Per backend, choices that are otherwise the plan's: ``{"opencl": {"form": "work_group"}}``.

    Raises
    ------
    SpecError
        With one clause per fault.

    Examples
    --------
    >>> TileSpec(block=(128, 128, 16), warp=(64, 32)).warps
    (2, 4)
    """

    name: KernelName = Field(
        default="gemm", description="what the names of the kernel and of its entries start with"
    )
    block: tuple[Extent, Extent, Extent] = Field(
        description="M, N of D per thread block, and the K step it stages"
    )
    warp: tuple[Extent, Extent] = Field(description="M, N of the tile of one warp")
    thread: tuple[Extent, Extent] | None = Field(
        default=None, description="upper bound: M, N of one lane's micro-tile (scalar FMA only)"
    )
    stages: Annotated[int, Field(ge=1, le=16, strict=True)] = Field(
        default=2, description="upper bound: tiles of K in flight"
    )
    split_k: Annotated[int, Field(ge=1, le=1024, strict=True)] = Field(
        default=1, description="upper bound: blocks that share one output tile along K"
    )
    types: Types = Types()
    layout: Layouts = Layouts()
    batch: Literal["none", "strided"] = "none"
    epilogue: tuple[EpilogueStep, ...] = Field(default=(), max_length=EPILOGUE_STEPS)
    pins: Mapping[Name, Annotated[Mapping[Name, _Pin], Field(max_length=PINS)]] = Field(
        default_factory=dict,
        max_length=PINNED_BACKENDS,
        description="choices for one backend, by its name",
    )

    def __init__(self, /, **data: Any) -> None:
        with _in_words(type(self)):
            super().__init__(**data)

    # Pydantic's other ways in say what is wrong as the constructor does.
    @classmethod
    def model_validate(cls, obj: Any, **options: Any) -> Self:
        """Pydantic's, with a ``SpecError`` for what is wrong."""
        with _in_words(cls):
            return super().model_validate(obj, **options)

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **options: Any) -> Self:
        """Pydantic's, with a ``SpecError`` for what is wrong."""
        with _in_words(cls):
            return super().model_validate_json(json_data, **options)

    @classmethod
    def model_validate_strings(cls, obj: Any, **options: Any) -> Self:
        """Pydantic's, with a ``SpecError`` for what is wrong."""
        with _in_words(cls):
            return super().model_validate_strings(obj, **options)

    @field_validator("name")
    @classmethod
    def _no_keyword(cls, name: str) -> str:
        if name in KEYWORDS:
            raise ValueError(
                f"name = {name!r} is a keyword of C or C++; nearest legal value: 'gemm_{name}'"
            )
        return name

    @field_validator("epilogue")
    @classmethod
    def _one_of_each_operand(cls, steps: tuple[EpilogueStep, ...]) -> tuple[EpilogueStep, ...]:
        for op in ("bias", "scale", "residual"):
            if sum(step.op == op for step in steps) > 1:
                raise ValueError(f"{op} stands more than once; a launch takes one of each")
        return steps

    @field_validator("pins")
    @classmethod
    def _plain_pins(
        cls, pins: Mapping[str, Mapping[str, PinValue]]
    ) -> Mapping[str, Mapping[str, PinValue]]:
        for backend, table in pins.items():
            for key, value in table.items():
                if isinstance(value, str) and not PIN_TEXT.fullmatch(value):
                    raise ValueError(
                        f"pins.{backend}.{key} = {value!r} may hold letters, digits, '_' and '.'"
                    )
        return pins

    def __hash__(self) -> int:
        return hash(self.digest)

    @property
    def warps(self) -> tuple[int, int]:
        """Warps of a block along M and N (rounded down where the warp tile does not divide)."""
        return self.block[0] // self.warp[0], self.block[1] // self.warp[1]

    @property
    def canonical(self) -> str:
        """The spec as one line of JSON, defaults left out, keys sorted: what the digest is of."""
        return json.dumps(self.model_dump(mode="json", exclude_defaults=True), sort_keys=True)

    @property
    def digest(self) -> str:
        """SHA-256 of :attr:`canonical`, in hex; the same for the same spec on every machine."""
        return hashlib.sha256(self.canonical.encode()).hexdigest()

    def replace(self, **changes: Any) -> TileSpec:
        """A new spec with some fields changed, checked like any other."""
        return TileSpec(**{**self.model_dump(exclude_unset=True), **changes})

    def to_toml(self) -> str:
        """The spec as TOML, defaults left out; :meth:`from_toml` reads it back."""
        data = self.model_dump(mode="json", exclude_defaults=True)
        tables = {key: data.pop(key) for key in ("types", "layout") if key in data}
        pins, steps = data.pop("pins", {}), data.pop("epilogue", [])
        lines = [f"{key} = {_toml(value)}" for key, value in data.items()]
        for title, table in [*tables.items(), *((f"pins.{b}", t) for b, t in pins.items())]:
            lines += [
                "",
                f"[{title}]",
                *(f"{key} = {_toml(value)}" for key, value in table.items()),
            ]
        for step in steps:
            lines += ["", "[[epilogue]]"]
            lines += [f"{key} = {_toml(value)}" for key, value in step.items() if value is not None]
        return "\n".join(lines) + "\n"

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TileSpec:
        """A spec from a mapping, as TOML or JSON gives it."""
        if not isinstance(data, Mapping):
            raise SpecError(f"a spec is a table of keys and values, not {type(data).__name__}")
        return cls(**{str(key): value for key, value in data.items()})

    @classmethod
    def from_toml(cls, text: str) -> TileSpec:
        """A spec from TOML text."""
        try:
            data = tomllib.loads(text)
        # Nesting without end and integers of thousands of digits are not TOMLDecodeErrors.
        except (ValueError, RecursionError) as error:
            raise SpecError(f"not valid TOML: {_reading_fault(error)}") from None
        return cls.from_dict(data)

    @classmethod
    def from_json(cls, text: str) -> TileSpec:
        """A spec from JSON text."""
        try:
            data = read_json(text)
        except (ValueError, RecursionError) as error:
            raise SpecError(f"not valid JSON: {_reading_fault(error)}") from None
        return cls.from_dict(data)

    @classmethod
    def from_file(cls, path: str | Path) -> TileSpec:
        """A spec from a ``.toml`` or ``.json`` file.

        Raises
        ------
        SpecError
            If the file is missing, unreadable, or no spec; the message starts with the path.
        """
        path = Path(path)
        try:
            # Windows editors put a byte-order mark before the text.
            text = path.read_text(encoding="utf-8-sig")
        except FileNotFoundError:
            raise SpecError(f"{path}: there is no such file; 'tilegen init' writes one") from None
        except UnicodeDecodeError:
            raise SpecError(f"{path}: cannot be read: it is not UTF-8 text") from None
        except (OSError, ValueError) as error:  # ValueError: a path that holds a zero byte
            reason = getattr(error, "strerror", None) or str(error)
            raise SpecError(f"{path}: cannot be read: {reason}") from None
        try:
            return cls.from_json(text) if path.suffix.lower() == ".json" else cls.from_toml(text)
        except SpecError as error:
            raise SpecError(f"{path}: {error}") from None


@contextmanager
def _in_words(model: type[BaseModel]) -> Iterator[None]:
    try:
        yield
    except ValidationError as error:
        raise SpecError(explain(error, model)) from None


def read_json(text: str) -> Any:
    """JSON of which no key is given twice: which one was meant, nobody can say.

    Raises
    ------
    ValueError
        If it is not JSON, or names the key that stands twice.
    RecursionError
        If it is nested too deeply.
    """
    return json.loads(text, object_pairs_hook=_once)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {shown(twice)} stands twice in one table")
    return table


def _reading_fault(error: Exception) -> str:
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a spec file."""
    schema = TileSpec.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "tilegen TileSpec"
    return schema


def _toml(value: Any) -> str:
    # JSON's strings, numbers, booleans and flat arrays are TOML as they stand.
    return json.dumps(value)
