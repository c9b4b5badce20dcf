"""The spectrum of a mask, seen as a bipartite graph between tokens and channels."""

import math

import torch
from jaxtyping import Bool
from torch import Tensor

from reference.contract.types import Positive

ROUNDING = 1 + 2**-40
"""Graphs may lie on the bound itself: rounding must not push them over it."""


def ramanujan_bound(token_degree: Positive, channel_degree: Positive) -> float:
    r"""Return the largest second eigenvalue that a biregular Ramanujan graph may have.

    $$\lambda_2 \le \sqrt{d_1 - 1} + \sqrt{d_2 - 1}$$

    Args:
        token_degree: channels $d_1$ of each token.
        channel_degree: tokens $d_2$ of each channel.

    Returns:
        The bound; $2\sqrt{d - 1}$ where both degrees are $d$, as in the balanced definition.

    Source:
        HEX-3.2b, HEX-Def2. As printed (§3.2, Def. 2).
    """
    return math.sqrt(token_degree - 1) + math.sqrt(channel_degree - 1)


def second_singular_value(mask: Bool[Tensor, "tokens channels"]) -> float:
    r"""Return the second singular value of a mask: the graph's second largest eigenvalue.

    $$\lambda_2 = \sigma_2(B) = \sqrt{\lambda_2(B B^\top)}$$

    Args:
        mask: the biadjacency matrix $B$.

    Returns:
        $\sigma_2$, 0 where the smaller side has fewer than two vertices. It equals $\sigma_1$
        where a biregular graph falls apart.

    Source:
        HEX-Def2, HEX-Tab5. In words (§3.2): "where $\lambda_2$ is the second-largest eigenvalue".
        That it is a singular value of the mask is our reading (E-H4).

    Reading:
        E-H4: the eigenvalues of the definition are those of the bipartite adjacency matrix, so
        plus and minus the singular values of the mask.
    """
    if min(mask.shape) < 2:
        return 0.0
    return torch.linalg.svdvals(mask.double())[1].item()


def is_ramanujan(mask: Bool[Tensor, "tokens channels"]) -> bool:
    r"""Decide whether a mask is a bipartite Ramanujan graph.

    $$|\lambda_i| \le \sqrt{d_1 - 1} + \sqrt{d_2 - 1}, \qquad i = 2, \dots, n - 1,
      \qquad d_1, d_2 \ge 3$$

    Args:
        mask: the biadjacency matrix $B$. The adjacency matrix of a graph that is not bipartite
            serves as well: its singular values are the magnitudes of its eigenvalues.

    Returns:
        Whether every token has the same degree, every channel too, both are at least 3, and
        $\sigma_2$ is within the bound, up to rounding. Such a graph is connected.

    Source:
        HEX-Def2, HEX-3.2b. As printed (Def. 2).

    Reading:
        E-H4: the balanced definition is the case $d_1 = d_2$ of the unbalanced one.
    """
    rows, columns = set(mask.sum(1).tolist()), set(mask.sum(0).tolist())
    if len(rows) != 1 or len(columns) != 1:
        return False
    (token_degree,), (channel_degree,) = rows, columns
    if min(token_degree, channel_degree) < 3:
        return False
    bound = ramanujan_bound(token_degree, channel_degree)
    return second_singular_value(mask) <= bound * ROUNDING
