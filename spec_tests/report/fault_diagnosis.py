"""Find the call of a failed test that is at fault, the kind of its fault, and the edge it needs.

A call is at fault if its outcome differs from the specification's. An edge is a property of the
inputs: strided memory, an axis of one element, −0, a dtype other than float32, ties or the like.
The call is repeated while one property after another is removed. The fault needs the first property
whose removal makes it disappear. If it remains without any of them, it occurs on ordinary input.
"""

import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

import reference
from spec_tests.accuracy import are_equal, assert_as_accurate, is_float, same_types_and_shapes
from spec_tests.inputs import depends_on_random_stream
from spec_tests.limits import DoesNotEnd, Limit
from spec_tests.program import NoAnswer, ProgramEnded
from spec_tests.report import calls
from spec_tests.report.calls import Call, contiguous_copy, count_elements, mapped, tensors

VALUES, KIND, CRASH = "wrong values", "wrong type or shape", "crashes"
LENIENT, OTHER_ERROR = "missing errors", "errors of another type"
CHANGES, LAW = "changes its arguments", "breaks a law"
NEVER, SIGNATURE = "does not end", "another signature"
ENDED, NO_ANSWER = "the program ends", "the program writes no answer"
UNANSWERED = (NEVER, ENDED, NO_ANSWER)
ERRORS = (LENIENT, OTHER_ERROR)
KINDS = (SIGNATURE, *UNANSWERED, VALUES, KIND, LAW, CRASH, CHANGES, *ERRORS)
"""All kinds of faults, in the order in which a card lists them."""
WHOLE = 2**10
"""Number of elements from which numbers may be replaced by their ranks to separate ties."""
INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
LARGE = 2**15
"""Number of input elements above which a call is compared with the reference last."""
SECONDS = 4.0
"""Processor time of that comparison, and of the search for the edge."""


Inputs = dict[str, Any]
Change = Callable[[str, Inputs], Inputs]  # from a function's name and inputs to other inputs


class Fault(NamedTuple):
    """A fault of a call, or a law that two values break."""

    kind: str
    edge: str  # the property of the inputs that the fault needs, or ""
    call: Call | None
    expected: Any = None
    got: Any = None  # of a law: the compared value, not necessarily a call's outcome

    @property
    def level(self) -> str:
        """The level at which the function fails."""
        if self.kind in ERRORS or isinstance(self.expected, TypeError | ValueError):
            return "errors"
        return "edges" if self.edge or self.kind == CHANGES else "values"

    @property
    def vacuous(self) -> bool:
        """Whether an input is empty although the fault does not need that."""
        inputs = tensors(self.call.inputs) if self.call else []
        return self.edge != "empty" and not all(tensor.numel() for tensor in inputs)


def find_fault(calls: Iterable[Call], compared: Sequence[Any] = ()) -> Fault:
    """Return the fault of the first call at fault, or else that of the law itself.

    `compared` holds the two values of the law's failed comparison.
    """
    calls = [*calls]
    for call in calls:
        if kind := fault_kind(call.name, call.inputs, call.outcome):
            edges = kind not in (*ERRORS, *UNANSWERED)
            edge = needed_edge_and_simpler_inputs(call, kind)[0] if edges else ""
            return Fault(kind, edge, call, outcome_of(getattr(reference, call.name), call.inputs))
    for call in calls:
        passed = mapped(contiguous_copy, call.passed)
        if not are_equal(mapped(bits, call.inputs), mapped(bits, passed)):
            return Fault(CHANGES, "", call, call.inputs)
    for call in (call for call in calls if count_elements(call.inputs) > LARGE):
        kind = edge = ""
        with suppress(DoesNotEnd), Limit(SECONDS).on(call.name):
            kind = fault_kind(call.name, call.inputs, call.outcome, largest=sys.maxsize)
            edge = kind and needed_edge_and_simpler_inputs(call, kind, sys.maxsize)[0]
        if kind:
            return Fault(kind, edge, call, outcome_of(getattr(reference, call.name), call.inputs))
    floats = [t for call in calls for t in tensors(call.passed) if is_float(t)]
    half = any(tensor.dtype.itemsize < 4 for tensor in floats)
    edge = "gradients" if any(t.requires_grad for t in floats) else "dtype" if half else ""
    showing = [call for call in calls if compared and are_equal(call.outcome, compared[0])]
    return Fault(LAW, edge, next(iter(showing or calls[::-1]), None), *compared[::-1])


