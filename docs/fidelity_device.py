"""Runs texts of the fault corpus on a CUDA device, one after another: a worker of docs/fidelity.py.

It reads numbers of texts from standard input, one a line, and answers with a line of JSON each. After a CUDA
error or a hang the process is of no more use: it says so and ends, and docs/fidelity.py starts another.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
sys.path += [str(HERE.parent / "tests"), str(HERE.parent), str(HERE.parent / "backends")]

from emulated.faults import corpus  # noqa: E402

from tilegen.emulator import TensorMap  # noqa: E402

LAUNCHES, ALONE, HANG_SECONDS = 20, 8, 2.0
# Arrays lie this far apart in the middle of one allocation: what a stray access of a text meets is the
# guard between and round them, whose words all hold one pattern.
APART, SLOTS, PATTERN = 64 << 20, 14, 0x7FF7A5A5
ARCH = "sm_90a"
HEADERS = {
    "cstdint": "typedef signed char int8_t; typedef short int16_t; typedef int int32_t;\n"
    "typedef unsigned char uint8_t; typedef unsigned short uint16_t; typedef unsigned uint32_t;\n"
    "typedef long long int64_t; typedef unsigned long long uint64_t;\n",
    "cuda.h": "struct alignas(64) CUtensorMap { unsigned long long opaque[16]; };\n",
    "cuda_runtime.h": "",
    "uint.h": "typedef unsigned int uint;\n",
}
HELPERS = f"""
typedef unsigned long long u64;
struct Ranges {{ u64 begin[8], end[8]; }};
// Counts the words outside of the arrays that are not the pattern.
extern "C" __global__ void guards(const unsigned* words, u64 count, Ranges arrays, unsigned* changed) {{
  for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < count; i += (u64)gridDim.x * blockDim.x) {{
    bool inside = false;
    for (int r = 0; r < 8; r++) inside = inside || (i >= arrays.begin[r] && i < arrays.end[r]);
    if (!inside && words[i] != {PATTERN}u) atomicAdd(changed, 1u);
  }}
}}
// Leaves a pattern in the shared memory of a multiprocessor.
extern "C" __global__ void fill_shared(unsigned pattern, unsigned words) {{
  extern __shared__ unsigned memory[];
  for (unsigned i = threadIdx.x; i < words; i += blockDim.x) ((volatile unsigned*)memory)[i] = pattern;
}}
// Keeps schedulers, shared memory and the way to memory busy beside the kernel under test.
extern "C" __global__ void load(const unsigned* words, u64 count, int rounds, unsigned* out) {{
  __shared__ unsigned some[256];
  unsigned sum = threadIdx.x;
  some[threadIdx.x] = sum;
  for (int r = 0; r < rounds; r++) {{
    sum += words[((u64)(blockIdx.x * 977 + r) * 4099 + threadIdx.x) % count];
    sum += some[(threadIdx.x * 33 + r) & 255];
    for (int i = 0; i < 16; i++) sum = sum * 1664525u + 1013904223u;
    some[threadIdx.x] = sum;
    if (r % 8 == 0) __syncthreads();
  }}
  if (sum == 12345u) *out = sum;
}}
"""


class Failed(RuntimeError):
    """A CUDA call failed; the message is the error's name."""


def _include_folders() -> list[str]:
    import shutil

    places = [Path("/usr/local/cuda/include"), Path("/usr/local/cuda-13.0/include")]
    if nvcc := shutil.which("nvcc"):
        places.insert(0, Path(nvcc).resolve().parent.parent / "include")
    for folder in sys.path:
        places += [Path(folder) / "nvidia" / part / "include" for part in ("cu13", "cuda_runtime")]
    return [str(p) for p in places if (p / "cuda_fp16.h").exists()]


