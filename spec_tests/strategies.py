"""Numbers for the tests, and ways to spoil them.

`grid` draws numbers that float16 holds exactly, and few of them, so ties are common and a sum of
products has one right answer whatever the order. Laws run on `grid`, accuracy on `real` as well.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from reference import HexConfig


@st.composite
def grid(draw, *shape, low=0, high=16, scale=1 / 16, dtype=torch.float32):
    """Multiples of `scale` in [low, high] * scale."""
    size, many = torch.Size(shape).numel(), high - low + 1
    width = 1 if many <= 256 else 4
    drawn = draw(st.binary(min_size=width * size, max_size=width * size))  # one draw, not `size`
    codes = np.frombuffer(drawn, f"<u{width}").astype(np.int64)
    codes = low + (codes - low) % many  # bytes shrink to 0, and so do these
    return (torch.from_numpy(codes).double() * scale).to(dtype).reshape(shape)


@st.composite
def real(draw, *shape, dtype=torch.float32):
    """A seeded Gaussian: shrinks through its seed."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


@st.composite
def signed(draw, *shape):
    """Numbers of the grid on both sides of 0, by a seed: drawn one by one they take their time."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    return torch.randint(-16, 17, shape, generator=generator) / 16


@st.composite
def booleans(draw, *shape):
    """A mask of `shape`."""
    return draw(grid(*shape, high=1, dtype=torch.bool))


def maybe(strategy, absent=True):
    """Return a strategy that may draw nothing, unless it must not."""
    return st.none() | strategy if absent else strategy


tokens = st.integers(0, 24)
"""An empty axis included."""

heads = st.sampled_from([(), (3,), (2, 2), (1,), (), (3,), (2, 2), (0, 2)])
"""Everything before the token axis: no heads, one, several, a batch of them, an empty batch.

The empty one is the rarest, since it says the least."""


def always(inputs: dict[str, Any]) -> bool:  # noqa: ARG001 of any inputs
    """Whether an answer is a matter of the draw: it always is."""
    return True


def masked(inputs: Any) -> bool:
    """Whether settings among inputs ask for an expander mask, which is a matter of the draw."""
    if isinstance(inputs, HexConfig):
        return 0 < inputs.density < 1
    if isinstance(inputs, dict):
        return masked(tuple(inputs.values()))
    return isinstance(inputs, tuple | list) and any(map(masked, inputs))


class Refusal(NamedTuple):
    """One bad argument, and what must come of it."""

    argument: str
    change: Any  # the bad value, or a function that spoils the good one
    error: type[Exception]
    says: str  # the admissible range, as our own modules print it


def spoil(tensor: Tensor, value: float) -> Tensor:
    """Return a copy with its last element replaced."""
    bad = tensor.clone()
    bad.view(-1)[-1] = value
    return bad


def spoiler(value: float) -> Callable[[Tensor], Tensor]:
    """Return a function that replaces a tensor's last element."""
    return lambda tensor: spoil(tensor, value)


def integers(tensor: Tensor) -> Tensor:
    """Return the tensor as int64: integer scores are refused."""
    return tensor.long()


def longer(tensor: Tensor) -> Tensor:
    """Return a tensor whose last axis is one longer than it should be."""
    return torch.cat([tensor, tensor[..., -1:]], -1)


def numbers(tensor: Tensor) -> Tensor:
    """Return a mask as numbers."""
    return tensor.float()


NEGATIVE, NAN, INFINITE = spoiler(-1.0), spoiler(torch.nan), spoiler(torch.inf)
