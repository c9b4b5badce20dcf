"""The one tolerance of the suite, derived from the rounding error of the computation.

Masks, indices and codes must be equal. A float may differ from the float64 result by `SAFETY` times
the rounding error of the computation.

For a law the rounding error is one unit in the last place of float32, or of float64 where the law
computes in float64. The unit is that of a magnitude the law names, such as the sum of the
magnitudes of the terms. A half-precision result adds one unit of its own dtype.

For a comparison with the specification the rounding error is measured: it is the change of the
result when each operation is rounded differently (`rounding_noise.py`). The same runs show which
choices, such as of a top-k, change under rounding. There either choice is right, unless the
candidates are exactly equal.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from spec_tests.report.calls import tensors
from spec_tests.rounding_noise import Noise

SAFETY = 16
SEEDS = (1, -1, 2, -2)
"""Seeds of the roundings under which the specification runs; `-seed` mirrors `seed`."""
SEVERAL = (tuple, list, deque, dict)
FACTORS = {"left", "right"}
"""Fields of a low-rank record, of which only the product is unique."""
WIDE = {"mass", "residual_mass"}
"""Fields of records that are at least float32."""
HOPELESS = 2.0**12
"""From this many tolerances on, an error counts as wrong under every rounding."""
UNDECIDED = 2.0
"""The excess of a choice that differs: the rounding of a later seed may still permit it."""
SLIGHT = 2.0**-8
"""An error of at most this part of the largest element is also undecided."""


class Unequal(AssertionError):
    """A failed comparison, with the two values."""

    def __init__(self, says: str, actual: Any, expected: Any):
        super().__init__(says)
        self.compared = actual, expected

    def __str__(self) -> str:
        # when it is read: `are_equal` reads none, and the text of a tensor takes a millisecond
        return str(self.args[0]) or "{!r} != {!r}".format(*self.compared)


def assert_equal(actual: Any, expected: Any) -> None:
    """Check that `actual` equals `expected` bit for bit: type, shape, dtype and every element."""
    if isinstance(expected, SEVERAL):
        assert_same_structure(actual, expected)
        for part, other in zip(parts_of(actual, expected), parts_of(expected), strict=True):
            assert_equal(part, other)
    elif isinstance(expected, Tensor):
        assert_same_kind(actual, expected)
        if not torch.equal(actual, expected):
            raise Unequal("", actual, expected)
    else:
        assert type(actual) is type(expected), (type(actual), type(expected))
        if actual != expected:
            raise Unequal("", actual, expected)


def assert_same_structure(actual: Any, expected: Any) -> None:
    """Check that `actual` is several values as `expected` is: as many, and of the same names."""
    kind = tuple if isinstance(expected, tuple) else type(expected)
    assert isinstance(actual, kind), f"{type(actual)} is no {kind}"
    assert len(actual) == len(expected), (len(actual), len(expected))
    assert kind is not dict or {*actual} == {*expected}, (*actual, *expected)


def parts_of(value: Any, like: Any = None) -> list[Any]:
    """Return the values of a tuple, list or dictionary, of which `like` gives the order."""
    return [value[key] for key in like or value] if isinstance(value, dict) else [*value]


def are_equal(actual: Any, expected: Any) -> bool:
    """Whether two values are equal bit for bit."""
    try:
        assert_equal(actual, expected)
    except AssertionError:
        return False
    return True


def same_types_and_shapes(actual: Any, expected: Any) -> bool:
    """Whether two results have the same structure, types, shapes and dtypes."""
    if isinstance(expected, Tensor):
        same = isinstance(actual, Tensor) and actual.shape == expected.shape
        return same and actual.dtype == expected.dtype
    if isinstance(expected, tuple | list):
        several = isinstance(actual, tuple | list) and len(actual) == len(expected)
        return several and all(map(same_types_and_shapes, actual, expected))
    return type(actual) is type(expected)


def assert_as_accurate(
    actual: Any,
    spec: Callable[..., Any],
    inputs: dict[str, Any],
    wide_result: tuple[dict[str, Any], Any] | None = None,
    patient: bool = True,
) -> None:
    """Check that `actual` equals `spec(**inputs)` up to the rounding of a correct computation.

    `wide_result` holds float64 inputs and the result of `spec` on them. It is reused where `inputs`
    cast to float64 are the same. If `patient`, one rounding is tried even for a `HOPELESS` error.
    """
    wide = cast(inputs, torch.float64)
    exact = wide_result[1] if wide_result and are_equal(wide, wide_result[0]) else spec(**wide)
    is_wide = all(x.dtype == torch.float64 for x in tensors(inputs) if is_float(x))
    same = exact if is_wide else spec(**inputs)
    tied, moved, wrong = [same], [same], excess(actual, exact, [same], [same])
    for seed in SEEDS:
        if wrong <= 1 or (wrong >= HOPELESS and not (patient and seed == SEEDS[0])):
            break
        for apart, found in ((False, tied), (True, moved)):
            with Noise(seed, SAFETY, apart):
                found.append(spec(**inputs))
        wrong = excess(actual, exact, tied, moved)
    if not wrong <= 1:
        raise Unequal(f"{actual} is not {same}: {wrong:.3g} times the tolerance", actual, same)


def error_bounds(spec: Callable[..., Any], inputs: dict[str, Any]) -> tuple[Any, Any]:
    """Return the result of a call, and the largest error of a correct computation.

    Floats are those of float64, rounded to the dtype of the result. The bounds are those of
    `assert_as_accurate`, one number for each float; other values have None.

    Raises:
        Unequal: another rounding gives another choice, so that no single result is right.
    """
    exact, found = spec(**cast(inputs, torch.float64)), [spec(**inputs)]
    for seed in SEEDS:
        for apart in (False, True):
            with Noise(seed, SAFETY, apart):
                found.append(spec(**inputs))
    return with_bounds(exact, found)


def with_bounds(exact: Any, found: Sequence[Any]) -> tuple[Any, Any]:
    """Return a result and its bounds from results under several roundings, the plain one first."""
    same: Any = found[0]
    if isinstance(exact, float) and isinstance(same, float):
        number, *others = torch.tensor([exact, *found], dtype=torch.float64)
        return exact, with_bounds(number, others)[1]
    if isinstance(exact, tuple):
        if any(type(other) is not type(exact) or len(other) != len(exact) for other in found):
            raise Unequal("another rounding gives another kind of result", same, exact)
        parts = [with_bounds(*pair) for pair in zip(exact, zip(*found, strict=True), strict=True)]
        results, bounds = ([*column] for column in zip(*parts, strict=True)) if parts else ([], [])
        made = type(exact)(*results) if hasattr(exact, "_fields") else tuple(results)
        return made, tuple(bounds)
    if (
        isinstance(exact, Tensor)
        and is_float(exact)
        and all(other.shape == exact.shape for other in found)
    ):
        moved = torch.stack([*found]).double()
        if not (moved.isfinite() == exact.isfinite()).all():
            raise Unequal("another rounding gives another infinity", same, exact)
        return exact.to(same.dtype), allowed_error(same.dtype, exact.double(), moved)
    others = [*found, exact] if isinstance(exact, Tensor) else found  # other bytes in float64
    if not all(are_equal(other, same) for other in others):
        raise Unequal("another rounding gives another choice", same, exact)
    return same, None


def allowed_error(dtype: torch.dtype, exact: Tensor, found: Tensor) -> Tensor:
    """Return the tolerance of a float64 result computed at a dtype; `found` are other roundings."""
    shift = (found - exact).nan_to_num(0, 0, 0).abs().amax(0)
    size = exact.nan_to_num(0, 0, 0).abs()
    return rounding(dtype, size) + narrowing(dtype, size) + shift


def assert_close(actual: Tensor, exact: Tensor | float, scale: Tensor | float = 1.0) -> None:
    """Check that `actual` is `exact`, up to one rounding of numbers of size max(|exact|, scale)."""
    exact = torch.as_tensor(exact, dtype=torch.float64, device=actual.device)
    allowed = rounding(actual.dtype, torch.maximum(exact.abs(), torch.as_tensor(scale).double()))
    allowed = allowed + narrowing(actual.dtype, exact)
    same = actual.double() == exact  # also where both are infinite
    error = (actual.double() - exact).abs().masked_fill(same, 0)
    allowed = allowed.where(exact.isfinite(), 0)  # no finite number is near an infinite one
    if not (error <= allowed).all():  # written so that NaN fails
        says = f"{actual} is not {exact}: error {error.max():.3g}"
        raise Unequal(says, actual, exact.to(actual.dtype))


def assert_rounded_once(actual: Tensor, exact: Tensor, scale: Tensor | float = 0.0) -> None:
    """Check that `actual` is `exact`, computed at least in float32 and rounded once."""
    exact = exact.double()
    error = rounding(actual.dtype, torch.maximum(exact.abs(), torch.as_tensor(scale).double()))
    low, high = (exact - error).to(actual.dtype), (exact + error).to(actual.dtype)
    if not ((low <= actual) & (actual <= high)).all():  # written so that NaN fails
        says = f"{actual} is not {exact} rounded once"
        raise Unequal(says, actual, exact.to(actual.dtype))


def assert_near(actual: Tensor, exact: Tensor) -> None:
    """Check that no number is further off than 128 roundings of the largest in the tensor."""
    same = actual.double() == exact.double()  # also where both are infinite
    error = (actual.double() - exact.double()).abs().masked_fill(same, 0)
    size = exact.double().abs().nan_to_num(0, 0, 0)
    allowed = 8 * rounding(exact.dtype, size.amax() if size.numel() else size.new_zeros(()))
    assert (error <= allowed).all(), f"{actual} is not near {exact}"


def assert_at_most(low: Tensor, high: Tensor) -> None:
    """Check that `low` <= `high`, up to the rounding of the larger magnitude."""
    low, high = torch.broadcast_tensors(low, high)
    size = torch.maximum(low.abs(), high.abs())
    slack = rounding(low.dtype, size) + narrowing(low.dtype, size)
    excess = low.double() - high.double()
    assert (excess <= slack).all(), f"{low} exceeds {high} by {(excess - slack).max():.3g}"


def assert_within_five_deviations(counts: Tensor, mean: float, variance: float) -> None:
    """Check that each count is within five standard deviations of its mean."""
    far = (counts - mean).abs().max() / variance**0.5
    assert far <= 5, f"{counts} is {far:.1f} standard deviations from {mean}"


def assert_optimal(kept: Tensor, scores: Tensor, among: Tensor | None = None) -> None:
    """Check that no dropped entry has a higher score than a kept one, up to rounding.

    The comparison is along the last axis, among the entries of the mask `among` if it is given.
    """
    rivals = ~kept if among is None else ~kept & among
    chosen = kept if among is None else kept & among
    worst = scores.double().masked_fill(~chosen, torch.inf).amin(-1)
    best = scores.double().masked_fill(~rivals, -torch.inf).amax(-1)
    slack = rounding(scores.dtype, best.abs()) + narrowing(scores.dtype, best)
    fine = (worst >= best) | (best - worst <= slack)
    assert fine.all(), f"kept {worst} but dropped {best}"


def assert_codes(codes: Tensor, unrounded: Tensor, scale: Tensor) -> None:
    """Check that each code is nearest to its unrounded value; near a tie both neighbours are right.

    The unrounded value is a difference of numbers; `scale` is their magnitude in steps.
    """
    error = (codes.double() - unrounded.double()).abs()
    allowed = 0.5 + rounding(scale.dtype, torch.maximum(scale.abs(), unrounded.abs()))
    assert (error <= allowed).all(), f"{codes} is not {unrounded} rounded"


def rounding(dtype: torch.dtype, magnitude: Tensor) -> Tensor:
    """Return the tolerance for computing a number of a magnitude, before it is stored as `dtype`.

    Half precision is for storage: every computation is in float32 at least (C3).
    """
    return SAFETY * torch.finfo(torch.promote_types(dtype, torch.float32)).eps * magnitude.double()


def narrowing(dtype: torch.dtype, value: Tensor) -> Tensor:
    """Return the tolerance for storing a result in half precision; 0 for wider dtypes."""
    info = torch.finfo(dtype)
    if info.bits >= 32:
        return torch.zeros_like(value, dtype=torch.float64)
    return info.eps * value.double().abs().clamp(min=info.tiny)


def cast(value: Any, dtype: torch.dtype) -> Any:
    """Convert every floating-point tensor in nested tuples and dictionaries to `dtype`."""
    if is_float(value):
        return value.to(dtype)
    if isinstance(value, dict):
        return {name: cast(part, dtype) for name, part in value.items()}
    if isinstance(value, tuple) and (fields := getattr(value, "_fields", ())):
        kinds = {name: torch.promote_types(dtype, torch.float32) for name in WIDE}
        parts = zip(fields, value, strict=True)
        return type(value)(*(cast(part, kinds.get(name, dtype)) for name, part in parts))
    if isinstance(value, tuple):
        return tuple(cast(part, dtype) for part in value)
    return value


def is_float(value: Any) -> bool:
    """Whether `value` is a floating-point tensor."""
    return isinstance(value, Tensor) and value.is_floating_point()


def assert_same_kind(actual: Any, expected: Tensor) -> None:
    """Check that `actual` is a tensor of the expected shape and dtype."""
    assert isinstance(actual, Tensor), f"{type(actual)} is no tensor"
    assert actual.shape == expected.shape, (actual.shape, expected.shape)
    assert actual.dtype == expected.dtype, (actual.dtype, expected.dtype)


def excess(actual: Any, exact: Any, tied: list[Any], moved: list[Any]) -> float:
    """Return the error of a result in units of the tolerance: at most 1 if it is right.

    `exact` is the specification's result in float64, and `tied` are those at the dtype of `actual`
    under roundings that move equal results alike. The roundings of `moved` also separate equal
    results of different operations.

    Raises:
        AssertionError: `actual` has another type or shape.
    """
    same = tied[0]
    if isinstance(same, SEVERAL):
        assert_same_structure(actual, same)
        several = [[f for f in found if len(f) == len(same)] for found in (tied, moved)]
        if {*getattr(same, "_fields", ())} >= FACTORS:
            for field in FACTORS:
                assert_same_kind(getattr(actual, field), getattr(same, field))
            slack, (*rest, product), exact = spread(actual), multiplied(actual), multiplied(exact)
            off = product - exact[-1]
            actual = *rest, product - off.clamp(-slack, slack)
            several = [[*map(multiplied, found)] for found in several]
        columns = (zip(*(parts_of(f, same) for f in found), strict=True) for found in several)
        parts = zip(parts_of(actual, same), parts_of(exact, same), *columns, strict=True)
        return max((excess(a, e, [*t], [*m]) for a, e, t, m in parts), default=0.0)
    if isinstance(same, float):
        assert isinstance(actual, float), type(actual)
        columns: Any = [
            torch.tensor(x, dtype=torch.float64) for x in ([actual, exact], tied, moved)
        ]
        return excess(*columns[0], *([*column] for column in columns[1:]))
    if not isinstance(same, Tensor):
        assert type(actual) is type(same), (type(actual), type(same))
        return 0.0 if any(actual == other for other in tied) else UNDECIDED
    assert_same_kind(actual, same)
    choices = torch.stack([f for f in tied if f.shape == same.shape]).double()
    if not same.is_floating_point():
        whole = actual.double()
        right = (choices.amin(0) <= whole) & (whole <= choices.amax(0))
        return 0.0 if right.all() else UNDECIDED
    if not same.numel():
        return 0.0
    others = torch.stack([f for f in moved if f.shape == same.shape]).double()
    exact = exact.double()
    error = (actual.double() - exact).abs().masked_fill(actual.double() == exact, 0)  # or infinite
    allowed = allowed_error(same.dtype, exact, torch.cat([choices, others]))
    times = (error / allowed.clamp(min=TINY)).nan_to_num(torch.inf, torch.inf).max()
    slight = error.max() <= SLIGHT * exact.nan_to_num(0, 0, 0).abs().max()
    return min(float(times), UNDECIDED) if slight and times > 1 else float(times)


def multiplied(record: Any) -> tuple[Any, ...]:
    """Return the parts of a low-rank record, its two factors replaced by their product."""
    rest = tuple(v for k, v in zip(record._fields, record, strict=True) if k not in FACTORS)
    return (*rest, record.left.double() @ record.right.double().mT)


def spread(record: Any) -> Tensor:
    """Return the error of the product when its factors are stored in half precision, else 0."""
    info = torch.finfo(record.left.dtype)
    size = record.left.double().abs() @ record.right.double().abs().mT
    return size * (info.eps if info.bits < 32 else 0)


TINY = 2.0**-1000
"""The least tolerance, below every number of a model: where it applies, only an error of 0
passes."""
