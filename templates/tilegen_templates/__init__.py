"""The templates of tilegen's kernels; data, no code."""
