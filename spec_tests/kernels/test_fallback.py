"""A launcher falls back to the vectorised body where a rule says so, and nowhere else."""

from typing import Any

import pytest
import torch
from torch import Tensor

from optimized import kernels, vector
from optimized.bench.launch_recorder import launched
from optimized.kernels.hex import compress
from reference import RaggedCache

Named = dict[str, Any]
HALF, SHORT, FLOAT, DOUBLE = torch.bfloat16, torch.float16, torch.float32, torch.float64
MASSES = ("h2o_mass", "attention_mass", "snapkv")
SPANS = ("hex_compress", "hex_reconstruct")


def ones(*shape: int, dtype: torch.dtype = FLOAT) -> Tensor:
    return torch.ones(shape, dtype=dtype)


def calls(width: int = 16, dtype: torch.dtype = FLOAT, tokens: int = 9) -> dict[str, Named]:
    """Return a call of each kernel, with vectors of a width and a dtype."""
    queries, keys = ones(4, min(5, tokens), width, dtype=dtype), ones(2, tokens, width, dtype=dtype)
    scores, none = ones(2, tokens, dtype=dtype), torch.zeros(tokens, 2 * width, dtype=torch.bool)
    span: Named = dict(keys=keys, values=keys, expander=none, dynamic=none[:, 0].clone(), bits=3)
    mass, new = dict(queries=queries, keys=keys), keys[:, -1:]
    return {
        "smd": dict(scores=scores, radius=8),
        "hubkv_refine": dict(scores=scores, ratio=0.5, radius=8),
        "graphkv_refine": dict(scores=scores, keys=keys, keep=5, count=2, adaptive=False),
        "h2o_mass": mass,
        "attention_mass": mass,
        "snapkv": mass | dict(window=3, kernel=3),
        "ragged_attention": dict(queries=new, cache=ragged(keys), keys=new, values=new),
        "hex_compress": span,
        "hex_reconstruct": dict(block=vector.hex_compress(**span), expander=none),
    }


def ragged(keys: Tensor) -> RaggedCache:
    """Return a cache of two heads, each with all of its keys."""
    heads, tokens = keys.shape[:2]
    places = torch.arange(tokens).repeat(heads)
    left = keys.flatten(0, 1)
    return RaggedCache(left, left, places, torch.arange(heads + 1) * tokens)


USUAL = calls()
WIDE, EXACT, EMPTY = calls(257), calls(dtype=DOUBLE), calls(tokens=0)
FALLEN_BACK = [
    *((name, EXACT[name]) for name in USUAL if name != "smd"),
    *((name, WIDE[name]) for name in (*MASSES, *SPANS, "ragged_attention")),
    *((name, EMPTY[name]) for name in (*MASSES, *SPANS)),
    *((name, USUAL[name] | dict(log_sum_exp=ones(4, 5, dtype=DOUBLE))) for name in MASSES),
    *((name, USUAL[name] | dict(radius=9)) for name in ("smd", "hubkv_refine")),
    ("h2o_mass", USUAL["h2o_mass"] | dict(mass=ones(2, 4, dtype=DOUBLE))),
    ("graphkv_refine", USUAL["graphkv_refine"] | dict(scores=ones(2, 9, dtype=DOUBLE))),
    ("graphkv_refine", USUAL["graphkv_refine"] | dict(keys=ones(2, 9, 16, dtype=DOUBLE))),
    ("graphkv_refine", USUAL["graphkv_refine"] | dict(keys=ones(2, 9, 0))),
    ("ragged_attention", USUAL["ragged_attention"] | dict(cache=ragged(ones(2, 3, 16).double()))),
]
"""Calls that each break one rule of a kernel."""


@pytest.mark.parametrize(("name", "x"), FALLEN_BACK)
def test_a_call_that_breaks_one_rule_falls_back(name, x):
    assert not launched(lambda: getattr(kernels, name)(**x))


@pytest.mark.parametrize("kind", [(1, HALF), (31, SHORT), (128, HALF), (256, FLOAT)])
def test_all_other_calls_are_launched(kind):
    for name, x in calls(*kind).items():
        assert launched(lambda name=name, x=x: getattr(kernels, name)(**x)), name


def test_a_span_of_more_strips_than_a_grid_has_programs_falls_back():
    for tokens, fits in ((compress.LONGEST, True), (compress.LONGEST + 1, False)):
        assert compress.taken(torch.Size((2, 2, tokens, 64)), torch.float16) == fits
