"""Benchmarks: `python -m optimized.bench NAME` runs the `main` of the file NAME."""
