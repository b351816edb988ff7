"""What the driver's errors mean for a caller: what happened, what it leaves behind, what finds the cause."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilegen.errors import LaunchError

DOCUMENT = "CUDA Driver API, Data types used by CUDA driver, enum CUresult"
# What they are called where a driver error has no name of its own to ask for.
SANITIZER = "compute-sanitizer python YOUR_PROGRAM.py"
EMULATOR = "tilegen verify SPEC --backend cuda --device emulator (any other kernel: tilegen emulate FILE.cu)"


@dataclass(frozen=True)
class Failure:
    """One ``CUresult``.

    Attributes
    ----------
    name : str
        As the document has it; the runtime's ``cudaError`` of the same number is its equal.
    means : str
        For this caller, in words.
    kind : str
        ``"load"``, ``"launch"`` (of this launch alone), ``"capture"``, or ``"sticky"``: the document
        says that the process must be ended and started anew.
    help : str
        What to do, or what finds the cause.
    """

    name: str
    means: str
    kind: str
    help: str


FIND_ACCESS = f"to find the access: {SANITIZER}, or {EMULATOR}, which name its line"
FIND_FAULT = f"to find the fault: {SANITIZER}, or {EMULATOR}"
PREPARE = "prepare the call before the capture and launch the prepared one within it"
# By number. Every number, name and stickiness is of DOCUMENT.
FAILURES: dict[int, Failure] = {
    1: Failure(
        "CUDA_ERROR_INVALID_VALUE",
        "the driver takes no such grid, block, shared memory or argument",
        "launch",
        "a launch has at most 2147483647 blocks and a block the threads and the shared memory of its arch",
    ),
    2: Failure(
        "CUDA_ERROR_OUT_OF_MEMORY",
        "the GPU has no memory left for it",
        "launch",
        "free arrays, and what CuPy's pool keeps: cupy.get_default_memory_pool().free_all_blocks()",
    ),
    3: Failure(
        "CUDA_ERROR_NOT_INITIALIZED",
        "the driver was not initialised in this process",
        "launch",
        "a process forked after CUDA was used cannot use it: start workers by 'spawn'",
    ),
    4: Failure(
        "CUDA_ERROR_DEINITIALIZED",
        "the driver is shutting down with this process",
        "launch",
        "launch nothing from exit handlers or finalizers",
    ),
    36: Failure(
        "CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER",
        "the driver is older than what was asked of it",
        "load",
        "nvidia-smi shows the newest CUDA that the driver knows; update it",
    ),
    46: Failure(
        "CUDA_ERROR_DEVICE_UNAVAILABLE",
        "another process holds the GPU, or it is in a mode that keeps this one out",
        "launch",
        "nvidia-smi shows its processes and its compute mode",
    ),
    200: Failure(
        "CUDA_ERROR_INVALID_IMAGE",
        "what was compiled is no cubin that this driver reads: damaged, or of a newer CUDA",
        "load",
        "tilegen cache clear, and compile with an NVRTC no newer than the driver (nvidia-smi)",
    ),
    201: Failure(
        "CUDA_ERROR_INVALID_CONTEXT",
        "this thread has no CUDA context, or one that was destroyed",
        "launch",
        "make the GPU current in this thread: cupy.cuda.Device(0).use()",
    ),
    209: Failure(
        "CUDA_ERROR_NO_BINARY_FOR_GPU",
        "the cubin has no code for this GPU",
        "load",
        "build it for the GPU's own arch: tilegen targets lists which",
    ),
    214: Failure(
        "CUDA_ERROR_ECC_UNCORRECTABLE",
        "the GPU's memory had an error that it could not correct",
        "sticky",
        "nvidia-smi -q -d ECC shows the counts; the GPU may have to be reset or replaced",
    ),
    218: Failure(
        "CUDA_ERROR_INVALID_PTX",
        "the driver's compiler refuses the PTX",
        "load",
        "tilegen builds cubins, which need no such compiler: build it again",
    ),
    220: Failure(
        "CUDA_ERROR_NVLINK_UNCORRECTABLE",
        "a link between GPUs had an error that it could not correct",
        "sticky",
        "nvidia-smi nvlink -e shows the counts",
    ),
    222: Failure(
        "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
        "the code is of a newer CUDA than the driver",
        "load",
        "update the driver, or compile with an NVRTC no newer than it (nvidia-smi)",
    ),
    226: Failure(
        "CUDA_ERROR_CONTAINED",
        "an error of the GPU's memory was contained in this process",
        "sticky",
        "nvidia-smi -q shows what the GPU reports",
    ),
    400: Failure(
        "CUDA_ERROR_INVALID_HANDLE",
        "the stream or the kernel belongs to nothing that is alive",
        "launch",
        "keep the stream for as long as it is launched on, and use it on its own GPU",
    ),
    500: Failure(
        "CUDA_ERROR_NOT_FOUND",
        "the cubin has no kernel of that name",
        "load",
        "tilegen cache clear, and build it again",
    ),
    700: Failure(
        "CUDA_ERROR_ILLEGAL_ADDRESS",
        "a kernel accessed memory that is not there: this one, or one queued before it",
        "sticky",
        FIND_ACCESS,
    ),
    701: Failure(
        "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
        "a block needs more registers, threads or shared memory than a multiprocessor has",
        "launch",
        "take a smaller block, or more warps of smaller tiles; tilegen plan shows what each costs",
    ),
    702: Failure(
        "CUDA_ERROR_LAUNCH_TIMEOUT",
        "a kernel ran for longer than a GPU that drives a display allows",
        "sticky",
        f"{FIND_FAULT}; on a display's GPU take smaller problems",
    ),
    709: Failure(
        "CUDA_ERROR_CONTEXT_IS_DESTROYED",
        "the CUDA context of this thread was destroyed, by a reset or at the end of a library",
        "sticky",
        "look for cudaDeviceReset, cuCtxDestroy or numba.cuda.close() in the program",
    ),
    710: Failure(
        "CUDA_ERROR_ASSERT", "an assertion in a kernel failed", "sticky",
        "the assertion is on standard error; kernels of tilegen have none",
    ),
    714: Failure(
        "CUDA_ERROR_HARDWARE_STACK_ERROR",
        "a kernel's call stack was damaged or overflowed",
        "sticky",
        FIND_FAULT,
    ),
    715: Failure(
        "CUDA_ERROR_ILLEGAL_INSTRUCTION",
        "a kernel came to an instruction that the GPU does not have",
        "sticky",
        FIND_FAULT,
    ),
    716: Failure(
        "CUDA_ERROR_MISALIGNED_ADDRESS",
        "a kernel accessed memory at an address that its width does not divide: this one, or one "
        "queued before it",
        "sticky",
        FIND_ACCESS,
    ),
    717: Failure(
        "CUDA_ERROR_INVALID_ADDRESS_SPACE",
        "an instruction for one memory got an address in another",
        "sticky",
        FIND_ACCESS,
    ),
    718: Failure(
        "CUDA_ERROR_INVALID_PC", "a kernel jumped to where no code is", "sticky", FIND_FAULT
    ),
    719: Failure(
        "CUDA_ERROR_LAUNCH_FAILED",
        "a kernel stopped on an exception: this one, or one queued before it",
        "sticky",
        FIND_FAULT,
    ),
    720: Failure(
        "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
        "more blocks are to run at once than the GPU holds",
        "launch",
        "take a smaller block or grid",
    ),
    721: Failure(
        "CUDA_ERROR_TENSOR_MEMORY_LEAK",
        "a kernel ended with tensor memory still allocated",
        "sticky",
        FIND_FAULT,
    ),
    802: Failure(
        "CUDA_ERROR_SYSTEM_NOT_READY",
        "the system's GPUs are not ready for work",
        "load",
        "on a machine with NVSwitch the fabric manager must run",
    ),
    803: Failure(
        "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
        "the display driver and the CUDA driver are of different versions",
        "load",
        "restart the machine, or install the driver anew",
    ),
    804: Failure(
        "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
        "the driver is too old for this CUDA, and its compatibility package does not cover this GPU",
        "load",
        "update the driver",
    ),
    900: Failure(
        "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
        "the stream is being captured in a graph, which cannot hold this",
        "capture",
        PREPARE,
    ),
    901: Failure(
        "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
        "an earlier error ended the capture of the stream in a graph",
        "capture",
        PREPARE,
    ),
    906: Failure(
        "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
        "the default stream would wait for a stream that is being captured",
        "capture",
        "pass stream=, the one that is captured or another that does not block",
    ),
    912: Failure(
        "CUDA_ERROR_INVALID_CLUSTER_SIZE",
        "the GPU has no room for so many blocks in one cluster",
        "launch",
        "take a smaller cluster or block",
    ),
}  # fmt: skip
# cudaErrorInsufficientDriver, which CUresult has no number of its own for.
FAILURES[35] = Failure(
    "cudaErrorInsufficientDriver",
    "the driver is older than the CUDA that CuPy was built for",
    "load",
    "nvidia-smi shows the newest CUDA that the driver knows; update it",
)
UNUSABLE = (
    "nothing on this GPU works in this process any more, and every later call says the same: start "
    "the process anew"
)


def explained(what: str, error: Exception) -> LaunchError:
    """A driver's or runtime's error in words.

    Parameters
    ----------
    what : str
        What was being done, as the start of a sentence: ``"gemm_wide: the driver refuses the launch"``.
    error : Exception
        CuPy's, with the ``CUresult`` (or the ``cudaError`` of the same number) as ``status``.
    """
    failure = FAILURES.get(status := number(error))
    if failure is None:
        return LaunchError(f"{what}: {error}")
    told = f"{what}: {failure.means} ({failure.name}, {status})"
    if failure.kind == "sticky":
        told += f"; {UNUSABLE}"
    return LaunchError(f"{told}; {failure.help}")


def number(error: Any) -> int:
    """The ``CUresult`` of an error, 0 where it has none."""
    status = getattr(error, "status", 0)
    return int(status) if isinstance(status, int) else 0
