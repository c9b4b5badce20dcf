"""Mutants of HubKV."""

import torch
import torch.nn.functional as F

import reference
from spec_tests.mutants.make import mutant


@mutant(
    "hub_mask",
    "every token of a plateau is a hub",
    killer="hubkv/test_discount.py::test_no_two_hubs_are_within_a_radius",
)
def hub_on_every_tie(scores, radius=2, protected=None):
    """Compare with the window's maximum instead of taking its index."""
    rows = scores.reshape(-1, 1, scores.shape[-1])
    hubs = scores == F.max_pool1d(rows, 2 * radius + 1, 1, radius).reshape(scores.shape)
    return hubs if protected is None else hubs & ~protected


@mutant(
    "discount",
    "hubs are discounted too",
    killer="hubkv/test_discount.py::test_a_hub_keeps_its_score",
)
def discount_everything(scores, hubs, gamma=0.5):
    """Forget the mask."""
    return torch.full_like(scores, gamma) * scores


@mutant(
    "smd",
    "protected tokens suppress their neighbours",
    killer="hubkv/test_discount.py::test_protected_tokens_suppress_nothing",
)
def protected_hubs_suppress(scores, radius=2, gamma=0.5, protected=None):
    """Let protected tokens win windows."""
    discounted = reference.smd(scores, radius, gamma)
    return discounted if protected is None else torch.where(protected, scores, discounted)


@mutant(
    "hub_mask",
    "the radius is the window's width",
    killer="test_vectors.py::test_vector[hubkv-radius-is-a-half-width]",
)
def narrow_windows(scores, radius=2, protected=None):
    """Halve the radius."""
    return reference.hub_mask(scores, radius // 2, protected)


@mutant(
    "hub_mask",
    "the last of a plateau is the hub",
    killer="hubkv/test_discount.py::test_a_hub_has_no_stronger_or_earlier_equal_in_its_window",
)
def last_of_a_plateau(scores, radius=2, protected=None):
    """Look from the other end."""
    flipped = None if protected is None else protected.flip(-1)
    return reference.hub_mask(scores.flip(-1), radius, flipped).flip(-1)


@mutant(
    "smd",
    "blocks of 256 tokens do not see each other",
    killer="hubkv/test_discount.py::test_windows_reach_across_a_long_row",
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
    killer="hubkv/test_discount.py::test_windows_reach_across_a_long_row",
)
def hole_at_the_end(scores, radius=2, gamma=0.5, protected=None):
    """Leave uninitialised memory, which the suite fills with NaN."""
    discounted = torch.empty_like(scores)
    discounted[..., :-1] = reference.smd(scores, radius, gamma, protected)[..., :-1]
    return discounted


@mutant(
    "smd",
    "half-precision products are cut off, not rounded",
    killer="hubkv/test_discount.py::test_a_discounted_score_is_rounded_once[torch.bfloat16]",
)
def truncated_products(scores, radius=2, gamma=0.5, protected=None):
    """Drop the low bits of a float32 product."""
    if scores.dtype != torch.bfloat16:
        return reference.smd(scores, radius, gamma, protected)
    wide = reference.smd(scores.float(), radius, gamma, protected)
    return (wide.view(torch.int32) >> 16 << 16).view(torch.float32).to(scores.dtype)