def fault_kind(
    name: str,
    inputs: Inputs,
    outcome: Any,
    spec: Callable[..., Any] | None = None,
    patient: bool = True,
    largest: int = LARGE,
) -> str:
    """Return the kind of fault of an outcome, or "" if it is right or cannot be compared.

    `spec` is the function to compare with, by default the reference's. Values that are far off are
    compared under other roundings only if `patient`. A call of more than the `largest` number of
    input elements is not compared.
    """
    if isinstance(outcome, pytest.skip.Exception):
        return ""
    if isinstance(outcome, DoesNotEnd):
        return NEVER
    if isinstance(outcome, ProgramEnded | NoAnswer):
        return ENDED if isinstance(outcome, ProgramEnded) else NO_ANSWER
    if count_elements(inputs) > largest:
        return ""
    right: Callable[..., Any] = spec or getattr(reference, name)
    expected = outcome_of(right, inputs)
    if isinstance(expected, TypeError | ValueError):
        if not isinstance(outcome, Exception):
            return LENIENT
        return "" if isinstance(outcome, TypeError | ValueError) else OTHER_ERROR
    if isinstance(expected, Exception):
        return ""
    if isinstance(outcome, Exception):
        return CRASH
    return kind_of_result(name, inputs, outcome, right, expected, patient)


def kind_of_result(
    name: str, inputs: Inputs, outcome: Any, spec: Callable[..., Any], expected: Any, patient: bool
) -> str:
    """Return the kind of fault of a result where one is expected, or "" if it is right."""
    if depends_on_random_stream(name, inputs):  # one call does not determine the values
        return "" if same_types_and_shapes(outcome, expected) else KIND
    try:
        with warnings.catch_warnings(action="ignore"):
            assert_as_accurate(outcome, spec, inputs, patient=patient)
    except Exception:
        return VALUES if same_types_and_shapes(outcome, expected) else KIND
    return ""


def explains(spec: Callable[..., Any], call: Call, largest: int = LARGE, right: Any = None) -> bool:
    """Whether another function gives the outcome of a call, if that is not larger.

    It does not if it gives `right`, the result from which the outcome differs.
    """
    if count_elements(call.inputs) > largest:
        return False
    expected = outcome_of(spec, call.inputs)
    if isinstance(expected, Exception) or isinstance(call.outcome, Exception):
        return type(expected) is type(call.outcome)
    if right is not None and are_equal(expected, right):
        return False
    return not kind_of_result(call.name, call.inputs, call.outcome, spec, expected, patient=False)


def outcome_of(function: Callable[..., Any], inputs: dict[str, Any]) -> Any:
    """Return the result of a call or its exception; the inputs are not modified."""
    try:
        with warnings.catch_warnings(action="ignore"):
            return function(**mapped(Tensor.clone, inputs))
    except (Exception, pytest.skip.Exception) as error:
        return error


def needed_edge_and_simpler_inputs(
    call: Call, kind: str, largest: int = LARGE
) -> tuple[str, Inputs]:
    """Return the edge that a fault of a kind needs, or "", and simpler inputs that show it too.

    The simpler inputs lack the properties before that edge which could be removed.
    """
    inputs, passed = call.inputs, tensors(call.passed)
    lost_in_copies = {
        "layout": not all(tensor.is_contiguous() for tensor in passed),
        "gradients": any(tensor.requires_grad for tensor in passed),
    }
    for edge, change in EDGES.items():
        less = change(call.name, inputs)
        if lost_in_copies.get(edge) or differ(less, inputs):
            if isinstance(outcome_of(getattr(reference, call.name), less), Exception):
                continue  # the inputs are no longer admissible
            outcome = outcome_of(call.function, less)
            if fault_kind(call.name, less, outcome, patient=False, largest=largest) != kind:
                return edge, inputs
            inputs = less
    return "" if all(tensor.numel() for tensor in tensors(inputs)) else "empty", inputs


