"""Kernels of GraphKV."""
