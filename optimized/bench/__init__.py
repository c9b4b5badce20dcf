"""Benchmarks: `python -m optimized.bench NAME [NAME ...]`, or without a name all of them.

Convention. The rows of NAME stand in `bench_NAME.py`, a pytest-benchmark file beside this one:

    from optimized.bench.comparison import timing, versus

    ROWS = [versus("gate", "[8, 4096] float32", lambda: dict(scores=..., corrected=..., ratio=0.9))]
    test_timing = timing(ROWS)

`versus` races a public function of `optimized` against its namesake of `reference`. Write a `Row`
where the fast side is a chain of functions, or where the slow side is something else than the
reference: a row says what it is measured against. No two rows share both name and shape. Inputs are
made anew for each side, from a function, so that nothing large is held; seed them. A file that
reproduces timings of a paper names their id and gives the paper's figure as `paper`.

The run is always the same: agreement tests of the functions that rows name first, and of those
that a file names beside them in `ALSO`, and no figures if one fails; then both sides of
every row in one process, the median of several rounds after a first call that is timed apart; then
the table, with rows that lose to the reference listed once more. No timing is ever asserted.
"""
