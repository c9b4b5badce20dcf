"""What GraphKV's functions refuse."""

import torch

from spec_tests.draw import (
    INFINITE,
    NAN,
    Refusal,
    bad_importance,
    bad_mask,
    integers,
    longer,
    numbers,
    spoiler,
)

OUTSIDE = spoiler(99)


def bad_whole(argument, says=">= 0", low=0):
    """Refusals of a number that must be an integer, at least `low`."""
    return [
        Refusal(argument, low - 1, ValueError, says),
        Refusal(argument, 1.5, TypeError, "integer"),
    ]


def bad_vectors(argument, shaped=False):
    """Refusals of vectors that must be finite floating-point numbers."""
    refusals = [
        Refusal(argument, integers, TypeError, "floating-point"),
        Refusal(argument, NAN, ValueError, "finite"),
        Refusal(argument, INFINITE, ValueError, "finite"),
        Refusal(argument, lambda vectors: vectors[0, 0], ValueError, "axes"),
    ]
    return [*refusals, Refusal(argument, longer, ValueError, "shape")] if shaped else refusals


def bad_share(argument):
    """Refusals of a number outside (0, 1]."""
    return [Refusal(argument, bad, ValueError, "(0, 1]") for bad in (0.0, 1.5, float("nan"))]


def bad_line(argument):
    """Refusals of tokens that must be integers on one axis."""
    return [
        Refusal(argument, numbers, TypeError, "int64"),
        Refusal(argument, lambda line: line[None], ValueError, "one axis"),
    ]


bad_sources = [
    Refusal("sources", numbers, TypeError, "int64"),
    Refusal("sources", spoiler(-1), ValueError, "[0, 3]"),
    Refusal("sources", OUTSIDE, ValueError, "[0, 3]"),
    Refusal("sources", lambda sources: sources[0], ValueError, "shape"),
]
bad_edges = [
    Refusal("weights", integers, TypeError, "floating-point"),
    Refusal("weights", NAN, ValueError, "finite"),
    Refusal("weights", INFINITE, ValueError, "finite"),
]
bad_graph = [
    *bad_importance(),
    *bad_mask("neighbours"),
    Refusal("neighbours", lambda mask: mask[0, 0], ValueError, "shape"),
    *bad_whole("rounds"),
]
bad_kind = [Refusal("kind", "vk", ValueError, "one of 'kk', 'qk', 'qq', 'kv', 'vv'")]
bad_ends = [
    Refusal("queries", integers, TypeError, "floating-point"),
    Refusal("queries", NAN, ValueError, "finite"),
    Refusal("queries", longer, ValueError, "shape"),
    Refusal("queries", lambda q: torch.cat([q, q[:1]]), ValueError, "multiple of its heads"),
    Refusal("values", integers, TypeError, "floating-point"),
    Refusal("values", NAN, ValueError, "finite"),
    Refusal("values", longer, ValueError, "shape"),
]
bad_rule = [Refusal("rule", "mean", ValueError, "one of 'product', 'sequential', 'sum'")]

scores = torch.tensor([[0.5, 0.25, 0.75, 0.0], [1.0, 0.5, 0.25, 0.5]])
mask = torch.tensor([[True, False, False, False], [False, False, False, True]])
sources = torch.tensor([[2, 1], [0, 1]])
vectors = torch.linspace(-1, 1, 24).reshape(2, 4, 3)
grouped = torch.linspace(-1, 2, 48).reshape(4, 4, 3)
weights = torch.linspace(-1, 1, 16).reshape(2, 2, 4)
reached = weights > 0
ends = dict(queries=grouped, values=vectors)
signal = dict(scores=scores, weights=weights, neighbours=reached, rounds=2, strength=0.5)
flags = dict(per_head=True, spare_sources=False, clamp=False, exclude_window=True, adaptive=False)

