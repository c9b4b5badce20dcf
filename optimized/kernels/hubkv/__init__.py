"""Kernels of HubKV."""
