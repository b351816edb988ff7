"""tilegen's CUDA backend; importing it loads nothing else."""

from .backend import CudaBackend

BACKEND = CudaBackend()
