"""A kernel as an operator of torch: eager, under torch.compile, and with gradients.

    python examples/06_torch_op.py

Tensors on a GPU run on torch's current stream; those on the host run on OpenCL's CPU runtime or, without
one, in the emulator. Needs torch, and `tilegen[cuda]` or `tilegen[cpu]`.
"""

from functools import cache

import torch

import tilegen as tg
from tilegen import registry
from tilegen.tensors import TORCH_TYPES

# What a product of each type is summed in.
SUMS = {"f64": "f64", "f32": "f32", "f16": "f32", "bf16": "f32"}


def majorness(x: torch.Tensor) -> str:
    """Which axis of a matrix is contiguous; a kernel is built for one, and strides of 0 broadcast."""
    if x.stride(1) in (0, 1) or x.shape[1] == 1:
        return "row"
    return "col" if x.stride(0) in (0, 1) or x.shape[0] == 1 else ""


@cache
def kernel(dtype: torch.dtype, a: str, b: str, device: str, index: int) -> tg.Kernel:
    """Built once for each type, majorness and device; it serves every shape."""
    kind = TORCH_TYPES[str(dtype).removeprefix("torch.")]
    types = {"a": kind, "b": kind, "acc": SUMS[kind], "c": kind, "d": kind}
    spec = tg.TileSpec(block=(64, 64, 16), warp=(32, 32), types=types, layout={"a": a, "b": b})
    if device == "cuda":
        return tg.build(spec, "cuda", device=f"gpu:{index}")
    if registry.get("opencl").devices():
        return tg.build(spec, "opencl", "cpu", device="cpu:0")
    return tg.build(spec, "cuda", "sm_80", device="emulator:quick")


@torch.library.custom_op("tilegen_example::matmul", mutates_args=())
def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A @ B for matrices of one type, of either majorness, as tilegen's kernels compute it."""
    # No kernel copies behind the caller's back; where no axis is contiguous, the operator does.
    a, b = (x.detach() if majorness(x) else x.detach().contiguous() for x in (a, b))
    out = a.new_empty(a.shape[0], b.shape[1])
    run = kernel(a.dtype, majorness(a), majorness(b), a.device.type, a.device.index or 0)
    run(a, b, out=out)
    return out


@matmul.register_fake
def _(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a.new_empty(a.shape[0], b.shape[1])


def keep_operands(
    ctx: torch.autograd.function.FunctionCtx,
    inputs: tuple[torch.Tensor, torch.Tensor],
    output: torch.Tensor,
) -> None:
    ctx.save_for_backward(*inputs)


def gradients(
    ctx: torch.autograd.function.FunctionCtx, d: torch.Tensor
) -> tuple[torch.Tensor | None, ...]:
    """dA = dD Bᵀ and dB = Aᵀ dD: transposed views are the other majorness, so nothing is copied."""
    a, b = ctx.saved_tensors
    wants_a, wants_b = ctx.needs_input_grad
    return matmul(d, b.t()) if wants_a else None, matmul(a.t(), d) if wants_b else None


matmul.register_autograd(gradients, setup_context=keep_operands)


def main() -> None:
    device = "cuda" if registry.get("cuda").devices() and torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    x = torch.randint(-3, 4, (70, 33), device=device).float()
    w = torch.randint(-3, 4, (33, 50), device=device).float().requires_grad_()

    assert torch.equal(matmul(x, w), x @ w)
    print(f"eager on {device}: equal to torch's product")

    # What torch itself asks of an operator: schema, fake result, gradients, and shapes that vary.
    torch.library.opcheck(matmul, (x, w))

    def layer(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.relu(matmul(x, w)).sum()

    # aot_eager needs no compiler of its own; leave backend out for the default one.
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    (ours,) = torch.autograd.grad(compiled(x, w), w)
    (theirs,) = torch.autograd.grad(torch.relu(x @ w).sum(), w)
    assert torch.equal(ours, theirs)
    print("torch.compile, one graph: the gradient is torch's")

    doubles = [t.detach()[:5].double().requires_grad_() for t in (x[:, :5], w)]
    assert torch.autograd.gradcheck(matmul, doubles)
    print("gradcheck in f64: passed")


if __name__ == "__main__":
    main()
