"""The types that an mma_sync text moves neighbours in: one access of up to 16 bytes each."""

from __future__ import annotations

from dataclasses import dataclass

from tilegen.dtypes import DTYPES
from tilegen.plan import KernelPlan

from .mma_entries import reduce_vector, sum_bytes
from .mma_tiles import CHUNK_BYTES


@dataclass(frozen=True)
class Whole:
    """The type that is so many bytes."""

    bytes: int
    type: str


WHOLES = (Whole(2, "unsigned short"), Whole(4, "unsigned"), Whole(8, "uint2"), Whole(16, "uint4"))


def wholes(plan: KernelPlan, asynchronous: bool) -> list[Whole]:
    """Those of the vectors in the text: chunks of A and B, vectors of C and D, and neighbouring sums."""
    spec, split = plan.spec, plan.spec.split_k > 1
    size = {o: DTYPES[getattr(spec.types, o)].bytes for o in "abcd"}
    width = reduce_vector(spec) if split else int(plan.numbers["OUT_VECTOR"])
    needed = {width * size["c"], width * size["d"]}
    # Asynchronous copies pass elements through registers only where they are narrower than a copy.
    if split or not asynchronous or size["a"] < 4:
        needed.add(CHUNK_BYTES)
    if split or plan.numbers["EPILOGUE"] == "shared":
        needed.add(2 * sum_bytes(spec))
    if plan.numbers["EPILOGUE"] == "shared":
        needed.add(CHUNK_BYTES)
    return [w for w in WHOLES if w.bytes in needed]
