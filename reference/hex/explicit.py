"""Lubotzky, Phillips and Sarnak's Ramanujan graphs: Cayley graphs of 2 by 2 matrices."""

from itertools import product
from math import isqrt
from typing import Annotated

import torch
from annotated_types import Ge
from jaxtyping import Bool
from torch import Tensor

from reference.contract.enforce import requires

Matrix = tuple[int, int, int, int]
FromFive = Annotated[int, Ge(5)]


def two_primes(prime: int, modulus: int) -> None:
    """Refuse what are not two primes of Lubotzky, Phillips and Sarnak's theorem."""
    for name, value in (("prime", prime), ("modulus", modulus)):
        if value % 4 != 1 or any(value % factor == 0 for factor in range(2, isqrt(value) + 1)):
            raise ValueError(f"{name} must be a prime of the form 4k + 1, got {value}")
    if modulus == prime or modulus**2 <= 4 * prime:
        raise ValueError(f"modulus must be another prime, above 2 sqrt({prime}), got {modulus}")


def square(prime: int, modulus: int) -> None:
    """Refuse a prime that is no square modulo the other."""
    # Euler: a square to the power (q - 1)/2 is 1, anything else -1
    if pow(prime, modulus // 2, modulus) != 1:
        raise ValueError(f"prime must be a square modulo {modulus}, got {prime}")


def no_square(prime: int, modulus: int) -> None:
    """Refuse a prime that is a square modulo the other."""
    if pow(prime, modulus // 2, modulus) == 1:
        raise ValueError(f"prime must be no square modulo {modulus}, got {prime}")


@requires(two_primes, no_square)
def lps_mask(prime: FromFive, modulus: FromFive) -> Bool[Tensor, "tokens channels"]:
    r"""Return the bipartite Lubotzky–Phillips–Sarnak graph as a balanced mask.

    $$\mathrm{Cay}\Bigl(\mathrm{PGL}_2(\mathbb{F}_q),\;
      \Bigl\{\begin{pmatrix} a_0 + \iota a_1 & a_2 + \iota a_3 \\
      -a_2 + \iota a_3 & a_0 - \iota a_1 \end{pmatrix} : \sum_i a_i^2 = p\Bigr\}\Bigr),
      \qquad \iota^2 = -1$$

    with $a_0$ positive and odd, the others even.

    Args:
        prime: $p$, a prime of the form $4k + 1$ that is no square modulo $q$.
        modulus: $q$, another prime of the form $4k + 1$, above $2\sqrt p$.

    Returns:
        A mask with $q (q^2 - 1) / 2$ tokens and as many channels, $p + 1$ marks in each row and
        column: a Ramanujan graph. Vertices stand in an order of our own; any other is as good.

    Source:
        HEX-A.2b. From elsewhere: Lubotzky, Phillips and Sarnak; the paper names their construction
        and does not define it.
    """
    return _edges(prime, modulus, _members(modulus, True), _members(modulus, False))


@requires(two_primes, square)
def lps_graph(prime: FromFive, modulus: FromFive) -> Bool[Tensor, "vertices vertices"]:
    r"""Return the Lubotzky–Phillips–Sarnak graph that is not bipartite.

    $$\mathrm{Cay}\Bigl(\mathrm{PSL}_2(\mathbb{F}_q),\;
      \Bigl\{\begin{pmatrix} a_0 + \iota a_1 & a_2 + \iota a_3 \\
      -a_2 + \iota a_3 & a_0 - \iota a_1 \end{pmatrix} : \sum_i a_i^2 = p\Bigr\}\Bigr)$$

    Args:
        prime: $p$, a prime of the form $4k + 1$ that is a square modulo $q$.
        modulus: $q$, another prime of the form $4k + 1$, above $2\sqrt p$.

    Returns:
        The symmetric adjacency matrix of a $(p + 1)$-regular graph on $q (q^2 - 1) / 2$ vertices.
        Read as a mask it is a Ramanujan graph too: its bipartite double cover. Any order of the
        vertices is as good as ours.

    Source:
        HEX-A.2b. From elsewhere: Lubotzky, Phillips and Sarnak; the paper names their construction
        and does not define it.
    """
    members = _members(modulus, True)
    return _edges(prime, modulus, members, members)


def _edges(prime: int, modulus: int, sources: list[Matrix], targets: list[Matrix]) -> Tensor:
    column_of = {matrix: i for i, matrix in enumerate(targets)}
    mask = torch.zeros(len(sources), len(targets), dtype=torch.bool)
    generators = [_generator(quaternion, modulus) for quaternion in _quaternions(prime)]
    for i, (a, b, c, d) in enumerate(sources):
        for e, f, g, h in generators:
            image = (a * e + b * g, a * f + b * h, c * e + d * g, c * f + d * h)
            mask[i, column_of[_projective(image, modulus)]] = True
    return mask


def _quaternions(prime: int) -> list[Matrix]:
    """Return the p + 1 quaternions of norm p with an odd positive real part, the rest even."""
    reach = isqrt(prime)
    odd = range(1, reach + 1, 2)
    even = range(-(reach - reach % 2), reach + 1, 2)
    return [
        (a, b, c, d)
        for a, b, c, d in product(odd, even, even, even)
        if a * a + b * b + c * c + d * d == prime
    ]


def _generator(quaternion: Matrix, modulus: int) -> Matrix:
    root = next(x for x in range(modulus) if (x * x + 1) % modulus == 0)
    a, b, c, d = quaternion
    return (a + root * b, c + root * d, -c + root * d, a - root * b)


def _projective(matrix: Matrix, modulus: int) -> Matrix:
    """Return the multiple whose first entry that is not 0 is 1."""
    first = next(entry % modulus for entry in matrix if entry % modulus)
    inverse = pow(first, -1, modulus)
    a, b, c, d = matrix
    return (
        a * inverse % modulus,
        b * inverse % modulus,
        c * inverse % modulus,
        d * inverse % modulus,
    )


def _members(modulus: int, square: bool) -> list[Matrix]:
    """Return the projective matrices whose determinant is a square, or is none."""
    squares = {x * x % modulus for x in range(1, modulus)}
    field = range(modulus)
    matrices = [(1, b, c, d) for b, c, d in product(field, field, field)]
    matrices += [(0, 1, c, d) for c, d in product(field, field)]
    determinants = [(a * d - b * c) % modulus for a, b, c, d in matrices]
    return [
        matrix
        for matrix, determinant in zip(matrices, determinants, strict=True)
        if determinant and (determinant in squares) == square
    ]
