"""The CUDA plug-in: what the core asks of a backend, answered from this package's rooms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilegen.backend import Device, Form, Missing, Toolchain
from tilegen.hardware import Arch
from tilegen.plan import KernelPlan

if TYPE_CHECKING:
    from tilegen.build import KernelBinary
    from tilegen.checklist.support import Support as CheckSupport
    from tilegen.mutation.language import Support
    from tilegen.render import KernelSource


@dataclass(frozen=True)
class CudaBackend:
    """CUDA C++ for NVIDIA's GPUs, and for the emulator where there is none."""

    name: str = "cuda"
    title: str = "CUDA C++"
    suffix: str = ".cu"
    binary_suffix: str = ".cubin"
    templates: tuple[str, str] = ("tilegen_templates", "cuda")

    @property
    def archs(self) -> Mapping[str, Arch]:
        from .archs import ARCHS

        return ARCHS

    def forms(self, arch: Arch) -> Sequence[Form]:
        from .fma import Fma
        from .mma import MmaSync

        return (MmaSync(), Fma())

    def context(self, plan: KernelPlan) -> Mapping[str, Any]:
        from . import emit, mma_emit

        return {"fma": emit.context, "mma_sync": mma_emit.context}[plan.form](plan)

    def devices(self) -> Sequence[Device]:
        from .device import devices

        return devices()

    def checkers(self) -> Sequence[Device]:
        from .emulated import emulators

        return emulators()

    def missing(self) -> Sequence[Missing]:
        from .toolchain import missing

        return missing()

    def toolchain(self, arch: Arch, device: Device | None = None) -> Toolchain:
        from .emulated import EmulatedDevice
        from .toolchain import toolchain

        if isinstance(device, EmulatedDevice):
            return device.toolchain()
        return toolchain(arch)

    def compile(self, source: KernelSource, toolchain: Toolchain) -> KernelBinary:
        from .emulated import EmulatedDevice
        from .toolchain import compile_cubin

        if isinstance(toolchain.device, EmulatedDevice):
            return toolchain.device.compile(source)
        return compile_cubin(source, toolchain)

    def launch_header(self, source: KernelSource) -> str:
        from tilegen.launch_header import Wording, launch_header

        from .archs import STATIC_SHARED_BYTES, dynamic_bytes
        from .host_notes import allowing, namespace

        inside = namespace(source.plan.spec)
        of_runtime, of_driver = allowing("DYNAMIC_BYTES")
        return launch_header(
            source,
            Wording(
                launch="with grid blocks of block threads, both in x, and DYNAMIC_BYTES of dynamic "
                "shared memory.\n"
                f"More than {STATIC_SHARED_BYTES} bytes must be allowed before, once for each entry, by\n"
                f"{of_runtime} or\n{of_driver}.\n"
                f"In C++ that includes the text, the entries are in namespace {inside}.",
                blocks="Blocks",
                pointer="pointer to",
                defines=(("What it is compiled for.", "ARCH", f'"{source.plan.arch.name}"'),),
                enums=(("DYNAMIC_BYTES", dynamic_bytes(source.plan.budget.shared_bytes)),),
                address="of the first element on the device",
            ),
        )

    def mutation(self) -> Support:
        """What ``tilegen mutate`` needs of CUDA C++."""
        from .mutation import support

        return support()

    def checks(self) -> CheckSupport:
        """What ``tilegen check`` needs of CUDA C++."""
        from .checks import support

        return support()