def compile_text(text: str, entry: str, *, lines: bool = False) -> tuple[bytes, bytes]:
    """The cubin and the entry's name in it; raises ``Failed`` with the compiler's first error."""
    from cuda.bindings import nvrtc

    def check(result: tuple[Any, ...]) -> Any:
        if result[0] != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise Failed(f"nvrtc: {result[0].name}")
        return result[1] if len(result) == 2 else result[1:]

    names = [name.encode() for name in HEADERS]
    bodies = [body.encode() for body in HEADERS.values()]
    program = check(
        nvrtc.nvrtcCreateProgram(text.encode(), b"kernel.cu", len(names), bodies, names)
    )
    check(nvrtc.nvrtcAddNameExpression(program, entry.encode()))
    options = [f"--gpu-architecture={ARCH}", "--std=c++17", "--pre-include=uint.h", "-w"]
    options += ["-lineinfo"] if lines else []
    options += [f"--include-path={folder}" for folder in _include_folders()[:1]]
    done = nvrtc.nvrtcCompileProgram(program, len(options), [o.encode() for o in options])
    if done[0] != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        log = b" " * check(nvrtc.nvrtcGetProgramLogSize(program))
        check(nvrtc.nvrtcGetProgramLog(program, log))
        said = [x for x in log.decode("utf-8", "replace").splitlines() if "error" in x] or [
            done[0].name
        ]
        raise Failed(said[0].strip())
    cubin = b" " * check(nvrtc.nvrtcGetCUBINSize(program))
    check(nvrtc.nvrtcGetCUBIN(program, cubin))
    return cubin, check(nvrtc.nvrtcGetLoweredName(program, entry.encode()))


def compiler_version() -> str:
    from cuda.bindings import nvrtc

    return ".".join(map(str, nvrtc.nvrtcVersion()[1:]))


