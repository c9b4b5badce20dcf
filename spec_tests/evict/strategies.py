"""Strategies for caches to evict from, and for objects that may hold tensors."""

import torch
from hypothesis import strategies as st

from reference.evict import DenseCache
from spec_tests.retain.strategies import mask
from spec_tests.strategies import Refusal, booleans, grid, heads, importance, longer


@st.composite
def evict(draw):
    """A cache with few channels or none; a mask with any counts, or one for all heads."""
    shape, width = (*draw(heads), draw(st.integers(0, 8))), draw(st.integers(0, 3))
    alike = booleans(shape[-1]).map(lambda row: row.expand(shape).clone())
    return dict(
        keys=draw(importance(*shape, width, low=-16)),
        values=draw(importance(*shape, width, low=-16)),
        kept=draw(booleans(*shape) | alike),
    )


@st.composite
def stored_bytes(draw):
    """Containers of shared tensors, views and other objects; a bare tensor has its own law."""
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


class Slotted:
    """An object without a dictionary."""

    __slots__ = ("empty", "tensor")

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


# code holds nothing
CORNERS = dict(stored_bytes=[dict(object=[torch.ones(3), int, torch.ones, Slotted(torch.ones(2))])])

cache = torch.ones(1, 2, 4, 2)

REFUSALS = dict(
    evict=(
        dict(keys=cache, values=cache, kept=mask),
        [Refusal("values", longer, ValueError, "shape")],
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
