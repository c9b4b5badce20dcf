"""Kernels of HEX."""
