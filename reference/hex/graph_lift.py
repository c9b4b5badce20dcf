"""Larger Ramanujan graphs from smaller ones: r-coverings, filtered by their new eigenvalues."""

import numpy as np
import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from reference.contract.enforce import may_read_values, requires
from reference.contract.preconditions import permuting
from reference.contract.types import Positive, Seed
from reference.hex.expander import DRAWS, Expander
from reference.hex.spectrum import ROUNDING, is_ramanujan, ramanujan_bound


def one_for_each_edge(mask: Tensor, permutations: Tensor) -> None:
    """Refuse more or fewer permutations than edges."""
    if may_read_values(mask) or not mask.numel():
        wanted, found = (
            (int(mask.count_nonzero()), permutations.shape[1]),
            tuple(permutations.shape),
        )
        if found != wanted:
            raise ValueError(f"permutations must have shape {wanted} to fit mask, got {found}")


@requires(permuting, one_for_each_edge)
def lift(
    mask: Bool[Tensor, "tokens channels"], permutations: Int64[Tensor, "edges sheets"]
) -> Bool[Tensor, "lifted_tokens lifted_channels"]:
    r"""Cover a graph $r$ times: replace each edge by a perfect matching of $r$ copies of its ends.

    $$\mathrm{Mask}'_{rt + i,\; rc + j} = \mathbb{I}\bigl(B_{t,c} = 1 \text{ and }
      j = \pi_{(t,c)}(i)\bigr)$$

    Args:
        mask: the biadjacency matrix $B$ of the base.
        permutations: a permutation $\pi$ of $0, \dots, r - 1$ for each edge, edges in the order
            of rows, then columns. Two sheets make a 2-lift.

    Returns:
        The mask of the covering graph. Degrees stay, and so do all singular values of the base.

    Source:
        HEX-A.2c. From elsewhere: coverings of graphs; the paper names Ramanujan $r$-coverings and
        does not define them.
    """
    tokens, channels = mask.shape
    sheets = permutations.shape[1]
    lifted = mask.new_zeros(sheets * tokens, sheets * channels)
    for (token, channel), images in zip(
        mask.nonzero().tolist(), permutations.tolist(), strict=True
    ):
        for i, j in enumerate(images):
            lifted[sheets * token + i, sheets * channel + j] = True
    return lifted


@requires(permuting, one_for_each_edge)
def new_singular_value(
    mask: Bool[Tensor, "tokens channels"], permutations: Int64[Tensor, "edges sheets"]
) -> float:
    r"""Return the largest singular value that a covering has beyond those of its base.

    $$\max_{x \ne 0,\; \sum_j x_{c,j} = 0 \;\forall c} \frac{\|B' x\|}{\|x\|}
      = \bigl\|\, B' - B \otimes \tfrac{1}{r} \mathbf{1}\mathbf{1}^\top \bigr\|_2$$

    Args:
        mask: the biadjacency matrix $B$ of the base, with at least one token and channel.
        permutations: a permutation for each edge, see `lift`.

    Returns:
        The largest new singular value, 0 for a covering with one sheet.

    Source:
        HEX-A.2c. Ours: the value that a covering of a Ramanujan graph must be tested for (E-H31).
    """
    lifted = lift(mask, permutations).double()
    sheets = permutations.shape[1]
    base = mask.double().repeat_interleave(sheets, 0).repeat_interleave(sheets, 1)
    new = lifted - base / sheets
    return torch.linalg.matrix_norm(new, 2).item() if new.numel() else 0.0


def ramanujan(mask: Tensor) -> None:
    """Refuse a base that is no Ramanujan graph."""
    if may_read_values(mask) and not is_ramanujan(mask):
        raise ValueError(f"mask must be Ramanujan, got shape {tuple(mask.shape)}")


@requires(ramanujan)
def ramanujan_lift(
    mask: Bool[Tensor, "tokens channels"], sheets: Positive = 2, seed: Seed = 0
) -> Expander:
    r"""Draw coverings of a Ramanujan graph until one is Ramanujan again.

    $$\sigma_{\text{new}} \le \sqrt{d_1 - 1} + \sqrt{d_2 - 1}$$

    Args:
        mask: the biadjacency matrix of a Ramanujan graph.
        sheets: number $r$ of copies of each vertex.
        seed: names the random stream.

    Returns:
        The mask of the first covering that passes, and the number of coverings drawn.

    Raises:
        RuntimeError: a thousand draws did not find one.

    Source:
        HEX-A.2c. In words (A.2): "Ramanujan $r$-coverings involve creating larger Ramanujan graphs
        from smaller ones through covering projections while preserving their expansion properties".
        The bound is that of §3.2; to draw and test coverings is ours (E-H31).

    Reading:
        E-H31: the old eigenvalues of a covering are the base's, so only the new ones are tested.
    """
    bound = ramanujan_bound(int(mask[0].sum()), int(mask[:, 0].sum()))
    for draw in range(DRAWS):
        generator = np.random.RandomState([seed, draw, 3])
        keys = generator.random_sample((int(mask.sum()), sheets))
        permutations = torch.from_numpy(np.argsort(keys, axis=1, kind="stable")).to(mask.device)
        if new_singular_value(mask, permutations) <= bound * ROUNDING:
            return Expander(lift(mask, permutations), draw + 1)
    raise RuntimeError(f"no Ramanujan lift among {DRAWS} draws of {sheets} sheets")
