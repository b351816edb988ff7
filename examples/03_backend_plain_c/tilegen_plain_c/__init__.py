"""A tilegen backend for plain C: the object that the entry point names; importing it does no work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilegen.backend import Device, Form, Missing, Toolchain
from tilegen.hardware import Arch
from tilegen.plan import KernelPlan

if TYPE_CHECKING:
    from tilegen.build import KernelBinary
    from tilegen.render import KernelSource


@dataclass(frozen=True)
class PlainC:
    """C99 through ``cc``; one core, no threads, no headers."""

    name: str = "plain_c"
    title: str = "plain C"
    suffix: str = ".c"
    binary_suffix: str = ".so"
    templates: tuple[str, str] = ("tilegen_plain_c", "templates")

    @property
    def archs(self) -> Mapping[str, Arch]:
        from .loops import C99

        return {"c99": C99}

    def forms(self, arch: Arch) -> Sequence[Form]:
        from .loops import Loops

        return (Loops(),)

    def context(self, plan: KernelPlan) -> Mapping[str, Any]:
        from .emit import context

        return context(plan)

    def toolchain(self, arch: Arch, device: Device | None = None) -> Toolchain:
        from .device import toolchain

        return toolchain()

    def compile(self, source: KernelSource, toolchain: Toolchain) -> KernelBinary:
        from .device import compile_source

        return compile_source(source, toolchain)

    def devices(self) -> Sequence[Device]:
        from .device import HostDevice

        return () if self.missing() else (HostDevice(),)

    def checkers(self) -> Sequence[Device]:
        return ()

    def missing(self) -> Sequence[Missing]:
        from .device import INSTALL, toolchain

        return (Missing("a C compiler", INSTALL),) if toolchain().missing else ()

    def launch_header(self, source: KernelSource) -> str:
        from .emit import launch_header

        return launch_header(source)


BACKEND = PlainC()
