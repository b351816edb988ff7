"""What a device says of its sub-groups: how many lanes they can have, and which a kernel got."""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Sequence
from typing import Any

from tilegen.plan import KernelPlan

from .runtime import binding

# cl_intel_required_subgroup_size; pyopencl has no name for it.
CL_DEVICE_SUB_GROUP_SIZES_INTEL = 0x4108
MOST_SIZES = 16
PROBE = """#pragma OPENCL EXTENSION cl_khr_subgroups : enable
__kernel void probe(__global int *out)
{
    out[get_global_id(0)] = (int)get_sub_group_local_id();
}
"""
# A multiple of every sub-group size that is known.
PROBED_GROUP = 128


def has_sub_groups(extensions: Sequence[str]) -> bool:
    return "cl_khr_subgroups" in extensions or "cl_intel_subgroups" in extensions


def language(extensions: Sequence[str], version: str) -> str:
    """The build option under which the device's compiler knows the sub-group functions.

    Parameters
    ----------
    extensions : sequence of str
    version : str
        ``CL_DEVICE_OPENCL_C_VERSION``: ``"OpenCL C 1.2 ..."``.

    Notes
    -----
    cl_intel_subgroups has them in OpenCL C 1.2, the default; cl_khr_subgroups in 2.0 and in 3.0,
    of which a device has either.
    """
    if "cl_khr_subgroups" not in extensions or "cl_intel_subgroups" in extensions:
        return ""
    # OpenCL 3.0 devices may say 1.2 here for what they had before (OpenCL 3.0 API, table 5).
    return "-cl-std=CL2.0" if version.startswith("OpenCL C 2") else "-cl-std=CL3.0"


def sub_group_sizes(handle: Any) -> tuple[int, ...]:
    """Sizes that a kernel on this device can have; empty where it has no sub-groups or says nothing."""
    extensions = handle.extensions.split()
    if not has_sub_groups(extensions):
        return ()
    if "cl_intel_required_subgroup_size" in extensions and (sizes := _required_sizes(handle)):
        return sizes
    return _probed(handle)


def lanes_needed(plan: KernelPlan) -> int:
    """Lanes of a sub-group that the plan counts on; 0: it uses none."""
    return plan.arch.lanes if plan.form == "sub_group" else 0


def sub_group_size(kernel: Any, handle: Any, block: int) -> int:
    """Lanes of the largest sub-group of a kernel in work-groups of ``block`` work-items."""
    what = binding().kernel_sub_group_info.MAX_SUB_GROUP_SIZE_FOR_NDRANGE
    return int(kernel.get_sub_group_info(handle, what, (block,)))


def _required_sizes(handle: Any) -> tuple[int, ...]:
    sizes, size = (ctypes.c_size_t * MOST_SIZES)(), ctypes.c_size_t()
    try:
        # The loader that pyopencl uses is found through pyopencl's own library.
        ask = ctypes.CDLL(binding()._cl.__file__).clGetDeviceInfo
    except (AttributeError, OSError):
        return ()
    device = ctypes.c_void_p(handle.int_ptr)
    width = ctypes.c_size_t(ctypes.sizeof(sizes))
    if ask(device, CL_DEVICE_SUB_GROUP_SIZES_INTEL, width, sizes, ctypes.byref(size)):
        return ()
    return tuple(sizes[: size.value // ctypes.sizeof(ctypes.c_size_t)])


def _probed(handle: Any) -> tuple[int, ...]:
    """The size that the device's compiler takes by itself."""
    cl = binding()
    flags = language(handle.extensions.split(), handle.opencl_c_version)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = cl.Program(cl.Context([handle]), PROBE).build(flags)
        kernel = cl.Kernel(program, "probe")
        return (sub_group_size(kernel, handle, min(PROBED_GROUP, handle.max_work_group_size)),)
    except cl.Error:
        return ()
