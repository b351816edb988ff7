"""OpenCL devices: what runs here, and how the arrays of a call get to a kernel and back."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tilegen.backend import Resources, Toolchain
from tilegen.build import KernelBinary
from tilegen.dtypes import DTYPES
from tilegen.errors import CompileError, LaunchError
from tilegen.hardware import Arch
from tilegen.plan import Argument, Entry
from tilegen.render import KernelSource
from tilegen.tensors import any_tensor

from .archs import CPU, GPU, refined
from .arrays import DeviceSession, HostSession
from .runtime import binding, opencl
from .sub_groups import has_sub_groups, lanes_needed, language, sub_group_size, sub_group_sizes
from .types import build_options, needs

if TYPE_CHECKING:
    from .workbench import OpenCLWorkbench

# The widest access of any form is 64 bytes; buffers start at such a boundary or a wider one.
BOUNDARY = 128
# The major number of a cl_version (OpenCL 3.0 API, 3.4.3.1).
C_VERSION_SHIFT = 22
SLOWER = ("Portable Computing Language",)
# It watches every access and is ten thousand times slower: found only by who asks for it by name.
CHECKER = "Oclgrind"


@dataclass(frozen=True)
class OpenCLDevice:
    """One OpenCL device, ready to load and run kernels."""

    handle: Any = field(repr=False)
    name: str
    selector: str
    arch: Arch
    driver: str
    flags: str = ""

    @property
    def rung(self) -> str:
        return "CPU runtime" if self.arch.kind == "cpu" else "device"

    @cached_property
    def context(self) -> Any:
        return binding().Context([self.handle])

    @cached_property
    def queue(self) -> Any:
        return binding().CommandQueue(self.context, self.handle)

    @cached_property
    def shares_host_memory(self) -> bool:
        """Whether a kernel may be given any host pointer (fine-grained system SVM)."""
        cl = binding()
        try:
            flags = self.handle.svm_capabilities
        except cl.Error:
            return False
        return bool(flags & cl.device_svm_capabilities.FINE_GRAIN_SYSTEM)

    @cached_property
    def largest_buffer(self) -> int:
        """Bytes of the largest buffer that the device allocates."""
        return int(self.handle.max_mem_alloc_size)

    def toolchain(self) -> Toolchain:
        return Toolchain("OpenCL", f"{self.driver} for {self.name}", device=self)

    def compile(self, source: KernelSource, flags: str = "") -> KernelBinary:
        """Build the text for this device; raises ``CompileError`` where it lacks what the plan needs."""
        if lacks := "; ".join(self._lacks(source)):
            raise CompileError(f"{self.name} cannot run {source.name}: {lacks}")
        cl = binding()
        # A function of the text, so that the cache, which knows the text, need not know them.
        options = build_options(source.plan.instruction) or (
            self.flags if lanes_needed(source.plan) else ""
        )
        options = f"{options} {flags}".strip()
        # The plain binding: tilegen's own cache knows the text, and pyopencl's would hide the log.
        program = cl._cl._Program(self.context, source.text)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the log says the same
                program.build(options.encode(), [self.handle])
        except cl.Error as error:
            log = program.get_build_info(self.handle, cl.program_build_info.LOG)
            raise CompileError(
                f"{self.name} refuses the text of {source.name}",
                compiler=str(self.toolchain()),
                flags=options,
                log=str(log or error).strip("\0\n "),
            ) from None
        log = str(program.get_build_info(self.handle, cl.program_build_info.LOG) or "").strip(
            "\0\n "
        )
        binary = program.get_info(cl.program_info.BINARIES)[0]
        resources = {
            entry.name: self._resources(cl.Kernel(program, entry.symbol))
            for entry in source.entries
        }
        return KernelBinary(source, binary, log, resources, self.toolchain(), options)

    def _lacks(self, source: KernelSource) -> Iterator[str]:
        """What a plan for another arch, a static one say, asks for beyond this device."""
        plan, arch = source.plan, self.arch
        for feature in sorted(needs(plan.spec, plan.instruction) - arch.features):
            yield f"it has no {feature}"
        if plan.threads > arch.max_threads:
            yield f"a work-group has {plan.threads} work-items, and it allows {arch.max_threads}"
        if plan.budget.shared_bytes > arch.shared_bytes:
            yield (
                f"a work-group takes {plan.budget.shared_bytes} bytes of local memory, and it has "
                f"{arch.shared_bytes}"
            )
        lanes = lanes_needed(plan)
        if lanes and "sub_groups" not in arch.features:
            yield "it has no sub_groups"
        elif lanes and lanes not in arch.warp_sizes:
            sizes = " or ".join(map(str, sorted(arch.warp_sizes))) or "an unknown number of"
            yield f"a sub-group has {lanes} lanes, and its have {sizes}"

    def _resources(self, kernel: Any) -> Resources:
        info = binding().kernel_work_group_info

        def ask(what: int) -> int:
            return int(kernel.get_work_group_info(what, self.handle))

        return Resources(
            shared_bytes=ask(info.LOCAL_MEM_SIZE),
            private_bytes=ask(info.PRIVATE_MEM_SIZE),
            max_threads=ask(info.WORK_GROUP_SIZE),
        )

    def load(self, binary: KernelBinary) -> LoadedProgram:
        cl = binding()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                program = cl.Program(self.context, [self.handle], [binary.data]).build()
            kernels = {e.name: _kernel(program, e) for e in binary.source.entries}
        except cl.Error as error:
            raise LaunchError(f"{self.name} cannot load {binary.source.name}: {error}") from None
        for entry in binary.source.entries:
            kernel = kernels[entry.name]
            limit = kernel.get_work_group_info(
                binding().kernel_work_group_info.WORK_GROUP_SIZE, self.handle
            )
            if entry.block > limit:
                raise LaunchError(
                    f"{entry.name} needs {entry.block} work-items a group and {self.name} runs it "
                    f"with {limit} at most"
                )
            lanes = lanes_needed(binary.source.plan)
            if lanes and (found := self.sub_group_lanes(kernel, entry.block)) != lanes:
                raise LaunchError(
                    f"{entry.name} is planned for sub-groups of {lanes} lanes and {self.name} compiled "
                    f"it for {found}: who owns which element would be wrong"
                )
        return LoadedProgram(program, kernels)

    def sub_group_lanes(self, kernel: Any, block: int) -> int:
        """Lanes of the sub-groups that the compiled kernel has."""
        return sub_group_size(kernel, self.handle, block)

    def workbench(self) -> OpenCLWorkbench:
        from .workbench import OpenCLWorkbench

        return OpenCLWorkbench(self)

    def session(self, arrays: Sequence[Any], stream: Any) -> HostSession | DeviceSession:
        cl = binding()
        if stream is not None:
            if not isinstance(stream, cl.CommandQueue):
                raise LaunchError(
                    f"stream: a pyopencl.CommandQueue is needed, not {type(stream).__name__}"
                )
            if stream.context != self.context:
                raise LaunchError("stream: it belongs to another OpenCL context than the kernel")
        on_device = [array for array in arrays if isinstance(array, cl.array.Array)]
        if not on_device:
            return HostSession(self, stream or self.queue, any_tensor(arrays))
        queue = stream or next((array.queue for array in on_device if array.queue), None)
        if queue is None:
            raise LaunchError("no array has a queue: pass stream= or use array.with_queue()")
        if queue.context != self.context:
            raise LaunchError(
                "the arrays live in another OpenCL context; make them in "
                "kernel.device.context, or load the kernel with a device of theirs"
            )
        return DeviceSession(self, queue)


def devices() -> list[OpenCLDevice]:
    """Every OpenCL device here, GPUs and CPUs numbered apart."""
    return list(_devices())


@cache
def _devices() -> tuple[OpenCLDevice, ...]:
    cl = opencl()
    if cl is None:
        return ()
    try:
        platforms = cl.get_platforms()
    except cl.Error:
        return ()
    # The runtimes that are easy to have by accident, and slow, come after the others.
    platforms = sorted(
        (p for p in platforms if p.name.strip() != CHECKER), key=lambda p: p.name.strip() in SLOWER
    )
    out: list[OpenCLDevice] = []
    counts = {"cpu": 0, "gpu": 0}
    for platform in platforms:
        try:
            handles = platform.get_devices()
        except cl.Error:
            continue
        for handle in handles:
            kind = "cpu" if handle.type & cl.device_type.CPU else "gpu"
            out.append(
                OpenCLDevice(
                    handle,
                    name=handle.name.strip(),
                    selector=f"{kind}:{counts[kind]}",
                    arch=_arch(cl, handle, kind),
                    driver=f"{platform.name.strip()} {handle.driver_version.strip()}",
                    flags=language(handle.extensions.split(), handle.opencl_c_version),
                )
            )
            counts[kind] += 1
    # CPU runtimes first: they are what the [cpu] extra brings, and what needs no copies.
    return tuple(sorted(out, key=lambda d: d.selector.partition(":")[0]))


def _arch(cl: Any, handle: Any, kind: str) -> Arch:
    extensions = handle.extensions.split()
    features = {
        "fp64": "cl_khr_fp64" in extensions,
        "fp16": "cl_khr_fp16" in extensions,
        "sub_groups": has_sub_groups(extensions),
        "required_sub_group_size": "cl_intel_required_subgroup_size" in extensions,
        # fma() is a library call, hundreds of times slower, where the hardware has none.
        "fast_fma": bool(handle.single_fp_config & cl.device_fp_config.FMA),
        "fast_fma64": "cl_khr_fp64" in extensions
        and bool(handle.double_fp_config & cl.device_fp_config.FMA),
        "integer_dot": "cl_khr_integer_dot_product" in extensions and _compiles_c3(cl, handle),
    }
    return refined(
        CPU if kind == "cpu" else GPU,
        max_threads=int(handle.max_work_group_size),
        shared_bytes=int(handle.local_mem_size),
        vector_width=int(handle.native_vector_width_float),
        features=frozenset(name for name, has in features.items() if has),
        sub_groups=sub_group_sizes(handle),
        units=int(handle.max_compute_units),
    )


def _compiles_c3(cl: Any, handle: Any) -> bool:
    """Whether its compiler takes OpenCL C 3.0, which not every OpenCL 3.0 device does."""
    try:
        versions = handle.get_info(cl.device_info.OPENCL_C_ALL_VERSIONS)
    except (cl.Error, AttributeError):
        return False
    return any(v.version >> C_VERSION_SHIFT >= 3 for v in versions)


class LoadedProgram:
    """The kernels of one program."""

    def __init__(self, program: Any, kernels: dict[str, Any]) -> None:
        self._program, self._kernels = program, kernels
        # A cl_kernel keeps its arguments between calls, so setting and queueing belong together.
        self._lock = threading.Lock()

    def launch(
        self, entry: Entry, grid: int, arguments: Sequence[tuple[Argument, Any]], stream: Any
    ) -> None:
        cl = binding()
        kernel = self._kernels[entry.name]
        values = [value for _, value in arguments]
        try:
            with self._lock:
                kernel.set_args(*values)
                cl.enqueue_nd_range_kernel(stream, kernel, (grid * entry.block,), (entry.block,))
                _keep_order(entry, stream)
        except cl.Error as error:
            raise LaunchError(f"{entry.name}: the driver refused the launch: {error}") from None

    def bind(
        self, entry: Entry, grid: int, arguments: Sequence[tuple[Argument, Any]], stream: Any
    ) -> Callable[[], Any]:
        cl = binding()
        # A cl_kernel of its own, whose arguments nobody else sets.
        kernel = cl.Kernel(self._program, entry.symbol)
        everywhere, group = (grid * entry.block,), (entry.block,)
        try:
            # One by one: for a list, pyopencl writes and compiles Python, which takes milliseconds.
            for index, (argument, value) in enumerate(arguments):
                typed = (
                    value if argument.is_pointer else np.dtype(_scalar_type(argument)).type(value)
                )
                kernel.set_arg(index, typed)
        except cl.Error as error:
            raise LaunchError(f"{entry.name}: the driver refused its arguments: {error}") from None

        def launch() -> Any:
            try:
                event = cl.enqueue_nd_range_kernel(stream, kernel, everywhere, group)
                _keep_order(entry, stream)
                return event
            except cl.Error as error:
                raise LaunchError(f"{entry.name}: the driver refused the launch: {error}") from None

        return launch


def _keep_order(entry: Entry, queue: Any) -> None:
    """What hands on results in a workspace is done before the next entry starts, on any queue."""
    if any(a.kind == "workspace" for a in entry.arguments):
        cl = binding()
        if queue.properties & cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE:
            cl.enqueue_barrier(queue)


def _kernel(program: Any, entry: Entry) -> Any:
    kernel = binding().Kernel(program, entry.symbol)
    # With its types known pyopencl packs a scalar in well under a microsecond, not in 16.
    kernel.set_scalar_arg_dtypes(
        [None if a.is_pointer else _scalar_type(a) for a in entry.arguments]
    )
    return kernel


def _scalar_type(argument: Argument) -> Any:
    return np.int64 if argument.type == "i64" else DTYPES[argument.type].numpy
