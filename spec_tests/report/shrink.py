"""Shrink the input of a fault: remove what it does not need, for at most a second.

Hypothesis shrinks what it draws. This also cuts the calls of vectors and of corners.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from inspect import Parameter, signature

import torch
from torch import Tensor

import reference
from spec_tests.limits import DoesNotEnd, Limit
from spec_tests.report import fault_diagnosis
from spec_tests.report.calls import Call, arguments_and_fields, names_of_axes, replace_argument
from spec_tests.report.fault_diagnosis import Fault, Inputs, differ, outcome_of
from spec_tests.report.literals import WHOLE, equals_default, literal

MANY = 9
"""From this number of elements on, a tensor is simplified even if its text does not get shorter."""
SECONDS = 1.0
"""Processor time of the search; then the smallest input so far is returned."""
PARTS = (
    lambda n: (0, n // 2),
    lambda n: (n - n // 2, n // 2),
    lambda n: (0, n - 1),
    lambda n: (1, n - 1),
)
"""Start and length of the parts that are kept of an axis."""
Cut = Callable[[Inputs], Inputs | None]


def shrink_fault(fault: Fault, call: Call) -> Fault:
    """Return a fault of the same kind and edge on a smaller input.

    A fault on ordinary input stays on ordinary input.
    """
    edge, plainer = fault_diagnosis.needed_edge_and_simpler_inputs(call, fault.kind)
    call = repeat_call(call, plainer) if edge == fault.edge else call
    ordinary = not fault.edge and is_ordinary(call.name, call.inputs)

    def shows_fault(made: Call) -> bool:
        if ordinary and not is_ordinary(call.name, made.inputs):
            return False
        kind = fault_diagnosis.fault_kind(call.name, made.inputs, made.outcome, patient=False)
        return kind == fault.kind and (not fault.edge or needs_only_edge(fault.edge, made, kind))

    with suppress(DoesNotEnd), Limit(SECONDS).on(call.name):
        before = None
        while before is not call:
            before = call
            for cut in cuts(call.name, call.inputs):
                while (smaller := cut(call.inputs)) is not None:
                    if not shows_fault(made := repeat_call(call, smaller)):
                        break
                    call = made
    if not shows_fault(call) or not needs_only_edge(fault.edge, call, fault.kind):
        return fault  # it is random, or needs another edge too
    expected = outcome_of(getattr(reference, call.name), call.inputs)
    return fault._replace(call=call, expected=expected)


def needs_only_edge(edge: str, call: Call, kind: str) -> bool:
    """Whether a call's fault needs an edge, and its inputs have no removable one before it."""
    found, plainer = fault_diagnosis.needed_edge_and_simpler_inputs(call, kind)
    return found == edge and not differ(plainer, call.inputs)


def is_ordinary(name: str, inputs: Inputs) -> bool:
    """Whether inputs have no property that can be removed."""
    return not any(
        differ(less := change(name, inputs), inputs)
        and not isinstance(outcome_of(getattr(reference, name), less), Exception)
        for change in fault_diagnosis.EDGES.values()
    )


def repeat_call(call: Call, inputs: Inputs) -> Call:
    """Return the same call on other inputs, with its outcome."""
    made = Call(call.impl, call.name, call.function, ((), inputs))
    made.outcome = outcome_of(call.function, inputs)
    return made


def cuts(name: str, inputs: Inputs) -> Iterator[Cut]:
    """Yield functions that reduce inputs, or return None where they do not apply.

    They drop an optional argument, cut a half or an end of an axis, and give tensors and numbers
    a shorter text.
    """
    parameters = signature(getattr(reference, name)).parameters
    for key, value in inputs.items():
        default = parameters[key].default
        if default is not Parameter.empty and not equals_default(value, default):
            yield lambda now, key=key: {k: now[k] for k in now if k != key} if key in now else None
    leaves = [*arguments_and_fields(inputs)]
    axes = dict.fromkeys(axis for leaf in leaves for axis in names_of_axes(name, *leaf))
    for axis in (axis for axis in axes if axis.removeprefix("*").isidentifier()):
        for part in PARTS:
            yield lambda now, axis=axis, part=part: shorten_axis(name, axis, part, now)
    for key, field, value in leaves:
        if isinstance(value, Tensor):
            for change in (torch.zeros_like, replace_by_ranks, round_decimals):
                yield lambda now, to=(key, field, change): simplify_tensor(*to, now)
        elif isinstance(value, float) and not field:
            yield lambda now, k=key: now | {k: 0.5} if len(repr(now.get(k, 0))) > 3 else None


def simplify_tensor(
    key: str, field: str, change: Callable[[Tensor], Tensor], inputs: Inputs
) -> Inputs | None:
    """Return inputs with a tensor simplified; one of few elements must get a shorter text."""
    value = getattr(inputs.get(key), field, None) if field else inputs.get(key)
    if not isinstance(value, Tensor):
        return None
    made = change(value)
    large = value.numel() >= MANY and not torch.equal(made, value)
    shorter = large or len(literal(made)) < len(literal(value))
    return replace_argument(inputs, key, field, made) if shorter else None


def replace_by_ranks(tensor: Tensor) -> Tensor:
    """Return a tensor of −∞ and numbers from 0 replaced by its ranks, as short fractions."""
    fits = (tensor >= 0) & tensor.isfinite() | (tensor == -torch.inf)
    if not tensor.is_floating_point() or not tensor.numel() or not fits.all():
        return tensor
    _, ranks = tensor.unique(return_inverse=True)
    return ((ranks + 1) / 2 ** (int(ranks.max()) + 1).bit_length()).to(tensor.dtype)


def round_decimals(tensor: Tensor) -> Tensor:
    """Return a tensor in float32, rounded to two decimals if all numbers are moderate."""
    if not tensor.is_floating_point():
        return tensor
    made = tensor.float()
    return made.round(decimals=2) if (made.abs() < WHOLE).all() else made


def shorten_axis(
    name: str, axis: str, part: Callable[[int], tuple[int, int]], inputs: Inputs
) -> Inputs | None:
    """Return inputs with a part of an axis, in all tensors that have it.

    A batch axis of one element is removed.
    """
    made = inputs
    for key, field, value in arguments_and_fields(inputs):
        if axis in (named := names_of_axes(name, key, field, value)):
            index = named.index(axis)
            start, length = part(value.shape[index])
            if length > 0:
                less = value.narrow(index, start, length).contiguous()
            elif value.shape[index] == 1 and axis.startswith("*"):
                less = value.select(index, 0).contiguous()
            else:
                return None
            made = replace_argument(made, key, field, less)
    return made if made is not inputs else None
