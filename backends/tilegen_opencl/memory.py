"""The load and store functions of a text: one for each type, target and width that it calls."""

from __future__ import annotations

from dataclasses import dataclass

from tilegen.spec import TileSpec
from tilegen.tiling import operand_type

from .types import REGISTER_TYPES, STORAGE, loaded, narrowed, stored, vector_type

ALIGNED = ", const int aligned"


@dataclass(frozen=True)
class Load:
    """A function that loads up to ``width`` elements; its expressions call their source ``from``."""

    name: str
    storage: str
    target: str
    width: int
    pointer: str
    says: str
    type: str
    element: str
    whole: str
    aligned: str
    first: str
    one: str
    parts: str
    aligned_parameter: str
    include: str

    @classmethod
    def of(cls, storage: str, target: str, width: int, *, aligned: bool) -> Load:
        kind = STORAGE[storage]
        element = kind.bits if target == "bits" else REGISTER_TYPES[target]
        suffix = {storage: "", "bits": "_bits"}.get(target, f"_as_{target}")
        whole = loaded(storage, target, "0", width)
        return cls(
            name=f"load_{storage}{suffix}_v{width}",
            storage=storage,
            target=target,
            width=width,
            pointer=kind.pointer,
            says=kind.says,
            type=vector_type(element, width),
            element=element,
            whole=whole,
            aligned=_aligned(storage, target, width),
            first=loaded(storage, target, "0", 1),
            one=loaded(storage, target, "i * step", 1),
            parts=f"vload{width}(0, parts)",
            aligned_parameter=ALIGNED if aligned else "",
            include=f"_load_{'1' if width == 1 else 'n'}.cl.j2",
        )

    def at(self, source: str, index: str) -> str:
        """The expression of one element of the array ``source``."""
        return loaded(self.storage, self.target, index, 1).replace("from", source)


@dataclass(frozen=True)
class Narrowing:
    """A function that rounds values to the bits of a type that OpenCL C does not have."""

    name: str
    type: str
    unsigned: str
    bits: str


@dataclass(frozen=True)
class Store:
    """A function that stores up to ``width`` values, rounded to the type of their place."""

    name: str
    pointer: str
    says: str
    width: int
    type: str
    element: str
    whole: str
    aligned: str
    one: str
    parts: str
    aligned_parameter: str
    include: str

    @classmethod
    def of(cls, storage: str, source: str, width: int, *, aligned: bool) -> Store:
        kind, element = STORAGE[storage], REGISTER_TYPES[source]
        return cls(
            name=f"store_{storage}_v{width}",
            pointer=kind.pointer,
            says=kind.says,
            width=width,
            type=vector_type(element, width),
            element=element,
            whole=stored(storage, source, "value", "0", width, False),
            aligned=stored(storage, source, "value", "0", width, True),
            one=stored(storage, source, "parts[i]", "i", 1, False),
            parts=f"vstore{width}(value, 0, parts);",
            aligned_parameter=ALIGNED if aligned else "",
            include=f"_store_{'1' if width == 1 else 'n'}.cl.j2",
        )


class Memory:
    """Collects the functions that a text calls, each once, in the order of the first call."""

    def __init__(self, spec: TileSpec, *, aligned: bool) -> None:
        self._spec, self._aligned = spec, aligned
        self._loads: dict[str, Load] = {}
        self._stores: dict[str, Store] = {}

    def load(self, operand: str, target: str, width: int) -> Load:
        """The function that loads elements of an operand as values of ``target``."""
        load = Load.of(operand_type(self._spec, operand), target, width, aligned=self._aligned)
        return self._loads.setdefault(load.name, load)

    def store(self, operand: str, source: str, width: int) -> Store:
        store = Store.of(operand_type(self._spec, operand), source, width, aligned=self._aligned)
        return self._stores.setdefault(store.name, store)

    @property
    def loads(self) -> list[Load]:
        return list(self._loads.values())

    @property
    def stores(self) -> list[Store]:
        return list(self._stores.values())

    @property
    def narrowings(self) -> list[Narrowing]:
        """For stores to bf16, of whole vectors and of single elements."""
        widths = {
            w
            for s in self._stores.values()
            if s.name.startswith("store_bf16")
            for w in (1, s.width)
        }
        return [
            Narrowing(
                name=narrowed("bf16", "f32", "", width).partition("(")[0],
                type=vector_type("float", width),
                unsigned=vector_type("uint", width),
                bits=vector_type("ushort", width),
            )
            for width in sorted(widths)
        ]


def _aligned(storage: str, target: str, width: int) -> str:
    """A load of whole vectors from an address that the vector's size divides."""
    if storage == "f16" and target != "bits" and width > 1:
        return f"vloada_half{width}(0, from)"
    bits = vector_type(STORAGE[storage].bits, width)
    whole = f"*(__global const {bits} *)from"
    if target in ("bits", storage):
        return whole
    return loaded(storage, target, "0", width).replace(f"vload{width}(0, from)", whole)
