"""Which call of a failed test is at fault, what is wrong with it, and on which inputs alone.

A call is at fault if its outcome is not the specification's. What it fails on is found by asking
again with one property of the inputs taken away at a time: memory in order, no −0, float32, no two
numbers equal. The property that makes the difference is named; an input that still fails without
any of them is an ordinary one.
"""

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

import reference
from spec_tests.accuracy import are_equal, assert_as_accurate, is_float
from spec_tests.inputs import is_drawn
from spec_tests.report.calls import Call, elements, mapped, tensors

LEVELS = ("values", "edges", "errors")
VALUES, KIND, CRASH = "wrong values", "wrong type or shape", "crashes"
LENIENT, OTHER_ERROR = "missing errors", "errors of another type"
CHANGES, LAW = "changes its arguments", "breaks a law"
SIGNATURE = "another signature"
ERRORS = (LENIENT, OTHER_ERROR)
LARGE = 2**18
"""Elements beyond which a call is not asked of the reference again."""


class Fault(NamedTuple):
    """What is wrong with a call."""

    kind: str
    edge: str  # the property of the inputs that it takes, or nothing
    call: Call | None
    expected: Any = None
    got: Any = None  # of a law: what it compares, which need be no call's outcome

    @property
    def level(self) -> str:
        """The level that it keeps a function from."""
        if self.kind in ERRORS:
            return "errors"
        return "edges" if self.edge or self.kind == CHANGES else "values"

    @property
    def vacuous(self) -> bool:
        """Whether an input is empty, though it need not be for the call to fail."""
        inputs = tensors(self.call.inputs) if self.call else []
        return self.edge != "empty" and not all(tensor.numel() for tensor in inputs)


def diagnosed(calls: Iterable[Call], compared: Sequence[Any] = ()) -> Fault:
    """Return the fault of the first call that has one, or the law that two values break."""
    calls = [*calls]
    for call in calls:
        if kind := judged(call.name, call.inputs, call.outcome):
            edge = "" if kind in ERRORS else edge_of(call, kind)
            return Fault(kind, edge, call, asked(getattr(reference, call.name), call.inputs))
    for call in calls:
        if not are_equal(call.inputs, mapped(torch.Tensor.contiguous, call.passed)):
            return Fault(CHANGES, "", call, call.inputs)
    showing = [call for call in calls if compared and are_equal(call.outcome, compared[0])]
    return Fault(LAW, "", next(iter(showing or calls[::-1]), None), *compared[::-1])


def judged(
    name: str, inputs: dict[str, Any], outcome: Any, spec: Callable[..., Any] | None = None
) -> str:
    """Return what is wrong with an outcome, or nothing: so if `spec` cannot be asked."""
    if elements(inputs) > LARGE:
        return ""
    right: Callable[..., Any] = spec or getattr(reference, name)
    expected = asked(right, inputs)
    if isinstance(expected, TypeError | ValueError):
        if not isinstance(outcome, Exception):
            return LENIENT
        return "" if isinstance(outcome, TypeError | ValueError) else OTHER_ERROR
    if isinstance(expected, Exception):
        return ""
    if isinstance(outcome, Exception):
        return CRASH
    if is_drawn(name, inputs):  # which values are right, no call says alone
        return "" if alike(outcome, expected) else KIND
    try:
        with quiet():
            assert_as_accurate(outcome, right, inputs)
    except Exception:
        return VALUES if alike(outcome, expected) else KIND
    return ""


def explains(spec: Callable[..., Any], call: Call) -> bool:
    """Whether another function gives a call's very outcome."""
    expected = asked(spec, call.inputs)
    if isinstance(expected, Exception) or isinstance(call.outcome, Exception):
        return type(expected) is type(call.outcome)
    return not judged(call.name, call.inputs, call.outcome, spec)


def asked(function: Callable[..., Any], inputs: dict[str, Any]) -> Any:
    """Return the result of a call, or its exception; its inputs stay as they are."""
    try:
        with quiet():
            return function(**mapped(Tensor.clone, inputs))
    except Exception as error:
        return error


def quiet() -> warnings.catch_warnings:
    """Return a context in which no warning is an error."""
    return warnings.catch_warnings(action="ignore")


def alike(actual: Any, expected: Any) -> bool:
    """Whether two results differ in numbers alone."""
    if isinstance(expected, Tensor):
        same = isinstance(actual, Tensor) and actual.shape == expected.shape
        return same and actual.dtype == expected.dtype
    if isinstance(expected, tuple | list):
        several = isinstance(actual, tuple | list) and len(actual) == len(expected)
        return several and all(map(alike, actual, expected))
    return type(actual) is type(expected)


def edge_of(call: Call, kind: str) -> str:
    """Return the property of the inputs that a fault of a kind takes, or nothing."""
    inputs = call.inputs
    spread = not all(tensor.is_contiguous() for tensor in tensors(call.passed))
    for edge, change in EDGES.items():
        milder = mapped(change, inputs)
        if spread if edge == "layout" else differ(milder, inputs):
            if isinstance(asked(getattr(reference, call.name), milder), Exception):
                continue  # the inputs are no longer admissible
            inputs = milder
            if judged(call.name, inputs, asked(call.function, inputs)) != kind:
                return edge
    return "" if all(tensor.numel() for tensor in tensors(inputs)) else "empty"


def filled(tensor: Tensor) -> Tensor:
    """Return a tensor with one element along each empty axis."""
    return tensor if tensor.numel() else tensor.new_zeros([max(n, 1) for n in tensor.shape])


def differ(inputs: Any, others: Any) -> bool:
    """Whether tensors differ in a dtype, a number or the sign of a zero."""
    return any(
        one.dtype != other.dtype
        or one.shape != other.shape
        or not torch.equal(one, other)
        or not torch.equal(one.signbit(), other.signbit())
        for one, other in zip(tensors(inputs), tensors(others), strict=True)
    )


def unsigned(tensor: Tensor) -> Tensor:
    """Return a tensor with 0 for −0."""
    return tensor + 0.0 if is_float(tensor) else tensor


def single(tensor: Tensor) -> Tensor:
    """Return a floating-point tensor as float32."""
    return tensor.float() if is_float(tensor) else tensor


def moderate(tensor: Tensor) -> Tensor:
    """Return a tensor whose largest number is neither huge nor tiny: 1, if it was either."""
    if not is_float(tensor) or not (tensor.isfinite() & (tensor != 0)).any():
        return tensor
    largest = tensor.double().abs().where(tensor.isfinite(), 0).max()
    far = not 2**-20 <= largest <= 2**20
    return (tensor.double() / largest).to(tensor.dtype) if far else tensor


def apart(tensor: Tensor) -> Tensor:
    """Return a tensor with no two finite numbers equal: a little of a ramp is mixed in."""
    if not is_float(tensor) or tensor.numel() < 2:
        return tensor
    ramp = torch.linspace(1, 0, tensor.numel() + 2, dtype=torch.float64)[1:-1]
    mixed = tensor + 2**-10 * (ramp.reshape(tensor.shape) - tensor.double())
    return torch.where(tensor.isfinite(), mixed, tensor).to(tensor.dtype)


EDGES = {
    "layout": Tensor.clone,
    "empty": filled,
    "negative zero": unsigned,
    "dtype": single,
    "range": moderate,
    "ties": apart,
}
