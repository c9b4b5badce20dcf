"""What GraphKV's functions take, and refuse beyond what their signatures say."""

import torch

from spec_tests.draw import Refusal, longer, spoiler


def rows(line):
    """Return tokens of one axis as a row of two."""
    return line[None]


bad_sources = [
    Refusal("sources", spoiler(-1), ValueError, "[0, 3]"),
    Refusal("sources", spoiler(99), ValueError, "[0, 3]"),
    Refusal("sources", lambda sources: sources[0], ValueError, "shape"),
]
bad_ends = [
    Refusal("queries", longer, ValueError, "shape"),
    Refusal("queries", lambda q: torch.cat([q, q[:1]]), ValueError, "multiple of its heads"),
    Refusal("queries", lambda q: q[:0], ValueError, "multiple of its heads"),
    Refusal("values", longer, ValueError, "shape"),
]

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

GOOD = dict(
    neighbour_count=dict(predefined=8, length=5000),
    decay=signal | dict(rule="sum"),
    enhance=signal,
    banish=dict(scores=scores, neighbours=reached, rounds=2),
    concatenate_heads=dict(vectors=vectors),
    cosine_matrix=dict(keys=vectors),
    cosine_distribution=dict(keys=vectors, bins=4),
    kv_bytes=dict(tokens=128, layers=32, heads=8, width=128, element_bytes=2),
)

REFUSALS = dict(
    source_count=(
        dict(keep=10, fraction=0.3, window=2),
        [Refusal("window", 11, ValueError, "[0, 10]")],
    ),
    source_tokens=(
        dict(scores=scores, count=3, protected=mask),
        [Refusal("count", 4, ValueError, "[0, 3]")],
    ),
    edges=(
        dict(keys=vectors, sources=sources, kind="qk", **ends, clamp=True),
        [
            *bad_sources,
            *bad_ends,
            Refusal("queries", None, ValueError, "given where kind is 'qk'"),
        ],
    ),
    neighbours=(
        dict(weights=weights, sources=sources, count=2, protected=mask, spare_sources=True),
        bad_sources,
    ),
    graphkv_refine=(
        dict(scores=scores, keys=vectors, keep=3, count=2, protected=mask, **ends, kind="kv")
        | dict(fraction=0.5, rounds=1, strength=1.0, rule="product", signal="decay", **flags),
        [
            Refusal("keys", lambda keys: keys[:, :3], ValueError, "shape"),
            Refusal("keep", 0, ValueError, ">= 1"),
            *bad_ends,
            Refusal("values", None, ValueError, "given where kind is 'kv'"),
        ],
    ),
    principal_components=(
        dict(keys=vectors, components=2),
        [Refusal("components", 4, ValueError, "[1, 3]")],
    ),
    hide_needle=(
        dict(haystack=torch.arange(9), needle=torch.arange(2), length=8, depth=0.5),
        [
            Refusal("haystack", rows, ValueError, "1 axis"),
            Refusal("needle", rows, ValueError, "1 axis"),
            Refusal("length", 1, ValueError, "[2, 11]"),
            Refusal("length", 12, ValueError, "[2, 11]"),
        ],
    ),
    needle_recall=(
        dict(responses=torch.arange(12).view(2, 2, 3), answer=torch.arange(4)),
        [
            Refusal("answer", rows, ValueError, "1 axis"),
            Refusal("answer", lambda answer: answer[:0], ValueError, "empty"),
        ],
    ),
)
