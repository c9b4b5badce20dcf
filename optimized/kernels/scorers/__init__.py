"""Scorers whose attention is summed by the kernels of `hex/heavy_hitters.py`."""
