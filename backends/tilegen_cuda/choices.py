"""The pins that every form of this backend knows, and what they say where they are left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilegen.hardware import Arch
from tilegen.spec import PinValue, TileSpec

SWIZZLES = ("none", "pad", "xor")
COPIES = ("cp_async", "registers")


def common_pins(arch: Arch) -> Mapping[str, Sequence[PinValue]]:
    """Names and values of the pins that do not hang on the form."""
    return {
        "swizzle": SWIZZLES,
        "copy": COPIES if "cp_async" in arch.features else COPIES[1:],
        "min_blocks": tuple(range(1, (arch.max_blocks_per_multiprocessor or 1) + 1)),
    }


def copies_behind(spec: TileSpec, arch: Arch) -> bool:
    """Whether cp.async brings what it can: the arch has it, and no pin says registers."""
    return "cp_async" in arch.features and _pinned(spec).get("copy") != "registers"


def pinned_blocks(spec: TileSpec) -> int | None:
    """Blocks that the pin asks for; what is no number is refused by the rule for pins."""
    pinned = _pinned(spec).get("min_blocks")
    return max(1, pinned) if isinstance(pinned, int) else None


def _pinned(spec: TileSpec) -> Mapping[str, object]:
    return spec.pins.get("cuda", {})
