"""Random scores: the baseline of every scorer."""

import torch

from optimized import Scored
from optimized.models.scorer import PromptLayer, Scorer


class Random(Scorer):
    """Uniform noise, the same for the same seed on every device."""

    name = "random"
    takes = ("seed",)
    by_head = False
    colour = "#8c8c8c"

    def scored(self, read: PromptLayer) -> Scored:
        """Return the scores of one layer's tokens."""
        draw = torch.Generator().manual_seed(self.settings.get("seed", 0) * 1_000_003 + read.layer)
        scores = torch.rand(read.keys.shape[:-1], generator=draw).to(read.keys.device)
        if read.valid is not None:
            scores = scores.masked_fill(~read.valid[:, None], 0)
        return Scored(scores, torch.zeros_like(scores, dtype=torch.bool))
