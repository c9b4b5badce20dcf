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
