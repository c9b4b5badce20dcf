"""Lies about HubKV as a whole."""

import torch

import reference
from reference.kinds import Scope
from spec_tests.mutants.make import lies, mutant

LAWS = "hubkv/compress/test_laws.py::"
lie = lies("hubkv/compress")

lie(
    "no_sinks_of_its_own",
    "sinks are left to the scorer",
    "(mine | (position < sinks))",
    "mine",
    "vector:the-first-real-token-and-the-last-are-marked",
)
lie(
    "padded_sinks",
    "sinks are counted from the start of the padding",
    "(position < sinks)",
    "(position + row.place[-1].start < sinks)",
    "vector:the-first-real-token-is-the-sink",
)


@mutant(
    "hubkv_compress",
    "the budget grows where the window does not fit",
    killer=LAWS + "test_the_window_gives_way_and_says_so",
)
def budget_gives_way(keys, values, scored, *, keep=None, scope: Scope = "model", **rest):
    """Make room for the window."""
    layers, heads, tokens = scored.scores.shape[0], *scored.scores.shape[-2:]
    pool = dict(head=1, layer=heads, model=layers * heads)[scope]
    ends = rest.get("sinks", 4) + (rest.get("recent") or 0)
    keep = min(pool * tokens, max(keep, pool * ends)) if isinstance(keep, int) else keep
    return reference.hubkv_compress(keys, values, scored, keep=keep, scope=scope, **rest)


@mutant(
    "hubkv_compress",
    "every head is a pool of its own unless told otherwise",
    killer=LAWS + "test_layers_compete_with_each_other_by_default",
)
def head_by_head(keys, values, scored, *, scope: Scope = "head", **rest):
    """Default to the wrong scope."""
    return reference.hubkv_compress(keys, values, scored, scope=scope, **rest)


@mutant(
    "hubkv_compress",
    "without padding it says that all tokens are real, which only append mode takes",
    killer=LAWS + "test_in_hex_the_ends_need_no_budget",
)
def always_padded(keys, values, scored, *, scope: Scope = "model", valid=None, **rest):
    """Hand on a mask that nobody gave."""
    if valid is None and rest.get("store") is not None:
        rows = scored.scores.shape[1 if scope == "model" else 0 : -2]
        valid = torch.ones(*rows, scored.scores.shape[-1], dtype=torch.bool)
    return reference.hubkv_compress(keys, values, scored, scope=scope, valid=valid, **rest)
