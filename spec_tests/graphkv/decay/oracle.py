"""Algorithm 2 and Equation 5 as printed, number by number in exact fractions."""

from fractions import Fraction

from spec_tests.graphkv.graph.oracle import Edges, neighbourhood


def algorithm_2(
    sources: list[int], edges: Edges, scores: list[Fraction], rounds: int, m: int
) -> list[Fraction]:
    """Return the scores after all rounds, where a later source overwrites an earlier one."""
    before = list(scores)
    for _ in range(rounds):
        after = list(before)
        for i in sources:
            for j in neighbourhood(edges, i, m):
                after[j] = before[j] * (1 - edges[i, j])
        before = after
    return before


def equation_5(
    sources: list[int], edges: Edges, scores: list[Fraction], rounds: int, m: int
) -> list[Fraction]:
    """Return the scores times the factors of all sources that reach a token, in every round."""
    after = list(scores)
    for _ in range(rounds):
        for j in range(len(scores)):
            for i in sources:
                if j in neighbourhood(edges, i, m):
                    after[j] *= 1 - edges[i, j]
    return after
