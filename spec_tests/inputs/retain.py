"""Inputs of selection and eviction."""

from typing import Any

import torch
from hypothesis import strategies as st

from reference.evict import DenseCache
from spec_tests.draw import (
    INFINITE,
    NAN,
    Refusal,
    bad_mask,
    booleans,
    grid,
    heads,
    integers,
    longer,
    tokens,
)

AXES = {"head": 1, "layer": 2, "model": 3}

LEADING = {
    "head": [(), (1,), (3,), (2, 2), (0, 2)],
    "layer": [(1,), (3,), (2, 2), (0, 2), (2, 0)],
    "model": [(2, 2), (1, 3), (3, 2, 2), (2, 2, 1, 2), (0, 2), (2, 0, 2)],
}
"""What may stand before the tokens in each scope, empty axes included."""

ratios = st.integers(0, 100).map(lambda hundredths: hundredths / 100)


@st.composite
def orderable(draw, *shape):
    """Scores with many ties: zeros of both signs, evicted tokens, a few numbers."""
    values = st.sampled_from([-torch.inf, -1.0, -0.0, 0.0, 0.0, 0.25, 0.5, 0.5, 3.0])
    size = torch.Size(shape).numel()
    drawn = draw(st.lists(values, min_size=size, max_size=size))
    return torch.tensor(drawn, dtype=torch.float32).reshape(shape)


def pooled(scores, scope):
    """Return one row a pool, the entries in order of (layer, head, position)."""
    if scope == "model":
        scores = scores.movedim(0, -3)
    return scores.flatten(-AXES[scope])


@st.composite
def retain(draw, scopes=st.sampled_from([*AXES])):  # noqa: B008
    """Any scope, protected tokens anywhere, a budget that holds them, in one of its forms."""
    scope = draw(scopes)
    shape = (*draw(st.sampled_from(LEADING[scope])), draw(st.integers(0, 8)))
    scores, protected = draw(orderable(*shape)), draw(st.none() | booleans(*shape))
    pools = pooled(scores, scope)
    size, pools = pools.shape[-1], pools.shape[:-1]
    counts = torch.zeros(pools) if protected is None else pooled(protected, scope).sum(-1)
    needed = int(counts.max()) if counts.numel() else 0
    budget: dict[str, Any] = dict(keep=None, ratio=None)
    form = draw(st.sampled_from(["number", "tensor", "ratio"]))
    if form == "number":
        budget["keep"] = draw(st.integers(needed, size))
    elif form == "tensor":
        number = counts.numel()
        each = draw(st.lists(st.integers(needed, size), min_size=number, max_size=number))
        budget["keep"] = torch.tensor(each, dtype=torch.int64).reshape(pools)
    else:
        roomy = [c for c in range(101) if size * (100 - c) // 100 >= needed]
        budget["ratio"] = draw(st.sampled_from(roomy)) / 100
    return dict(scores=scores, protected=protected, **budget, scope=scope)


@st.composite
def chosen(draw):
    """Scores and any mask of them."""
    shape = (*draw(heads), draw(tokens))
    return dict(scores=draw(orderable(*shape)), kept=draw(booleans(*shape)))


@st.composite
def evict(draw):
    """A cache of few channels, or none; a mask of any counts, or one for all heads."""
    shape, width = (*draw(heads), draw(st.integers(0, 8))), draw(st.integers(0, 3))
    alike = booleans(shape[-1]).map(lambda row: row.expand(shape).clone())
    return dict(
        keys=draw(grid(*shape, width, low=-16)),
        values=draw(grid(*shape, width, low=-16)),
        kept=draw(booleans(*shape) | alike),
    )


@st.composite
def holding(draw):
    """Containers of tensors, views and strangers, that share; a bare tensor has its own law."""
    tensor = draw(grid(4, 3))
    cache = DenseCache(tensor, tensor[:2], tensor.long())
    shapes = [
        [tensor],
        (tensor[1:],),
        [tensor, tensor],
        dict(a=[cache], b=None, c=(3, "x")),
        cache,
        [],
    ]
    return dict(object=draw(st.sampled_from(shapes)))


INPUTS = dict(
    kept_count=st.fixed_dictionaries(
        dict(pool=st.integers(0, 10**6), ratio=ratios | st.floats(0, 1))
    ),
    ranking=st.tuples(heads, tokens).flatmap(
        lambda shape: st.fixed_dictionaries(dict(scores=orderable(*shape[0], shape[1])))
    ),
    retain=retain(),
    modular_utility=chosen(),
    evict=evict(),
    stored_bytes=holding(),
)

scores = torch.tensor([[[0.5, 0.25, 0.75, 0.0], [1.0, 0.5, 0.0, 0.5]]])
mask = torch.tensor([[[True, False, False, True], [False, True, True, False]]])
cache = torch.ones(1, 2, 4, 2)

bad_scores = [
    Refusal("scores", integers, TypeError, "floating-point"),
    Refusal("scores", NAN, ValueError, "not NaN"),
    Refusal("scores", INFINITE, ValueError, "< inf"),
]

REFUSALS = dict(
    kept_count=(
        dict(pool=100, ratio=0.9),
        [
            Refusal("pool", -1, ValueError, ">= 0"),
            Refusal("pool", 1.5, TypeError, "integer"),
            Refusal("ratio", -0.25, ValueError, "[0, 1]"),
            Refusal("ratio", 1.25, ValueError, "[0, 1]"),
            Refusal("ratio", float("nan"), ValueError, "[0, 1]"),
            Refusal("ratio", True, TypeError, "a number"),
        ],
    ),
    ranking=(dict(scores=scores), bad_scores),
    retain=(
        dict(scores=scores, protected=mask, keep=3, ratio=None, scope="head"),
        [
            *bad_scores,
            *bad_mask("protected"),
            Refusal("keep", None, ValueError, "exactly one"),
            Refusal("keep", 1, ValueError, "2 protected"),
            Refusal("keep", -1, ValueError, "[0, 4]"),
            Refusal("keep", 5, ValueError, "[0, 4]"),
            Refusal("keep", 2.0, TypeError, "integer"),
            Refusal("keep", torch.tensor([[2.0, 2.0]]), TypeError, "int64"),
            Refusal("keep", torch.tensor([2, 2]), ValueError, "shape"),
            Refusal("keep", torch.tensor([[2, 5]]), ValueError, "[0, 4]"),
            Refusal("keep", torch.tensor([[2, 1]]), ValueError, "2 protected"),
            Refusal("ratio", 0.5, ValueError, "exactly one"),
            Refusal("ratio", 1.25, ValueError, "[0, 1]"),
            Refusal("scope", "token", ValueError, "'head', 'layer', 'model'"),
            Refusal("scope", ["head"], ValueError, "'head', 'layer', 'model'"),
        ],
    ),
    modular_utility=(dict(scores=scores, kept=mask), [*bad_scores, *bad_mask("kept")]),
    evict=(
        dict(keys=cache, values=cache, kept=mask),
        [
            Refusal("keys", integers, TypeError, "floating-point"),
            Refusal("keys", lambda tensor: tensor[0, 0, 0], ValueError, "at least 2 axes"),
            Refusal("values", integers, TypeError, "floating-point"),
            Refusal("values", longer, ValueError, "shape"),
            *bad_mask("kept"),
        ],
    ),
    stored_bytes=(
        dict(object=cache),
        [
            Refusal("object", 3, TypeError, "hold tensors"),
            Refusal("object", "cache", TypeError, "hold tensors"),
            Refusal("object", torch.Tensor.to_sparse, TypeError, "strided"),
        ],
    ),
)
