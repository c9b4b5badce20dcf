"""Kernels beyond agreement: the order of programs, waiting for a GPU, rounding, large offsets."""
