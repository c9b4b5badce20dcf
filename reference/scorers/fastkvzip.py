"""FastKVzip: a small gate on hidden states that has learned what KVzip would say."""

import math
from itertools import product
from typing import NamedTuple

import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from reference.contract import checks
from reference.contract.enforce import requires
from reference.contract.preconditions import left_padded
from reference.contract.types import Finite, FiniteAbove0, Shares, Whole
from reference.precision import widest
from reference.scorers._padding import protected_ends, valid_or_all
from reference.scorers.scored import Scored


class GateWeights(NamedTuple):
    """What the gate of one layer has learned.

    Source:
        HubKV-FastKVzip.
    """

    query: Finite[Tensor, "kv_heads group dim hidden"]
    query_bias: Finite[Tensor, "kv_heads group dim"]
    query_scale: Finite[Tensor, " dim"]
    key: Finite[Tensor, "kv_heads dim hidden"]
    key_scale: Finite[Tensor, " dim"]
    learned: Finite[Tensor, "kv_heads learned dim"]
    bias: Finite[Tensor, "kv_heads group"]


def some_weights(group: int, dim: int) -> None:
    """Refuse weights of no group or no width."""
    if not group or not dim:
        raise ValueError(
            f"weights.query must have a group and a dim of at least 1, got {(group, dim)}"
        )


def some_tokens(targets: Tensor, valid: Tensor | None) -> None:
    """Refuse targets of no heads or no tokens, or padding alone."""
    checks.not_empty("targets", targets)
    if valid is not None:
        checks.check_any_true("valid", valid)


@requires(some_weights, left_padded)
def fastkvzip(
    hidden: Finite[Tensor, "*batch tokens hidden"],
    weights: GateWeights,
    sinks: Whole = 4,
    recent: Whole | None = None,
    epsilon: FiniteAbove0 = 1e-6,
    valid: Bool[Tensor, "*batch tokens"] | None = None,
) -> Scored:
    r"""Score each token by its hidden state alone.

    $$s = \frac1G \sum_{g=1}^{G} \frac{1}{1 + \sum_j e^{\ell^0_{g,j} - \ell_g}}, \qquad
      \ell_g = \frac{k^\top q_g}{\sqrt D} + b_g, \qquad
      \ell^0_{g,j} = \frac{{k^0_j}^\top q_g}{\sqrt D}$$

    $$q_g = \operatorname{RMSNorm}(W_{q,g} x + b_{q,g}), \qquad
      k = \operatorname{RMSNorm}(W_k x), \qquad
      \operatorname{RMSNorm}(y) = \frac{a \odot y}{\sqrt{\operatorname{mean} y^2 + \varepsilon}}$$

    Args:
        hidden: $x$, the layer's hidden states after its input norm, before queries, keys and values
            are made of them.
        weights: $W_q$, $b_q$, $a_q$, $W_k$, $a_k$, $k^0$ and $b$ of the layer's gate; width $D$
            of the gate is 16 in the original, and there are 16 learned keys $k^0$.
        sinks: how many tokens at the start of a row are protected.
        recent: how many at the end; by default $\lfloor 0.02\,N \rfloor$ of the row's real tokens.
        epsilon: $\varepsilon$ of the norm.
        valid: false at padding, on the left of a row.

    Returns:
        The scores of each key head, between 0 and 1, in float32, or float64 where an argument is.
        No token's score depends on another's.

    Source:
        HubKV-FastKVzip. From elsewhere: Kim et al.; the paper names FastKVzip and does not define
        it (E-U44).

    Reading:
        C3, C4, E-U44: $b$ is added once, while training as well.
    """
    valid = valid_or_all(valid, hidden[..., None, :, :])
    exact = widest(hidden, *weights)
    x, gate = hidden.to(exact), GateWeights(*(tensor.to(exact) for tensor in weights))
    kv_heads, group, dim = gate.query.shape[:3]
    scores = x.new_zeros(*x.shape[:-2], kv_heads, x.shape[-2])
    for h, g in product(range(kv_heads), range(group)):
        key = rms_norm(x @ gate.key[h].mT, gate.key_scale, epsilon)
        query = x @ gate.query[h, g].mT + gate.query_bias[h, g]
        query = rms_norm(query, gate.query_scale, epsilon)
        logit = (key * query).sum(-1) / math.sqrt(dim) + gate.bias[h, g]
        rivals = query @ gate.learned[h].mT / math.sqrt(dim)
        # 1 / (1 + sum of e^(rival - logit)), without its overflow
        scores[..., h, :] += (logit - rivals.logsumexp(-1)).sigmoid() / group
    scores = scores.masked_fill(~valid[..., None, :], 0)
    return Scored(scores, protected_ends(valid, kv_heads, sinks, recent))


@requires(some_tokens, left_padded)
def fastkvzip_loss(
    scores: Shares[Tensor, "*batch kv_heads tokens"],
    targets: Shares[Tensor, "*batch kv_heads tokens"],
    valid: Bool[Tensor, "*batch tokens"] | None = None,
) -> Float[Tensor, ""]:
    r"""How far the scores of the gate are from KVzip's.

    $$-\sum_h \operatorname{mean}_i \bigl( t_{h,i} \ln s_{h,i}
      + (1 - t_{h,i}) \ln (1 - s_{h,i}) \bigr)$$

    Args:
        scores: scores $s$ of the gate.
        targets: KVzip's scores $t$ of the same tokens.
        valid: false at padding, on the left of a row.

    Returns:
        The binary cross-entropy, its mean over real tokens and its sum over heads, in float32, or
        float64 where an argument is. It is least where $s = t$, and even there above 0 unless $t$
        is 0 or 1.

    Source:
        HubKV-FastKVzip. From elsewhere: Kim et al.; the paper names FastKVzip and does not define
        it (E-U44).

    Reading:
        E-U44: logarithms below $-100$ count as $-100$, so that a saturated gate has a finite loss.
    """
    exact = widest(scores, targets)
    entropy = F.binary_cross_entropy(scores.to(exact), targets.to(exact), reduction="none")
    if valid is not None:
        entropy = entropy.movedim(-2, 0)[:, valid]
    return entropy.mean() * scores.shape[-2]


def rms_norm(y: Tensor, scale: Tensor, epsilon: float) -> Tensor:
    """Divide by the root of the mean square."""
    return scale * y / (y.square().mean(-1, keepdim=True) + epsilon).sqrt()
