"""Lubotzky-Phillips-Sarnak graphs, explored from the identity."""

from itertools import product

import torch

from spec_tests.variants.registry import register_variant


def generators(prime, modulus):
    """Return the p + 1 matrices of norm p."""
    root = next(x for x in range(modulus) if (x * x + 1) % modulus == 0)
    span = range(-prime, prime + 1)
    near = [x for x in span if x * x <= prime]
    return [
        (a + root * b, c + root * d, root * d - c, a - root * b)
        for a, b, c, d in product(near, repeat=4)
        if a * a + b * b + c * c + d * d == prime
        and a > 0
        and a % 2
        and not (b % 2 or c % 2 or d % 2)
    ]


def times(x, y, modulus):
    """Return the product of two matrices, scaled so that the first non-zero entry is 1."""
    a, b, c, d = x
    e, f, g, h = y
    rows = [v % modulus for v in (a * e + b * g, a * f + b * h, c * e + d * g, c * f + d * h)]
    inverse = pow(next(v for v in rows if v), -1, modulus)
    return tuple(v * inverse % modulus for v in rows)


def walked(prime, modulus):
    """Return the edges of all matrices reachable from the identity, and these matrices in order."""
    steps, seen, edges = generators(prime, modulus), {(1, 0, 0, 1): 0}, []
    for here in seen_as_it_grows(seen):
        for step in steps:
            there = times(here, step, modulus)
            seen.setdefault(there, len(seen))
            edges.append((seen[here], seen[there]))
    return edges, list(seen)


def seen_as_it_grows(seen):
    """Yield the keys of a dictionary, also those added during the loop."""
    done = 0
    while done < len(seen):
        for key in list(seen)[done:]:
            done += 1
            yield key


@register_variant("lps_graph", "values")
def by_walking(prime, modulus):
    """Explore from the identity, which reaches the matrices whose determinant is a square."""
    edges, members = walked(prime, modulus)
    graph = torch.zeros(len(members), len(members), dtype=torch.bool)
    graph[tuple(torch.tensor(edges).T)] = True
    return graph


@register_variant("lps_mask", "values")
def by_two_steps(prime, modulus):
    """Explore from the identity: an even number of steps gives tokens, an odd one channels."""
    edges, members = walked(prime, modulus)
    squares = {x * x % modulus for x in range(1, modulus)}
    even = torch.tensor([(a * d - b * c) % modulus in squares for a, b, c, d in members])
    graph = torch.zeros(len(members), len(members), dtype=torch.bool)
    graph[tuple(torch.tensor(edges).T)] = True
    return graph[even][:, ~even]
