"""Expander generation, sampled, checked and accepted: `python -m optimized.bench expander`."""

import statistics
import time
from collections.abc import Callable

from optimized import random_expander, second_singular_value

SIZES = ((96, 1024, 51, 50), (1920, 1024, 21, 50), (8160, 1024, 11, 150), (4096, 4096, 11, 1000))
"""Tokens, channels, runs, and the goal in milliseconds."""


def milliseconds(work: Callable[[int], object], runs: int) -> float:
    """Return the median time of `work`, which is given the number of its run, after one more."""
    work(runs)
    times = []
    for run in range(runs):
        start = time.perf_counter()
        work(run)
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times)


def configuration_model(tokens: int, channels: int, degree: int) -> tuple[float, int]:
    """Return the time networkx needs for a multigraph, and the edges it loses as a mask."""
    import networkx

    degrees = [degree] * tokens, [tokens * degree // channels] * channels
    start = time.perf_counter()
    graph = networkx.bipartite.configuration_model(*degrees, seed=0)
    elapsed = 1000 * (time.perf_counter() - start)
    return elapsed, graph.number_of_edges() - networkx.Graph(graph).number_of_edges()


def main(_arguments: list[str]) -> None:
    """Print one row a size."""
    print("| size | ms, accepted | goal | σ₂, seed 0 | networkx ms, multigraph | edges it loses |")
    print("|---|---|---|---|---|---|")
    for tokens, channels, runs, goal in SIZES:
        degree = channels // 32

        def accept(seed: int, sizes: tuple[int, int, int] = (tokens, channels, degree)) -> object:
            return random_expander(*sizes, seed)

        ours = milliseconds(accept, runs)
        second = second_singular_value(random_expander(tokens, channels, degree).mask)
        theirs, lost = configuration_model(tokens, channels, degree)
        print(
            f"| {channels} × {tokens} | {ours:.1f} | {goal} | {second:.3f} "
            f"| {theirs:.0f} | {lost} |",
            flush=True,
        )
