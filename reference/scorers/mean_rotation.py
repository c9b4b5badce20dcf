"""What the rotary embedding does on average to a query at one of the next positions."""

import torch
from jaxtyping import Float
from torch import Tensor

from reference.contract.types import Finite, Positive, Whole, Wholes
from reference.precision import widen


def mean_rotation(
    frequencies: Finite[Tensor, " half"],
    start: Whole | Wholes[Tensor, "*batch"],
    future: Positive = 512,
) -> Float[Tensor, "*batch width width"]:
    r"""Average the rotary embedding's matrix over the positions to come.

    $$\bar R = \frac1F \sum_{p = N}^{N + F - 1}
      \begin{pmatrix} \cos p\omega & -\sin p\omega \\ \sin p\omega & \cos p\omega \end{pmatrix}$$

    Args:
        frequencies: $\omega$, the angle by which a position turns each pair of channels.
        start: the first position to come, $N$; a tensor holds that of each batch row: the number of
            its real tokens.
        future: how many positions $F$.

    Returns:
        The matrix $\bar R$ in float32, or float64 where `frequencies` is; it acts on columns.
        Channel $i$ of the first half turns with channel $i$ of the second.

    Source:
        HubKV-ExpectedAttention. From elsewhere: Devoto et al.; the paper names expected attention
        and does not define it (E-U41).

    Reading:
        E-U41: the convention of Llama, halves and not neighbours. Angles are computed in float64.
    """
    first = torch.as_tensor(start, dtype=torch.float64, device=frequencies.device)
    half = frequencies.shape[-1]
    total = first.new_zeros(*first.shape, 2 * half, 2 * half)
    for step in range(future):
        angles = (first + step)[..., None] * frequencies.double()
        cosines, sines = angles.cos().diag_embed(), angles.sin().diag_embed()
        total += torch.cat([torch.cat([cosines, -sines], -1), torch.cat([sines, cosines], -1)], -2)
    return (total / future).to(widen(frequencies).dtype)
