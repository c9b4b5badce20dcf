"""The annotated shapes and dtypes hold: every function, every implementation, on real calls."""

from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple, get_type_hints

import pytest
import torch
from beartype import beartype
from beartype.door import is_bearable
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import Float, TypeCheckError, jaxtyped
from torch import Tensor

import reference
from spec_tests.inputs import INPUTS


def held_to_its_types(spec: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function`, arguments and result held to the annotations of `spec`.

    An axis name means one length throughout a call, and throughout the fields of a named tuple.
    """

    @jaxtyped(typechecker=beartype)
    @wraps(spec)
    def call(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if hasattr(result, "_fields"):
            with jaxtyped("context"):
                for field, annotation in get_type_hints(type(result)).items():
                    assert is_bearable(getattr(result, field), annotation), field
        return result

    return call


@pytest.mark.parametrize("name", sorted(INPUTS))
@settings(max_examples=15)  # shapes and dtypes, not values: few draws show what there is
@given(data=st.data())
def test_the_annotations_hold(impl, name, data):
    function = held_to_its_types(getattr(reference, name), getattr(impl, name))
    function(**data.draw(INPUTS[name]))


class Parts(NamedTuple):
    """A result in parts."""

    scores: Float[Tensor, "*heads tokens"]
    halves: tuple[Float[Tensor, "tokens"], ...]


def halved(scores: Float[Tensor, "*heads tokens"]) -> Parts:
    """A function whose annotations say that the length stays."""
    return Parts(scores, (scores[0], scores[-1]))


def test_a_field_of_another_length_is_seen():
    scores = torch.ones(2, 4)
    held_to_its_types(halved, halved)(scores)
    with pytest.raises(AssertionError, match="halves"):
        held_to_its_types(halved, lambda scores: Parts(scores, (scores[0, :2],)))(scores)


def doubled(scores: Float[Tensor, "*heads tokens"]) -> Float[Tensor, "*heads tokens"]:
    """A function whose annotations say that the shape stays."""
    return scores + scores


@pytest.mark.parametrize(
    "lie", [lambda scores: scores[..., 1:], lambda scores: scores.long(), lambda scores: scores[0]]
)
def test_a_result_of_another_shape_or_dtype_is_seen(lie):
    scores = torch.ones(2, 3)
    held_to_its_types(doubled, doubled)(scores)
    with pytest.raises(TypeCheckError):
        held_to_its_types(doubled, lie)(scores)
