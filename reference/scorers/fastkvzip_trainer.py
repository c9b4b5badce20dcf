"""How FastKVzip's gate learns KVzip's scores."""

import math
from typing import Annotated

import torch
from annotated_types import Interval
from jaxtyping import Bool
from torch import Tensor, nn

from reference.contract import checks
from reference.contract.enforce import requires
from reference.contract.preconditions import left_padded
from reference.contract.types import (
    Finite,
    FiniteAbove0,
    FiniteNonNegative,
    Positive,
    Seed,
    Shares,
    Whole,
)
from reference.precision import widen
from reference.scorers._padding import valid_or_all
from reference.scorers.fastkvzip import GateWeights, fastkvzip, fastkvzip_loss, some_tokens


class FastKVzipGate(nn.Module):
    r"""The gate of one layer as a module: its parameters are the fields of `GateWeights`.

    The projections and the bias of the queries start uniform within $\pm 1 / \sqrt{\text{hidden}}$,
    drawn on the CPU from `seed` alone; learned keys and the bias $b$ start at 0 and scales at 1.
    With a `spread`, learned keys start as Gaussians of that standard deviation.

    Source:
        HubKV-FastKVzip.

    Reading:
        E-U60: learned keys that start alike stay alike.
    """

    def __init__(
        self,
        hidden: int,
        kv_heads: int,
        group: int,
        dim: int = 16,
        learned: int = 16,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
        spread: float = 0.0,
    ):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)

        def uniform(*shape: int) -> nn.Parameter:
            drawn = torch.rand(shape, generator=generator, dtype=torch.float64)
            return nn.Parameter(((2 * drawn - 1) / math.sqrt(hidden)).to(dtype))

        self.query = uniform(kv_heads, group, dim, hidden)
        self.query_bias = uniform(kv_heads, group, dim)
        self.query_scale = nn.Parameter(torch.ones(dim, dtype=dtype))
        self.key = uniform(kv_heads, dim, hidden)
        self.key_scale = nn.Parameter(torch.ones(dim, dtype=dtype))
        apart = torch.randn(kv_heads, learned, dim, generator=generator, dtype=torch.float64)
        self.learned = nn.Parameter((spread * apart).to(dtype))
        self.bias = nn.Parameter(torch.zeros(kv_heads, group, dtype=dtype))

    def weights(self) -> GateWeights:
        """Return the parameters as the tensor functions take them."""
        return GateWeights(*(getattr(self, name) for name in GateWeights._fields))

    def forward(self, hidden: Tensor, epsilon: float = 1e-6, valid: Tensor | None = None) -> Tensor:
        """Return the scores of `fastkvzip`, through which gradients flow."""
        return fastkvzip(hidden, self.weights(), epsilon=epsilon, valid=valid).scores


def some_states(hidden: Tensor) -> None:
    """Refuse hidden states of no tokens or no width."""
    checks.not_empty("hidden", hidden)


@requires(some_states, some_tokens, left_padded)
def train_fastkvzip(
    hidden: Finite[Tensor, "*batch tokens hidden"],
    targets: Shares[Tensor, "*batch kv_heads tokens"],
    group: Positive,
    steps: Whole = 5000,
    rate: FiniteAbove0 = 0.2,
    momentum: Annotated[float, Interval(ge=0, le=1)] = 0.9,
    sample: Positive = 1000,
    dim: Positive = 16,
    learned: Positive = 16,
    seed: Seed = 0,
    epsilon: FiniteAbove0 = 1e-6,
    valid: Bool[Tensor, "*batch tokens"] | None = None,
    spread: FiniteNonNegative = 0.0,
) -> GateWeights:
    r"""Fit the gate of one layer to KVzip's scores by gradient descent with momentum.

    $$m \leftarrow \rho\, m + \nabla_\theta \mathcal L, \qquad
      \theta \leftarrow \theta - \alpha_i \eta\, m, \qquad
      \alpha_i = \begin{cases}
        \tfrac{i}{100} & i < \tfrac{S}{100} \\
        1 & \tfrac{S}{100} \le i < \tfrac{S}{2} \\
        \tfrac12 & \tfrac{S}{2} \le i < \tfrac{3S}{4} \\
        \tfrac14 & \tfrac{3S}{4} \le i
      \end{cases}$$

    Args:
        hidden: the layer's hidden states after its input norm.
        targets: KVzip's scores of the same tokens.
        group: number of query heads for each key head.
        steps: how many steps $S$, counted $i = 0, \dots, S - 1$.
        rate: learning rate $\eta$.
        momentum: $\rho$.
        sample: how many tokens a step sees, or all where there are fewer. A token is seen again
            when too few are left that have not been seen.
        dim: width of the gate.
        learned: number of learned keys.
        seed: seed of the start and the samples.
        epsilon: $\varepsilon$ of the norm.
        valid: false at padding, on the left of a row.
        spread: standard deviation of the learned keys at the start.

    Returns:
        The weights in float32, or float64 where `hidden` is, without gradients: after no step,
        those a `FastKVzipGate` starts with.

    Source:
        HubKV-FastKVzip. From elsewhere: Kim et al.; the paper names FastKVzip and does not define
        it (E-U44, E-U60).

    Reading:
        E-U44, E-U60: the bias enters the scores once, as it does afterwards; no token is held out;
        with a `spread`, learned keys can come to differ.
    """
    valid = valid_or_all(valid, hidden[..., None, :, :])
    exact = widen(hidden).dtype
    examples = hidden.detach()[valid].to(exact)
    wanted = targets.detach().movedim(-2, 0)[:, valid].to(exact)
    size = min(sample, len(examples))
    with torch.enable_grad():
        gate = FastKVzipGate(
            hidden.shape[-1], targets.shape[-2], group, dim, learned, seed, exact, spread
        )
        gate = gate.to(hidden.device)
        parts = [*gate.parameters()]
        momenta = [torch.zeros_like(part) for part in parts]
        generator = torch.Generator().manual_seed(seed)
        packs: tuple[Tensor, ...] = ()
        for i in range(steps):
            pack = i % (len(examples) // size)
            if pack == 0:
                shuffled = torch.randperm(len(examples), generator=generator)
                packs = shuffled.to(hidden.device).split(size)
            drawn = packs[pack]
            loss = fastkvzip_loss(gate(examples[drawn], epsilon), wanted[:, drawn])
            slopes = torch.autograd.grad(loss, parts)
            for part, m, slope in zip(parts, momenta, slopes, strict=True):
                m.mul_(momentum).add_(slope)
                part.data.add_(m, alpha=-rate * _pace(i, steps))
    return GateWeights(*(tensor.detach() for tensor in gate.weights()))


def _pace(i: int, steps: int) -> float:
    """Return the share of the learning rate that a step takes."""
    if 100 * i < steps:
        return i / 100
    if 2 * i < steps:
        return 1.0
    return 0.5 if 4 * i < 3 * steps else 0.25
