"""Strategies for tensors, and functions that make tensors invalid.

`grid` draws from few numbers, all exact in bfloat16. So ties are common, and a sum of products is
the same in any order. `importance` also draws numbers that differ only in float32. Scores that are
compared are drawn from it; laws that need exact arithmetic run on `grid`.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from reference import HexConfig

generators = st.integers(0, 2**16).map(lambda seed: torch.Generator().manual_seed(seed))
"""Random streams from a seed, which Hypothesis shrinks; one draw is faster than one a number."""


@cache  # Hypothesis examines each new strategy
@st.composite
def grid(draw, *shape, low=0, high=16, scale=1 / 16, dtype=torch.float32):
    """Draw multiples of `scale` in [low, high] * scale."""
    size, many = torch.Size(shape).numel(), high - low + 1
    width = 1 if many <= 256 else 4
    drawn = draw(st.binary(min_size=width * size, max_size=width * size))  # one draw for all
    codes = np.frombuffer(drawn, f"<u{width}").astype(np.int64)
    codes = low + (codes - low) % many  # bytes shrink to 0, as integers in Hypothesis do
    return (torch.from_numpy(codes).double() * scale).to(dtype).reshape(shape)


@cache
@st.composite
def importance(draw, *shape, low=0, high=16, close=True):
    """Draw scores in [low, high] / 16: on the grid, beside it, or anywhere, a third each.

    Many of those beside the grid or anywhere are neighbouring float32 numbers, or crowd within a
    thousandth of the highest score, as saturated scores do. Without `close` all that are not equal
    are 2⁻¹⁴ apart, but for rare accidents: this survives the rounding of a few sums and products.
    """
    kind, (low, high) = draw(st.sampled_from(["grid", "beside", "anywhere"])), (low / 16, high / 16)
    if kind == "grid":
        step = draw(st.sampled_from([4, 1])) / 16  # quarters tie more often
        return low + draw(grid(*shape, high=int((high - low) / step), scale=step))
    if kind == "anywhere":
        generator = draw(generators)
        base = low + torch.rand(shape, generator=generator) * (high - low)
        twins = base.roll(1)
        twins = torch.nextafter(twins, base) if close else (twins - 2.0**-14).clamp(min=low)
        return torch.where(torch.rand(shape, generator=generator) < 0.5, twins, base)
    few = draw(grid(*shape, high=3, scale=1))
    if not (close and draw(st.booleans())):
        return high - few * 2.0**-14
    base = high - few.clamp(max=2) / 2 * (high - low)
    beside = torch.nextafter(base, base + draw(grid(*shape, low=-1, high=1))).clamp(low, high)
    return torch.where(base == 0, base, beside)  # 0 has no neighbour in the domain


CROWD = 1 - torch.tensor([2.0, 0, 1, 1, 3, 0, 2, 1, 0, 3, 1, 2]) * 2.0**-14
"""Twelve scores within a thousandth of 1: bfloat16 has one number for all."""


@cache
@st.composite
def gaussian_tensor(draw, *shape, dtype=torch.float32):
    """Draw Gaussian numbers."""
    return torch.randn(shape, generator=draw(generators), dtype=torch.float64).to(dtype)


@cache
@st.composite
def signed_sixteenths(draw, *shape):
    """Draw multiples of 1/16 in [-1, 1]."""
    return torch.randint(-16, 17, shape, generator=draw(generators)) / 16


signed_numbers = st.sampled_from([signed_sixteenths, gaussian_tensor])
"""Strategies for tensors of either sign: exact in any order of operations, or Gaussian."""


@cache
@st.composite
def booleans(draw, *shape):
    """Draw a mask of `shape`."""
    return draw(grid(*shape, high=1, dtype=torch.bool))


def strategy_or_none(strategy, absent=True):
    """Return a strategy that may also draw None, unless `absent` is False."""
    return st.none() | strategy if absent else strategy


tokens = st.integers(0, 24)
"""Numbers of tokens, 0 included."""

heads = st.sampled_from([(), (3,), (2, 2), (1,), (), (3,), (2, 2), (0, 2)])
"""Shapes before the token axis: no heads, one, several, a batch of heads, an empty batch.

The empty batch is the rarest, since it tests the least."""

rows = st.tuples(heads, tokens).map(lambda x: (*x[0], x[1]))
"""Shapes of scores."""


def mask_or_none(*shape):
    """Return a strategy for a mask of `shape`, or None."""
    return st.none() | booleans(*shape)


@st.composite
def of_one_shape(draw, shapes=rows, **arguments):
    """Draw arguments by name, each from a strategy, or from a function of one shape for all."""
    shape = draw(shapes)
    given = arguments.items()
    return {k: draw(x if isinstance(x, st.SearchStrategy) else x(*shape)) for k, x in given}


def always(inputs: dict[str, Any]) -> bool:  # noqa: ARG001 of any inputs
    """Return True: the result depends on a random stream for any inputs."""
    return True


def needs_expander_mask(inputs: Any) -> bool:
    """Whether settings among the inputs need an expander mask, which depends on a random stream."""
    if isinstance(inputs, HexConfig):
        return 0 < inputs.density < 1
    if isinstance(inputs, dict):
        return needs_expander_mask(tuple(inputs.values()))
    return isinstance(inputs, tuple | list) and any(map(needs_expander_mask, inputs))


class Refusal(NamedTuple):
    """One bad argument and the expected error."""

    argument: str
    change: Any  # the bad value, or a function that makes it from the good one
    error: type[Exception]
    says: str  # the admissible range, which the message of our own modules contains


def last_element_replacer(value: float) -> Callable[[Tensor], Tensor]:
    """Return a function that returns a copy of a tensor with its last element replaced."""

    def spoil(tensor: Tensor) -> Tensor:
        bad = tensor.clone()
        bad.view(-1)[-1] = value
        return bad

    return spoil


def longer(tensor: Tensor) -> Tensor:
    """Return a tensor with its last element along the last axis repeated."""
    return torch.cat([tensor, tensor[..., -1:]], -1)


NEGATIVE, NAN, INFINITE = (
    last_element_replacer(-1.0),
    last_element_replacer(torch.nan),
    last_element_replacer(torch.inf),
)
