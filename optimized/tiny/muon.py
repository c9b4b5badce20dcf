"""The Muon optimiser (Jordan et al., 2024), which orthogonalises momentum in the matrix's dtype.

`torch.optim.Muon` orthogonalises in bfloat16, which is twenty times slower on a CPU that emulates
it.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

QUINTIC = 3.4445, -4.7750, 2.0315


def orthogonal(matrix: Tensor, rounds: int = 5) -> Tensor:
    """Return approximately the nearest matrix with orthonormal rows, or columns if fewer."""
    a, b, c = QUINTIC
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / (x.norm() + 1e-7)
    for _ in range(rounds):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if tall else x


class Muon(torch.optim.Optimizer):
    """Orthogonalised Nesterov momentum with decoupled weight decay."""

    def __init__(self, matrices: Iterable[Tensor], lr: float, decay: float, momentum: float = 0.95):
        super().__init__(matrices, dict(lr=lr, decay=decay, momentum=momentum))

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update all matrices from their gradients."""
        assert closure is None
        for group in self.param_groups:
            lr, decay, momentum = group["lr"], group["decay"], group["momentum"]
            for matrix in group["params"]:
                mean = self.state[matrix].setdefault("mean", torch.zeros_like(matrix))
                mean.lerp_(matrix.grad, 1 - momentum)
                turned = orthogonal(matrix.grad.lerp(mean, momentum))
                longer = max(1, matrix.shape[0] / matrix.shape[1]) ** 0.5
                matrix.mul_(1 - lr * decay).add_(turned, alpha=-lr * longer)
