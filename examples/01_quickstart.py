"""From a spec to a checked kernel, one arrow at a time. Run: python examples/01_quickstart.py"""

import numpy as np

import tilegen as tg

# What the tile is, in words that name no architecture.
spec = tg.TileSpec(block=(128, 128, 64), warp=(64, 64))

# Lowered for one arch: every number of the kernel, before any text exists.
plan = tg.lower(spec, backend="opencl", arch="cpu")
print(plan.fragments.c, *plan.notes, sep="\n")

# Readable, standalone source that introduces itself.
source = tg.emit(plan)
print(*source.text.splitlines()[:9], sep="\n")

# Compiled at run time, called with arrays.
kernel = tg.load(tg.compile(source))
rng = np.random.default_rng(0)
a = rng.integers(-3, 4, (300, 200)).astype(np.float32)
b = rng.integers(-3, 4, (200, 100)).astype(np.float32)
assert np.array_equal(kernel(a, b), a @ b)
print(kernel.explain(a, b))

# Checked on 50 problems that Hypothesis draws: edges, views, NaN in C, broadcasts.
print(tg.verify(kernel, examples=50))
