"""Test inputs of a scorer of queries, keys, padding and flags, from its signature.

A scorer with any other argument, such as a window, has its own strategy and refusals.
"""

from collections.abc import Callable
from functools import partial
from inspect import isfunction, signature, unwrap
from typing import Any, get_type_hints

from hypothesis import strategies as st

import reference
from spec_tests.from_signature import choices, draw_choices
from spec_tests.scorers.attention_inputs import attended, bad_queries, cache, queries, valid
from spec_tests.scorers.padding_masks import bad_padding
from spec_tests.strategies import Refusal, signed_sixteenths

PROMPT = dict(queries=queries, keys=cache, valid=valid)
NO_QUERIES = Refusal("queries", lambda q: q[..., :0, :], ValueError, "at least")


def takes_a_prompt_alone(function: Callable[..., Any]) -> bool:
    """Whether a function returns `Scored` and takes keys, and else only queries, padding, flags."""
    returned = get_type_hints(unwrap(function)).get("return")
    names = signature(function).parameters.keys()
    admitted = PROMPT.keys() | choices(function).keys()
    return returned is reference.Scored and "keys" in names and names <= admitted


@st.composite
def prompts(draw, function):
    """Parts of a prompt with at least one query, whose products are exact, and any flags."""
    x = draw(attended(least=1, number=signed_sixteenths))
    return parts(x, function) | draw(draw_choices(function))


def parts(x: dict[str, Any], function: Callable[..., Any]) -> dict[str, Any]:
    """Return the parts of a prompt that a function takes."""
    return {name: part for name, part in x.items() if name in signature(function).parameters}


def good_and_refusals(function: Callable[..., Any]) -> tuple[dict[str, Any], list[Refusal]]:
    """Return a valid call, and bad arguments that annotations do not exclude."""
    defaults = {name: signature(function).parameters[name].default for name in choices(function)}
    good = parts(PROMPT, function) | defaults
    bad = [*bad_queries, NO_QUERIES, bad_padding]
    return good, [refusal for refusal in bad if refusal.argument in good]


def scored(name: str, impl: Any, **prompt: Any) -> reference.Scored:
    """Call a module's scorer on a whole prompt."""
    return getattr(impl, name)(**parts(prompt, getattr(reference, name)))


FUNCTIONS = {
    name: function
    for name in reference.__all__
    if isfunction(function := getattr(reference, name)) and takes_a_prompt_alone(function)
}
INPUTS = {name: prompts(function) for name, function in FUNCTIONS.items()}
REFUSALS = {name: good_and_refusals(function) for name, function in FUNCTIONS.items()}
SCORED = {name: partial(scored, name) for name in FUNCTIONS}
