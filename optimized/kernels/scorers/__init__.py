"""Scorers over the attention mass that the kernels of `hex/heavy_hitters.py` compute."""
