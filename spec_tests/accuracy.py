"""The one tolerance of the suite.

Masks, indices and codes are equal or wrong. A float may be at most twice as far from the float64
answer as the reference itself is at its worst at the same dtype, plus four units in the last place
of the element (of the largest one where sums cancel). Where a result jumps (a kept set, a rounded
code), what lies within four units in the last place of the jump may fall on either side.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

ULPS = 4

# Sums of terms of both signs: an element is rounded as its terms are, however small it comes out.
# Units in the last place are those of the largest element. Functions, and fields of what they
# return.
CANCELLING = {
    "mass",
    "output",
    "attention_weights",
    "attention",
    "attention_error",
    "attention_mass",
    "ragged_attention",
    "model_logits",
    "autocorrelation",
    "cake",
    "cosine_matrix",
    "edges",
    "expected_attention",
    "fastkvzip",
    "kvzip",
    "kvzip_chunk",
    "mean_rotation",
    "h2o_mass",
    "snapkv",
    "principal_components",
    "low_rank",
    "gear_compress",
    "gear_reconstruct",
    "gear_prefill",
    "gear_append",
    "gear_read",
    "query_statistics",
}


class Unequal(AssertionError):
    """A failed comparison, and what it compares."""

    def __init__(self, says: str, actual: Any, expected: Any):
        super().__init__(says)
        self.compared = actual, expected


def assert_equal(actual: Any, expected: Any) -> None:
    """`actual` is `expected`, bit for bit: type, shape, dtype and every element."""
    if isinstance(expected, dict):
        assert_equal(tuple(actual.items()), tuple(expected.items()))
    elif isinstance(expected, tuple | list | deque):
        kind = tuple if isinstance(expected, tuple) else type(expected)
        assert isinstance(actual, kind), f"{type(actual)} is no {kind}"
        assert len(actual) == len(expected), (len(actual), len(expected))
        for part, other in zip(actual, expected, strict=True):
            assert_equal(part, other)
    elif isinstance(expected, Tensor):
        assert_same_kind(actual, expected)
        if not torch.equal(actual, expected):
            raise Unequal(f"{actual} != {expected}", actual, expected)
    else:
        assert type(actual) is type(expected), (type(actual), type(expected))
        if actual != expected:
            raise Unequal(f"{actual!r} != {expected!r}", actual, expected)


def are_equal(one: Any, other: Any) -> bool:
    """Whether two values are equal, bit for bit."""
    try:
        assert_equal(one, other)
    except AssertionError:
        return False
    return True


def assert_as_accurate(
    actual: Any,
    spec: Callable[..., Any],
    inputs: dict[str, Any],
    known: tuple[dict[str, Any], Any] | None = None,
) -> None:
    """`actual` is as good an answer to `spec(**inputs)` as the reference gives.

    `known` is what `spec` says to some inputs of float64: most draws are of numbers that every
    dtype holds, and its answer need not be computed again.
    """
    wide = cast(inputs, torch.float64)
    exact = known[1] if known and are_equal(wide, known[0]) else spec(**wide)
    same = exact if is_wide(inputs) else spec(**inputs)
    _compare(actual, same, exact, spec.__name__ in CANCELLING)


def assert_close(actual: Tensor, exact: Tensor | float, scale: Tensor | float = 1.0) -> None:
    """`actual` is the `exact` value up to four units in the last place of max(|exact|, scale)."""
    exact = torch.as_tensor(exact, dtype=torch.float64, device=actual.device)
    allowed = ulp(actual.dtype, torch.maximum(exact.abs(), torch.as_tensor(scale).double()))
    same = actual.double() == exact  # also where both are infinite
    error = (actual.double() - exact).abs().masked_fill(same, 0)
    if not (error <= allowed).all():  # written so that NaN fails
        says = f"{actual} is not {exact}: error {error.max():.3g}"
        raise Unequal(says, actual, exact.to(actual.dtype))


def assert_at_most(low: Tensor, high: Tensor) -> None:
    """`low` <= `high`, up to four units in the last place of the larger magnitude."""
    low, high = torch.broadcast_tensors(low, high)
    slack = ulp(low.dtype, torch.maximum(low.abs(), high.abs()).double())
    excess = low.double() - high.double()
    assert (excess <= slack).all(), f"{low} exceeds {high} by {(excess - slack).max():.3g}"


def assert_within_five_deviations(counts: Tensor, mean: float, variance: float) -> None:
    """Each count is within five standard deviations of its mean."""
    far = (counts - mean).abs().max() / variance**0.5
    assert far <= 5, f"{counts} is {far:.1f} standard deviations from {mean}"


def assert_optimal(kept: Tensor, scores: Tensor, among: Tensor | None = None) -> None:
    """`kept` holds the best along the last axis: its worst is within 4 ulp of the best dropped.

    `among` limits the comparison to the entries that compete.
    """
    rivals = ~kept if among is None else ~kept & among
    held = kept if among is None else kept & among
    worst = scores.double().masked_fill(~held, torch.inf).amin(-1)
    best = scores.double().masked_fill(~rivals, -torch.inf).amax(-1)
    fine = (worst >= best) | (best - worst <= ulp(scores.dtype, best.abs()))
    assert fine.all(), f"kept {worst} but dropped {best}"


def assert_codes(codes: Tensor, unrounded: Tensor, scale: Tensor) -> None:
    """Each code is the nearest to its unrounded value, or the other neighbour of a near tie.

    `scale` is the magnitude, in steps, of the numbers the unrounded value is a difference of.
    """
    error = (codes.double() - unrounded.double()).abs()
    allowed = 0.5 + ulp(scale.dtype, torch.maximum(scale.abs(), unrounded.abs()))
    assert (error <= allowed).all(), f"{codes} is not {unrounded} rounded"


def ulp(dtype: torch.dtype, magnitude: Tensor) -> Tensor:
    """Four units in the last place of `magnitude` at `dtype`, in float64."""
    info = torch.finfo(dtype)
    return ULPS * info.eps * magnitude.double().clamp(info.tiny, info.max)


def cast(value: Any, dtype: torch.dtype) -> Any:
    """Convert every floating-point tensor in nested tuples and dictionaries to `dtype`."""
    if is_float(value):
        return value.to(dtype)
    if isinstance(value, dict):
        return {name: cast(part, dtype) for name, part in value.items()}
    if isinstance(value, tuple):
        parts = [cast(part, dtype) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value


def is_wide(value: Any) -> bool:
    """Whether every floating-point tensor in nested tuples and dictionaries is one of float64."""
    if isinstance(value, dict | tuple):
        return all(map(is_wide, value.values() if isinstance(value, dict) else value))
    return not is_float(value) or value.dtype == torch.float64


def is_float(value: Any) -> bool:
    """Whether `value` is a floating-point tensor."""
    return isinstance(value, Tensor) and value.is_floating_point()


def assert_same_kind(actual: Any, expected: Tensor) -> None:
    """`actual` is a tensor of the expected shape and dtype."""
    assert isinstance(actual, Tensor), f"{type(actual)} is no tensor"
    assert actual.shape == expected.shape, (actual.shape, expected.shape)
    assert actual.dtype == expected.dtype, (actual.dtype, expected.dtype)


def _compare(actual: Any, same: Any, exact: Any, cancelling: bool) -> None:
    if isinstance(same, tuple):
        assert isinstance(actual, tuple), f"{type(actual)} is no tuple"
        names = getattr(same, "_fields", same)
        for name, one, own, right in zip(names, actual, same, exact, strict=True):
            _compare(one, own, right, cancelling or (isinstance(name, str) and name in CANCELLING))
    elif is_float(same):
        assert_same_kind(actual, same)
        infinite = torch.isinf(exact)
        assert torch.equal(actual[infinite].double(), exact[infinite].double())
        wrong = (actual.double() - exact.double())[~infinite].abs()
        own = (same.double() - exact.double())[~infinite].abs()
        if wrong.numel():
            scale = exact[~infinite].abs()
            scale = scale.max().expand_as(scale) if cancelling else scale
            allowed = 2 * own.max() + ulp(same.dtype, scale)
            fine = wrong <= allowed  # written so that NaN fails
            assert fine.all(), f"error {wrong[~fine][0]:.3g} > {allowed[~fine][0]:.3g}"
    elif isinstance(same, float):
        assert isinstance(actual, float), type(actual)
        assert abs(actual - exact) <= 2 * abs(same - exact) + ULPS * 2**-52 * abs(exact)
    else:
        assert_equal(actual, same)
