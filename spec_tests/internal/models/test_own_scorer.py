"""A scorer needs only `remember` and `scored`, for whole prompts and for chunks."""

import pytest
import torch

import optimized
from optimized.models import SCORERS
from optimized.models.scorer import Scorer
from spec_tests.accuracy import assert_equal
from spec_tests.internal.models.random_model import TOKENS, attached_model, models, prompts


class Counting(Scorer):
    """Scores a token by how many tokens were read when its chunk ended."""

    name = "counting"

    def remember(self, step, past):
        """Append the number of tokens so far, once for each token of the chunk."""
        counts = torch.full(step.queries.shape[2:3], float(step.keys.shape[2]))
        return counts if past is None else torch.cat([past, counts])

    def scored(self, read):
        """Return the counts, the same for every head."""
        scores = self.memory[read.layer].expand(read.keys.shape[:-1])
        return optimized.Scored(scores, torch.zeros_like(scores, dtype=torch.bool))


@pytest.mark.parametrize("chunk", [None, 5, 1])
def test_what_a_scorer_returns_is_there_at_the_next_chunk_and_forgotten_at_the_next_prompt(chunk):
    ids, mask = prompts()
    scorer = Counting(attached_model("llama"), optimized)
    for _ in range(2):
        prompt = models.prefill(
            attached_model("llama"), ids, mask, chunk=chunk, watch=[scorer.watch]
        )
        (first, *_) = scorer.finish(prompt, 9).scored
        size = chunk or TOKENS
        ends = (torch.arange(TOKENS) // size * size + size).clamp(max=TOKENS).float()
        assert_equal(first.scores, ends.expand(first.scores.shape).clone())


def test_a_scorer_that_remembers_refuses_another_prompt_and_serves_compressed(monkeypatch):
    monkeypatch.setitem(SCORERS, Counting.name, Counting)
    ids, mask = prompts()
    model = attached_model("llama")
    with pytest.raises(ValueError, match="prompt must be one that counting watched"):
        models.scorer("counting", model).finish(models.prefill(model, ids, mask), 9)
    cache = models.compressed(model, "counting", ids[-1:], ratio=0.5)
    assert [layer.keys.shape[2] for layer in cache.evictable()] == [TOKENS // 2] * 2
