"""Benchmarks: `python -m optimized.bench NAME [NAME ...]`, or without a name all of them.

The cases of NAME are in `bench_NAME.py` in this folder:

    from optimized.bench.timing_harness import compare

    CASES = [compare("smd", "[8, 4096] float32", lambda: dict(scores=...))]

`compare` compares a public function of `optimized` with the function of that name in `reference`.
Write a `Case` if the fast side is a chain of functions, or if the slow side is not the reference;
`against` names the slow side. A file that reproduces timings of a paper names their id and gives
the paper's figure as `paper`.

`straightforward` and `library` are other commands: `ratios` says how they measure.

A run has three steps. First it runs the agreement tests of the functions that cases name and of
those in a file's `ALSO`; if one fails, nothing is timed. Then it times both sides of every case in
one process: the figure is the median of several calls, and the first call is timed separately. Last
it prints the table, with the cases that are slower than the other side repeated below. No timing is
ever asserted.
"""
