"""Laws of every function: what stands beside something loud, and what gradients are."""

from collections.abc import Callable
from functools import wraps
from inspect import unwrap
from typing import Any, NamedTuple, get_args, get_type_hints

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

import reference
from reference import HexBlock, RaggedCache
from spec_tests.accuracy import assert_as_accurate, assert_close, cast
from spec_tests.inputs import GOOD, INPUTS
from spec_tests.report.calls import mapped, tensors
from spec_tests.test_agreement import is_floating

FLOATING = sorted(filter(is_floating, GOOD))
UNBOUNDED = {"fastkvzip_loss", "principal_components"}
"""Have no gradient at targets of 0 or 1, or where eigenvalues are equal."""
SINGULAR = {"gear_prefill"}
"""What has no gradient where what is left of a matrix has a lower rank than is asked for."""
ROWLESS = {
    *("mean_rotation", "train_fastkvzip", "fastkvzip_loss"),
    *("hex_reconstruct", "ragged_attention"),
}
"""Take numbers without rows, shares alone, none of which is loud, or rows one behind the other."""
LOUD = 2.0**20


class Apart(NamedTuple):
    """An axis of an argument along which nothing hears what stands beside it, and the result's.

    The latter is as long, or so many times as long: of each key head there is a group.
    """

    name: str
    argument: str
    axis: int
    result: int

    def without(self, which: int, count: int, value: Any) -> Any:
        """Return a result without what belongs to one of `count`."""

        def rest(x: Tensor) -> Tensor:
            places = torch.arange(x.shape[self.result])
            return x.index_select(self.result, places[places * count // len(places) != which])

        return mapped(rest, getattr(value, "output", value))


CHANNELS = [
    Apart("attention", "values", -1, -1),
    Apart("ragged_attention", "values", -1, -1),
    Apart("hex_attention", "cache.residual_values", -1, -1),
    Apart("hex_read", "cache.residual_values", -1, -1),
]
QUERIES = [
    Apart("attention", "queries", -2, -2),
    Apart("attention_error", "queries", -2, -1),
    Apart("attention_weights", "queries", -2, -2),
    Apart("ragged_attention", "queries", -2, -2),
    Apart("hex_attention", "queries", -2, -2),
]
TOKENS = [
    Apart("attention_density", "weights", -1, -1),
    Apart("calibrate", "scores", -1, -1),
    Apart("coverage_weights", "scores", -1, -1),
    Apart("decay", "scores", -1, -1),
    Apart("discount", "scores", -1, -1),
    Apart("edges", "keys", -2, -1),
    Apart("fastkvzip", "hidden", -2, -1),
    Apart("knorm", "keys", -2, -1),
]
HEADS = [
    Apart("attention", "keys", -3, -3),
    Apart("attention", "values", -3, -3),
    Apart("attention_error", "values", -3, -2),
    Apart("attention_weights", "keys", -3, -3),
    Apart("cake", "keys", -3, -2),
    Apart("expected_attention", "values", -3, -2),
    Apart("h2o_mass", "keys", -3, -2),
    Apart("hex_attention", "cache.residual_keys", -3, -3),
    Apart("hex_attention", "cache.residual_values", -3, -3),
    Apart("knorm", "keys", -3, -2),
    Apart("kvzip_chunk", "keys", -3, -2),
    Apart("ragged_attention", "values", -3, -3),
    Apart("snapkv", "keys", -3, -2),
]
every_axis = pytest.mark.parametrize(
    ("name", "apart"),
    [
        pytest.param(apart.name, apart, id=f"{apart.name}-{apart.argument}{apart.axis}")
        for apart in (*CHANNELS, *QUERIES, *TOKENS, *HEADS)
    ],
)


@pytest.mark.long
@every_axis
@settings(max_examples=12, suppress_health_check=[HealthCheck.filter_too_much])
@given(data=st.data())
def test_what_is_loud_leaves_what_stands_beside_it_alone(impl, name, apart, data):
    """In units of its own: what one channel, query, token or head is rounded by is its own."""
    inputs: dict[str, Any] = alone(data.draw(INPUTS[name])) | (
        {"shift": False} if name == "knorm" else {}
    )
    head, *field = apart.argument.split(".")
    holder = inputs[head]
    quiet = getattr(holder, field[0]) if field else holder
    count = quiet.shape[apart.axis]
    assume(quiet.numel() and count > 1)
    which = data.draw(st.integers(0, count - 1))
    loud = quiet.clone()
    loud.select(apart.axis, which).mul_(LOUD)
    louder = inputs | {head: holder._replace(**{field[0]: loud}) if field else loud}
    assume(not refused(name, louder))  # for scores beyond the range
    function = its_own(impl, name)

    @wraps(function)
    def beside(**x: Any) -> Any:
        return apart.without(which, count, function(**x))

    result = answered(impl, name, louder)
    assert_as_accurate(apart.without(which, count, result), beside, inputs)


@pytest.mark.long
@pytest.mark.parametrize("name", sorted({*FLOATING} - ROWLESS))
@settings(max_examples=4, suppress_health_check=[HealthCheck.filter_too_much])
@given(data=st.data())
def test_a_row_beside_a_loud_one_is_what_it_is_alone(impl, name, data):
    inputs = alone(data.draw(INPUTS[name]))
    hints = get_type_hints(unwrap(getattr(reference, name)))
    both = {k: by_rows(joined, hints[k], x) for k, x in inputs.items()}
    assume(not among_all(inputs) and not refused(name, both))  # since no share is loud
    function = its_own(impl, name)

    @wraps(function)
    def of_rows(**x: Any) -> Any:
        return by_rows(kept, hints["return"], function(**x))

    result = answered(impl, name, both)
    assert_as_accurate(by_rows(first, hints["return"], result), of_rows, inputs)


def its_own(impl: Any, name: str) -> Callable[..., Any]:
    """Return what a result is compared with: itself, or the reference where it is never wide."""
    return getattr(impl if impl.hears(torch.float64) else reference, name)


def answered(impl: Any, name: str, inputs: dict[str, Any]) -> Any:
    """Return what is said to what the specification takes."""
    try:
        return getattr(impl, name)(**inputs)
    except ValueError as error:
        raise AssertionError("what the specification takes is refused") from error


def refused(name: str, inputs: dict[str, Any]) -> bool:
    """Whether the specification takes no such numbers."""
    try:
        getattr(reference, name)(**inputs)
    except ValueError:
        return True
    return False


def alone(inputs: dict[str, Any]) -> dict[str, Any]:
    """Return inputs in single precision; a known sum of logits is one of the others."""
    return cast(inputs, torch.float32) | ({"log_sum_exp": None} if "log_sum_exp" in inputs else {})


def among_all(value: Any) -> bool:
    """Whether rows compete with each other, or are layers, or entries of all lie in one axis."""
    if isinstance(value, dict):
        layered = value.get("scope") == "model" or isinstance(value.get("keep"), Tensor)
        return layered or any(map(among_all, value.values()))
    if not isinstance(value, tuple):
        return False
    apart = not isinstance(value, RaggedCache | HexBlock) and getattr(value, "scope", "") != "model"
    return not apart or any(map(among_all, value))


Change = Callable[[Any, int | None], Any]


def by_rows(change: Change, hint: Any, value: Any) -> Any:
    """Change each part of a value, given the axis of its rows, if an annotation says it has some.

    Rows are what any number of axes may count: `*batch`, `*heads`.
    """
    kinds = [hint, *get_args(hint)]
    if hasattr(value, "_fields"):
        hints = get_type_hints(type(value))
        return type(value)(**{k: by_rows(change, hints[k], x) for k, x in value._asdict().items()})
    if isinstance(value, tuple):
        inner = [part for kind in kinds for part in get_args(kind) if part is not type(None)]
        return tuple(by_rows(change, (*inner, None)[0], part) for part in value)
    if not isinstance(value, Tensor):
        return change(value, None)
    dims = [kind.dim_str.split() for kind in kinds if hasattr(kind, "dim_str")]
    axes = [at for words in dims for at, word in enumerate(words) if word.startswith("*")]
    bare = any(len(words) == value.ndim and "*" not in "".join(words) for words in dims)
    return change(value, axes[0] if axes and not bare else None)


def joined(value: Any, axis: int | None) -> Any:
    """Put a row beside a louder one."""
    if axis is None:
        return value
    return torch.stack([value, value * LOUD if value.is_floating_point() else value], axis)


def first(value: Any, axis: int | None) -> Any:
    """Return the first row, or nothing of what has none."""
    return None if axis is None else value.select(axis, 0)


def kept(value: Any, axis: int | None) -> Any:
    """Return what has rows."""
    return None if axis is None else value


@pytest.mark.compared
@pytest.mark.gradients
@pytest.mark.parametrize("name", sorted(filter(is_floating, GOOD)))
@settings(max_examples=4)
@given(data=st.data())
def test_gradients_are_those_of_the_reference(impl, name, data):
    """In double precision, judged in single; none where nothing is learned, or nothing rises."""
    inputs = untied(data.draw(INPUTS[name]))
    expected = gradients(getattr(reference, name), inputs)
    for one, exact in zip(gradients(getattr(impl, name), inputs), expected, strict=True):
        known = exact.isfinite()  # of equal eigenvalues it is not
        assert_close(one[known].float(), exact[known])


@pytest.mark.gradients
@pytest.mark.parametrize("name", sorted({*filter(is_floating, GOOD)} - UNBOUNDED))
def test_gradients_are_finite_beside_zeros_too(impl, name):
    """One that is not would spoil all that is learned."""
    beside = (hollow,) if name in SINGULAR else (hollow, empty)
    for inputs in (GOOD[name], *(mapped(part, GOOD[name]) for part in beside)):
        try:
            found = gradients(getattr(impl, name), inputs)
        except ValueError:  # what must not be 0
            continue
        assert all(gradient.isfinite().all() for gradient in found)


def hollow(x: Tensor) -> Tensor:
    """Return numbers of which every second row, or element, is 0, as padding is."""
    if not x.is_floating_point() or not x.ndim:
        return x
    places = torch.arange(x.shape[-2:][0])
    return x * (places % 2).view(-1, *[1] * (min(x.ndim, 2) - 1))


def empty(x: Tensor) -> Tensor:
    """Return numbers of which the first of three axes, or of more, begins with nothing but 0."""
    if not x.is_floating_point() or x.ndim < 3:
        return x
    return x * (torch.arange(len(x)) > 0).view(-1, *[1] * (x.ndim - 1))


def untied(inputs: dict[str, Any]) -> dict[str, Any]:
    """Move numbers a little, so that no two are equal and none is 0; shares stay shares."""
    generator = torch.Generator().manual_seed(0)

    def moved(x: Tensor) -> Tensor:
        return 0.875 * x + torch.rand(x.shape, generator=generator, dtype=torch.float64) / 16

    moved_inputs = mapped(lambda x: moved(x) if x.is_floating_point() else x, inputs)
    # a known sum of logits is one of the others
    return moved_inputs | ({"log_sum_exp": None} if "log_sum_exp" in inputs else {})


def gradients(function: Callable[..., Any], inputs: dict[str, Any]) -> list[Tensor]:
    """Return the slopes of a sum of all results, each weighed otherwise, along every input."""
    leaves = mapped(
        lambda x: x.double().clone().requires_grad_() if x.is_floating_point() else x, inputs
    )
    sources = [leaf for leaf in tensors(leaves) if leaf.requires_grad]
    results = [result.flatten() for result in tensors(function(**leaves))]
    assert all(leaf.grad is None for leaf in sources), "an input was handed a gradient"
    weights = [torch.cos(torch.arange(len(x)) + place).to(x) for place, x in enumerate(results)]
    learned = [place for place, x in enumerate(results) if x.requires_grad]
    if not learned:
        return [torch.zeros_like(leaf) for leaf in sources]
    ends, slopes = ([some[place] for place in learned] for some in (results, weights))
    try:
        return [*torch.autograd.grad(ends, sources, slopes, materialize_grads=True)]
    except RuntimeError as error:
        raise AssertionError("no gradient, but an error from within torch") from error
