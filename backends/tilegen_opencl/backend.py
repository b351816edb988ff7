"""The OpenCL plug-in: what the core asks of a backend, answered from this package's rooms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from tilegen.backend import Device, Form, Missing, Toolchain
from tilegen.hardware import Arch
from tilegen.plan import KernelPlan
from tilegen.spec import TileSpec

if TYPE_CHECKING:
    from tilegen.build import KernelBinary
    from tilegen.mutation.language import Support
    from tilegen.render import KernelSource

    from .device import OpenCLDevice


@dataclass(frozen=True)
class OpenCLBackend:
    """OpenCL C for CPU and GPU devices."""

    name: str = "opencl"
    title: str = "OpenCL C"
    suffix: str = ".cl"
    binary_suffix: str = ".clbin"
    templates: tuple[str, str] = ("tilegen_templates", "opencl")

    @property
    def archs(self) -> Mapping[str, Arch]:
        from .archs import CPU, GPU

        return {"cpu": CPU, "gpu": GPU}

    def forms(self, arch: Arch) -> Sequence[Form]:
        from .sub_group import SubGroup
        from .vector_fragment import VectorFragment
        from .work_group import WorkGroup

        if arch.kind == "cpu":
            return (VectorFragment(), SubGroup(), WorkGroup())
        # The sub-group form gives way where the other one loads less: a rule of its own.
        return (SubGroup(), WorkGroup())

    def tiles(self, spec: TileSpec, arch: Arch) -> Iterable[Mapping[str, Any]]:
        from .model import tiles

        return tiles(spec, arch)

    def estimate(self, plan: KernelPlan, shape: tuple[int, int, int], batch: int) -> float:
        from .model import estimate

        return estimate(plan, shape, batch)

    def context(self, plan: KernelPlan) -> Mapping[str, Any]:
        from .emit import context

        return context(plan)

    def devices(self) -> Sequence[Device]:
        from .device import devices

        return devices()

    def checkers(self) -> Sequence[Device]:
        from .oclgrind_device import checkers

        return list[Device](checkers())

    def missing(self) -> Sequence[Missing]:
        from .runtime import missing

        return missing(bool(self.devices()))

    def toolchain(self, arch: Arch, device: Device | None = None) -> Toolchain:
        if device is None:
            device = next((d for d in self.devices() if d.arch.name == arch.name), None)
        if device is not None:
            return cast("OpenCLDevice", device).toolchain()
        found = [f"{d.selector} ({d.name})" for d in self.devices()]
        wants = "; ".join(f"{m.what}: {m.command}" for m in self.missing())
        return Toolchain(
            "OpenCL",
            missing=f"no OpenCL {arch.name} device compiles this here"
            + (f" (found: {', '.join(found)})" if found else "")
            + (f"; {wants}" if wants else ""),
        )

    def compile(self, source: KernelSource, toolchain: Toolchain) -> KernelBinary:
        return cast("OpenCLDevice", toolchain.device).compile(source, toolchain.flags)

    def launch_header(self, source: KernelSource) -> str:
        from tilegen.launch_header import Wording, launch_header

        from .types import build_options

        options = f'"{build_options(source.plan.instruction)}"'
        told = "What its compiler must be told (clBuildProgram's options)."
        return launch_header(
            source,
            Wording(
                launch="with grid * block work-items in groups of block, both in one dimension.",
                blocks="Work-groups",
                pointer="buffer of",
                defines=((told, "BUILD_OPTIONS", options),),
                address="of the first element; within a buffer, its offset in bytes",
            ),
        )

    def mutation(self) -> Support:
        """What ``tilegen mutate`` needs of OpenCL C."""
        from .mutation import support

        return support()
