"""Benchmarks: `python -m optimized.bench ratios`, `cuda` or `aot`.

`ratios` measures every function on a CPU, `cuda` the kernels on a GPU, and `aot` compiles the
kernels and times none.
"""
