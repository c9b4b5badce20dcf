"""Second turns of a batch in which one row ended early."""

import pytest
import torch

from spec_tests.accuracy import assert_close
from spec_tests.internal.models.random_model import (
    TOKENS,
    attached_model,
    generate,
    models,
    prompts,
    stock_model,
)

SAID, LOST, ASKED = 6, 4, 3


def turns(padded: bool):
    """Return ids and mask after a first turn in which the first row ended early, with questions."""
    ids, mask = prompts(SAID + ASKED)
    mask = mask if padded else torch.ones_like(mask)
    mask[0, TOKENS + SAID - LOST : TOKENS + SAID] = 0
    return ids, mask


def cache_after_turn(kind: str, system: str, padded: bool, **how):
    """Return the cache after the first turn, in which the ended row got further tokens."""
    ids, mask = turns(padded)
    first = mask.clone()
    first[0, TOKENS:] = 1
    cache = models.compressed(
        attached_model(kind), system, ids[:, :TOKENS], first[:, :TOKENS], **how
    )
    for stop in range(TOKENS + 1, TOKENS + SAID + 1):
        with torch.no_grad():
            attached_model(kind)(
                input_ids=ids[:, cache.get_seq_length() : stop],
                attention_mask=first[:, :stop],
                past_key_values=cache,
            )
    return cache, ids, mask


@pytest.mark.parametrize("kind", ["llama", "gemma2"])
@pytest.mark.parametrize("padded", [False, True])
def test_what_a_row_said_after_its_end_is_left_out(kind, padded):
    cache, ids, mask = cache_after_turn(kind, "full", padded)
    expected = generate(stock_model(kind), ids, mask)
    assert torch.equal(generate(attached_model(kind), ids, mask, cache), expected)


def test_what_is_left_of_a_prompt_is_seen_and_nothing_after_the_end():
    cache, ids, mask = cache_after_turn("llama", "streaming_llm", False, keep=8)
    left = torch.ones_like(mask)
    left[:, 4 : TOKENS - 4] = 0
    with torch.no_grad():
        expected = masked_logits(ids, mask, left)[:, -ASKED:]
        actual = attached_model("llama")(
            input_ids=ids[:, -ASKED:], attention_mask=mask, past_key_values=cache
        ).logits
    largest_sum = 4 * expected.abs().amax()  # terms of a logit are larger than it
    assert_close(actual, expected, scale=largest_sum)


def masked_logits(ids, mask, left):
    """Return the stock model's logits; tokens after the prompt see only the kept entries of it."""
    tokens = ids.shape[1]
    sees = torch.ones(tokens, tokens, dtype=torch.bool).tril()[None] & mask.bool()[:, None]
    sees[:, TOKENS:] &= left.bool()[:, None]
    sees |= torch.eye(tokens, dtype=torch.bool)
    bias = torch.where(sees, 0.0, torch.finfo(torch.float32).min)[:, None]
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    return stock_model("llama")(input_ids=ids, attention_mask=bias, position_ids=positions).logits


@pytest.mark.parametrize("system", ["gear", "lfm2"])
def test_what_is_stored_cannot_be_left_out(system):
    kind = "lfm2" if system == "lfm2" else "llama"
    cache, ids, mask = cache_after_turn(kind, "full" if system == "lfm2" else system, False)
    with pytest.raises(ValueError, match="only a system that evicts can hide what a row"):
        generate(attached_model(kind), ids, mask, cache)
