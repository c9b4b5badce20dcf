"""Benchmarks: `python -m optimized.bench NAME [NAME ...]`, or without a name all of them.

The rows of NAME are in `bench_NAME.py`, a pytest-benchmark file in this folder:

    from optimized.bench.timing_harness import timing, versus

    ROWS = [versus("gate", "[8, 4096] float32", lambda: dict(scores=..., corrected=..., ratio=0.9))]
    test_timing = timing(ROWS)

`versus` compares a public function of `optimized` with the function of that name in `reference`.
Write a `Row` if the fast side is a chain of functions, or if the slow side is not the reference;
`against` names the slow side. No two rows share both name and shape. A function creates the inputs
for each side, so that no large tensor stays in memory; seed them. A file that reproduces timings of
a paper names their id and gives the paper's figure as `paper`.

A run has three steps. First come the agreement tests of the functions that rows name and of those
in a file's `ALSO`; if one fails, nothing is timed. Then both sides of every row run in one process:
the figure is the median of several rounds, and the first call is timed separately. Last comes the
table, which lists rows that are slower than the reference once more. No timing is ever asserted.
"""