def bits(tensor: Tensor) -> Tensor:
    """Return a tensor as a dense one of integers, in which NaN equals NaN, and −0 is not 0."""
    dense = tensor.detach() if tensor.layout is torch.strided else tensor.to_dense()
    return dense.view(INTEGERS[dense.itemsize]) if is_float(dense) else dense


def double_single_axes(name: str, inputs: Inputs) -> Inputs:
    """Return inputs with each axis of one element doubled, except batch axes."""
    made = inputs
    for key, field, value in calls.arguments_and_fields(inputs):
        for axis, word in enumerate(calls.names_of_axes(name, key, field, value)):
            if word.isidentifier() and value.shape[axis] == 1:
                value = torch.cat([value, value], axis)
                made = calls.replace_argument(made, key, field, value)
    return made


def differ(inputs: Any, others: Any) -> bool:
    """Whether tensors differ in dtype, shape, a number or the sign of a zero."""
    return any(
        before.dtype != after.dtype or not torch.equal(bits(before), bits(after))
        for before, after in zip(tensors(inputs), tensors(others), strict=True)
    )


def rescale_extremes(tensor: Tensor) -> Tensor:
    """Return a tensor scaled so that its largest number is 1, if it was huge or tiny."""
    if not is_float(tensor) or not (tensor.isfinite() & (tensor != 0)).any():
        return tensor
    largest = tensor.double().abs().where(tensor.isfinite(), 0).max()
    far = not 2**-20 <= largest <= 2**20
    return (tensor.double() / largest).to(tensor.dtype) if far else tensor


def separate_ties(tensor: Tensor) -> Tensor:
    """Return a tensor with distinct numbers: a small ramp is mixed in if some are equal.

    Of several −∞ the first remains, and the others become distinct numbers below the finite ones.
    """
    if not is_float(tensor):
        return tensor
    again = (low := tensor == -torch.inf) & (low.flatten().cumsum(0) > 1).reshape(tensor.shape)
    finite = tensor[tensor.isfinite()]
    tensor = tensor.masked_fill(again, finite.min() - 1 if finite.numel() else 0)
    finite = tensor[tensor.isfinite()]
    if finite.unique().numel() == finite.numel():
        return tensor
    ramp = torch.linspace(1, 0, tensor.numel() + 2, dtype=torch.float64)[1:-1]
    mixed = tensor + 2**-10 * (ramp.reshape(tensor.shape) - tensor.double())
    if mixed.float().unique().numel() < tensor.numel() > WHOLE:  # the ramp is too fine
        order = mixed.flatten().argsort(descending=True, stable=True)
        mixed = torch.empty_like(ramp).index_put((order,), ramp).reshape(tensor.shape)
    return torch.where(tensor.isfinite(), mixed, tensor).to(tensor.dtype)


def change_each_tensor(change: Callable[[Tensor], Tensor]) -> Change:
    """Return a change of inputs that applies `change` to every tensor."""
    return lambda _, inputs: mapped(change, inputs)


EDGES: dict[str, Change] = {
    "layout": change_each_tensor(Tensor.clone),
    "gradients": change_each_tensor(Tensor.detach),
    "empty": change_each_tensor(
        lambda x: x if x.numel() else x.new_zeros([max(n, 1) for n in x.shape])
    ),
    "single": double_single_axes,
    "negative zero": change_each_tensor(lambda x: x + 0.0 if is_float(x) else x),
    "dtype": change_each_tensor(lambda x: x.float() if is_float(x) else x),
    "range": change_each_tensor(rescale_extremes),
    "ties": change_each_tensor(separate_ties),
}