REFUSALS = dict(
    source_count=(
        dict(keep=10, fraction=0.3, window=2),
        [
            *bad_whole("keep"),
            *bad_share("fraction"),
            *bad_whole("window", "[0, 10]"),
            Refusal("window", 11, ValueError, "[0, 10]"),
        ],
    ),
    source_tokens=(
        dict(scores=scores, count=3, protected=mask),
        [
            Refusal("scores", integers, TypeError, "floating-point"),
            Refusal("scores", NAN, ValueError, "finite"),
            Refusal("scores", INFINITE, ValueError, "finite"),
            *bad_whole("count", "[0, 3]"),
            Refusal("count", 4, ValueError, "[0, 3]"),
            *bad_mask("protected"),
        ],
    ),
    edges=(
        dict(keys=vectors, sources=sources, kind="qk", **ends, clamp=True),
        [
            *bad_vectors("keys"),
            *bad_sources,
            *bad_kind,
            *bad_ends,
            Refusal("queries", None, ValueError, "given where kind is 'qk'"),
        ],
    ),
    neighbour_count=(
        dict(predefined=8, length=5000),
        [*bad_whole("predefined"), *bad_whole("length")],
    ),
    neighbours=(
        dict(weights=weights, sources=sources, count=2, protected=mask, spare_sources=True),
        [*bad_edges, *bad_sources, *bad_whole("count"), *bad_mask("protected")],
    ),
    decay=(
        signal | dict(rule="sum"),
        [
            *bad_graph,
            *bad_edges,
            Refusal("weights", longer, ValueError, "shape"),
            *bad_share("strength"),
            *bad_rule,
        ],
    ),
    enhance=(
        signal,
        [
            *bad_graph,
            *bad_edges,
            Refusal("weights", longer, ValueError, "shape"),
            *bad_share("strength"),
        ],
    ),
    banish=(dict(scores=scores, neighbours=reached, rounds=2), bad_graph),
    concatenate_heads=(
        dict(vectors=vectors),
        [
            Refusal("vectors", integers, TypeError, "floating-point"),
            Refusal("vectors", lambda vectors: vectors[0], ValueError, "at least 3 axes"),
        ],
    ),
    graphkv_refine=(
        dict(scores=scores, keys=vectors, keep=3, count=2, protected=mask, **ends, kind="kv")
        | dict(fraction=0.5, rounds=1, strength=1.0, rule="product", signal="decay", **flags),
        [
            *bad_importance(),
            *bad_vectors("keys"),
            Refusal("keys", lambda keys: keys[:, :3], ValueError, "shape"),
            *bad_whole("keep"),
            Refusal("keep", 0, ValueError, ">= 1"),
            *bad_whole("count"),
            *bad_mask("protected"),
            *bad_ends,
            Refusal("values", None, ValueError, "given where kind is 'kv'"),
            *bad_kind,
            *bad_share("fraction"),
            *bad_whole("rounds"),
            *bad_share("strength"),
            *bad_rule,
            Refusal("signal", "mute", ValueError, "one of 'decay', 'enhance', 'evict'"),
        ],
    ),
    cosine_matrix=(dict(keys=vectors), bad_vectors("keys")),
    cosine_distribution=(
        dict(keys=vectors, bins=4),
        [*bad_vectors("keys"), *bad_whole("bins", ">= 1", 1)],
    ),
    principal_components=(
        dict(keys=vectors, components=2),
        [
            *bad_vectors("keys"),
            *bad_whole("components", "[1, 3]", 1),
            Refusal("components", 4, ValueError, "[1, 3]"),
        ],
    ),
    hide_needle=(
        dict(haystack=torch.arange(9), needle=torch.arange(2), length=8, depth=0.5),
        [
            *bad_line("haystack"),
            *bad_line("needle"),
            *bad_whole("length", "[2, 11]", 2),
            Refusal("length", 12, ValueError, "[2, 11]"),
            Refusal("depth", -0.1, ValueError, "[0, 1]"),
            Refusal("depth", 1.1, ValueError, "[0, 1]"),
            Refusal("depth", float("nan"), ValueError, "[0, 1]"),
        ],
    ),
    needle_recall=(
        dict(responses=torch.arange(12).view(2, 2, 3), answer=torch.arange(4)),
        [
            Refusal("responses", numbers, TypeError, "int64"),
            *bad_line("answer"),
            Refusal("answer", lambda answer: answer[:0], ValueError, "empty"),
        ],
    ),
    kv_bytes=(
        dict(tokens=128, layers=32, heads=8, width=128, element_bytes=2),
        [
            *bad_whole("tokens"),
            *bad_whole("layers", ">= 1", 1),
            *bad_whole("heads", ">= 1", 1),
            *bad_whole("width", ">= 1", 1),
            *bad_whole("element_bytes", ">= 1", 1),
        ],
    ),
)
