"""The CUDA backend; its emulator vocabulary lies in ``tilegen_cuda.emulator``."""
