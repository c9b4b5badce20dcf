"""A hash of the ids that a cache has seen."""

from typing import Self

import torch
from torch import Tensor

FACTOR = 0x5851F42D4C957F2D
"""Odd, so that multiplication modulo $2^{64}$ is invertible and loses no earlier id."""


class Digest:
    """A hash of the ids that each batch row has seen, without padding, on the device of the ids.

    An id $i$ changes the hash $h$ to $A h + i + 1$ modulo $2^{64}$, where $A$ is `FACTOR`.
    """

    def __init__(self, number: Tensor | int = 0) -> None:
        self.number = number

    def extend(self, ids: Tensor, real: Tensor | None) -> "Digest":
        """Return the digest after more ids.

        Args:
            ids: the ids of each row.
            real: which of them are not padding; None where none is padding.
        """
        count = ids.shape[1]
        if count == 1 and real is None:
            return Digest(self.number * FACTOR + ids[:, 0].long() + 1)
        if not count:
            return self
        real = torch.ones_like(ids, dtype=torch.bool) if real is None else real
        after = real.flip(-1).cumsum(-1).flip(-1)  # how many tokens from here to the end
        powers = torch.full((count + 1,), FACTOR, device=ids.device)
        powers[0] = 1
        powers = powers.cumprod(0)  # modulo 2^64, as integers overflow
        terms = (ids.long() + 1) * powers[(after - 1).clamp(min=0)] * real
        return Digest(self.number * powers[after[:, 0]] + terms.sum(-1))

    def select_rows(self, rows: Tensor) -> Self:
        """Return the digest of the given batch rows."""
        return self if isinstance(self.number, int) else type(self)(self.number[rows])

    def equals(self, other: "Digest") -> bool:
        """Return whether two digests are equal, so that the ids were the same."""
        return bool((torch.as_tensor(self.number) == torch.as_tensor(other.number)).all())
