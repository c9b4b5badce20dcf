"""Shrink the input of a fault: remove rows, tokens and optional arguments that it does not need."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from inspect import Parameter, signature
from typing import Any

import torch
from torch import Tensor

import reference
from spec_tests.limits import DoesNotEnd, Limit
from spec_tests.report.axis_names import (
    arguments_and_fields,
    is_name,
    names_of_axes,
    replace_argument,
)
from spec_tests.report.calls import Call
from spec_tests.report.fault_diagnosis import (
    Fault,
    Inputs,
    fault_kind,
    is_ordinary,
    needed_edge_and_simpler_inputs,
    needs_only_edge,
    outcome_of,
)
from spec_tests.report.literals import WHOLE, equals_default, literal

MANY = 9
"""From this number of elements on, a tensor is simplified even if its text does not get shorter."""
TRIES = 60
"""Number of calls for one fault."""
SECONDS = 4.0
"""Processor time of one search; then the smallest input so far is returned."""


def shrink_fault(fault: Fault, call: Call) -> Fault:
    """Return a fault of the same kind and edge on a smaller input.

    A fault on ordinary input stays on ordinary input. For a fault with an edge, the first search
    checks the edge only at the end. If the edge is lost, a second search checks it at every cut.
    """
    edge, plainer = needed_edge_and_simpler_inputs(call, fault.kind)
    call = repeat_call(call, plainer) if edge == fault.edge else call
    ways = ((None, TRIES), (fault.edge, TRIES // 3)) if fault.edge else ((fault.edge, TRIES),)
    for edge, tries in ways:
        made = repeat_call(call, smallest_inputs(fault.kind, edge, call, tries))
        if fault_kind(call.name, made.inputs, made.outcome) != fault.kind:
            break  # the fault is random
        if needs_only_edge(fault.edge, made, fault.kind):
            expected = outcome_of(getattr(reference, call.name), made.inputs)
            return fault._replace(call=made, expected=expected)
    return fault


def smallest_inputs(kind: str, edge: str | None, call: Call, tries: int) -> Inputs:
    """Return inputs that no cut makes smaller, or the smallest when tries or seconds run out."""
    inputs, before, fine = call.inputs, None, is_ordinary(call.name, call.inputs)
    with suppress(DoesNotEnd), Limit(SECONDS).on(call.name):
        while before is not inputs:
            before = inputs
            for cut in cuts(call.name, inputs):
                while tries and (smaller := cut(inputs)) is not None:
                    tries -= 1
                    if edge == "" and fine and not is_ordinary(call.name, smaller):
                        break
                    made = repeat_call(call, smaller)
                    if fault_kind(call.name, smaller, made.outcome, patient=False) != kind:
                        break
                    if edge and not needs_only_edge(edge, made, kind):
                        break
                    inputs = smaller
    return inputs


def repeat_call(call: Call, inputs: Inputs) -> Call:
    """Return the same call on other inputs, with its outcome."""
    made = Call(call.impl, call.name, call.function, ((), inputs))
    made.outcome = outcome_of(call.function, inputs)
    return made


def cuts(name: str, inputs: Inputs) -> Iterator[Callable[[Inputs], Inputs | None]]:
    """Yield functions that reduce inputs, or return None where they do not apply.

    They drop an optional argument, cut a half or an end of an axis, set a tensor to 0 or round it,
    lower a count, and shorten a number.
    """
    spec = signature(getattr(reference, name)).parameters
    for key, value in inputs.items():
        if isinstance(value, Tensor) or not equals_default(value, spec[key].default):
            yield partial(drop_argument, spec[key].default, key)
    named = dict.fromkeys(
        axis for leaf in arguments_and_fields(inputs) for axis in names_of_axes(name, *leaf)
    )
    for axis in named:
        if is_name(axis):
            yield partial(shorten_axis, name, axis, lambda n: (0, n // 2))
            yield partial(shorten_axis, name, axis, lambda n: (n - n // 2, n // 2))
            yield partial(shorten_axis, name, axis, lambda n: (0, n - 1))
            yield partial(shorten_axis, name, axis, lambda n: (1, n - 1))
    for key, field, _ in arguments_and_fields(inputs):
        yield partial(simplify_tensor, key, field, torch.zeros_like)
        yield partial(simplify_tensor, key, field, replace_by_ranks)
        for digits in (2, 3):
            yield partial(simplify_tensor, key, field, partial(round_decimals, digits))
    for key in inputs:
        for change in (lambda _: 0.5, partial(round, ndigits=1), partial(round, ndigits=2)):
            yield partial(simplify_number, key, change)
        yield partial(lower_count, key, lambda n: n // 2)
        yield partial(lower_count, key, lambda n: n - 1)


def drop_argument(default: Any, key: str, inputs: Inputs) -> Inputs | None:
    """Return inputs without an argument that has a default, else None."""
    given = key in inputs and default is not Parameter.empty
    return {k: v for k, v in inputs.items() if k != key} if given else None


def simplify_tensor(
    key: str, field: str, change: Callable[[Tensor], Tensor], inputs: Inputs
) -> Inputs | None:
    """Return inputs with a tensor simplified; one of few elements must get a shorter text."""
    whole = inputs.get(key)
    value = getattr(whole, field, None) if field else whole
    if not isinstance(value, Tensor):
        return None
    made = change(value)
    if made.dtype == value.dtype and torch.equal(made, value):
        return None
    if value.numel() < MANY and len(literal(made)) >= len(literal(value)):
        return None
    return replace_argument(inputs, key, field, made)


def replace_by_ranks(tensor: Tensor) -> Tensor:
    """Return a tensor of −∞ and numbers from 0 replaced by its ranks, as short fractions."""
    fits = (tensor >= 0) & tensor.isfinite() | (tensor == -torch.inf)
    if not tensor.is_floating_point() or not fits.all():
        return tensor
    _, place = tensor.unique(return_inverse=True)
    count = int(place.max()) + 1 if tensor.numel() else 0
    return ((place + 1) / 2 ** count.bit_length()).to(tensor.dtype)


def round_decimals(digits: int, tensor: Tensor) -> Tensor:
    """Return a tensor in float32, rounded to `digits` decimals if all numbers are moderate."""
    if not tensor.is_floating_point():
        return tensor
    made = tensor.float()
    return made.round(decimals=digits) if (made.abs() < WHOLE).all() else made


def simplify_number(key: str, change: Callable[[float], float], inputs: Inputs) -> Inputs | None:
    """Return inputs with a float changed to one of a shorter text, else None."""
    if not isinstance(value := inputs.get(key), float):
        return None
    made = change(value)
    return {**inputs, key: made} if len(repr(made)) < len(repr(value)) else None


def lower_count(key: str, less: Callable[[int], int], inputs: Inputs) -> Inputs | None:
    """Return inputs with a count above 1 lowered, else None."""
    value = inputs.get(key)
    return {**inputs, key: less(value)} if type(value) is int and value > 1 else None


def shorten_axis(
    name: str, axis: str, part: Callable[[int], tuple[int, int]], inputs: Inputs
) -> Inputs | None:
    """Return inputs with a part of an axis, in all tensors that have it.

    A batch axis of one element is removed.
    """
    made, changed = inputs, False
    for key, field, value in arguments_and_fields(inputs):
        if axis in (named := names_of_axes(name, key, field, value)):
            at = named.index(axis)
            start, length = part(value.shape[at])
            if length > 0:
                less = value.narrow(at, start, length).contiguous()
            elif value.shape[at] == 1 and axis.startswith("*"):
                less = value.select(at, 0).contiguous()
            else:
                return None
            made, changed = replace_argument(made, key, field, less), True
    return made if changed else None