class Device:
    """A context of one device, with an arena of guarded arrays."""

    def __init__(self, number: int, *, guarded: bool = True) -> None:
        from cuda.bindings import driver

        self.driver, self.guarded = driver, guarded
        self.check(driver.cuInit(0))
        handle = self.check(driver.cuDeviceGet(number))
        self.context = self.check(driver.cuDevicePrimaryCtxRetain(handle))
        self.check(driver.cuCtxSetCurrent(self.context))
        self.name = self.check(driver.cuDeviceGetName(128, handle)).split(b"\0")[0].decode()
        attribute = driver.CUdevice_attribute
        self.units = self.check(
            driver.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, handle)
        )
        self.most_shared = self.check(
            driver.cuDeviceGetAttribute(
                attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, handle
            )
        )
        flag = driver.CUstream_flags.CU_STREAM_NON_BLOCKING.value
        self.stream, self.beside = (self.check(driver.cuStreamCreate(flag)) for _ in range(2))
        if not guarded:
            return
        self.words = APART * SLOTS // 4
        self.arena = int(self.check(driver.cuMemAlloc(APART * SLOTS)))
        self.counter = int(self.check(driver.cuMemAlloc(256)))
        cubin, _ = compile_text(HELPERS, "load")
        self.module = self.check(driver.cuModuleLoadData(cubin))
        self.helpers = {
            name: self.check(driver.cuModuleGetFunction(self.module, name.encode()))
            for name in ("guards", "fill_shared", "load")
        }
        self.allow_shared(self.helpers["fill_shared"], self.most_shared)
        self.clear()

    def check(self, result: tuple[Any, ...]) -> Any:
        if result[0] != self.driver.CUresult.CUDA_SUCCESS:
            raise Failed(result[0].name)
        return result[1] if len(result) == 2 else result[1:] or None

    def allow_shared(self, function: Any, size: int) -> None:
        attribute = self.driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        self.check(self.driver.cuFuncSetAttribute(function, attribute, size))

    def clear(self) -> None:
        """The pattern everywhere."""
        self.check(self.driver.cuMemsetD32(self.arena, PATTERN, self.words))
        self.check(self.driver.cuCtxSynchronize())

    def places(self, arrays: list[Any]) -> list[int]:
        if self.guarded:
            return [
                self.arena + (i + SLOTS // 2 - len(arrays) // 2) * APART for i in range(len(arrays))
            ]
        return [int(self.check(self.driver.cuMemAlloc(a.nbytes))) for a in arrays]

    def launch(
        self, function: Any, grid: Any, block: Any, shared: int, stream: Any, args: list[Any]
    ) -> None:
        """``args``: ctypes objects, or addresses of parameters as int."""
        pointers = (ctypes.c_void_p * len(args))(
            *(a if isinstance(a, int) else ctypes.addressof(a) for a in args)
        )
        grid, block = ((*x, 1, 1)[:3] for x in (grid, block))
        self.check(
            self.driver.cuLaunchKernel(
                function, *grid, *block, shared, stream, ctypes.addressof(pointers), 0
            )
        )

    def strayed(self, places: list[int], arrays: list[Any]) -> bool:
        """Whether anything outside of the arrays was written."""
        ranges = (ctypes.c_uint64 * 16)()
        for i, (place, array) in enumerate(zip(places, arrays, strict=True)):
            ranges[i] = (place - self.arena) // 4
            # A last word that an array fills only in part is not looked at.
            ranges[8 + i] = (place - self.arena + array.nbytes + 3) // 4
        self.check(self.driver.cuMemsetD32(self.counter, 0, 1))
        self.check(self.driver.cuCtxSynchronize())
        args = [ctypes.c_uint64(self.arena), ctypes.c_uint64(self.words), ranges,
                ctypes.c_uint64(self.counter)]  # fmt: skip
        self.launch(self.helpers["guards"], (self.units * 8,), (256,), 0, self.stream, args)
        self.check(self.driver.cuStreamSynchronize(self.stream))
        changed = np.zeros(1, np.uint32)
        self.check(self.driver.cuMemcpyDtoH(changed.ctypes.data, self.counter, 4))
        return bool(changed[0])

    def disturb(self, turn: int) -> None:
        """Shared memory holds ones or zeros before the launch; later launches have company."""
        words = self.most_shared // 4
        args = [ctypes.c_uint32(0xFFFFFFFF if turn % 2 else 0), ctypes.c_uint32(words)]
        self.launch(
            self.helpers["fill_shared"], (self.units,), (512,), 4 * words, self.stream, args
        )
        if turn >= ALONE:
            args = [ctypes.c_uint64(self.arena), ctypes.c_uint64(self.words), ctypes.c_int(40 << turn % 4),
                    ctypes.c_uint64(self.counter)]  # fmt: skip
            self.check(self.driver.cuStreamSynchronize(self.stream))
            self.launch(
                self.helpers["load"], (self.units * (1 + turn % 3),), (256,), 0, self.beside, args
            )

    def finished(self) -> bool:
        """Wait for the kernel; false if it does not end."""
        end = time.monotonic() + (HANG_SECONDS if self.guarded else 10 * HANG_SECONDS)
        while time.monotonic() < end:
            status = self.driver.cuStreamQuery(self.stream)[0]
            if status != self.driver.CUresult.CUDA_ERROR_NOT_READY:
                self.check((status,))
                return True
            time.sleep(0.0005)
        return False


def tensor_map(device: Device, about: TensorMap, place: int) -> Any:
    """What the driver makes of the array."""
    d, array = device.driver, about.array
    swizzle = {0: "NONE", 32: "32B", 64: "64B", 128: "128B"}[about.swizzle]
    kind = {"f4": "FLOAT32", "bfloat16": "BFLOAT16", "f2": "FLOAT16"}[
        "bfloat16" if array.dtype.name == "bfloat16" else array.dtype.str[1:]
    ]
    rank = array.ndim
    return device.check(
        d.cuTensorMapEncodeTiled(
            getattr(d.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{kind}"), rank, place,
            [d.cuuint64_t(n) for n in reversed(array.shape)],
            [d.cuuint64_t(n) for n in reversed(array.strides[:-1])],
            [d.cuuint32_t(n) for n in reversed(about.box)], [d.cuuint32_t(1)] * rank,
            d.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            getattr(d.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{swizzle}"),
            d.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_NONE,
            d.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    )  # fmt: skip


def parameters(device: Device, text: corpus.Text, places: list[int]) -> tuple[list[Any], list[Any]]:
    """The kernel's parameters, and what must be kept alive for them."""
    out: list[Any] = []
    kept: list[Any] = []
    following = iter(places)
    for argument in text.kernel.operands.args:
        if isinstance(argument, TensorMap):
            kept.append(tensor_map(device, argument, next(following)))
            out.append(int(kept[-1].getPtr()))
        elif isinstance(argument, np.ndarray):
            out.append(ctypes.c_uint64(next(following)))
        else:
            out.append(ctypes.c_int32(argument))
    return out, kept


def run(device: Device, text: corpus.Text, launches: int) -> dict[str, Any]:
    """Launch a text again and again on the same operands; what came of it."""
    d, kernel, operands = device.driver, text.kernel, text.kernel.operands
    out: dict[str, Any] = {"launches": 0, "right": 0, "digests": {}}
    try:
        cubin, name = compile_text(text.text, kernel.entry, lines=not device.guarded)
    except Failed as error:
        return out | {"error": "not-compiled", "said": str(error)}
    digests: Counter[str] = Counter()
    arrays = [np.ascontiguousarray(a) for a in operands.arrays]
    try:
        module = device.check(d.cuModuleLoadData(cubin))
        function = device.check(d.cuModuleGetFunction(module, name))
        if kernel.shared:
            device.allow_shared(function, kernel.shared)
        places = device.places(arrays)
        args, kept = parameters(device, text, places)
        for turn in range(launches):
            for place, array in zip(places, arrays, strict=True):
                device.check(d.cuMemcpyHtoD(place, array.ctypes.data, array.nbytes))
            # These streams do not wait for the copies by themselves.
            device.check(d.cuCtxSynchronize())
            if device.guarded:
                device.disturb(turn)
            device.launch(function, kernel.grid, kernel.block, kernel.shared, device.stream, args)
            if not device.finished():
                return out | {"error": "timeout", "digests": dict(digests)}
            got = [np.empty_like(a) for a in arrays]
            for place, array in zip(places, got, strict=True):
                device.check(d.cuMemcpyDtoH(array.ctypes.data, place, array.nbytes))
            out["launches"] += 1
            out["right"] += corpus.same(got, operands.expected)
            digests[corpus.digest_of(got)] += 1
            device.check(d.cuStreamSynchronize(device.beside))
        if device.guarded and device.strayed(places, arrays):
            out["stray"] = True
        if device.guarded:
            device.clear()
        device.check(d.cuModuleUnload(module))
        del kept
    except Failed as error:
        return out | {"error": str(error), "digests": dict(digests)}
    return out | {"digests": dict(digests)}


def answer(number: int, result: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"text": number, **result}) + "\n")
    sys.stdout.flush()


def main() -> None:
    # What libraries print must not come between the answers.
    dry, number = sys.argv[1] == "dry", sys.argv[1]
    if dry:
        from fidelity_dry import run_dry

        answer(-1, {"device": "emulator (dry run)"})
        for line in sys.stdin:
            answer(int(line), run_dry(corpus.texts()[int(line)]))
        return
    alone = int(sys.argv[2]) if len(sys.argv) > 2 else None
    device = Device(int(number), guarded=alone is None)
    if alone is not None:
        result = run(device, corpus.texts()[alone], 1)
        answer(alone, result)
        if result.get("error") == "timeout":
            os.kill(os.getpid(), signal.SIGKILL)
        return
    answer(-1, {"device": f"{device.name}, NVRTC {compiler_version()}"})
    for line in sys.stdin:
        result = run(device, corpus.texts()[int(line)], LAUNCHES)
        answer(int(line), result)
        if result.get("error") not in (None, "not-compiled"):
            # A kernel may still run, and the context is lost: leave without tidying up.
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
