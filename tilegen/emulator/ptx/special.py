"""Special registers (PTX ISA, "Special Registers"): the C++ expression of each one that is known."""

from __future__ import annotations

from tilegen.emulator.ptx.ptxtypes import TYPES, Type

_U32, _U64 = TYPES["u32"], TYPES["u64"]
_PLACES = {
    "tid": "tg_ptx::thread().index", "ntid": "tg_ptx::launch().block",
    "ctaid": "tg_ptx::block()", "nctaid": "tg_ptx::launch().grid",
}  # fmt: skip
_LANE = "tg_ptx::thread().lane"

SPECIAL: dict[str, tuple[Type, str]] = {
    f"%{name}.{axis}": (_U32, f"{place}.{axis}")
    for name, place in _PLACES.items()
    for axis in "xyz"
}
SPECIAL |= {
    "%laneid": (_U32, _LANE),
    "%warpid": (_U32, "tg_ptx::thread().warp"),
    "%nwarpid": (_U32, "tg_ptx::warps_of_block()"),
    "%lanemask_eq": (_U32, f"(1u << {_LANE})"),
    "%lanemask_lt": (_U32, f"((1u << {_LANE}) - 1u)"),
    "%lanemask_le": (_U32, f"((2u << {_LANE}) - 1u)"),
    "%lanemask_gt": (_U32, f"(~0u - ((2u << {_LANE}) - 1u))"),
    "%lanemask_ge": (_U32, f"(~0u - ((1u << {_LANE}) - 1u))"),
    "%dynamic_smem_size": (_U32, "tg_ptx::launch().dynamic_shared"),
    # Blocks run one after another, each a cluster of one.
    "%cluster_ctarank": (_U32, "0u"),
    "%cluster_nctarank": (_U32, "1u"),
    "%is_explicit_cluster": (TYPES["pred"], "false"),
    "%clock": (_U32, "uint32_t(tg_ptx::ticks())"),
    "%clock_hi": (_U32, "uint32_t(tg_ptx::ticks() >> 32)"),
    "%clock64": (_U64, "tg_ptx::ticks()"),
    "%globaltimer": (_U64, "tg_ptx::ticks()"),
}
for _axis in "xyz":
    SPECIAL[f"%cluster_ctaid.{_axis}"] = (_U32, "0u")
    SPECIAL[f"%cluster_nctaid.{_axis}"] = (_U32, "1u")
    SPECIAL[f"%clusterid.{_axis}"] = (_U32, f"tg_ptx::block().{_axis}")
    SPECIAL[f"%nclusterid.{_axis}"] = (_U32, f"tg_ptx::launch().grid.{_axis}")
