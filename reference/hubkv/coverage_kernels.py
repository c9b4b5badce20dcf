"""How far a token covers its neighbours."""

import torch
from jaxtyping import Float
from torch import Tensor

from reference.contract.types import Above0, Whole


def window_kernel(
    tokens: Whole, radius: Whole, dtype: torch.dtype = torch.float32
) -> Float[Tensor, "tokens"]:
    r"""Let a token cover its neighbours evenly up to a radius, and nothing beyond.

    $$\mathcal{K}(d) = \mathbb{I}(d \le R)$$

    Args:
        tokens: number of distances $N$, from 0 to $N - 1$.
        radius: half-width $R$ of the window.
        dtype: floating-point type of the kernel.

    Returns:
        $\mathcal{K}(0), \dots, \mathcal{K}(N - 1)$. A token in the interior covers $2R + 1$
        places.

    Source:
        HubKV-5. In words (§3.2): "a non-negative distance-based kernel (e.g., a window or Gaussian
        kernel)".
    """
    return torch.tensor([float(distance <= radius) for distance in range(tokens)], dtype=dtype)


def gaussian_kernel(
    tokens: Whole, deviation: Above0, dtype: torch.dtype = torch.float32
) -> Float[Tensor, "tokens"]:
    r"""Let a token cover its neighbours less and less with distance.

    $$\mathcal{K}(d) = \exp\Bigl(-\frac{d^2}{2\sigma^2}\Bigr)$$

    Args:
        tokens: number of distances $N$, from 0 to $N - 1$.
        deviation: standard deviation $\sigma$ in tokens.
        dtype: floating-point type of the kernel.

    Returns:
        $\mathcal{K}(0), \dots, \mathcal{K}(N - 1)$, computed in float64 and rounded once.
        $\mathcal{K}(0)$ is 1.

    Source:
        HubKV-5. In words (§3.2): "a non-negative distance-based kernel (e.g., a window or Gaussian
        kernel)". The usual shape is our choice (E-U31).

    Reading:
        E-U31: the paper names a Gaussian kernel and leaves its shape open; this is the usual one.
    """
    distances = torch.arange(tokens, dtype=torch.float64)
    return torch.exp(-((distances / deviation) ** 2) / 2).to(dtype)
