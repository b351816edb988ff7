"""tilegen's OpenCL backend; importing it loads nothing else."""

from .backend import OpenCLBackend

BACKEND = OpenCLBackend()
