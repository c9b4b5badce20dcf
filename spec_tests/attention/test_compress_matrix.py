"""Every scorer, refinement, scope and store through the same calls."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from reference import GraphSettings, HexConfig, HubSettings, NmsSettings, Scored
from spec_tests.attention.rows import counts

Scorer = Callable[[Any, Tensor, Tensor, Tensor], Scored]


SCORERS: dict[str, Scorer] = dict(
    knorm=lambda impl, queries, keys, valid: impl.knorm(keys, valid, shift=True),  # noqa: ARG005
    h2o=lambda impl, queries, keys, valid: impl.h2o(
        impl.h2o_mass(queries, keys, valid=valid), keep=4, valid=valid
    ),
    snapkv=lambda impl, queries, keys, valid: impl.snapkv(queries, keys, window=2, valid=valid),
    streaming_llm=lambda impl, queries, keys, valid: impl.streaming_llm(  # noqa: ARG005
        keys, sinks=2, valid=valid
    ),
)
REFINEMENTS = (None, HubSettings(), NmsSettings(), GraphSettings(2))
STORES = (None, HexConfig(block=4, density=0.0, recent=1))

generator = torch.Generator().manual_seed(5)
KEYS, VALUES = torch.randn(2, 2, 3, 2, 12, 4, generator=generator)
QUERIES = torch.randn(2, 3, 4, 12, 4, generator=generator)
VALID = torch.arange(12) >= torch.tensor([0, 3, 4])[:, None]


@pytest.mark.spec("HubKV-1", "HubKV-13", "GraphKV-4.1", "HEX-3.5a")
@pytest.mark.parametrize("name", SCORERS)
@pytest.mark.parametrize("refinement", REFINEMENTS, ids=lambda r: type(r).__name__)
@pytest.mark.parametrize("scope", ["head", "layer", "model"])
@pytest.mark.parametrize("store", STORES, ids=["evict", "HEX"])
def test_any_scorer_any_refinement_any_scope_any_store(impl, name, refinement, scope, store):
    scored = SCORERS[name](impl, QUERIES, KEYS, VALID.expand(2, 3, 12))
    valid = VALID if scope == "model" else VALID.expand(2, 3, 12)
    cache = impl.compress(
        KEYS, VALUES, scored, ratio=0.5, scope=scope, refinement=refinement, valid=valid,
        store=store,
    )  # fmt: skip
    shape = KEYS.shape[:-2]
    if store is None:
        pools = dict(head=1, layer=2, model=4)[scope]
        expected = sum(pools * tokens // 2 for tokens in (12, 9, 8)) * (shape.numel() // 3 // pools)
        assert counts(cache, shape).sum() == expected
        assert impl.stored_bytes(cache) < 2 * KEYS.nbytes
    else:
        (block,) = cache.blocks
        assert not (block.dynamic & ~VALID).any()
        shielded = scored.protected.any(-2)
        assert (block.dynamic | ~shielded).all()
        assert block.dynamic[..., -1].all()
        chosen = block.dynamic & ~shielded & (torch.arange(12) < 11)
        assert chosen.any()
        keys, _ = impl.hex_read(cache)
        kept = block.dynamic[..., None, :].expand((*shape, 12))
        assert torch.equal(keys[kept], KEYS[kept])
