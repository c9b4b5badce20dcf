"""Triton bodies, CUDA only; with TRITON_INTERPRET=1 they run on the CPU."""

from optimized.kernels.smd import smd

__all__ = ["smd"]
