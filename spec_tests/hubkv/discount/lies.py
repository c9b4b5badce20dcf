"""Lies about hubs and the discount off them."""

import torch

import reference
from spec_tests.mutants.make import lies, mutant

LAWS = "hubkv/discount/test_laws.py::"
lie = lies("hubkv/discount")

lie(
    "hub_on_every_tie",
    "every token of a plateau is a hub",
    "start + window.argmax(-1) == i",
    "scores[..., i] == window.amax(-1)",
    "test_no_two_hubs_are_within_a_radius",
)
lie(
    "discount_everything",
    "hubs are discounted too",
    "torch.where(hubs, scores, gamma * scores)",
    "gamma * scores",
    "test_a_hub_keeps_its_score",
)
lie(
    "protected_hubs_suppress",
    "protected tokens suppress their neighbours",
    "hub_mask(scores, radius, protected), gamma",
    "hub_mask(scores, radius), gamma",
    "test_protected_tokens_suppress_nothing",
)
lie(
    "narrow_windows",
    "the radius is the window's width",
    "hubs = torch.zeros_like(scores, dtype=torch.bool)",
    "hubs, radius = torch.zeros_like(scores, dtype=torch.bool), radius // 2",
    "vector:radius-is-a-half-width",
)
lie(
    "last_of_a_plateau",
    "the last of a plateau is the hub",
    "start + window.argmax(-1) == i",
    "start + window.shape[-1] - 1 - window.flip(-1).argmax(-1) == i",
    "test_a_hub_has_no_stronger_or_earlier_equal_in_its_window",
)


@mutant(
    "smd",
    "blocks of 256 tokens do not see each other",
    killer=LAWS + "test_windows_reach_across_a_long_row",
)
def blind_at_block_borders(scores, radius=2, gamma=0.5, protected=None):
    """Take each block for a row."""
    blocks = range(0, scores.shape[-1], 256)
    aside = torch.zeros_like(scores, dtype=torch.bool) if protected is None else protected
    parts = [
        reference.smd(scores[..., i : i + 256], radius, gamma, aside[..., i : i + 256])
        for i in blocks
    ]
    return torch.cat([*parts, scores[..., :0]], -1)


@mutant(
    "smd",
    "the last token is never written",
    killer=LAWS + "test_windows_reach_across_a_long_row",
)
def hole_at_the_end(scores, radius=2, gamma=0.5, protected=None):
    """Leave uninitialised memory, which the suite fills with NaN."""
    discounted = torch.empty_like(scores)
    discounted[..., :-1] = reference.smd(scores, radius, gamma, protected)[..., :-1]
    return discounted


@mutant(
    "smd",
    "half-precision products are cut off, not rounded",
    killer=LAWS + "test_a_discounted_score_is_rounded_once[torch.bfloat16]",
)
def truncated_products(scores, radius=2, gamma=0.5, protected=None):
    """Drop the low bits of a float32 product."""
    if scores.dtype != torch.bfloat16:
        return reference.smd(scores, radius, gamma, protected)
    wide = reference.smd(scores.float(), radius, gamma, protected)
    return (wide.view(torch.int32) >> 16 << 16).view(torch.float32).to(scores.dtype)
