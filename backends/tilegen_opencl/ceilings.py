"""What a device can do at most: kernels that only multiply and add in registers, or only move bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

# Chains that do not wait for each other: 2 units of 4 to 5 cycles want 10 at least.
CHAINS = 12
UNROLL = 8


@dataclass(frozen=True)
class PeakKernel:
    """A kernel of multiply-adds alone.

    Attributes
    ----------
    text : str
        OpenCL C with one entry, ``peak(out, steps, x)``.
    how : str
        The operation, for the report.
    scalar : str
        NumPy name of the type of ``x`` and ``out``.
    flop_per_step : int
        Operations of one work-item in one step.
    group : int
        Work-items of a group.
    flags : str
        For the compiler.
    """

    text: str
    how: str
    scalar: str
    flop_per_step: int
    group: int
    flags: str = ""


def peak_kernels(
    acc: str, operands: tuple[str, str], width: int, cpu: bool, dot: bool
) -> Iterator[PeakKernel]:
    """Ways to add products of such types into ``acc``; the fastest one is the ceiling."""
    kind, scalar = {"f64": ("double", "float64"), "f32": ("float", "float32")}.get(
        acc, ("int", "int32")
    )
    lanes = width if cpu else 1
    vector = kind + (str(lanes) if lanes > 1 else "")
    flop = 2 * lanes * CHAINS * UNROLL
    if kind == "int":
        yield _kernel(kind, scalar, vector, "{s} * x + y", "multiply-add of int", flop, cpu)
        if dot and set(operands) <= {"s8", "u8"}:
            signs = "".join("u" if name == "u8" else "s" for name in operands)
            call = f"dot_acc_sat_4x8packed_{signs}_{'uint' if signs == 'uu' else 'int'}"
            expression = call + "(as_uint(x), as_uint({s}), {s})"
            # Whole groups, so that the compiler fills vectors with work-items.
            made = _kernel(kind, scalar, kind, expression, call, 8 * CHAINS * UNROLL, False)
            yield replace(made, flags="-cl-std=CL3.0")
        return
    yield _kernel(kind, scalar, vector, "fma({s}, x, y)", f"fma of {vector}", flop, cpu)


def _kernel(
    kind: str, scalar: str, vector: str, expression: str, how: str, flop: int, alone: bool
) -> PeakKernel:
    sums = [f"s{i}" for i in range(CHAINS)]
    start = "\n".join(
        f"    {vector} {s} = ({vector})(({kind})(get_global_id(0) + {i}));"
        for i, s in enumerate(sums)
    )
    step = "\n".join(f"        {s} = {expression.format(s=s)};" for s in sums * UNROLL)
    pragma = "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n" if kind == "double" else ""
    group = 1 if alone else 256
    text = f"""{pragma}__attribute__((reqd_work_group_size({group}, 1, 1)))
__kernel void peak(__global {vector}* out, int steps, {kind} factor)
{{
    const {vector} x = ({vector})(factor), y = ({vector})(({kind})1);
{start}
    for (int i = 0; i < steps; ++i) {{
{step}
    }}
    out[get_global_id(0)] = {" + ".join(sums)};
}}
"""
    return PeakKernel(text, how, scalar, flop, group)


# Arrays of float16 on CPUs and float4 on GPUs; the entries move 1, 2 and 3 arrays of bytes.
TRAFFIC = {"read": 1, "copy": 2, "triad": 3}


def traffic_text(width: int) -> str:
    """Kernels that read, copy and triad: work-item g moves vectors g * first + i * step."""
    v = f"float{width}"
    head = (
        "__global const V* a, __global const V* b, __global V* c, int count, long first, long step"
    )
    lane = "    const long start = get_global_id(0) * first;\n"
    loop = "    for (int i = 0; i < count; ++i)\n        "
    at = "start + i * step"
    return f"""typedef {v} V;
__kernel void copy({head})
{{
{lane}{loop}c[{at}] = a[{at}];
}}
__kernel void triad({head})
{{
{lane}{loop}c[{at}] = a[{at}] + 3.0f * b[{at}];
}}
__kernel void read({head})
{{
{lane}    V even = (V)(0.0f), odd = (V)(0.0f);
    for (int i = 0; i < count; i += 2) {{
        even += a[{at}];
        odd += a[{at} + step];
    }}
    const V sum = even + odd;
    // Never true for the data at hand, so that nothing is written and nothing is left out.
    if (sum.s0 == 123.0f)
        c[start] = sum;
}}
"""
