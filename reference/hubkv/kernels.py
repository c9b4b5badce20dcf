"""How far a token covers its neighbours."""

import torch
from jaxtyping import Float
from torch import Tensor

from reference import errors


def window_kernel(
    tokens: int, radius: int, dtype: torch.dtype = torch.float32
) -> Float[Tensor, "tokens"]:
    r"""Let a token cover its neighbours evenly up to a radius, and nothing beyond.

    $$\mathcal{K}(d) = \mathbb{I}(d \le R)$$

    Args:
        tokens: number of distances $N$, from 0 to $N - 1$; at least 0.
        radius: half-width $R$ of the window, at least 0.
        dtype: floating-point type of the kernel.

    Returns:
        $\mathcal{K}(0), \dots, \mathcal{K}(N - 1)$. A token in the interior covers $2R + 1$
        places.

    Raises:
        TypeError: `tokens` or `radius` is not an integer, or `dtype` not floating point.
        ValueError: `tokens` or `radius` is negative.

    Source:
        HubKV-5.
    """
    errors.whole("tokens", tokens)
    errors.whole("radius", radius)
    errors.floating_dtype("dtype", dtype)
    return torch.tensor([float(distance <= radius) for distance in range(tokens)], dtype=dtype)


def gaussian_kernel(
    tokens: int, deviation: float, dtype: torch.dtype = torch.float32
) -> Float[Tensor, "tokens"]:
    r"""Let a token cover its neighbours less and less with distance.

    $$\mathcal{K}(d) = \exp\Bigl(-\frac{d^2}{2\sigma^2}\Bigr)$$

    Args:
        tokens: number of distances $N$, from 0 to $N - 1$; at least 0.
        deviation: standard deviation $\sigma$ in tokens, above 0.
        dtype: floating-point type of the kernel.

    Returns:
        $\mathcal{K}(0), \dots, \mathcal{K}(N - 1)$, computed in float64 and rounded once.
        $\mathcal{K}(0)$ is 1.

    Raises:
        TypeError: `tokens` is not an integer, or `dtype` not floating point.
        ValueError: `tokens` is negative, or `deviation` is not above 0.

    Source:
        HubKV-5.

    Reading:
        E-U31: the paper names a Gaussian kernel and leaves its shape open; this is the usual one.
    """
    errors.whole("tokens", tokens)
    errors.positive("deviation", deviation)
    errors.floating_dtype("dtype", dtype)
    distances = torch.arange(tokens, dtype=torch.float64)
    return torch.exp(-((distances / deviation) ** 2) / 2).to(dtype)
